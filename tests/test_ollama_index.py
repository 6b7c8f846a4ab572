"""Whole commands with an index made through Ollama: build, commit, query, failures, upgrades.

As in test_ollama, what takes ``live`` runs against ``KBINDEX_TEST_OLLAMA`` where that is set.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from testing.documents import NOTE
from testing.fake_ollama import (
    NOT_A_NUMBER,
    TOO_LONG,
    FakeOllama,
    hash_model,
    model_server,
    serving,
)
from testing.index import forget_local_state
from testing.repositories import Repo, make_environment

HERONS = """Nine grey herons breed behind the northern boathouse. They come in February, mend the
nests of last year with willow and reed, and lay their pale eggs in March. Both birds sit on them
for four weeks. The young are fed with eels and roach from the pond, climb about in the branches
long before they can fly, and leave in June. In hard winters half of the adult birds die, and it
takes the colony three springs to recover. Visitors keep to the path on the far bank until the
last young bird has left, since a disturbed heron gives up its nest for good. Whoever counts the
nests does so from the tower, with the long telescope, on the first dry morning in April."""
LAMPS, ROTA, PLAIN = "bundle/lamps.md", "bundle/ops/rota.md", "bundle/plain.md"
RECIPE = ".kbindex/recipe.json"


@pytest.fixture(scope="module")
def running() -> Iterator[FakeOllama]:
    with serving(FakeOllama({"toy:latest": hash_model(2048)})) as state:
        yield state


@pytest.fixture
def server(running: FakeOllama) -> FakeOllama:
    running.recover({"toy:latest": hash_model(2048)})
    return running


@pytest.fixture(scope="module")
def built(running: FakeOllama, tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Three documents, indexed through the server that the repository names, committed."""
    running.recover({"toy:latest": hash_model(2048)})
    folder = tmp_path_factory.mktemp("built")
    repo = Repo(folder / "repo", make_environment(tmp_path_factory))
    repo.root.mkdir()
    repo.git("init", "--quiet", "--initial-branch=main")
    return build(repo, f'embedder = "ollama:toy"\nollama_host = "{running.url}"\n')


@pytest.fixture
def library(built: Repo, server: FakeOllama, tmp_path: Path) -> Repo:
    """A copy of ``built``, with a home of its own."""
    shutil.copytree(built.root, tmp_path / "repo", symlinks=True)
    home = tmp_path / "home"
    home.mkdir()
    return Repo(tmp_path / "repo", built.environment | {"HOME": str(home)})


def build(repo: Repo, settings: str, **variables: str) -> Repo:
    repo.write("kbindex.toml", settings)
    repo.write(LAMPS, NOTE)
    repo.write(ROTA, "# Rota\n\nInes has Monday.\n\n## Swaps\n\nAsk Jonas first.\n")
    repo.write(PLAIN, "Just a paragraph, without any heading.\n")
    done = repo.call("init", "--hooks", "native", **variables)
    assert done.code == 0, done.err
    repo.environment.update(variables)
    repo.commit("first")
    return repo


def recipe(repo: Repo) -> dict[str, object]:
    return json.loads(repo.blob(RECIPE))


def query(repo: Repo, *arguments: str, **variables: str) -> tuple[int, object, str]:
    done = repo.call("query", "wipe the lenses", "--format", "json", *arguments, **variables)
    return done.code, json.loads(done.out) if done.out else None, done.err


def commit_fails(repo: Repo) -> str:
    repo.git("add", "--all")
    done = repo.try_git("commit", "--quiet", "--message", "x")
    assert done.code == 1
    return done.err


# Building


def test_an_index_through_a_server_is_fresh_searchable_and_says_what_made_it(
    library: Repo, server: FakeOllama
) -> None:
    content = recipe(library)
    assert content["embedder"]["provider"] == "ollama"
    assert content["embedder"]["model"] == "toy"
    assert content["embedder"]["dimension"] == 256
    assert content["origin"]["server"] == "ollama 0.33.0"
    assert len(content["origin"]["canaries"]) == 4
    assert "127.0.0.1" not in json.dumps(content)
    code, answer, err = query(library)
    assert (code, err) == (0, "")
    assert answer["mode"] == "hybrid"
    assert answer["index"]["embedder"] == "ollama/toy"
    assert answer["hits"][0]["path"] == LAMPS


def test_a_check_asks_no_server(library: Repo, server: FakeOllama) -> None:
    server.forget()
    for options in ([], ["--strict"], ["--rev", "HEAD"]):
        done = library.call("check", *options)
        assert done.code == 0, done.out
    assert not server.requests


def test_a_commit_embeds_only_what_is_new(library: Repo, server: FakeOllama) -> None:
    server.forget()
    library.write(ROTA, "# Rota\n\nInes has Monday.\n\n## Swaps\n\nAsk Maria first.\n")
    library.commit()
    assert server.asked == ["Rota\n## Swaps\n\nAsk Maria first."]
    assert library.call("check", "--rev", "HEAD").code == 0


def test_a_new_clone_probes_and_goes_on(library: Repo, server: FakeOllama) -> None:
    library.git("clone", "--quiet", ".", "../clone")
    clone = Repo(library.root.parent / "clone", library.environment)
    clone.write(PLAIN, "Another paragraph.\n")
    clone.git("add", "--all")
    server.forget()
    done = clone.call("update")
    assert done.code == 0, done.err
    assert "1 embedded in 1 calls" in done.out
    assert clone.git("diff", "--cached", "--name-only", "--", RECIPE) == ""


def test_what_the_server_refuses_for_its_length_is_cut_and_the_outline_follows(
    repo: Repo, server: FakeOllama
) -> None:
    """Nothing but the server knows how long a text is for its model."""
    model = hash_model(300)
    words = model.count
    model.count = lambda text: 3 * words(text)
    server.models["toy:latest"] = model
    body = "".join(
        f"Lamp {i} burns paraffin and its lens number {i} is wiped at dawn. " for i in range(60)
    )
    repo.write("bundle/long.md", f"# Long\n\nShort.\n\n## Body\n\n{body}\n\n## After\n\nThe end.\n")
    build(repo, f'embedder = "ollama:toy"\nollama_host = "{server.url}"\n')
    assert max(map(model.count, server.asked)) <= 300
    assert any(
        call["input"] and max(map(model.count, call["input"])) > 300
        for call in server.embed_calls()
    )
    done = repo.call("check", "--strict")
    assert done.code == 0, done.out
    text = repo.blob("bundle/long.md").decode()
    lengths = [
        int(line.split("\t")[1])
        for line in repo.blob(".kbindex/outline/long.md.tsv").decode().splitlines()
        if line
    ]
    assert sum(lengths) == len(text)
    embedded = " ".join(server.asked)
    assert all(f"number {i} is" in embedded for i in range(60))
    # An edit elsewhere in the document embeds the edit and nothing else.
    repo.write("bundle/long.md", text.replace("The end.", "The very end."))
    server.forget()
    repo.commit()
    assert server.asked == ["Long\n## After\n\nThe very end."]
    assert repo.call("check", "--strict", "--rev", "HEAD").code == 0


def test_a_document_that_can_not_be_cut_small_enough_is_named(
    library: Repo, server: FakeOllama
) -> None:
    server.refuse = lambda text: (
        (400, "the input length exceeds the context length") if "Rota" not in text else None
    )
    library.write(PLAIN, "A dense paragraph of words.\n")
    library.write(ROTA, "# Rota\n\nInes has Friday.\n")
    library.git("add", "--all")
    before = library.git("rev-parse", ":.kbindex/outline/plain.md.tsv")
    done = library.call("update")
    assert done.code == 1
    assert f"{PLAIN}:1: a passage can't be made to fit the embedder's limit" in done.err
    assert library.git("rev-parse", ":.kbindex/outline/plain.md.tsv") == before
    assert b"Friday" in library.blob(ROTA, "")
    assert "Ines has Friday" in " ".join(server.asked)


def refuse_over(server: FakeOllama, n_words: int) -> None:
    server.refuse = lambda text: (400, TOO_LONG) if len(text.split()) > n_words else None


def test_a_text_that_is_refused_when_it_is_embedded_again_is_cut(
    library: Repo, server: FakeOllama
) -> None:
    library.write("bundle/herons.md", f"# Herons\n\n{HERONS}\n")
    library.commit()
    refuse_over(server, 30)  # two rounds of cutting
    server.forget()
    done = library.call("update", "--re-embed", "bundle")
    assert done.code == 0, done.err
    assert "1 unchanged ones indexed anew" in done.out
    assert len(server.asked) == len(set(server.asked)), "nothing is embedded twice"
    assert HERONS[-30:] in " ".join(server.asked)
    done = library.call("check", "--strict")
    assert done.code == 0, done.out


def test_a_lost_vector_whose_text_is_refused_now_is_not_forgotten(
    library: Repo, server: FakeOllama
) -> None:
    library.write("bundle/herons.md", f"# Herons\n\n{HERONS}\n")
    library.commit()
    library.git("rm", "-r", "--quiet", ".kbindex/wal", ".kbindex/chunks.lance")
    library.git("checkout", "--quiet", "--orphan", "without-rows")
    library.git("commit", "--quiet", "--no-verify", "--message", "no rows")
    forget_local_state(library)
    refuse_over(server, 30)
    done = library.call("update")
    assert done.code == 0, done.err
    done = library.call("check", "--strict")
    assert done.code == 0, done.out


def test_what_can_not_be_embedded_again_keeps_its_vector(library: Repo, server: FakeOllama) -> None:
    server.refuse = lambda text: (400, TOO_LONG) if "Rota" not in text else None
    done = library.call("update", "--re-embed", "bundle")
    assert done.code == 1
    assert f"{PLAIN}:1: a passage can't be made to fit the embedder's limit" in done.err
    done = library.call("check")
    assert done.code == 0, done.out


def test_a_document_that_can_not_be_embedded_keeps_what_it_had(
    library: Repo, server: FakeOllama
) -> None:
    server.refuse = lambda text: (400, NOT_A_NUMBER) if "cursed" in text else None
    library.write(PLAIN, "A cursed paragraph.\n")
    library.write(ROTA, "# Rota\n\nInes has Friday.\n")
    outline = ":.kbindex/outline/plain.md.tsv"
    before = library.git("rev-parse", outline)
    message = commit_fails(library)
    assert f"{PLAIN}: a passage can't be embedded: toy gives no numbers for it" in message
    assert "the commit is stopped" in message
    assert library.git("rev-parse", outline) == before


def test_an_interrupted_build_resumes_and_embeds_nothing_twice(
    repo: Repo, server: FakeOllama
) -> None:
    server.delay = 0.1
    repo.write("kbindex.toml", f'embedder = "ollama:toy"\nollama_host = "{server.url}"\n')
    for i in range(60):
        repo.write(f"bundle/{i}.md", f"# Note {i}\n\nLamp number {i}.\n")
    repo.git("add", "--all")
    process = subprocess.Popen(
        [sys.executable, "-m", "kbindex", "update"],
        cwd=repo.root,
        env=repo.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not any("Lamp number 20." in text for text in server.asked):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted; work done so far is kept" in err
    assert repo.git("ls-files", ".kbindex") == ""
    server.delay = 0.0
    done = repo.call("update")
    assert done.code == 0, done.err
    notes = [text for text in server.asked if text.startswith("Note")]
    assert len(set(notes)) == 60
    assert len(notes) <= 60 + 8  # the batch that was under way
    assert repo.call("check").code == 0


def test_a_server_that_dies_ends_the_build_and_the_rest_follows_later(
    repo: Repo, server: FakeOllama
) -> None:
    repo.write("kbindex.toml", f'embedder = "ollama:toy"\nollama_host = "{server.url}"\n')
    for i in range(30):
        repo.write(f"bundle/{i}.md", f"# Note {i}\n\nLamp number {i}.\n")
    repo.git("add", "--all")
    server.refuse = lambda _text: (
        (500, "llama runner process has terminated") if len(server.asked) > 30 else None
    )
    done = repo.call("update")
    assert done.code == 4, done.err
    assert "fails for every text: fails with HTTP 500: llama runner process" in done.err
    assert "what is embedded so far is kept" in done.err
    assert repo.git("ls-files", ".kbindex") == ""
    server.refuse = lambda _text: None
    n_before = len(server.asked)
    done = repo.call("update")
    assert done.code == 0, done.err
    assert n_before + 30 > len(server.asked)
    notes = [text for text in server.asked if text.startswith("Note")]
    assert len(notes) == len(set(notes)) == 30


# Querying


@pytest.fixture(params=["down", "model missing"])
def unusable(request: pytest.FixtureRequest, library: Repo, server: FakeOllama) -> Repo:
    if request.param == "down":
        library.environment["OLLAMA_HOST"] = "127.0.0.1:9"
    else:
        server.models.clear()
    return library


def test_without_its_server_a_query_is_answered_from_words_and_says_so(unusable: Repo) -> None:
    code, answer, err = query(unusable)
    assert code == 0
    assert answer["mode"] == "lexical"
    assert answer["degraded"].startswith("answered from words alone: Ollama at http://127.0.0.1")
    assert answer["degraded"] in err
    assert answer["hits"][0]["path"] == LAMPS
    assert query(unusable, "--mode", "lexical")[::2] == (0, "")


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_without_its_server_a_query_by_meaning_fails(unusable: Repo, mode: str) -> None:
    code, answer, err = query(unusable, "--mode", mode)
    assert (code, answer) == (4, None)
    assert re.search(r"remedy: (start it \('ollama serve'\)|ollama pull toy)", err)


def test_a_hung_runner_holds_a_query_for_seconds_and_a_commit_once(
    library: Repo, server: FakeOllama
) -> None:
    server.is_hung = True
    began = time.monotonic()
    code, answer, _ = query(library, KBINDEX_QUERY_TIMEOUT="1")
    assert (code, answer["mode"]) == (0, "lexical")
    assert "words alone: Ollama at " in answer["degraded"]
    assert "gives no answer in time (1 s)" in answer["degraded"]
    assert time.monotonic() - began < 10
    library.write(PLAIN, "Another paragraph.\n")
    server.forget()
    library.environment["KBINDEX_OLLAMA_TIMEOUT"] = "1"
    assert "gives no answer in time (1 s)" in commit_fails(library)
    assert len(server.embed_calls()) == 1


def swap_digest(server: FakeOllama) -> dict[str, str]:
    server.models["toy:latest"].weights = "0123456789abcdef" * 4
    return {}


def swap_dimension(server: FakeOllama) -> dict[str, str]:
    model = server.models["toy:latest"]
    whole = model.embed
    model.embed = lambda text: whole(text)[:128]
    server.version = "0.13.0"
    return {}


def swap_model(server: FakeOllama) -> dict[str, str]:
    server.models["other:latest"] = hash_model()
    return {"KBINDEX_EMBEDDER": "ollama:other"}


def swap_model_with_server_down(_server: FakeOllama) -> dict[str, str]:
    return {"KBINDEX_EMBEDDER": "ollama:other", "OLLAMA_HOST": "127.0.0.1:9"}


def swap_provider(_server: FakeOllama) -> dict[str, str]:
    return {"KBINDEX_EMBEDDER": "hash"}


def swap_prefix(_server: FakeOllama) -> dict[str, str]:
    return {"KBINDEX_QUERY_PREFIX": "query: "}


def swap_computation(server: FakeOllama) -> dict[str, str]:
    server.version = "0.99.0"
    server.change = lambda text, vector: vector[::-1] if text.isupper() else vector
    return {}


@pytest.mark.parametrize(
    ("swap", "named"),
    [
        (swap_digest, "embedder digest: sha256:"),
        (swap_dimension, "embedder dimension: 256 → 128"),
        (swap_model, "embedder: ollama/toy → ollama/other"),
        (swap_model_with_server_down, "embedder: ollama/toy → ollama/other"),
        (swap_provider, "embedder: ollama/toy → hash/feature-hashing"),
        (swap_prefix, 'embedder query_prefix: "" → "query: "'),
        (
            swap_computation,
            "embedder's computation, of the same weights: ollama 0.33.0 → ollama 0.99.0",
        ),
    ],
)
def test_vectors_of_another_identity_are_never_compared(
    library: Repo,
    server: FakeOllama,
    swap: Callable[[FakeOllama], dict[str, str]],
    named: str,
) -> None:
    for name in ("servers.json",):  # as in a clone that has not seen this server yet
        (library.root / ".git/kbindex" / name).unlink()
    variables = swap(server)
    for mode in ("auto", "dense") if swap is not swap_digest else ("auto", "dense", "hybrid"):
        code, answer, err = query(library, "--mode", mode, **variables)
        assert (code, answer) == (3, None), err
        assert "their vectors can't be compared" in err
        is_alike = swap in (swap_digest, swap_dimension, swap_prefix, swap_computation)
        assert ("by another ollama/toy than the one here" in err) == is_alike
        assert named in err
        assert "remedy: kbindex update" in err
    assert query(library, "--mode", "lexical", **variables)[0] == 0


def test_a_query_with_a_known_server_makes_three_calls(library: Repo, server: FakeOllama) -> None:
    query(library)
    server.forget()
    query(library)
    assert [path for path, _ in server.requests] == ["/api/version", "/api/tags", "/api/embed"]


# The server changes


def test_an_upgraded_server_that_computes_the_same_leaves_the_recipe_alone(
    library: Repo, server: FakeOllama
) -> None:
    before = library.blob(RECIPE)
    server.version = "0.99.0"
    library.write(PLAIN, "Another paragraph.\n")
    library.commit()
    library.git("add", "--all")
    assert library.call("update").code == 0
    assert library.git("status", "--porcelain") == ""
    assert library.blob(RECIPE) == before
    assert b"0.33.0" in before


def test_an_upgraded_server_that_computes_otherwise_is_another_embedder(
    library: Repo, server: FakeOllama
) -> None:
    swap_computation(server)
    library.write(PLAIN, "Another paragraph.\n")
    named = "embedder's computation, of the same weights: ollama 0.33.0 → ollama 0.99.0"
    assert f"the index was made with another recipe: {named}" in commit_fails(library)
    done = library.call("update")
    assert done.code == 0, done.err
    assert f"recipe: {named}\n" in done.out
    assert " 0 kept, 0 reused" in done.out
    content = recipe_of_index(library)
    assert content["origin"]["server"] == "ollama 0.99.0"
    library.commit()
    assert query(library)[0] == 0
    assert library.call("check", "--strict").code == 0


def recipe_of_index(repo: Repo) -> dict[str, object]:
    return json.loads(repo.blob(RECIPE, ""))


def test_a_commit_that_needs_no_vector_needs_no_server(library: Repo) -> None:
    library.environment["OLLAMA_HOST"] = "127.0.0.1:9"
    library.git("mv", PLAIN, "bundle/renamed.md")
    library.git("rm", "--quiet", ROTA)
    library.commit()
    assert library.call("check", "--rev", "HEAD").code == 0
    library.write("bundle/new.md", "# New\n\nSomething else.\n")
    message = commit_fails(library)
    assert "Ollama at http://127.0.0.1:9 can't be reached" in message
    assert "remedy: start it ('ollama serve')" in message


def test_init_and_checkpoint_of_an_index_that_stands_need_no_server(library: Repo) -> None:
    library.environment["OLLAMA_HOST"] = "127.0.0.1:9"
    for verb in (["init"], ["checkpoint"], ["update", "--dry-run"]):
        done = library.call(*verb)
        assert done.code == 0, (verb, done.err)
    assert library.git("status", "--porcelain") == ""


# Whom text may be sent to


@pytest.fixture
def elsewhere(library: Repo, server: FakeOllama) -> str:
    """A host that is reachable, and for all kbindex may know is not this machine."""
    host = server.url.replace("127.0.0.1", "127.1")
    library.write("kbindex.toml", f'embedder = "ollama:toy"\nollama_host = "{host}"\n')
    library.git("add", "--all")
    library.git("commit", "--quiet", "--no-verify", "--message", "another host")
    server.forget()
    return host


def test_a_repository_can_not_send_text_to_a_host_of_its_choice(
    library: Repo, server: FakeOllama, elsewhere: str
) -> None:
    code, answer, err = query(library)
    assert (code, answer["mode"]) == (0, "lexical")
    assert f"would send text to {elsewhere}, which you have not approved" in answer["degraded"]
    code, _, err = query(library, "--mode", "dense")
    assert code == 4
    assert f"remedy: kbindex doctor --trust-host {elsewhere}" in err
    library.write(PLAIN, "A secret paragraph.\n")
    assert "which you have not approved" in commit_fails(library)
    done = library.call("update")
    assert done.code == 4, done.err
    assert library.call("doctor").code == 1
    assert not server.requests


def test_a_host_that_the_user_approved_is_used_in_hooks_too(
    library: Repo, server: FakeOllama, elsewhere: str
) -> None:
    done = library.call("doctor", "--trust-host", elsewhere, cwd=library.root.parent)
    assert done.code == 0
    assert f"approved: {elsewhere}" in done.out
    assert query(library)[1]["mode"] == "hybrid"
    library.write(PLAIN, "A paragraph for the approved host.\n")
    library.commit()
    assert server.asked[-1] == "A paragraph for the approved host."
    approvals = f"{library.environment['HOME']}/.config/kbindex/trusted-hosts"
    assert elsewhere in open(approvals, encoding="utf-8").read()  # noqa: PTH123, SIM115
    assert "approved by you" in library.call("doctor").out


@pytest.mark.parametrize("other", ["https://127.1:{port}", "http://127.1:1", "http://127.2:{port}"])
def test_an_approval_is_of_one_scheme_host_and_port(
    library: Repo, server: FakeOllama, elsewhere: str, other: str
) -> None:
    port = elsewhere.rsplit(":", 1)[1]
    library.call("doctor", "--trust-host", other.format(port=port))
    assert query(library)[1]["mode"] == "lexical"
    assert not server.requests


def test_approvals_stand_in_the_users_own_configuration(
    library: Repo, server: FakeOllama, elsewhere: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("config")
    library.call("doctor", "--trust-host", elsewhere, XDG_CONFIG_HOME=str(folder))
    assert elsewhere in (folder / "kbindex/trusted-hosts").read_text()
    assert query(library)[1]["mode"] == "lexical"
    assert query(library, XDG_CONFIG_HOME=str(folder))[1]["mode"] == "hybrid"
    # A relative folder is none, by the standard: it could lead into the repository.
    library.write(".config/kbindex/trusted-hosts", f"{elsewhere}\n")
    assert query(library, XDG_CONFIG_HOME=".config")[1]["mode"] == "lexical"


@pytest.mark.parametrize("variable", ["OLLAMA_HOST", "KBINDEX_OLLAMA_HOST"])
def test_a_host_in_the_users_environment_is_the_users_own(
    library: Repo, server: FakeOllama, elsewhere: str, variable: str
) -> None:
    library.write("kbindex.toml", 'embedder = "ollama:toy"\nollama_host = "evil.example"\n')
    code, answer, err = query(library, **{variable: elsewhere.removeprefix("http://")})
    assert (code, answer["mode"], err) == (0, "hybrid", "")


@pytest.mark.parametrize(
    "host", ["http://127.0.0.1@evil.example", "localhost:80@evil.example", "http://[::1]evil"]
)
def test_a_host_that_could_be_read_in_two_ways_is_a_mistake(library: Repo, host: str) -> None:
    library.write("kbindex.toml", f'embedder = "ollama:toy"\nollama_host = "{host}"\n')
    code, _, err = query(library)
    assert code == 2
    assert f"'{host}' does not name a server" in err
    assert library.call("doctor", "--trust-host", host).code == 2


def test_a_model_of_the_cloud_needs_approval_although_the_server_is_here(
    library: Repo, server: FakeOllama
) -> None:
    """Ollama passes what it gets for such a model on to its makers."""
    server.models["big:120b-cloud"] = server.models["toy:latest"]
    library.write("kbindex.toml", 'embedder = "ollama:big:120b-cloud"\n')
    library.write(PLAIN, "A secret paragraph.\n")
    library.git("add", "--all")
    server.forget()
    done = library.call("update", OLLAMA_HOST=server.url)
    assert done.code == 4
    assert "would send text to https://ollama.com:443, which you have not approved" in done.err
    assert not server.requests
    library.call("doctor", "--trust-host", "https://ollama.com")
    assert (
        "https://ollama.com:443"
        in open(  # noqa: PTH123, SIM115
            f"{library.environment['HOME']}/.config/kbindex/trusted-hosts", encoding="utf-8"
        ).read()
    )
    done = library.call("update", OLLAMA_HOST=server.url)
    assert done.code == 0, done.err


def test_doctor_names_the_release_that_answers(library: Repo, server: FakeOllama) -> None:
    server.version = "0.99.0"  # the recipe names another
    done = library.call("doctor")
    assert done.code == 0, done.out
    assert "ollama/toy, 256 dimensions, ollama 0.99.0" in done.out


def test_doctor_finds_a_server_that_cuts_texts(library: Repo, server: FakeOllama) -> None:
    server.ignores_truncate = True
    server.version = "0.14.0"  # as yet unknown to this clone
    done = library.call("doctor")
    assert done.code == 1, done.out
    (line,) = (line for line in done.out.splitlines() if line.startswith("error"))
    assert "(ollama 0.14.0)" in line
    assert "cuts long texts for toy although it is told not to" in line
    assert "remedy: another release of Ollama" in done.out
    library.write(PLAIN, "Another paragraph.\n")
    assert "cuts long texts" in commit_fails(library)


def test_an_approval_of_this_machine_is_not_needed(library: Repo) -> None:
    done = library.call("doctor", "--trust-host", "localhost")
    assert (done.code, done.out) == (0, "")
    assert "needs no approval" in done.err


# A real server, where there is one


@pytest.fixture
def live() -> Iterator[tuple[str, str]]:
    """A server with a model that knows meanings: (url, model)."""
    with model_server() as named:
        yield named


@pytest.mark.model
def test_the_end_of_a_long_document_is_found_by_its_meaning(
    repo: Repo, live: tuple[str, str]
) -> None:
    url, model = live
    filler = " ".join(f"On day {i} the keeper wiped lens {i} before the fog." for i in range(80))
    repo.write("bundle/long.md", f"{filler}\n\n{HERONS}\n")
    build(repo, f'embedder = "ollama:{model}"\n', OLLAMA_HOST=url)
    options = ["--mode", "dense", "--text", "--format", "json", "--path", "long.md"]
    done = repo.call("query", "where do birds breed", "--per-doc", "9", *options)
    assert done.code == 0, done.err
    (hit, *others) = done.json()["hits"]
    assert "herons" in hit["text"]
    assert len(others) > 1
    assert repo.call("check", "--strict").code == 0
    vectors = _vectors_of(repo, "bundle/long.md")
    mean = np.mean(vectors, axis=0)
    assert len(vectors) > 2
    assert float(mean @ vectors[0]) / float(np.linalg.norm(mean)) < 1 - 1e-4
    done = repo.call("doctor", "--format", "json")
    assert done.code == 0, done.out
    assert done.json()["healthy"]


def _vectors_of(repo: Repo, path: str) -> list[np.ndarray]:
    import lancedb

    table = lancedb.connect(repo.root / ".kbindex").open_table("chunks").to_arrow().to_pylist()
    rows = sorted((row for row in table if row["path"] == path), key=lambda r: r["ordinal"])
    assert all(a["char_end"] <= b["char_start"] for a, b in pairwise(rows))
    return [np.array(row["vector"], np.float32) for row in rows]


@pytest.mark.model
def test_a_second_build_of_the_same_bundle_embeds_nothing(
    repo: Repo, live: tuple[str, str]
) -> None:
    build(repo, f'embedder = "ollama:{live[1]}"\n', OLLAMA_HOST=live[0])
    before = repo.blob(RECIPE)
    assert base64.b64decode(json.loads(before)["origin"]["canaries"][0])
    repo.git("rm", "-r", "--quiet", "--cached", ".kbindex")
    done = repo.call("update")
    assert done.code == 0, done.err
    assert " 0 embedded in 0 calls" in done.out
    assert repo.blob(RECIPE, "") == before


@pytest.mark.parametrize("name", ["ollama:bge-m3", "ollama:", "ollama:big:120b-cloud"])
def test_init_writes_nothing_for_an_embedder_that_can_not_be_used(
    repo: Repo, server: FakeOllama, name: str
) -> None:
    repo.write("kbindex.toml", 'embedder = "hash"\n')
    repo.write(PLAIN, "Just a paragraph.\n")
    before = sorted(repo.root.rglob("*"))
    done = repo.call("init", "--embedder", name, OLLAMA_HOST=server.url)
    assert done.code == (2 if name == "ollama:" else 4)
    assert "remedy: " in done.err
    assert repo.root.joinpath("kbindex.toml").read_text() == 'embedder = "hash"\n'
    assert [path for path in sorted(repo.root.rglob("*")) if path not in before] == []


@pytest.mark.parametrize("swap", [swap_digest, swap_computation])
def test_an_audit_names_a_server_that_is_another_embedder_by_now(
    library: Repo, server: FakeOllama, swap: Callable[[FakeOllama], dict[str, str]]
) -> None:
    swap(server)
    done = library.call("check", "--audit", "3", "--format", "json")
    assert done.code == 3, done.err
    assert [problem["rule"] for problem in done.json()["problems"]] == ["recipe-mismatch"]
    assert "nothing was audited" in done.err


def test_whose_answers_move_is_said_from_words_while_the_server_is_down(library: Repo) -> None:
    library.write("q.jsonl", '{"id": "q", "query": "paragraph", "relevant": [{"id": "plain"}]}')
    library.write(PLAIN, "Just an otter, without any heading.\n")
    library.commit()
    library.environment["OLLAMA_HOST"] = "127.0.0.1:9"
    done = library.call("diff", "HEAD~1", "HEAD", "--queries", "q.jsonl")
    assert done.code == 0, done.err
    assert "words alone" in done.err
    assert "answers move for 1 of 1 questions" in done.out


@pytest.mark.parametrize(
    "variables",
    [{"HTTP_PROXY": "foo://x"}, {"ALL_PROXY": "socks5://127.0.0.1:9"}, {"SSL_CERT_FILE": "/none"}],
)
def test_a_proxy_or_certificate_that_can_not_be_used_is_no_bug(
    library: Repo, variables: dict[str, str]
) -> None:
    host = {"OLLAMA_HOST": "https://ollama.invalid"}
    done = library.call("query", "paragraph", "--mode", "dense", **host, **variables)
    assert done.code == 4, done.err
