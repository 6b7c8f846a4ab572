"""``kbindex hook NAME``: what git's hooks run. Nothing to do must take no noticeable time."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kbindex.configuration.config import Config
from kbindex.core.errors import (
    ExitCode,
    KbindexError,
    NoBundleError,
    RefusedError,
    TooMuchToEmbedError,
    UsageError,
)
from kbindex.core.model import Rule
from kbindex.core.text import shell_word
from kbindex.git.client import Git
from kbindex.git.paths import decode_path, pathspec
from kbindex.local.files import remove
from kbindex.output.console import note
from kbindex.repo.repository import Repository, repository_at

if TYPE_CHECKING:
    from kbindex.index.options import Options

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
    repository = _unless_fresh(git)
    if repository is None:
        return ExitCode.OK
    if git.index.is_of_one_commit:
        # The work tree follows in post-commit, when the commit has been made; so does git's index
        # after `git commit PATH`, which keeps the old files in it.
        repository.view_dir.mkdir(parents=True, exist_ok=True)
        (repository.view_dir / _HEAL).touch()
    changed = _update(repository, stage, merging=git.state.is_mid_operation)
    if changed is None:
        return ExitCode.NEGATIVE
    if changed and not stage:
        folder = shell_word(repository.config.index_dir, bare=True)
        note(f"the index was written but not staged: git add -A -- {folder}")
        return ExitCode.NEGATIVE
    return ExitCode.OK


def _pre_merge_commit(git: Git) -> ExitCode:
    """Stage the mend and stop: git can't add anything to a merge commit from this hook."""
    repository = _unless_fresh(git)
    if repository is None:
        return ExitCode.OK
    # git 2.39 writes MERGE_HEAD only after this hook.
    changed = _update(repository, stage=True, merging=True)
    if changed:
        note("the merged index is mended and staged; finish with: git commit --no-edit")
    return ExitCode.OK if changed == [] else ExitCode.NEGATIVE


def _unless_fresh(git: Git) -> Repository | None:
    """Return the repository as it is staged, ``None`` where its index is known to be fresh."""
    tree = git.index.write_tree()
    repository = repository_at(git, tree)
    return None if _is_known_fresh(repository, tree) else repository


def _post_commit(git: Git) -> ExitCode:
    """Let git's index and the work tree follow a commit that staged by itself.

    Says so when HEAD's index is stale.
    """
    tree = git.trees.head()
    if tree is None:
        return ExitCode.OK
    repository = repository_at(git, tree)
    flag = repository.view_dir / _HEAL
    if flag.exists():
        from kbindex.git.staging import restore_worktree
        from kbindex.git.stash import stashed_paths_below

        remove(flag)
        folder = repository.config.index_dir
        is_hidden = stashed_paths_below(folder)
        git.run("reset", "--quiet", "HEAD", "--", pathspec(folder))
        if not is_hidden:  # else the framework's patch brings the work tree from old to new
            restore_worktree(git, folder)
    _is_faulty(repository, tree, "the index in HEAD")
    return ExitCode.OK


def _pre_push(git: Git) -> ExitCode:
    """Refuse to push a branch whose index is stale; deletions and tags pass."""
    is_refused = False
    for commit, ref in _pushed():
        if ref.startswith("refs/heads/") and set(commit) != {"0"}:
            tree = git.trees.resolve(commit)
            is_refused |= _is_faulty(repository_at(git, tree), tree, f"{ref}: its index")
    return ExitCode.NEGATIVE if is_refused else ExitCode.OK


def _pushed() -> list[tuple[str, str]]:
    """Return (commit, remote ref) of what is pushed, as git or the framework tells it."""
    ref = os.environ.get("PRE_COMMIT_REMOTE_BRANCH")
    if ref:
        # The first push of a branch has no TO_REF.
        commit = os.environ.get("PRE_COMMIT_TO_REF") or os.environ["PRE_COMMIT_LOCAL_BRANCH"]
        return [(commit, ref)]
    lines = (decode_path(line).split() for line in sys.stdin.buffer)
    return [(words[1], words[2]) for words in lines if len(words) == 4]


def _is_known_fresh(repository: Repository, tree: str) -> bool:
    with repository.cache() as cache:
        return cache.is_fresh(repository.state_id(tree))


def _update(repository: Repository, stage: bool, *, merging: bool) -> list[str] | None:
    """Return the changed index files, ``None`` where a document could not be indexed."""
    from kbindex.commands.update import mention_problems, run_update
    from kbindex.git.stash import stashed_paths_below

    git, config = repository.git, repository.config
    if stashed_paths_below(config.index_dir):
        raise RefusedError(
            f"'{config.index_dir}/' has unstaged changes, which pre-commit could not restore",
            f"git checkout -- {shell_word(config.index_dir, bare=True)}   (it is generated), "
            "then commit again",
        )
    try:
        outcome = run_update(git, lambda config: _options(git, config, merging), stage=stage)
    except NoBundleError:
        return []  # no bundle here (yet): nothing to keep fresh
    except KbindexError as error:
        raise _within_reach(git, error) from None
    mention_problems(outcome.report.problems)
    if outcome.report.problems:
        note("the commit is stopped; mend the document, or add it to 'exclude' in kbindex.toml")
        return None
    if outcome.changed:
        verb = "staged" if stage else "written"
        n_embedded = outcome.report.n_embedded
        note(f"{n_embedded} chunks embedded, {len(outcome.changed)} index files {verb}")
    return outcome.changed


def _within_reach(git: Git, error: KbindexError) -> KbindexError:
    """Give an error a remedy that ends: an update sees nothing that is staged for one commit."""
    is_out_of_reach = git.index.is_of_one_commit and not isinstance(error, TooMuchToEmbedError)
    if is_out_of_reach and error.mended_by_update:
        error.remedy = (
            "stage what the commit is to hold with 'git add', run 'kbindex update', then "
            "'git commit' without -a and without paths"
        )
    return error


def _options(git: Git, config: Config, merging: bool) -> Options:
    from kbindex.index.options import Options
    from kbindex.storage.writer import Checkpoint

    default = config.default_branch or git.state.default_branch()
    is_default = default is not None and git.state.branch() == default
    return Options(
        may_change_recipe=False,
        max_embedded=config.hook_max_chunks,
        checkpoint=Checkpoint.WHEN_DUE if is_default and not merging else Checkpoint.NEVER,
        mid_operation=merging,
    )


def _is_faulty(repository: Repository, tree: str, name: str) -> bool:
    """Whether the index in ``tree`` differs from its bundle; note it with the remedy if so."""
    if _is_known_fresh(repository, tree):
        return False
    from kbindex.index.verify import DAMAGE, verify
    from kbindex.storage.tree import index_at

    index = index_at(repository, tree)
    if not index.snapshot.has_index:
        return False
    problems = verify(index).problems
    for problem in problems:
        if problem.rule in DAMAGE and not problem.mended_by_update:
            note(f"{name} can't be used: {problem.path}: {problem.message}")
            note(f"remedy: {problem.remedy}")
            return True
    if problems:
        is_damaged = any(
            problem.rule in (Rule.DAMAGED_FILE, Rule.BAD_VECTOR) for problem in problems
        )
        is_here = tree == repository.git.trees.head()
        first = "" if is_here else "check it out and "
        note(f"{name} is {'damaged' if is_damaged else 'stale'}; {first}mend it with: {_AMEND}")
        return True
    with repository.cache() as cache:
        cache.add_fresh(repository.state_id(tree))
    return False
