"""The adapter of ``benchmarks/`` from data sets to bundles and question files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from testing.repositories import Repo

ADAPTER = Path(__file__).resolve().parent.parent / "benchmarks/dataset.py"
TEXT = "The lamp is lit at dusk. Paraffin is fetched from the cellar on Mondays.\n"


def test_a_data_set_becomes_a_bundle_and_a_question_file(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    source = tmp_path / "set"
    source.mkdir()
    corpus = [
        {"_id": "lamps", "title": 'The "lamps"', "text": TEXT},
        {"_id": "horns", "title": "", "text": "The foghorn sounds twice."},
    ]
    queries = [{"_id": "q1", "text": "where is paraffin kept"}, {"_id": "q2", "text": "foghorn"}]
    for name, records in (("corpus", corpus), ("queries", queries)):
        lines = (json.dumps(record) for record in records)
        (source / f"{name}.jsonl").write_text("\n".join(lines))
    (source / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tlamps\t1\nq2\thorns\t1\n")
    start = TEXT.index("the cellar")
    span = {"qid": "q1", "doc": "lamps", "start": start, "end": start + 10}
    (source / "spans.jsonl").write_text(json.dumps(span))
    repo = Repo(tmp_path / "repo", environment)
    subprocess.run(
        [sys.executable, ADAPTER, source, repo.root, "--embedder", "hash"],
        env=environment,
        check=True,
        capture_output=True,
    )
    first = json.loads((repo.root / "questions.jsonl").read_text().splitlines()[0])
    start, end = first["relevant"][0]["span"]
    assert (repo.root / "bundle/lamps.md").read_text()[start:end] == "the cellar"
    done = repo.call("eval", "questions.jsonl", "--format", "json")
    assert done.code == 0, done.err
    assert done.json()["modes"]["hybrid"]["span-hit@5"] == 1.0
    assert done.json()["modes"]["lexical"]["recall@5"] == 1.0
