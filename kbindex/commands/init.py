"""``kbindex init``: sets a repository up. Safe to repeat; nothing of the user's is overwritten."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from kbindex.build import Options
from kbindex.choose import open_embedder
from kbindex.commands.update import mention_problems, render_report, run_update
from kbindex.config import FILE_NAME, PYPROJECT, Config, load_config
from kbindex.console import note, put
from kbindex.errors import ExitCode, NoBundleError, UsageError
from kbindex.git import Git
from kbindex.hooks import (
    HOOK_TYPES,
    KEPT_SUFFIX,
    PRE_COMMIT_CONFIG,
    SHIM_MARK,
    framework_entry,
    shim,
)
from kbindex.repository import Repository, open_repository
from kbindex.snapshot import find_recipe, read_staged_snapshot


@dataclass(frozen=True)
class InitOptions:
    """``None`` keeps what is configured, or the default."""

    bundle: str | None = None
    hooks: str | None = None
    embedder: str | None = None


def init(directory: Path | None, options: InitOptions) -> ExitCode:
    """Write configuration and hooks, build the index, stage it, and say what comes next."""
    git = Git(directory)
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
        written += _set_up_framework(git)
    elif hooks == "native":
        _install_shims(git)
    if (git.root / FILE_NAME).is_file():
        written.append(FILE_NAME)  # what the index was built with has to be staged with it
    if written:
        git.run("add", "--", *written)
    put(report)
    put(f"next: git add {repository.config.bundle} && git commit -m 'Add the search index'")
    return ExitCode.NEGATIVE if problems else ExitCode.OK


def _require_embedder(git: Git, config: Config) -> None:
    """Raise what is wrong with an embedder before anything is written."""
    stored = find_recipe(git, read_staged_snapshot(git, config), config)
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
    file, pyproject = git.root / FILE_NAME, git.root / PYPROJECT
    current = _text(file)
    config = load_config(current, _text(pyproject), {})
    wanted = {name: value for name, value in wanted.items() if getattr(config, name) != value}
    if not wanted:
        return []
    if current is None and _has_table(pyproject):
        lines = ", ".join(f'{name} = "{value}"' for name, value in wanted.items())
        raise UsageError(
            f"the settings stand in {PYPROJECT}", f"set there, in [tool.kbindex]: {lines}"
        )
    text = current or ""
    for name, value in wanted.items():
        text = _set_line(text, name, value)
    load_config(text, None, {})
    file.write_text(text, encoding="utf-8")
    return [FILE_NAME]


def _set_line(text: str, name: str, value: str) -> str:
    line = f'{name} = "{value}"'
    pattern = re.compile(rf"^{name}[ \t]*=.*$", re.MULTILINE)
    if pattern.search(text):
        return pattern.sub(line.replace("\\", r"\\"), text)
    return f"{text.rstrip()}\n{line}\n".lstrip()


def _has_table(pyproject: Path) -> bool:
    return "[tool.kbindex]" in (_text(pyproject) or "")


def _text(file: Path) -> str | None:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None


# Hooks


def _default_hooks(git: Git) -> str:
    return "pre-commit" if (git.root / PRE_COMMIT_CONFIG).exists() else "native"


def _set_up_framework(git: Git) -> list[str]:
    """Add our entry to the framework's configuration and install its hooks."""
    file = git.root / PRE_COMMIT_CONFIG
    before = _text(file)
    written = []
    if before is None or ("kbindex hook" not in before and "id: kbindex" not in before):
        file.write_text(_with_entry(before, f"{Config().index_dir}/"), encoding="utf-8")
        written.append(PRE_COMMIT_CONFIG)
        _mention_exclude(_text(file))
    program = shutil.which("pre-commit")
    if program is None:
        note("pre-commit is not installed: pip install pre-commit, then run this again")
        return written
    types = [word for name in HOOK_TYPES for word in ("--hook-type", name)]
    done = subprocess.run(
        [program, "install", *types], cwd=git.root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UsageError(f"pre-commit install failed: {(done.stderr or done.stdout).strip()}")
    return written


def _mention_exclude(config: str | None) -> None:
    """Say what keeps other hooks from rewriting the index, where nothing does."""
    found = yaml.safe_load(config) if config else None
    patterns = str(found.get("exclude", "")) if isinstance(found, dict) else ""
    if Config().index_dir not in patterns.replace("\\", ""):
        note(
            f"other hooks must leave the index alone; add to {PRE_COMMIT_CONFIG}: "
            f"exclude: ^{re.escape(Config().index_dir)}/"
        )


def _with_entry(before: str | None, index_prefix: str) -> str:
    """Return the framework's configuration with our entry, and an exclude where it has none."""
    exclude = f"# Other hooks must leave the index alone.\nexclude: ^{re.escape(index_prefix)}\n"
    stages = f"default_install_hook_types: [{', '.join(HOOK_TYPES)}]\n"
    if before is None:
        return f"{exclude}{stages}repos:\n{framework_entry()}"
    before = re.sub(r"(?m)^repos:[ \t]*\[\][ \t]*$", "repos:", before)
    item = re.search(r"^([ \t]*)- repo:", before, re.MULTILINE)
    indent = item.group(1) if item else "  "
    after = f"{before.rstrip()}\n{framework_entry(indent)}"
    try:
        old, new = yaml.safe_load(before), yaml.safe_load(after)
        if new["repos"][:-1] == (old["repos"] or []) and len(new) == len(old):
            head = "" if "exclude" in old else exclude
            head += "" if "default_install_hook_types" in old else stages
            return re.sub(r"(?m)^(?=repos:)", lambda _: head, after, count=1)
    except (yaml.YAMLError, KeyError, TypeError):
        pass
    raise UsageError(
        f"{PRE_COMMIT_CONFIG} can't be extended safely",
        f"add this to its 'repos':\n{framework_entry()}",
    )


def _install_shims(git: Git) -> None:
    """Install a shim for each hook; one that is there is kept and runs first."""
    folder = git.hooks_dir
    folder.mkdir(parents=True, exist_ok=True)
    for name in HOOK_TYPES:
        file = folder / name
        if file.exists() and SHIM_MARK not in file.read_text(errors="replace"):
            if "kbindex hook" in file.read_text(errors="replace"):
                continue  # our own hooks/ folder through core.hooksPath
            file.rename(file.with_name(name + KEPT_SUFFIX))
        file.write_text(shim(name), encoding="utf-8")
        file.chmod(file.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
