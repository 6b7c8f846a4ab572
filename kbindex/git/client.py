"""The only place that runs git. Bytes in and out, ``-z`` everywhere, one process for many objects.

Measured with git 2.39; what is relied on is in bundle/decisions and covered by tests on real
repositories.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from kbindex.core.errors import GitError, NotARepositoryError, RefusedError, UsageError
from kbindex.core.text import shell_word
from kbindex.local.scratch import scratch_folder

REGULAR_FILE = "100644"
SUBMODULE = "160000"
_BATCH_OBJECTS = 1000
_BATCH_BYTES = 1 << 26
MOST_BYTES = 1 << 30
"""Of one object that is read. A few bytes in a repository can stand for gigabytes of one."""
MOST_LISTED = 1 << 26
"""Of the listing of a tree; Chromium's takes 48 MB."""
_EMPTY_BLOBS = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)

# Unlike diff-files, "diff" looks into a file whose time alone differs from git's stat cache. It is
# kept from looking into nested repositories, whose configuration may name programs, and from
# failing for want of the file that the user's diff.orderFile names.
_DIFF = ("diff", "--name-only", "--no-renames", "--ignore-submodules", "-O/dev/null", "-z")
CHANGED = (*_DIFF, "--")
UNTRACKED = ("ls-files", "--others", "--exclude-standard", "-z", "--")
_MID_OPERATION = (
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
)
_BARE = "--is-bare-repository"
# What `git rev-parse --local-env-vars` names: they speak of the repository a hook runs in.
_REPOSITORY_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_GRAFT_FILE",
    "GIT_SHALLOW_FILE",
    "GIT_IMPLICIT_WORK_TREE",
)
# Editors set the first four, as `git --literal-pathspecs commit` does for its hooks: pathspecs with
# our own magic would name nothing. The others make commands say something else.
_MISLEADING_VARIABLES = (
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_ATTR_SOURCE",
    "GIT_CONFIG",
    "GIT_DIFF_OPTS",
    "GIT_EXTERNAL_DIFF",
    "GIT_TEMPLATE_DIR",
)


def decode_path(path: bytes) -> str:
    """Return git's bytes as a string that gives them back, whatever they are."""
    return path.decode("utf-8", "surrogateescape")


def encode_path(path: str) -> bytes:
    """Return the bytes of a path that ``decode_path`` or the command line gave."""
    return path.encode("utf-8", "surrogateescape")


class Git:
    """One repository, as seen from one work tree (or a bare one: ``root`` is its git dir)."""

    def __init__(self, directory: Path | None = None, *, made_in: Path | None = None) -> None:
        """Find the repository of ``directory``, or of the current one and git's environment.

        With ``made_in``, a git dir there is made for ``directory``, which holds no repository.
        Raises NotARepositoryError.
        """
        if shutil.which("git") is None:
            raise UsageError("git is not installed or not on PATH", "install git 2.31 or newer")
        self._environment = _environment(os.environ, is_elsewhere=directory is not None)
        start = directory or Path.cwd()
        if not start.is_dir():
            raise NotARepositoryError(str(start))
        self._cwd = start
        if made_in is not None:
            self._environment |= {"GIT_DIR": str(made_in), "GIT_WORK_TREE": str(start)}
            self.run("init", "--quiet", "--template=")
        options = ("--git-dir", "--git-common-dir")
        done = self._run(("rev-parse", "--path-format=absolute", _BARE, *options), None)
        if done.returncode:
            given = None if made_in else self._environment.get("GIT_DIR")
            raise _not_found(start, decode_path(done.stderr), given)
        bare, *folders = _lines(done.stdout)
        if len(folders) != 2:  # a folder's name holds a newline
            folders = [self._line("rev-parse", "--path-format=absolute", o) or "" for o in options]
        self.is_bare = bare == "true"
        self.git_dir, self.common_dir = map(_folder, folders)
        self._refuse_repository_among_files(start)
        top = None if self.is_bare else self._line("rev-parse", "--show-toplevel")
        self.root = _folder(top) if top else self.git_dir
        self._cwd = self.root
        # What is given may be as seen from where we began; a work tree alone goes with the git dir
        # that was found there.
        named = self._environment.keys() & {"GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE"}
        found = {"GIT_COMMON_DIR": self.common_dir} | ({"GIT_WORK_TREE": self.root} if top else {})
        self._environment |= {name: str(found[name]) for name in named & found.keys()}
        self._environment |= {"GIT_DIR": str(self.git_dir)} if named else {}

    def _refuse_repository_among_files(self, start: Path) -> None:
        """Raise UsageError for a git dir that lies among the files of another repository.

        It may have come with them, and its configuration may name programs that git runs.
        """
        if "GIT_DIR" in self._environment or not start.resolve().is_relative_to(self.git_dir):
            return
        self._cwd = self.git_dir.parent
        outer = self._line("rev-parse", "--absolute-git-dir")
        if outer is not None and not self.git_dir.is_relative_to(_folder(outer)):
            raise UsageError(
                f"the repository '{self.git_dir}' lies among the files of another one",
                "if you know where it comes from, say that you mean it: "
                f"GIT_DIR={shell_word(str(self.git_dir))} kbindex …",
            )

    @property
    def local_dir(self) -> Path:
        """Our local state that all work trees share; nothing of it is ever committed."""
        return self.common_dir / "kbindex"

    def require_worktree(self) -> None:
        """Raise UsageError in a bare repository."""
        if self.is_bare:
            raise UsageError(
                f"'{self.git_dir}' is a bare repository, and an index is built in a work tree",
                "run this in a clone",
            )

    def run(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        """Run git and return its output. Raises GitError with git's own words."""
        done = self._run(arguments, stdin)
        if done.returncode:
            words = decode_path(done.stderr).strip() or f"exit code {done.returncode}"
            raise GitError(f"git {arguments[0]} failed: {words}")
        return done.stdout

    def _try(self, *arguments: str) -> bytes | None:
        done = self._run(arguments, None)
        return done.stdout if done.returncode == 0 else None

    def _line(self, *arguments: str) -> str | None:
        """Return the one line that git answers, ``None`` where it has no answer."""
        found = self._try(*arguments)
        return None if found is None else decode_path(found).removesuffix("\n")

    def _run(
        self, arguments: Sequence[str], stdin: bytes | None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["git", *arguments],
            cwd=self._cwd,
            env=self._environment,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )

    def _bounded(self, *arguments: str) -> bytes:
        """Run git and return its output. Raises GitError as ``run``, and for too much of it."""
        with subprocess.Popen(
            ["git", *arguments],
            cwd=self._cwd,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            output = process.stdout.read(MOST_LISTED + 1)
            if len(output) > MOST_LISTED:
                process.kill()
                raise GitError(
                    f"a tree has more files than are read: a list of over {MOST_LISTED} bytes",
                    "set 'bundle' to the folder of the documents alone",
                )
        return output if process.returncode == 0 else self.run(*arguments)

    # Trees

    def write_tree(self) -> str:
        """Return the tree that a commit would record now. Raises RefusedError on conflicts."""
        done = self._run(("write-tree",), None)
        if done.returncode == 0:
            return done.stdout.decode().strip()
        unmerged = self.unmerged(".")
        if unmerged:
            raise RefusedError(
                f"a merge is unresolved: {', '.join(list(unmerged)[:3])}",
                "settle the index with 'kbindex resolve', resolve the documents, 'git add' them, "
                "and run this again",
            )
        raise GitError(f"git write-tree failed: {decode_path(done.stderr).strip()}")

    def staged_tree(self) -> str | None:
        """Return the tree that a commit would record now, ``None`` where git can't write one."""
        try:
            return self.write_tree()
        except GitError:
            return None

    def write_worktree_tree(self, folder: str) -> str:
        """Return the tree that a commit would record if ``folder`` were added as it is on disk."""
        staged = self.index_file
        with self._index_of_its_own() as index:
            if staged.exists():
                shutil.copyfile(staged, index)
            if folder == "." or (self.root / os.fsdecode(encode_path(folder))).exists():
                self.add_all(folder)
            return self.write_tree()

    def tree_with(self, tree: str, blobs: Mapping[str, str | None]) -> str:
        """Return ``tree`` with paths pointed at blobs (``None`` removes one); stages nothing."""
        with self._index_of_its_own():
            self.run("read-tree", tree)
            self.stage(blobs)
            return self.write_tree()

    @contextmanager
    def _index_of_its_own(self) -> Iterator[Path]:
        """Let git work on an index file that is not there yet, and leaves no trace."""
        previous = self._environment
        with scratch_folder(self.local_dir) as scratch:
            index = scratch / "index"
            # With core.splitIndex each would leave a file beside the repository's own index.
            number = int(previous.get("GIT_CONFIG_COUNT") or 0)
            self._environment = {
                **previous,
                "GIT_INDEX_FILE": str(index),
                "GIT_CONFIG_COUNT": str(number + 1),
                f"GIT_CONFIG_KEY_{number}": "core.splitIndex",
                f"GIT_CONFIG_VALUE_{number}": "false",
            }
            try:
                yield index
            finally:
                self._environment = previous

    def add_all(self, *folders: str, ignored: bool = False) -> None:
        """Stage everything below ``folders`` as it is on disk, but nothing of nested repositories.

        In one that is staged already git would look for changes, as its configuration says how.
        """
        nested = [path for mode, _, path in self.index_files(*folders) if mode == SUBMODULE]
        specs = [*map(pathspec, folders), *(f":(top,literal,exclude){path}" for path in nested)]
        options = ("--all", *(["--force"] if ignored else []))
        stdin = encode_path("\0".join(specs))
        self.run("add", *options, "--pathspec-from-file=-", "--pathspec-file-nul", stdin=stdin)

    def resolve_tree(self, revision: str) -> str:
        """Return the tree id of a revision. Raises UsageError if there is none."""
        found = self._try(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{tree}}"
        )
        if found is None:
            raise UsageError(f"'{revision}' names no commit or tree in this repository")
        return found.decode().strip()

    def find_tree(self, revision: str) -> str | None:
        """Return the tree of a revision, ``None`` where there is none here."""
        return self._line("rev-parse", "--verify", "--quiet", f"{revision}^{{tree}}")

    def head_tree(self) -> str | None:
        """Return the tree of HEAD, ``None`` before the first commit."""
        return self.find_tree("HEAD")

    def list_tree(self, tree: str, *folders: str) -> Iterator[tuple[str, str, str]]:
        """Yield (mode, object id, path) of every file below ``folders`` in ``tree``.

        Raises GitError for more of them than are read: ten trees in a repository can stand for
        billions of files.
        """
        listing = self._bounded("ls-tree", "-r", "-z", "--full-tree", tree, "--", *folders)
        for entry in listing.split(b"\0"):
            if entry:
                meta, path = entry.split(b"\t", 1)
                mode, _, oid = meta.decode().split(" ")
                yield mode, oid, decode_path(path)

    def object_ids(self, tree: str, *paths: str) -> list[str | None]:
        """Return the id of each path in ``tree``, ``None`` where there is nothing."""
        found = {}
        for entry in self.run("ls-tree", "-z", "--full-tree", tree, "--", *paths).split(b"\0"):
            if entry:
                meta, path = entry.split(b"\t", 1)
                found[decode_path(path)] = meta.decode().split(" ")[2]
        return [tree if path == "." else found.get(path) for path in paths]

    def files_at(self, tree: str, *paths: str) -> dict[str, tuple[str, str, int]]:
        """Return (mode, object id, bytes) of what ``tree`` has at each path, but of folders 0."""
        found = {}
        listing = self.run("ls-tree", "-z", "--long", "--full-tree", tree, "--", *paths)
        for entry in listing.split(b"\0"):
            if entry:
                meta, path = entry.split(b"\t", 1)
                mode, _, oid, size = meta.decode().split()
                found[decode_path(path)] = mode, oid, int(size) if size.isdecimal() else 0
        return found

    # Objects

    def read_blobs(self, oids: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield (object id, content) in the order asked.

        Raises GitError for an object that is missing or has more than ``MOST_BYTES``.
        """
        wanted = list(oids)
        for batch in _batches(wanted, self._sizes(wanted)):
            request = "".join(f"{oid}\n" for oid in batch).encode()
            output = self.run("cat-file", "--batch", "--buffer", stdin=request)
            at = 0
            for oid in batch:
                end = output.index(b"\n", at)
                start = end + 1
                at = start + int(output[at:end].split(b" ")[2]) + 1
                yield oid, output[start : at - 1]

    def oversized(self, oids: Sequence[str], most_bytes: int) -> set[str]:
        """Return those of the objects that have more bytes. Raises GitError for a missing one."""
        sizes = self._sizes(oids, limit=None)
        return {oid for oid, size in zip(oids, sizes, strict=True) if size > most_bytes}

    def _sizes(self, oids: Sequence[str], limit: int | None = MOST_BYTES) -> list[int]:
        """Return the bytes of each object, without reading it."""
        if not oids:
            return []
        request = "".join(f"{oid}\n" for oid in oids).encode()
        listing = self.run("cat-file", "--batch-check=%(objectsize)", stdin=request).decode()
        sizes = []
        for oid, size in zip(oids, listing.splitlines(), strict=True):
            if not size.isdecimal():
                raise GitError(f"git has no object {oid}", "git fsck; git fetch --refetch")
            if limit is not None and int(size) > limit:
                raise GitError(
                    f"the object {oid} has {size} bytes, more than the {limit} that are read",
                    f"git rev-list --objects --all | grep {oid}   (names the file)",
                )
            sizes.append(int(size))
        return sizes

    def read_blob(self, oid: str) -> bytes:
        return next(self.read_blobs([oid]))[1]

    def total_size(self, oids: Sequence[str]) -> int:
        """Return the bytes of all these objects."""
        return sum(self._sizes(oids, limit=None))

    def write_blobs(self, contents: Sequence[bytes]) -> list[str]:
        """Store each content as it is and return its object id."""
        if not contents:
            return []
        with scratch_folder(self.local_dir) as scratch:
            names = [scratch / str(number) for number in range(len(contents))]
            for name, content in zip(names, contents, strict=True):
                name.write_bytes(content)
            listing = b"".join(_c_quoted(name) + b"\n" for name in names)
            stored = self.run("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=listing)
        return stored.decode().split()

    # The index file and the work tree

    @cached_property
    def index_file(self) -> Path:
        """The index that git uses now: a hook of ``commit -a`` or ``commit PATH`` has its own."""
        return self.root / (self._environment.get("GIT_INDEX_FILE") or self.git_dir / "index")

    @property
    def has_index_of_its_own(self) -> bool:
        """Whether this is a hook of a commit that stages by itself: with ``-a``, ``-i``, PATH.

        Its index is gone if the commit is stopped, and with PATH also when it has been made.
        """
        return self.index_file.name.startswith(("next-index-", "index.lock"))

    @property
    def is_worktree_watched(self) -> bool:
        """Whether the pre-commit framework compares the work tree with the index after a hook."""
        return bool(self._environment.get("PRE_COMMIT"))

    def index_files(
        self, *folders: str, take_ours: Callable[[str], bool] = lambda _path: False
    ) -> Iterator[tuple[str, str, str]]:
        """Yield (mode, object id, path) of every staged file below ``folders``.

        Of a conflict our side stands for it where ``take_ours``, or theirs if we have none.
        """
        specs = [pathspec(folder) for folder in folders]
        intended: set[str] | None = None
        unmerged: set[str] = set()
        for entry in self.run("ls-files", "--stage", "-z", "--", *specs).split(b"\0"):
            if not entry:
                continue
            meta, path = entry.split(b"\t", 1)
            mode, oid, stage = meta.decode().split(" ")
            if oid in _EMPTY_BLOBS and intended is None:
                # "git add -N" lists an empty blob that no commit would hold.
                added = self.run(*_DIFF, "--diff-filter=A", "--", *specs)
                intended = set(split_paths(added))
            name = decode_path(path)
            if stage in "23" and name not in unmerged and take_ours(name):
                unmerged.add(name)
                yield mode, oid, name
            if stage == "0" and not (intended and name in intended):
                yield mode, oid, name

    def stage(self, changes: Mapping[str, str | None]) -> None:
        """Point staged paths at blobs (``None`` removes one), all of them or none."""
        lines = [
            f"{REGULAR_FILE} {oid}\t{path}" if oid else f"0 {self._null_id}\t{path}"
            for path, oid in changes.items()
        ]
        if lines:
            self.run(
                "update-index", "-z", "--index-info", stdin=encode_path("\0".join(lines) + "\0")
            )

    @cached_property
    def _null_id(self) -> str:
        is_sha256 = self._line("rev-parse", "--show-object-format") == "sha256"
        return "0" * (64 if is_sha256 else 40)

    def skip_in_worktree(self, paths: Sequence[str]) -> None:
        """Tell git that a sparse work tree doesn't hold these staged files."""
        listing = encode_path("".join(f"{path}\0" for path in paths))
        if paths:
            self.run("update-index", "--skip-worktree", "-z", "--stdin", stdin=listing)

    def check_out(self, paths: Sequence[str]) -> None:
        """Write staged files to the work tree, replacing what is there."""
        listing = encode_path("".join(f"{path}\0" for path in paths))
        if paths:
            self.run("checkout-index", "--force", "--index", "-z", "--stdin", stdin=listing)

    @property
    def is_sparse(self) -> bool:
        return self._line("config", "--type=bool", "--get", "core.sparseCheckout") == "true"

    def changed_in_worktree(self, folder: str) -> list[str]:
        """Return the staged paths below ``folder`` whose work tree file is another or gone."""
        return split_paths(self.run(*CHANGED, pathspec(folder)))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a git that runs beside us; read its output when it is needed."""
        return subprocess.Popen(
            ["git", *arguments],
            cwd=self._cwd,
            # In a partial clone it must not ask a server for what it can do without.
            env=self._environment | {"GIT_NO_LAZY_FETCH": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def untracked(self, *folders: str) -> list[str]:
        """Return the files below ``folders`` that git doesn't know and doesn't ignore."""
        return split_paths(self.run(*UNTRACKED, *map(pathspec, folders)))

    def unmerged(self, folder: str) -> dict[str, dict[int, str]]:
        """Return conflicted paths: stage (1 base, 2 ours, 3 theirs) to blob."""
        spec = pathspec(folder)
        found: dict[str, dict[int, str]] = {}
        for entry in self.run("ls-files", "--unmerged", "-z", "--", spec).split(b"\0"):
            if entry:
                meta, path = entry.split(b"\t", 1)
                _, oid, stage = meta.decode().split(" ")
                found.setdefault(decode_path(path), {})[int(stage)] = oid
        return found

    # Branches and commits

    def operation_commits(self) -> list[str]:
        """Return the commits that a merge, pick, revert or rebase under way brings in."""
        found = []
        for name in ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD"):
            file = self.git_dir / name
            if file.is_file():
                found += file.read_text("ascii").split()
        return found

    @property
    def is_rebasing(self) -> bool:
        return any((self.git_dir / name).exists() for name in ("rebase-merge", "rebase-apply"))

    def parents(self, commit: str) -> list[str]:
        """Return a commit's parents; those that a shallow clone lacks are left out."""
        found = self._try("rev-list", "--parents", "--max-count=1", commit)
        return found.decode().split()[1:] if found else []

    def branch_tips(self) -> list[str]:
        """Return the commits of all local and remote branches, each once."""
        form = "--format=%(objectname)"
        tips = self.run("for-each-ref", form, "refs/heads", "refs/remotes").decode().split()
        return list(dict.fromkeys(tips))

    def branch(self) -> str | None:
        """Return the current branch, ``None`` when HEAD is detached."""
        return self._line("symbolic-ref", "--quiet", "--short", "HEAD")

    def default_branch(self) -> str | None:
        """Return the branch that ``origin`` calls its default, or the only usual name there is."""
        found = self._line("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
        if found:
            return found.removeprefix("origin/")
        if self._try("remote"):
            return None
        current = self.branch()
        usual = [
            name
            for name in ("main", "master")
            if name == current
            or self._try("rev-parse", "--verify", "--quiet", f"refs/heads/{name}")
        ]
        return usual[0] if len(usual) == 1 else None

    def is_mid_operation(self) -> bool:
        """Whether a merge, rebase, cherry-pick or revert is under way."""
        return any((self.git_dir / name).exists() for name in _MID_OPERATION)

    def config_value(self, name: str) -> str | None:
        return self._line("config", "--get", name)

    @property
    def version(self) -> str:
        return (self._line("version") or "").removeprefix("git version ")

    def attributes(self, path: str, *names: str) -> dict[str, str]:
        """Return what git's attributes say of a path, from every file that sets some."""
        fields = split_paths(self.run("check-attr", "-z", *names, "--", path))
        return dict(zip(fields[1::3], fields[2::3], strict=True))

    def is_ignored(self, path: str) -> bool:
        """Whether an untracked file at ``path`` would be left out by ``git add``."""
        return self._try("check-ignore", "--quiet", "--no-index", "--", path) is not None

    @property
    def hooks_dir(self) -> Path:
        configured = self._line("config", "--type=path", "--get", "core.hooksPath")
        if configured:
            return self.root / _folder(configured)  # as written, links and all
        found = self._line("rev-parse", "--path-format=absolute", "--git-path", "hooks")
        return _folder(found or str(self.git_dir / "hooks"))


def _environment(given: Mapping[str, str], *, is_elsewhere: bool) -> dict[str, str]:
    """Return the environment of our calls: git's words and answers are the same in every one."""
    dropped = _MISLEADING_VARIABLES + (_REPOSITORY_VARIABLES if is_elsewhere else ())
    kept = {
        name: value
        for name, value in given.items()
        if name not in dropped
        # A trace on stderr would stand among the words of an error.
        and (not name.startswith("GIT_TRACE") or value.startswith("/"))
    }
    # What a replacement ref stands for is in one clone alone, and a commit names the original.
    return kept | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1"}


def _not_found(start: Path, words: str, git_dir: str | None) -> UsageError:
    """Return what to say where git finds no repository: its own words if it refuses one."""
    if git_dir is not None and "not a git repository" in words:
        return UsageError(f"GIT_DIR names no repository: '{git_dir}'", "unset GIT_DIR, or mend it")
    if "not a git repository" in words:
        return NotARepositoryError(str(start))
    reason, *more = words.strip().removeprefix("fatal: ").split("\n")
    remedy = next((line.strip() for line in more if "safe.directory" in line), None)
    return UsageError(f"git refuses: {reason}", remedy)


def _c_quoted(file: Path) -> bytes:
    """Return a path as git reads it in a list of lines, whatever its bytes."""
    return b'"%s"' % b"".join(b"\\%03o" % byte for byte in os.fsencode(file))


def _lines(output: bytes) -> list[str]:
    return decode_path(output).removesuffix("\n").split("\n")


def _folder(path: str) -> Path:
    return Path(os.fsdecode(encode_path(path)))


def _batches(oids: Sequence[str], sizes: Sequence[int]) -> Iterator[list[str]]:
    """Yield parts of ``oids`` that are few and small enough to be held at once."""
    batch: list[str] = []
    n_bytes = 0
    for oid, size in zip(oids, sizes, strict=True):
        if batch and (len(batch) == _BATCH_OBJECTS or n_bytes + size > _BATCH_BYTES):
            yield batch
            batch, n_bytes = [], 0
        batch.append(oid)
        n_bytes += size
    if batch:
        yield batch


def pathspec(folder: str) -> str:
    """Return what names everything below a folder, and nothing else, in any command."""
    return ":(top)" if folder == "." else f":(top,literal){folder}"


def split_paths(output: bytes) -> list[str]:
    return [decode_path(path) for path in output.split(b"\0") if path]
