"""``kbindex hook NAME``: what git's hooks run. Nothing to do must take no noticeable time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kbindex.console import note
from kbindex.errors import ExitCode, KbindexError, UsageError
from kbindex.git import Git
from kbindex.repository import Repository
from kbindex.snapshot import read_config

NAMES = ("pre-commit", "pre-merge-commit", "post-commit", "pre-push")
_HEAL = "heal"
_AMEND = "kbindex update && git commit --amend --no-edit"


def hook(directory: Path | None, name: str, *, stage: bool) -> ExitCode:
    """Run the hook ``name``; a non-zero exit code stops git."""
    if name not in NAMES:
        raise UsageError(f"unknown hook '{name}'", f"known are: {', '.join(NAMES)}")
    git = Git(directory)
    if name == "pre-commit":
        return _pre_commit(git, stage)
    if name == "pre-merge-commit":
        return _pre_merge_commit(git)
    if name == "post-commit":
        return _post_commit(git)
    return _pre_push(git)


def _pre_commit(git: Git, stage: bool) -> ExitCode:
    """Update the index of what is about to be committed, and stage it."""
    tree = git.write_tree()
    repository = Repository(git, read_config(git, tree, dict(os.environ)))
    if _is_known_fresh(repository, tree):
        return ExitCode.OK
    if git.index_file.name.startswith("next-index-"):
        # `git commit PATH`: what we stage is committed, but the real index keeps the old files.
        repository.view_dir.mkdir(parents=True, exist_ok=True)
        (repository.view_dir / _HEAL).touch()
    changed = _update(repository, tree, stage)
    if changed is None:
        return ExitCode.NEGATIVE
    if changed and not stage:
        note(f"the index was written but not staged: git add -A -- {repository.config.index_dir}")
        return ExitCode.NEGATIVE
    return ExitCode.OK


def _pre_merge_commit(git: Git) -> ExitCode:
    """Stage the mend and stop: git can't add anything to a merge commit from this hook."""
    tree = git.write_tree()
    repository = Repository(git, read_config(git, tree, dict(os.environ)))
    if _is_known_fresh(repository, tree):
        return ExitCode.OK
    changed = _update(repository, tree, stage=True)
    if changed:
        note("the merged index is mended and staged; finish with: git commit --no-edit")
    return ExitCode.OK if changed == [] else ExitCode.NEGATIVE


def _post_commit(git: Git) -> ExitCode:
    """Heal git's index after ``git commit PATH``; say so when HEAD's index is stale."""
    tree = git.head_tree()
    if tree is None:
        return ExitCode.OK
    repository = Repository(git, read_config(git, tree, dict(os.environ)))
    flag = repository.view_dir / _HEAL
    if flag.exists():
        flag.unlink()
        git.run("reset", "--quiet", "HEAD", "--", repository.config.index_dir)
    if not _is_known_fresh(repository, tree) and _is_stale(repository, tree):
        note(f"the index in HEAD is stale; mend it with: {_AMEND}")
    return ExitCode.OK


def _pre_push(git: Git) -> ExitCode:
    """Refuse to push a branch whose index is stale; deletions and tags pass."""
    stale = []
    for line in sys.stdin:
        words = line.split()
        if len(words) == 4 and words[2].startswith("refs/heads/") and set(words[1]) != {"0"}:
            tree = git.resolve_tree(words[1])
            repository = Repository(git, read_config(git, tree, dict(os.environ)))
            if not _is_known_fresh(repository, tree) and _is_stale(repository, tree):
                stale.append(words[2])
    for ref in stale:
        note(f"{ref}: its index is stale; mend it with: {_AMEND}")
    return ExitCode.NEGATIVE if stale else ExitCode.OK


def _is_known_fresh(repository: Repository, tree: str) -> bool:
    with repository.cache() as cache:
        return cache.is_fresh(repository.state_id(tree))


def _update(repository: Repository, tree: str, stage: bool) -> list[str] | None:
    """Return the changed index files, ``None`` where a document could not be indexed."""
    from kbindex.build import Options
    from kbindex.commands.update import run_update
    from kbindex.snapshot import read_snapshot
    from kbindex.store import Checkpoint

    git, config = repository.git, repository.config
    snapshot = read_snapshot(git, tree, config)
    if not snapshot.documents and not snapshot.has_index:
        return []  # no bundle here (yet): nothing to keep fresh
    default = config.default_branch or git.default_branch()
    is_default = default is not None and git.branch() == default
    may_checkpoint = is_default and not git.is_mid_operation()
    options = Options(
        may_change_recipe=False,
        max_embedded=config.hook_max_chunks,
        checkpoint=Checkpoint.WHEN_DUE if may_checkpoint else Checkpoint.NEVER,
    )
    with repository.lock():
        changed, report = run_update(repository, tree, options, stage=stage)
    for problem in report.problems:
        place = f"{problem.path}:{problem.line}" if problem.line else problem.path
        note(f"{place}: {problem.message}")
    if report.problems:
        note("the commit is stopped; mend the document, or add it to 'exclude' in kbindex.toml")
        return None
    if changed:
        verb = "staged" if stage else "written"
        note(f"{report.n_embedded} chunks embedded, {len(changed)} index files {verb}")
    return changed


def _is_stale(repository: Repository, tree: str) -> bool:
    from kbindex.snapshot import read_snapshot
    from kbindex.verify import verify

    snapshot = read_snapshot(repository.git, tree, repository.config)
    if not snapshot.has_index:
        return False
    try:
        verdict = verify(repository.git, repository.config, snapshot)
    except KbindexError:
        return True
    if verdict.problems:
        return True
    with repository.cache() as cache:
        cache.add_fresh(repository.state_id(tree))
    return False
