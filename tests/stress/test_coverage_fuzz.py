"""A bounded run of each target of ``fuzz.py``, from seeds that the writers make."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbindex.configuration.config import Config
from kbindex.configuration.recipe import render_recipe, wanted_recipe
from kbindex.embed.hashing import HashEmbedder
from kbindex.storage.table import append_rows
from kbindex.storage.wal import encode_wal
from test_table_files import made_rows
from testing.documents import NOTE

pytestmark = pytest.mark.stress
SECONDS = int(os.environ.get("KBINDEX_STRESS_FUZZ_SECONDS", "20"))


def seeds() -> dict[str, bytes]:
    rows, vectors = made_rows(2, 5)
    table = append_rows(rows, vectors, None)
    (manifest,) = (content for name, content in table.items() if name.endswith(".manifest"))
    (data,) = (content for name, content in table.items() if name.endswith(".lance"))
    recipe = wanted_recipe(Config(), HashEmbedder.identity)
    return {
        "wal": encode_wal(rows, vectors)[1],
        "manifest": manifest,
        "data_file": b"\x05" + data,
        "recipe": render_recipe(recipe).encode(),
        "outline": b"text\0" + f"{'0' * 32}\t4\t1\t0\t\n\n".encode(),
        "document": NOTE.encode(),
        "configuration": b'bundle = "docs"\ninclude = ["*.md"]\nchunk_tokens = 256\n',
        "questions": b'{"id": "1", "query": "q", "relevant": [{"id": "a", "span": [1, 2]}]}\n',
    }


@pytest.mark.parametrize("target", sorted(seeds()))
def test_a_target_survives_a_bounded_run(target: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "seed").write_bytes(seeds()[target])
    script = Path(__file__).with_name("fuzz.py")
    options = (f"-max_total_time={SECONDS}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=60000")
    done = subprocess.run(
        [sys.executable, str(script), target, str(corpus), *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
