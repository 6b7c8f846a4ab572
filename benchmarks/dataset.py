"""A retrieval data set in BEIR's layout → a bundle and a question file for ``kbindex eval``.

    python benchmarks/dataset.py SOURCE REPOSITORY [--embedder builtin]

SOURCE holds ``corpus.jsonl`` (id, title, text), ``queries.jsonl`` (id, text), ``qrels.tsv``
(query, document, relevance) and, where it is known in which characters of a text the answer
stands, ``spans.jsonl`` (qid, doc, start, end). REPOSITORY becomes a git repository with one
document a text, indexed and committed, and ``questions.jsonl`` beside the bundle. What was
embedded before is not embedded again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]


def identifier(record: dict[str, Any]) -> str:
    return str(record.get("_id", record.get("id")))


def frontmatter(title: str) -> str:
    # A JSON string is a YAML string.
    return f"---\ntitle: {json.dumps(title, ensure_ascii=False)}\n---\n\n" if title else ""


def write_bundle(source: Path, bundle: Path) -> dict[str, int]:
    """Write the documents; return by how many characters each text was moved."""
    moved = {}
    for record in read_lines(source / "corpus.jsonl"):
        head = frontmatter(record.get("title", ""))
        file = bundle / f"{identifier(record)}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((head + record["text"] + "\n").encode())
        moved[identifier(record)] = len(head)
    return moved


def questions(source: Path, moved: dict[str, int]) -> list[dict[str, Any]]:
    """Return the question file's records: relevant documents, with the answers' spans if known."""
    relevant: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(dict)
    for line in (source / "qrels.tsv").read_text(encoding="utf-8").splitlines():
        query, document, grade = line.split("\t")
        if grade.isdigit() and int(grade) > 0 and document in moved:
            relevant[query][document] = [{"id": document}]
    spans = source / "spans.jsonl"
    for record in read_lines(spans) if spans.exists() else []:
        shift = moved[record["doc"]]
        start, end = record["start"] + shift, record["end"] + shift
        span = [start, max(end, start + 1)]
        known = relevant[record["qid"]].setdefault(record["doc"], [])
        known[:] = [k for k in known if "span" in k] + [{"id": record["doc"], "span": span}]
    return [
        {
            "id": identifier(query),
            "query": query["text"],
            "relevant": [r for records in relevant[identifier(query)].values() for r in records],
        }
        for query in read_lines(source / "queries.jsonl")
    ]


def make_repository(source: Path, root: Path, embedder: str) -> None:
    (root / "bundle").mkdir(parents=True, exist_ok=True)
    moved = write_bundle(source, root / "bundle")
    lines = [json.dumps(q, ensure_ascii=False) for q in questions(source, moved)]
    (root / "questions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = lambda *command: subprocess.run(command, cwd=root, check=True)  # noqa: E731
    if not (root / ".git").exists():
        run("git", "init", "--quiet")
    run(sys.executable, "-m", "kbindex", "init", "--hooks", "none", "--embedder", embedder)
    run("git", "add", "--all")
    run(sys.executable, "-m", "kbindex", "update")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--embedder", default="builtin")
    arguments = parser.parse_args()
    make_repository(arguments.source, arguments.repository, arguments.embedder)


if __name__ == "__main__":
    main()
