"""What a query costs, against a script that searches the same rows with LanceDB itself.

    python benchmarks/query.py [--chunks 10000] [--growth 1000 10000 100000]

Documents of ten sections whose words follow Zipf's law, indexed with the ``hash`` embedder, so that
any size can be made in minutes; the builtin embedder is timed on the same rows under another name
(its vectors are noise, its query is real). Each figure is the median of several runs, taken in
turns with its baseline; the ratios are what counts.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

SECTIONS = 10
WORDS_OF_A_SECTION = 150
VOCABULARY = 40_000
RUNS = 7
FUNCTION_WORDS = [*"abcdefghijklmnopqrstuvwxyz"]
QUESTION = "where is the {} of {} and {} kept"

BARE = "import numpy, sqlite3, typer"
LANCEDB = """
import sys, lancedb, numpy as np
table = lancedb.connect(sys.argv[1]).open_table("chunks")
vector = np.random.default_rng(1).standard_normal(int(sys.argv[3])).astype(np.float32)
from lancedb.rerankers import RRFReranker
found = (table.search(query_type="hybrid", vector_column_name="vector")
         .vector(vector / np.linalg.norm(vector)).text(sys.argv[2])
         .rerank(RRFReranker()).limit(5).to_list())
for row in found:
    print(row["id"], row["text"][:60].replace("\\n", " "))
"""


class Words:
    """A language of made-up words, the frequent ones single letters."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)
        chance = random.Random(7)
        made = {
            "".join(chance.choice("bdfglmnprstv") + chance.choice("aeiou") for _ in range(n))
            for n in (2, 3, 4, 5)
            for _ in range(VOCABULARY // 4)
        }
        self.words = np.array([*FUNCTION_WORDS, *sorted(made)])
        ranks = np.arange(1, len(self.words) + 1)
        self.weights = (1 / (ranks + 2.7)) / (1 / (ranks + 2.7)).sum()

    def text(self, n_words: int) -> str:
        chosen = self.rng.choice(self.words, n_words, p=self.weights)
        lines = [" ".join(chosen[at : at + 15]) for at in range(0, n_words, 15)]
        return ".\n".join(lines) + ".\n"

    def question(self) -> str:
        middle = self.rng.integers(100, 4000, 3)
        return QUESTION.format(*self.words[middle])


def document(words: Words, number: int) -> str:
    parts = [f"# Note {number} {words.text(3)[:-2]}\n"]
    parts += [
        f"## Part {part} {words.text(2)[:-2]}\n\n{words.text(WORDS_OF_A_SECTION)}"
        for part in range(SECTIONS)
    ]
    return "\n".join(parts)


def run(root: Path, *command: str) -> str:
    names = {f"GIT_{r}_{k}": "bench" for r in ("AUTHOR", "COMMITTER") for k in ("NAME", "EMAIL")}
    done = subprocess.run(
        command, cwd=root, env=os.environ | names, check=True, capture_output=True, text=True
    )
    return done.stdout


def kbindex(root: Path, *arguments: str) -> str:
    return run(root, sys.executable, "-m", "kbindex", *arguments)


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def in_turns(actions: Sequence[Callable[[], object]]) -> list[float]:
    """Return each action's median of RUNS, taken in turns after one run that isn't counted."""
    for action in actions:
        action()
    taken = [[seconds(action) for action in actions] for _ in range(RUNS)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def build(root: Path, n_documents: int, words: Words) -> dict[str, float]:
    """Make a repository of the size; return the seconds of first build, view and refresh."""
    for number in range(n_documents):
        file = root / f"bundle/{number % 50}/note-{number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document(words, number), encoding="utf-8")
    run(root, "git", "init", "--quiet", "--initial-branch=main")
    (root / "kbindex.toml").write_text('embedder = "hash"\nhook_max_chunks = 1000000\n')
    run(root, "git", "add", "--all")
    first_build = seconds(lambda: kbindex(root, "init", "--hooks", "none", "--embedder", "hash"))
    run(root, "git", "add", "--all")
    run(root, "git", "commit", "--quiet", "--message", "first")
    clone = root / "clone"
    run(root, "git", "clone", "--quiet", str(root), str(clone))
    first_view = seconds(lambda: kbindex(clone, "query", words.question()))
    warm = seconds(lambda: kbindex(clone, "query", words.question()))
    note = clone / "bundle/0/note-0.md"
    note.write_text(note.read_text() + "\n" + words.text(20))
    run(clone, "git", "add", "--all")
    kbindex(clone, "update")
    run(clone, "git", "commit", "--quiet", "--message", "edit")
    refresh = seconds(lambda: kbindex(clone, "query", words.question())) - warm
    return {"first build": first_build, "first view": first_view, "refresh": refresh}


def lancedb_table(clone: Path, folder: Path) -> int:
    """Write the same rows with their text into a table with a native FTS index."""
    import lancedb
    import pyarrow as pa
    from lancedb.index import FTS

    from kbindex.repo.repository import open_repository
    from kbindex.view.open import use_view

    def rows(view: object) -> tuple[list[tuple[int, str]], np.ndarray]:
        chunks = sorted(view.chunk_arrays()[0].tolist())
        return [(chunk, view.chunk(chunk).text) for chunk in chunks], np.array(view.matrix(256))

    texts, matrix = use_view(open_repository(clone), rows)
    matrix = matrix[: len(texts)]
    vector = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])
    columns = {"id": [i for i, _ in texts], "text": [t for _, t in texts], "vector": vector}
    table = lancedb.connect(folder).create_table("chunks", pa.table(columns))
    table.create_index("text", config=FTS())
    return int(matrix.shape[1])


def in_process(clone: Path, words: Words) -> tuple[float, float]:
    """Return the median seconds of a warm search, and this process' memory in MB."""
    from kbindex.embed import load_embedder
    from kbindex.repo.repository import open_repository
    from kbindex.search.hybrid import search
    from kbindex.search.request import Request
    from kbindex.view.open import use_view

    repository, embedder = open_repository(clone), load_embedder("hash")

    def all_of(view: object) -> list[float]:
        taken = []
        for _ in range(40):
            question = words.question()
            request = Request(question, embedder.embed_query(question), 0.3, with_words=True)
            taken.append(seconds(lambda r=request: search(view, repository.config, r)))
        return taken[5:]

    taken = use_view(repository, all_of)
    return statistics.median(taken), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured_alone(clone: Path) -> tuple[float, float]:
    """Do the same in a process that has done nothing else."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import query; from pathlib import Path; "
        "print(*query.in_process(Path(sys.argv[2]), query.Words()))"
    )
    out = run(clone, sys.executable, "-c", code, str(Path(__file__).parent), str(clone))
    warm, memory = map(float, out.split())
    return warm, memory


def builtin_process(clone: Path) -> Callable[[str], object]:
    """Return a query through the real embedder: only its weight is 0, the vectors aren't its own.

    The identity in the view's recipe is changed, so that the process does all that a query does.
    """
    code = (
        "import sys, kbindex.search.query as a; from kbindex.embed import load_embedder as load\n"
        "class Both:\n"
        "    def __init__(self, hashed, real): self._h, self._r = hashed, real\n"
        "    def __getattr__(self, name): return getattr(self._h, name)\n"
        "    def embed_query(self, text):\n"
        "        self._r.embed_query(text); return self._h.embed_query(text)\n"
        "a.open_embedder = lambda *_: Both(load('hash'), load('builtin'))\n"
        "sys.argv = ['kbindex', 'query', sys.argv[1]]\n"
        "from kbindex.__main__ import main; main()"
    )
    return lambda question: run(clone, sys.executable, "-c", code, question)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--growth", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    arguments = parser.parse_args()
    print(f"{'chunks':>8} {'build s':>8} {'view s':>7} {'refresh s':>9} {'query s':>8} "
          f"{'warm ms':>8} {'MB':>5}")  # fmt: skip
    for n_chunks in sorted({*arguments.growth, arguments.chunks}):
        words = Words()
        with tempfile.TemporaryDirectory(prefix="query-") as scratch:
            root = Path(scratch)
            taken = build(root, n_chunks // SECTIONS, words)
            clone = root / "clone"
            warm, memory = measured_alone(clone)
            (process,) = in_turns([lambda c=clone, w=words: kbindex(c, "query", w.question())])
            print(f"{n_chunks:8} {taken['first build']:8.1f} {taken['first view']:7.2f} "
                  f"{taken['refresh']:9.2f} {process:8.2f} {1000 * warm:8.1f} {memory:5.0f}",
                  flush=True)  # fmt: skip
            if n_chunks == arguments.chunks:
                compare(root, clone, words)


def compare(root: Path, clone: Path, words: Words) -> None:
    """Print the ratios at one size, all taken in turns."""
    script = root / "search.py"
    script.write_text(LANCEDB)
    dimension = lancedb_table(clone, root / "lancedb")
    ours = builtin_process(clone)
    ask = [sys.executable, str(script), str(root / "lancedb")]
    built_in, plain, bare = in_turns(
        [
            lambda: ours(words.question()),
            lambda: run(root, *ask, words.question(), str(dimension)),
            lambda: run(root, sys.executable, "-c", BARE),
        ]
    )
    print(f"  builtin query, a new process:   {built_in:6.2f} s")
    print(f"  LanceDB script, hybrid search:  {plain:6.2f} s, ratio {built_in / plain:.3f}")
    print(f"  {BARE}: {bare:6.2f} s, ratio {built_in / bare:.2f}")


if __name__ == "__main__":
    main()
