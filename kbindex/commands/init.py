"""``kbindex init``: sets a repository up. Safe to repeat; nothing of the user's is overwritten."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from kbindex.commands.update import mention_problems, render_report, run_update
from kbindex.configuration.config import Config, load_config
from kbindex.configuration.file import FILE_NAME, PYPROJECT
from kbindex.core.errors import ExitCode, NoBundleError, UsageError
from kbindex.core.text import shell_word
from kbindex.embed.select import open_embedder
from kbindex.git.client import Git
from kbindex.git.hooks import PRE_COMMIT_CONFIG
from kbindex.git.install import install_in_framework, install_shims
from kbindex.git.paths import encode_path
from kbindex.git.worktree import write_file
from kbindex.index.options import Options
from kbindex.output.console import put
from kbindex.repo.configured import read_text
from kbindex.repo.repository import Repository, open_repository
from kbindex.storage.tree import staged_index


@dataclass(frozen=True)
class InitOptions:
    """``None`` keeps what is configured, or the default."""

    bundle: str | None = None
    hooks: str | None = None
    embedder: str | None = None


def init(directory: Path | None, options: InitOptions) -> ExitCode:
    """Write configuration and hooks, build the index, stage it, and say what comes next."""
    git = Git(directory)
    git.require_worktree()
    if options.embedder is not None:
        _require_embedder(
            git, replace(open_repository(directory).config, embedder=options.embedder)
        )
    if options.bundle is not None and not (git.root / options.bundle).is_dir():
        raise NoBundleError(options.bundle.strip("/"))
    written = _configure(git, options)
    repository = open_repository(directory)
    _require_embedder(git, repository.config)
    hooks = options.hooks or _default_hooks(git)
    report, problems = _build(repository)
    if hooks == "pre-commit":
        written += install_in_framework(git)
    elif hooks == "native":
        install_shims(git)
    if (git.root / FILE_NAME).is_file():
        written.append(FILE_NAME)  # what the index was built with has to be staged with it
    if written:
        git.run("add", "--", *written)
    put(report)
    bundle = shell_word(repository.config.bundle, bare=True)
    put(f"next: git add {bundle} && git commit -m 'Add the search index'")
    return ExitCode.NEGATIVE if problems else ExitCode.OK


def _require_embedder(git: Git, config: Config) -> None:
    """Raise what is wrong with an embedder before anything is written."""
    stored = staged_index(Repository(git, config)).find_recipe()
    _ = open_embedder(config, stored, Repository(git, config).cache_dir, os.environ).identity


def _build(repository: Repository) -> tuple[str, bool]:
    report = run_update(repository.git, lambda _: Options(), worktree=True).report
    mention_problems(report.problems)
    return render_report(report), bool(report.problems)


# Configuration


def _configure(git: Git, options: InitOptions) -> list[str]:
    """Set what was asked for in the file that holds the settings; return the files written."""
    asked = {"bundle": options.bundle, "embedder": options.embedder}
    wanted = {name: value for name, value in asked.items() if value is not None}
    if options.bundle:
        wanted["bundle"] = options.bundle.strip("/") or "."
    current = read_text(git.root, FILE_NAME)
    pyproject = read_text(git.root, PYPROJECT) if current is None else None
    config = load_config(current, pyproject, {})
    wanted = {name: value for name, value in wanted.items() if getattr(config, name) != value}
    if not wanted:
        return []
    if "[tool.kbindex]" in (pyproject or ""):
        lines = ", ".join(_line(name, value) for name, value in wanted.items())
        raise UsageError(
            f"the settings stand in {PYPROJECT}", f"set there, in [tool.kbindex]: {lines}"
        )
    text = current or ""
    for name, value in wanted.items():
        text = _set_line(text, name, value)
    load_config(text, None, {})
    write_file(git.root, FILE_NAME, encode_path(text))
    return [FILE_NAME]


def _set_line(text: str, name: str, value: str) -> str:
    line = _line(name, value)
    pattern = re.compile(rf"^{name}[ \t]*=.*$", re.MULTILINE)
    if pattern.search(text):
        return pattern.sub(lambda _: line, text)
    return f"{text.rstrip()}\n{line}\n".lstrip()


def _line(name: str, value: str) -> str:
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


def _default_hooks(git: Git) -> str:
    return "pre-commit" if (git.root / PRE_COMMIT_CONFIG).exists() else "native"
