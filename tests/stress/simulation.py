"""Some people with clones of one repository, who do whatever git lets them, in a seeded order.

Everything that kbindex says on the way is compared with the truth (``truth.py``). What is not
right is noted as a fault and the work goes on, so that two versions can be compared by counts.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truth import INDEX, Judge

from kbindex.document.chunk import Limits
from kbindex.embed.hashing import HashEmbedder
from kbindex.git.client import Git
from kbindex.repo.repository import repository_at
from testing.commands import Done
from testing.repositories import Repo
from testing.served_hooks import ServedHooks

SETTINGS = """\
embedder = "hash"
chunk_tokens = 32
checkpoint_every = 4
hook_max_chunks = 12
default_branch = "main"
"""
LIMITS = Limits(48, 32)
WORDS = [
    *("lamp", "keeper", "evening", "wind", "tide", "oil", "glass", "brass", "rope", "ship"),
    *("harbour", "stair", "clock", "signal", "winter", "letter", "boat", "rock", "gull", "fog"),
    *("chart", "ladder", "storm", "candle", "anchor", "market", "ferry", "tower", "sand", "reef"),
]
DOCUMENTED = {0, 1, 2, 3, 4}
QUIETLY = ("-c", "core.editor=true", "-c", "advice.mergeConflict=false")


@dataclass
class Tally:
    """What happened, and what should not have."""

    steps: Counter[str] = field(default_factory=Counter)
    merges: Counter[str] = field(default_factory=Counter)
    """Of the server: clean and fresh, clean and stale, conflicts of documents or index alone."""
    conflicts: Counter[str] = field(default_factory=Counter)
    """Kinds of conflicts where nothing but the index is in conflict."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    """(kind, what happened)."""

    def __iadd__(self, other: Tally) -> Tally:
        for name in ("steps", "merges", "conflicts"):
            getattr(self, name).update(getattr(other, name))
        self.faults += other.faults
        return self

    def render(self) -> str:
        kinds = Counter(kind for kind, _ in self.faults)
        parts = [("steps", self.steps), ("server merges", self.merges)]
        parts += [("conflicts in the index alone", self.conflicts), ("faults", kinds)]
        lines = []
        for title, counts in parts:
            lines.append(f"{title}: {counts.total()}")
            lines += [f"    {n:5} {name}" for name, n in sorted(counts.items())]
        return "\n".join(lines)


@dataclass
class Clone:
    """Someone's clone, and how often each text was embedded in it."""

    repo: Repo
    has_kbindex: bool = True
    embedded: Counter[str] = field(default_factory=Counter)


class World:
    """A bare server and four clones: three with our hooks, one without kbindex."""

    def __init__(
        self, folder: Path, environment: dict[str, str], hooks: ServedHooks, seed: int
    ) -> None:
        self.dice = random.Random(seed)
        self.tally = Tally()
        self._judge = Judge(LIMITS)
        self._hooks, self._folder, self._environment = hooks, folder, environment
        self._n_topics = self._n_texts = 0
        self._checked: dict[str, int] = {}
        self._log: list[str] = []
        self._count_embedding()
        self.server = self._begin()
        self.clones = [self._clone(n, has_kbindex=n < 3) for n in range(4)]
        self._at: Clone = self.clones[0]

    def step(self) -> None:
        """Let one of them do something, and look at what came of it."""
        self._at = self.dice.choices(self.clones, [4, 4, 3, 2])[0]
        acts: dict[Callable[[], None], int] = {
            self.propose: 12,
            self.work: 6,
            self.begin_topic: 2,
            self.push: 4,
            self.pull: 4,
            self.revert: 3,
            self.pick: 2,
            self.amend: 2,
            self.rebase: 2,
            self.merge_main: 3,
            self.squash: 1,
            self.stash: 1,
            self.maintain: 4,
            self.merge_on_server: 14,
        }
        act = self.dice.choices(list(acts), list(acts.values()))[0]
        self.tally.steps[act.__name__] += 1
        self._log = [f"clone {self.clones.index(self._at)}: {act.__name__}"]
        act()
        self._look()

    # Setting up

    def _begin(self) -> Repo:
        first = Repo(self._folder / "first", self._environment)
        first.root.mkdir(parents=True)
        first.git("init", "--quiet", "--initial-branch=main")
        first.write("kbindex.toml", SETTINGS)
        for number in range(14):
            first.write(f"bundle/part{number % 3}/note{number}.md", self._document())
        first.git("add", "--all")
        assert first.call("update").code == 0
        first.commit("first")
        first.git("clone", "--quiet", "--bare", ".", str(self._folder / "server.git"))
        return Repo(self._folder / "server.git", self._environment)

    def _clone(self, number: int, *, has_kbindex: bool) -> Clone:
        root = self._folder / f"clone{number}"
        self.server.git("clone", "--quiet", str(self.server.root), str(root))
        repo = Repo(root, self._environment)
        repo.git("config", "pull.rebase", "false")
        if has_kbindex:
            self._hooks.install(repo)
        clone = Clone(repo, has_kbindex)
        self._at = clone
        return clone

    def _count_embedding(self) -> None:
        embed = HashEmbedder.embed_documents

        def counting(embedder: HashEmbedder, texts: Sequence[str]) -> Any:
            self._at.embedded.update(texts)
            return embed(embedder, texts)

        self._restore = (embed, counting)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is embedded, in whose clone, while this is entered."""
        embed, counting = self._restore
        HashEmbedder.embed_documents = counting  # type: ignore[method-assign]
        try:
            yield
        finally:
            HashEmbedder.embed_documents = embed  # type: ignore[method-assign]

    # Texts

    def _sentence(self) -> str:
        self._n_texts += 1
        words = " ".join(self.dice.choices(WORDS, k=self.dice.randrange(4, 12)))
        return f"{words.capitalize()} {self._n_texts}."

    def _paragraph(self) -> str:
        return " ".join(self._sentence() for _ in range(self.dice.randrange(1, 5)))

    def _section(self) -> str:
        self._n_texts += 1
        body = "\n\n".join(self._paragraph() for _ in range(self.dice.randrange(1, 4)))
        return f"## Part {self._n_texts}\n\n{body}\n\n"

    def _document(self) -> str:
        self._n_texts += 1
        sections = "".join(self._section() for _ in range(self.dice.randrange(2, 5)))
        return f"# Note {self._n_texts}\n\n{self._paragraph()}\n\n{sections}"

    # Edits of the work tree

    def _documents(self) -> list[Path]:
        return sorted((self._repo.root / "bundle").rglob("*.md"))

    def _edit(self) -> Path:
        """Change one document of the work tree; return its path."""
        documents = self._documents()
        kinds = {"sentence": 8, "section": 3, "drop": 3, "move": 2, "add": 3, "delete": 1}
        kinds |= {"rename": 2, "title": 2, "retitle": 1, "copy": 1, "restore": 2, "grow": 1}
        kind = self.dice.choices(list(kinds), list(kinds.values()))[0]
        if len(documents) < 4:
            kind = "add"
        self._log.append(f"edit: {kind}")
        file = self.dice.choice(documents) if documents else self._repo.root / "bundle/new.md"
        getattr(self, f"_edit_{kind}")(file)
        return file

    def _edit_sentence(self, file: Path) -> None:
        parts = re.split(r"(?<=\.)(?=[ \n])", file.read_text())
        at = self.dice.randrange(len(parts))
        parts[at] = f"{parts[at]} {self._sentence()}" if self.dice.random() < 0.5 else ""
        file.write_text("".join(parts))

    def _sections(self, file: Path) -> list[str]:
        return re.split(r"(?m)^(?=## )", file.read_text())

    def _edit_section(self, file: Path) -> None:
        sections = self._sections(file)
        sections.insert(self.dice.randrange(1, len(sections) + 1), self._section())
        file.write_text("".join(sections))

    def _edit_drop(self, file: Path) -> None:
        sections = self._sections(file)
        if len(sections) > 1:
            del sections[self.dice.randrange(1, len(sections))]
        file.write_text("".join(sections))

    def _edit_move(self, file: Path) -> None:
        sections = self._sections(file)
        other = self.dice.choice(self._documents())
        if len(sections) > 1 and other != file:
            moved = sections.pop(self.dice.randrange(1, len(sections)))
            file.write_text("".join(sections))
            other.write_text(other.read_text().rstrip("\n") + f"\n\n{moved}")

    def _edit_add(self, _file: Path) -> None:
        self._n_texts += 1
        folder = self.dice.choice(["part0", "part1", "part2"])
        self._repo.write(f"bundle/{folder}/note-{self._n_texts}.md", self._document())

    def _edit_delete(self, file: Path) -> None:
        file.unlink()

    def _edit_rename(self, file: Path) -> None:
        self._n_texts += 1
        file.rename(file.with_name(f"moved-{self._n_texts}.md"))

    def _edit_title(self, file: Path) -> None:
        self._n_texts += 1
        file.write_text(re.sub(r"(?m)^# .*", f"# Title {self._n_texts}", file.read_text(), count=1))

    def _edit_retitle(self, file: Path) -> None:
        self._edit_title(file)
        self._edit_rename(file)

    def _edit_copy(self, file: Path) -> None:
        self._n_texts += 1
        file.with_name(f"copy-{self._n_texts}.md").write_text(file.read_text())

    def _edit_restore(self, file: Path) -> None:
        """Bring a document back as it was some commits ago."""
        path = file.relative_to(self._repo.root).as_posix()
        back = self.dice.randrange(1, 6)
        self._repo.git("checkout", "--quiet", f"HEAD~{back}", "--", path, check=False)

    def _edit_grow(self, file: Path) -> None:
        """Add more than a hook waits for."""
        file.write_text(file.read_text() + "".join(self._section() for _ in range(9)))

    # What people do

    @property
    def _repo(self) -> Repo:
        return self._at.repo

    def _git(self, *arguments: str, stdin: bytes = b"") -> Done:
        done = self._hooks.git(self._repo, *arguments, stdin=stdin)
        words = (done.err + done.out).strip()[-300:]
        self._log.append(f"git {' '.join(arguments)} -> {done.code} {words}")
        self._watch(done)
        return done

    def _kbindex(self, *arguments: str) -> Done:
        done = self._repo.call(*arguments)
        said = (done.err + done.out).strip()[-300:]
        self._log.append(f"kbindex {' '.join(arguments)} -> {done.code} {said}")
        self._watch(done)
        if done.code not in DOCUMENTED:
            self._fault("exit code", str(done.code))
        return done

    def _watch(self, done: Done) -> None:
        if "Traceback" in done.err or "this is a bug" in done.err:
            self._fault("bug", done.err)

    def _fault(self, kind: str, what: str) -> None:
        self.tally.faults.append((kind, "\n".join([what, *self._log])))

    def _branch(self) -> str:
        return self._repo.git("branch", "--show-current").strip()

    def _go_on(self, *arguments: str) -> Done:
        """Run git, and follow whatever remedy it or the hook names until it is done."""
        done = self._git(*arguments)
        for _ in range(12):
            if (not done.code or re.search("(nothing|no changes) .*to commit", done.out)) and (
                not self._is_midway()
            ):
                return done
            if self._repo.git("ls-files", "--unmerged"):
                self._settle()
            done = self._continue(done, arguments)
        self._fault("no end", done.err)
        self._git("reset", "--quiet", "--hard")
        for verb in ("rebase", "merge", "cherry-pick", "revert"):
            self._git(verb, "--abort")
        return done

    def _is_midway(self) -> bool:
        names = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge")
        return any((self._repo.root / ".git" / name).exists() for name in names)

    def _continue(self, done: Done, arguments: tuple[str, ...]) -> Done:
        git = self._repo.root / ".git"
        if "kbindex update" in done.err:
            self._kbindex("update")
        for name, verb in (("CHERRY_PICK_HEAD", "cherry-pick"), ("REVERT_HEAD", "revert")):
            if (git / name).exists() and not (git / "rebase-merge").exists():
                is_empty = not self._repo.git("diff", "--cached", "--name-only")
                return self._git(*QUIETLY, verb, "--skip" if is_empty else "--continue")
        if (git / "rebase-merge").exists():
            self._kbindex("update")
            is_empty = not self._repo.git("diff", "--cached", "--name-only")
            return self._git(*QUIETLY, "rebase", "--skip" if is_empty else "--continue")
        if (git / "MERGE_HEAD").exists() or (git / "SQUASH_MSG").exists():
            return self._git(*QUIETLY, "commit", "--no-edit")
        return self._git(*arguments)

    def _settle(self) -> None:
        """Resolve conflicts as documented: first the documents, then the index."""
        self._count_conflicts(self._unmerged())
        for path, stages in self._unmerged().items():
            if not path.startswith(f"{INDEX}/"):
                side = self.dice.choice([stage for stage in stages if stage > 1] or [0])
                self._take(path, side)
        self._kbindex(self.dice.choice(["resolve", "update"]))
        if self._repo.git("ls-files", "--unmerged"):
            self._fault("unsettled", self._repo.git("status", "--short"))
            self._repo.git("checkout", "HEAD", "--", INDEX, check=False)
            self._repo.git("add", "--all")

    def _take(self, path: str, side: int) -> None:
        if side == 0:
            self._repo.git("rm", "--quiet", "--cached", "--force", "--", path, check=False)
            (self._repo.root / path).unlink(missing_ok=True)
            return
        self._repo.git("checkout", "--ours" if side == 2 else "--theirs", "--", path)
        self._repo.git("add", "--", path)

    def _unmerged(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for entry in self._repo.git("ls-files", "--unmerged", "-z").split("\0"):
            if entry:
                meta, path = entry.split("\t", 1)
                found.setdefault(path, []).append(int(meta.split()[2]))
        return found

    def _count_conflicts(self, unmerged: dict[str, list[int]]) -> None:
        if unmerged and all(path.startswith(f"{INDEX}/") for path in unmerged):
            self.tally.conflicts.update(f"local: {kind}" for kind in kinds_of(unmerged))

    # Acts

    def work(self) -> None:
        """Edit and commit, in one of git's ways."""
        for _ in range(self.dice.randrange(1, 3)):
            file = self._edit()
        if not self._at.has_kbindex:
            self._repo.git("add", "--all")
            self._git("commit", "--quiet", "--no-verify", "--message", "colleague")
            return
        way = self.dice.choices(["plain", "all", "path", "update"], [5, 3, 3, 1])[0]
        path = file.relative_to(self._repo.root).as_posix()
        if way == "all":
            self._repo.git("add", "--intent-to-add", "bundle")
            self._go_on("commit", "--quiet", "--all", "--message", "all")
        elif way == "path" and file.exists():
            self._repo.git("add", path)
            self._go_on("commit", "--quiet", "--message", "path", "--", path)
            self._repo.git("add", "--all")
            self._go_on("commit", "--quiet", "--allow-empty", "--message", "rest")
        else:
            self._repo.git("add", "--all")
            if way == "update":
                self._kbindex("update")
            self._go_on("commit", "--quiet", "--allow-empty", "--message", way)

    def begin_topic(self) -> None:
        """Begin a branch at the server's main, or go back to main."""
        self._git("fetch", "--quiet", "--prune")
        if self.dice.random() < 0.3:
            self._git("checkout", "--quiet", "-B", "main", "origin/main")
            return
        self._n_topics += 1
        self._git("checkout", "--quiet", "-B", f"topic{self._n_topics}", "origin/main")

    def propose(self) -> None:
        """Begin a topic somewhere on main, do a few things on it, and push it."""
        self._git("fetch", "--quiet", "--prune")
        commits = self._repo.git("rev-list", "--max-count=6", "origin/main").split()
        self._n_topics += 1
        start = self.dice.choice(commits)
        self._git("checkout", "--quiet", "-B", f"topic{self._n_topics}", start)
        for _ in range(self.dice.randrange(1, 4)):
            acts = (self.work, self.revert, self.amend, self.pick, self._checkpoint)
            act = self.dice.choices(acts, [10, 4, 1, 2, 1])[0]
            self._log.append(act.__name__)
            act()
        self.push()

    def push(self) -> None:
        """Push the branch; mend and try again what the hook refuses."""
        branch = self._branch()
        force = [] if branch == "main" else ["--force"]
        options = [] if self._at.has_kbindex else ["--no-verify"]
        done = self._git("push", "--quiet", *force, *options, "origin", branch)
        if "kbindex update" in done.err:
            self._kbindex("update")
            self._git("commit", "--quiet", "--amend", "--no-edit", "--allow-empty")
            done = self._git("push", "--quiet", *force, "origin", branch)
            if "kbindex update" in done.err:
                self._fault("refused again", done.err)

    def pull(self) -> None:
        """Bring the server's main in, by a merge or by a rebase."""
        how = self.dice.choice(["--no-rebase", "--rebase"])
        self._go_on(*QUIETLY, "pull", "--quiet", "--no-edit", how, "origin", "main")

    def merge_main(self) -> None:
        self._git("fetch", "--quiet")
        self._go_on(*QUIETLY, "merge", "--quiet", "--no-edit", "origin/main")

    def rebase(self) -> None:
        self._git("fetch", "--quiet")
        self._go_on(*QUIETLY, "rebase", "--quiet", "origin/main")

    def revert(self) -> None:
        commit = self._some_commit("HEAD")
        if commit:
            self._go_on(*QUIETLY, "revert", "--no-edit", commit)

    def pick(self) -> None:
        branches = self._remote_topics()
        commit = self._some_commit(self.dice.choice(branches)) if branches else None
        if commit:
            self._go_on(*QUIETLY, "cherry-pick", "--allow-empty", commit)

    def amend(self) -> None:
        if self._some_commit("HEAD") is None:
            return  # the first commit, which all have
        self._edit()
        self._repo.git("add", "--all")
        options = [] if self._at.has_kbindex else ["--no-verify"]
        self._go_on("commit", "--quiet", "--amend", "--no-edit", "--allow-empty", *options)

    def squash(self) -> None:
        branches = self._remote_topics()
        if branches:
            self._git(*QUIETLY, "merge", "--squash", "--quiet", self.dice.choice(branches))
            if self._repo.git("ls-files", "--unmerged"):
                self._settle()
            self._go_on("commit", "--quiet", "--allow-empty", "--message", "squashed")

    def stash(self) -> None:
        self._edit()
        self._repo.git("add", "--all")
        if self._at.has_kbindex:
            self._kbindex("update")
        self._git("stash", "--quiet")
        self._git("checkout", "--quiet", "-B", f"stashed{self._n_topics}", "origin/main")
        self._git("stash", "pop", "--quiet", "--index")
        if self._repo.git("ls-files", "--unmerged") or not self._repo.git("status", "--porcelain"):
            self._git("reset", "--quiet", "--hard")
            self._git("stash", "clear")
        options = [] if self._at.has_kbindex else ["--no-verify"]
        self._repo.git("add", "--all")
        self._go_on("commit", "--quiet", "--allow-empty", "--message", "popped", *options)

    def maintain(self) -> None:
        """Checkpoint or compact on main, mostly, and commit."""
        if not self._at.has_kbindex:
            return
        if self.dice.random() < 0.7:
            self._git("fetch", "--quiet")
            self._git("checkout", "--quiet", "-B", "main", "origin/main")
        self._checkpoint(self.dice.choices(["checkpoint", "compact"], [2, 1])[0])
        if self._branch() == "main":
            self._git("push", "--quiet", "origin", "main")

    def _checkpoint(self, verb: str = "checkpoint") -> None:
        if not self._at.has_kbindex:
            return
        done = self._kbindex(verb)
        if done.code == 3 and "kbindex update" in done.err:
            self._kbindex("update")
            self._kbindex(verb)
        self._go_on("commit", "--quiet", "--allow-empty", "--message", verb)

    def merge_on_server(self) -> None:
        """Merge a pushed topic into main as a server does, without a hook."""
        tips = self.server.git("for-each-ref", "--format=%(refname:short)", "refs/heads").split()
        topics = [
            name
            for name in tips
            if name != "main" and self.server.git("rev-list", "-1", f"main..{name}").strip()
        ]
        if not topics:
            return
        topic = self.dice.choice(topics)
        self._log.append(f"server merges {topic}")
        said = self.server.git("merge-tree", "--write-tree", "main", topic, check=False)
        tree = said.split("\n", 1)[0]
        if "CONFLICT" in said:
            self._conflict_on_server(said, topic)
            if self.dice.random() < 0.5:  # else somebody may rebase it
                self.server.git("update-ref", "-d", f"refs/heads/{topic}")
            return
        parents = ["-p", "main"] if self.dice.random() < 0.3 else ["-p", "main", "-p", topic]
        self._judge_merge(tree, topic)
        commit = self.server.git("commit-tree", tree, *parents, "-m", f"merge {topic}").strip()
        self.server.git("update-ref", "refs/heads/main", commit)

    def _conflict_on_server(self, said: str, topic: str) -> None:
        unmerged: dict[str, list[int]] = {}
        for mode_oid, stage, path in re.findall(r"(?m)^(\d+ \w+) ([123])\t(.*)$", said):
            unmerged.setdefault(path, []).append(int(stage))
            assert mode_oid
        if all(path.startswith(f"{INDEX}/") for path in unmerged):
            self.tally.merges["conflict in the index alone"] += 1
            tree = said.split("\n", 1)[0]
            has_all = self._judge.has_embedded(self.server, tree, "main", topic)
            note = "" if has_all else ", some of it embedded by nobody"
            self.tally.conflicts.update(f"server: {kind}{note}" for kind in kinds_of(unmerged))
        else:
            self.tally.merges["conflict in documents"] += 1

    def _judge_merge(self, tree: str, topic: str) -> None:
        sides = [
            self.server.git("rev-parse", f"{name}^{{tree}}").strip() for name in ("main", topic)
        ]
        truth = self._judge.judge(self.server, tree)
        before = [self._judge.judge(self.server, side) for side in sides]
        if not all(side.is_fresh for side in before):
            self.tally.merges["clean, of a stale side"] += 1
        elif truth.is_fresh:
            self.tally.merges["clean and fresh"] += 1
        elif truth.stale:
            self.tally.merges["clean and stale: nobody has embedded it"] += 1
        elif truth.damaged:
            self.tally.merges["clean and UNREADABLE"] += 1
            self._fault("table lost by a clean merge", str(truth.damaged))
        else:
            self.tally.merges["clean and a row LOST"] += 1
            self._fault("row lost by a clean merge", f"{truth.missing}\n{self._origins(topic)}")

    def _origins(self, topic: str) -> str:
        base = self.server.git("merge-base", "main", topic).strip()
        return self.server.git("diff", "--stat", base, "main", check=False) + self.server.git(
            "diff", "--stat", base, topic, check=False
        )

    def _some_commit(self, revision: str) -> str | None:
        options = ("--no-merges", "--min-parents=1", "--max-count=6")  # never the first one
        found = self._repo.git("rev-list", *options, revision).split()
        return self.dice.choice(found) if found else None

    def _remote_topics(self) -> list[str]:
        names = self._repo.git("for-each-ref", "--format=%(refname:short)", "refs/remotes").split()
        return [name for name in names if "/topic" in name]

    # What has to hold after each step

    def _look(self) -> None:
        for revision in ("HEAD", None):
            self._look_at(revision)
        twice = [text for text, n in self._at.embedded.items() if n > 1]
        if twice:
            self._fault("embedded twice", twice[0])
            self._at.embedded.clear()
        if self._at.has_kbindex and self.dice.random() < 0.3:
            self._ask()

    def _look_at(self, revision: str | None) -> None:
        repo = self._repo
        tree = repo.git("rev-parse", "HEAD^{tree}" if revision else ":", check=False).strip()
        if revision is None:
            tree = repo.git("write-tree").strip()
        truth = self._judge.judge(repo, tree)
        if tree not in self._checked:
            self._checked[tree] = self._kbindex("check", "--strict", "--rev", tree).code
        code = self._checked[tree]
        if (code == 0) != truth.is_fresh:
            self._fault("wrong verdict", f"check says {code}, but {truth}")
        is_believed = self._is_recorded_fresh(tree) and not truth.is_fresh
        if is_believed and self._kbindex("check", "--rev", tree).code:  # not boundaries alone
            self._fault("stale and recorded as fresh", str(truth))

    def _is_recorded_fresh(self, tree: str) -> bool:
        repository = repository_at(Git(self._repo.root), tree)
        with repository.cache() as cache:
            return cache.is_fresh(repository.state_id(tree))

    def _ask(self) -> None:
        """Ask something; every hit's span must give its text."""
        question = " ".join(self.dice.choices(WORDS, k=2))
        done = self._kbindex("query", question, "-k", "2", "--text", "--format", "json")
        if done.code != 0:
            return
        for hit in done.json()["hits"]:
            span = ":".join(map(str, hit["span"]))
            found = self._kbindex("get", hit["id"], "--span", span)
            if found.out.rstrip("\n") != hit["text"].rstrip("\n"):
                self._fault("hit and span differ", f"{hit} {found.out}")


def kinds_of(unmerged: dict[str, list[int]]) -> Counter[str]:
    """Name the parts of the index that are in conflict, each once."""
    kinds = set()
    for path, stages in unmerged.items():
        part = path.removeprefix(f"{INDEX}/").split("/")[0]
        if part == "outline":
            part += ", both edited" if {2, 3} <= set(stages) else ", deleted and edited"
        kinds.add(part)
    if "chunks.lance" in kinds or "lineage" in kinds:
        return Counter({"two tables": 1})
    return Counter(sorted(kinds))
