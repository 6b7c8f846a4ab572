"""``kbindex init``: sets a repository up. Safe to repeat; nothing of the user's is overwritten."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from kbindex.commands.update import mention_problems, render_report, run_update
from kbindex.configuration.config import Config, load_config
from kbindex.configuration.edit import set_values
from kbindex.configuration.file import FILE_NAME, PYPROJECT, TABLE, read_settings
from kbindex.core.errors import ExitCode, NoBundleError
from kbindex.core.text import shell_word
from kbindex.embed.select import open_embedder
from kbindex.git.client import Git
from kbindex.git.hooks import PRE_COMMIT_CONFIG
from kbindex.git.install import install_in_framework, install_shims
from kbindex.git.paths import encode_path
from kbindex.git.worktree import write_file
from kbindex.index.options import Options
from kbindex.output.console import note, put
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
    has_other_edits = bool(git.index.changed_in_worktree(PYPROJECT))
    written = _configure(git, options)
    if has_other_edits and PYPROJECT in written:
        written.remove(PYPROJECT)  # what else was edited there is not ours to stage
        note(f"{PYPROJECT} has other unstaged changes: stage it with git add -- {PYPROJECT}")
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
    name, text = FILE_NAME, current or ""
    table: tuple[str, ...] = ()
    if pyproject is not None and read_settings(None, pyproject):
        name, text, table = PYPROJECT, pyproject, TABLE
    edited = set_values(text, wanted, table)
    in_pyproject = edited if name == PYPROJECT else None
    load_config(None if in_pyproject else edited, in_pyproject, {})
    write_file(git.root, name, encode_path(edited))
    return [name]


def _default_hooks(git: Git) -> str:
    return "pre-commit" if (git.root / PRE_COMMIT_CONFIG).exists() else "native"
