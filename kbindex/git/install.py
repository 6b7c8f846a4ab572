"""Puts our hooks in place: git's own, or an entry for the pre-commit framework.

What is there already is kept and goes on running. Nothing is written through a link.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from kbindex.configuration.config import Config
from kbindex.core.errors import UnsafePlaceError, UsageError
from kbindex.git.client import Git
from kbindex.git.hooks import (
    HOOK_TYPES,
    KEPT_SUFFIX,
    PRE_COMMIT_CONFIG,
    SHIM_MARK,
    framework_entry,
    shim,
)
from kbindex.git.paths import encode_path
from kbindex.git.worktree import read_file, require_plain, write_file
from kbindex.output.console import note

# Of the framework's configuration, for which PyYAML takes a second; for brackets in brackets it
# takes the square of their number.
_MOST_BYTES = 1 << 15
_MOST_BRACKETS = 1000


# The framework


def install_in_framework(git: Git) -> list[str]:
    """Add our entry to the framework's configuration and install its hooks; return what changed."""
    before = _configuration(git)
    written = []
    if before is None or ("kbindex hook" not in before and "id: kbindex" not in before):
        after = _with_entry(before, f"{Config().index_dir}/")
        write_file(git.root, PRE_COMMIT_CONFIG, encode_path(after))
        written.append(PRE_COMMIT_CONFIG)
        _mention_exclude(after)
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


def _configuration(git: Git) -> str | None:
    try:
        content = read_file(git.root, PRE_COMMIT_CONFIG, _MOST_BYTES + 1)
    except UnsafePlaceError:
        raise _not_safely() from None
    if content is None:
        return None
    if len(content) > _MOST_BYTES or content.count(b"[") + content.count(b"{") > _MOST_BRACKETS:
        raise _not_safely()
    return content.decode("utf-8", "replace").replace("\r\n", "\n")


def _not_safely() -> UsageError:
    return UsageError(
        f"{PRE_COMMIT_CONFIG} can't be extended safely",
        f"add this to its 'repos':\n{framework_entry('')}",  # a message's lines are indented
    )


def _mention_exclude(config: str) -> None:
    """Say what keeps other hooks from rewriting the index, where nothing does."""
    patterns = str(yaml.safe_load(config).get("exclude", ""))
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
        old, new = _load(before), _load(after)
        if new["repos"][:-1] == (old["repos"] or []) and len(new) == len(old):
            head = "" if "exclude" in old else exclude
            head += "" if "default_install_hook_types" in old else stages
            return re.sub(r"(?m)^(?=repos:)", lambda _: head, after, count=1)
    except (yaml.YAMLError, KeyError, TypeError, ValueError, RecursionError):
        pass
    raise _not_safely()


def _load(text: str) -> dict[str, Any]:
    """Return what YAML says. Raises ValueError for aliases: few of them stand for gigabytes."""
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
        raise ValueError("aliases")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


# git's own hooks


def install_shims(git: Git) -> None:
    """Install a shim for each hook; one that is there is kept and runs first."""
    folder = git.settings.hooks_dir
    if folder.is_relative_to(git.root) and not folder.is_relative_to(git.common_dir):
        # Files of the repository: what links there point to is not the user's choice.
        below = folder.relative_to(git.root).as_posix()
        require_plain(git.root, [f"{below}/{name}" for name in HOOK_TYPES])
    kept = [name for name in HOOK_TYPES if _is_others(folder / name)]
    for name in kept:
        if (folder / f"{name}{KEPT_SUFFIX}").exists():
            raise UsageError(
                f"two hooks are there to be kept: {name} and {name}{KEPT_SUFFIX} in {folder}",
                "make one of them",
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name in HOOK_TYPES:
        file = folder / name
        if name in kept:
            file.rename(file.with_name(f"{name}{KEPT_SUFFIX}"))
        elif "kbindex hook" in _text(file) and SHIM_MARK not in _text(file):
            continue  # our own hooks/ folder through core.hooksPath
        elif file.is_symlink():
            file.unlink()  # to a shim: ours stands here itself
        write_file(folder, name, shim(name).encode(), executable=True)


def _is_others(file: Path) -> bool:
    """Whether a hook is there that doesn't run us; a link that leads nowhere is one, too."""
    return (file.exists() or file.is_symlink()) and "kbindex hook" not in _text(file)


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.is_file() else ""
