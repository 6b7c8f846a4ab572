"""What an index costs in git: ours against one LanceDB table kept by merge_insert and optimize.

    python benchmarks/git_cost.py [--documents 1000] [--commits 48]

1,000 documents of ten chunks; then 48 commits that each edit one document, once in one chunk and
once in all ten; then ``git gc``. Counted is what the commits add below the index folder, with its
trees, for an embedded chunk whose vector is 768 bytes (384 × float16) that don't compress.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import kbindex.commands.update as update
from kbindex.core.model import EmbedderIdentity, Origin
from kbindex.git.client import Git
from kbindex.index.options import Options
from kbindex.storage.writer import Checkpoint

MATERIAL = Path(__file__).parent.parent / "tests/material/bundle"
WORDS = MATERIAL / "sources/design-review-transcript.md"
CHUNKS = 10
DIMENSION = 384


class NoiseEmbedder:
    """Unit vectors that look like noise to a compressor, decided by the text."""

    identity = EmbedderIdentity("benchmark", "noise", "1", DIMENSION)
    origin = Origin()
    max_tokens = 8192
    dense_weight = 0.4
    n_parallel = 1

    def count_tokens(self, text: str) -> int:
        return len(text) // 4

    def embed_documents(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> np.ndarray:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        vector = np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
        return vector / np.linalg.norm(vector)


class Repository:
    """A repository of documents with ten sections, a chunk each."""

    def __init__(self, root: Path, n_documents: int) -> None:
        self.root = root
        self.rng = random.Random(5)
        self.words = WORDS.read_text(encoding="utf-8").split()[200:]
        self.git("init", "--quiet", "--initial-branch=main")
        self.texts = [[self.section(i, k) for k in range(CHUNKS)] for i in range(n_documents)]
        for number in range(n_documents):
            self.write(number)

    def git(self, *arguments: str) -> str:
        names = {
            f"GIT_{r}_{k}": "bench" for r in ("AUTHOR", "COMMITTER") for k in ("NAME", "EMAIL")
        }
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env=os.environ | names,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def section(self, document: int, number: int) -> str:
        start = self.rng.randrange(len(self.words) - 200)
        body = " ".join(self.words[start : start + 150])
        return f"## Part {number} of {document}\n\n{body}\n"

    def write(self, number: int) -> None:
        file = self.root / f"bundle/{number % 20}/note-{number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(self.texts[number]), encoding="utf-8")

    def edit(self, n_chunks: int) -> int:
        number = self.rng.randrange(len(self.texts))
        for k in self.rng.sample(range(CHUNKS), n_chunks):
            self.texts[number][k] = self.section(number, k)
        self.write(number)
        return number

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "edit")
        return self.git("rev-parse", "HEAD")

    def cost(self, base: str, folder: str) -> int:
        """Return the bytes that the commits since ``base`` take in the pack below ``folder``."""
        self.git("gc", "--quiet", "--prune=now")
        listing = self.git("rev-list", "--objects", f"{base}..HEAD", "--", folder)
        wanted = [
            line.split(" ", 1)[0]
            for line in listing.splitlines()
            if " " in line and line.split(" ", 1)[1].startswith(folder)
        ]
        done = subprocess.run(
            ["git", "cat-file", "--batch-check=%(objectsize:disk)"],
            cwd=self.root,
            input="\n".join(wanted),
            check=True,
            capture_output=True,
            text=True,
        )
        return sum(map(int, done.stdout.split()))


def run_ours(root: Path, arguments: argparse.Namespace, n_chunks: int) -> dict[str, float]:
    repo = Repository(root, arguments.documents)
    update.open_embedder = lambda *_: NoiseEmbedder()
    git = Git(root)

    def step() -> float:
        repo.git("add", "--all")
        began = time.monotonic()
        options = Options(checkpoint=Checkpoint.WHEN_DUE)
        update.run_update(git, lambda _: options)
        return time.monotonic() - began

    step()
    base = repo.commit()
    seconds = []
    for _ in range(arguments.commits):
        repo.edit(n_chunks)
        seconds.append(step())
        repo.commit()
    n_files = len(repo.git("ls-files", ".kbindex/chunks.lance").splitlines())
    cost = repo.cost(base, ".kbindex") / (arguments.commits * n_chunks)
    return {"bytes": cost, "seconds": float(np.median(seconds)), "files": n_files}


def run_baseline(root: Path, arguments: argparse.Namespace, n_chunks: int) -> dict[str, float]:
    """Keep (id, vector, text) rows in one table: upsert what changed, optimize, commit."""
    import lancedb
    import pyarrow as pa

    repo = Repository(root, arguments.documents)
    embedder = NoiseEmbedder()

    def rows(numbers: Sequence[int]) -> pa.Table:
        keys = [(n, k) for n in numbers for k in range(CHUNKS)]
        texts = [repo.texts[n][k] for n, k in keys]
        vectors = embedder.embed_documents(texts).astype(np.float16)
        flat = pa.array(vectors.reshape(-1), pa.float16())
        vector = pa.FixedSizeListArray.from_arrays(flat, DIMENSION)
        return pa.table({"id": [f"{n}/{k}" for n, k in keys], "vector": vector, "text": texts})

    database = lancedb.connect(root / "index")
    table = database.create_table("chunks", rows(range(arguments.documents)))
    base = repo.commit()
    seconds = []
    for _ in range(arguments.commits):
        number = repo.edit(n_chunks)
        began = time.monotonic()
        upsert = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        upsert.execute(rows([number]))
        table.optimize()
        seconds.append(time.monotonic() - began)
        repo.commit()
    n_files = len(repo.git("ls-files", "index").splitlines())
    cost = repo.cost(base, "index") / (arguments.commits * n_chunks)
    return {"bytes": cost, "seconds": float(np.median(seconds)), "files": n_files}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--commits", type=int, default=48)
    arguments = parser.parse_args()
    print(f"{'chunks a commit':>15} {'':9} {'bytes a chunk':>13} {'s a commit':>10} {'files':>6}")
    for n_chunks in (1, CHUNKS):
        results = []
        for name, run in (("kbindex", run_ours), ("baseline", run_baseline)):
            with tempfile.TemporaryDirectory(prefix="git-cost-") as scratch:
                result = run(Path(scratch), arguments, n_chunks)
            results.append(result)
            print(
                f"{n_chunks:15} {name:9} {result['bytes']:13.0f} {result['seconds']:10.2f}"
                f" {result['files']:6.0f}"
            )
        ratio = results[0]["bytes"] / results[1]["bytes"]
        print(f"{n_chunks:15} ratio     {ratio:13.4f}")


if __name__ == "__main__":
    main()
