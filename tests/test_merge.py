"""Merges as a server makes them: no hook, no merge driver, nobody there to run kbindex."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Callable

import pytest

from kbindex.embed import load_embedder
from kbindex.outline.states import Proven
from kbindex.storage.tree import open_index
from testing.index import assert_commit_fresh, forget_local_state, table_rows, update_and_commit
from testing.repositories import Repo, Template, run

N_DOCUMENTS = 12
N_PAIRS = int(os.environ.get("KBINDEX_TEST_PAIRS", "8"))
WORDS = [
    *("lamp", "keeper", "evening", "wind", "tide", "oil", "glass", "brass", "rope", "ship"),
    *("harbour", "stair", "clock", "signal", "winter", "letter", "boat", "rock", "gull", "fog"),
]


def _git_version() -> tuple[int, ...]:
    found = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in re.findall(r"\d+", found)[:2])


pytestmark = pytest.mark.skipif(_git_version() < (2, 38), reason="git merge-tree --write-tree")


# Helpers


def branch(repo: Repo, base: str, edit: Callable[[Repo], None]) -> str:
    """Return a commit on top of ``base`` with one edit and its index."""
    repo.git("checkout", "--quiet", "--detach", base)
    edit(repo)
    return update_and_commit(repo)


def merged(repo: Repo, ours: str, theirs: str) -> str | None:
    """Merge without a work tree. Returns the merge commit, ``None`` on a conflict."""
    done = repo.try_git("merge-tree", "--write-tree", ours, theirs)
    if done.code:
        assert done.code == 1, done.err
        return None
    parents = ("-p", ours, "-p", theirs)
    return repo.git("commit-tree", done.out.strip(), *parents, "-m", "merged").strip()


def assert_merges_fresh(repo: Repo, ours: str, theirs: str, *options: str) -> None:
    commit = merged(repo, ours, theirs)
    assert commit is not None, repo.git("diff", "--stat", ours, theirs)
    assert_commit_fresh(repo, commit, *options)


def paragraph(dice: random.Random) -> str:
    sentences = [
        " ".join(dice.choice(WORDS) for _ in range(11)).capitalize() + f" {dice.randrange(10**6)}."
        for _ in range(5)
    ]
    return " ".join(sentences)


def long_document(seed: int, *, with_headings: bool) -> list[str]:
    """Return 30 paragraphs, with a title and, if asked for, a heading above every fifth."""
    dice = random.Random(seed)
    paragraphs = [paragraph(dice) for _ in range(30)]
    if with_headings:
        paragraphs[::5] = [f"## Part {n}\n\n{p}" for n, p in enumerate(paragraphs[::5])]
    return [f"# Log {seed}\n\n{paragraphs[0]}", *paragraphs[1:]]


def write_document(repo: Repo, path: str, paragraphs: list[str]) -> None:
    repo.write(path, "\n\n".join(paragraphs) + "\n")


def edited(paragraphs: list[str], number: int, dice: random.Random) -> list[str]:
    """Change, add, or remove text in one paragraph; what opens it stays."""
    lead, _, last = paragraphs[number].rpartition("\n\n")
    sentences = re.split(r"(?<=\.) ", last)
    at = dice.randrange(len(sentences))
    kind = dice.choice(["word", "sentence", "removal", "paragraph"])
    if kind == "word":
        sentences[at] = sentences[at].replace(".", f" {dice.randrange(10**6)}.")
    elif kind == "sentence":
        sentences.insert(at, f"A new sentence {dice.randrange(10**6)}.")
    elif kind == "removal":
        del sentences[at]
    text = " ".join(sentences)
    if kind == "paragraph":
        text += f"\n\n{paragraph(dice)}"
    changed = f"{lead}\n\n{text}" if lead else text
    return [*paragraphs[:number], changed, *paragraphs[number + 1 :]]


def short_document(number: int) -> str:
    dice = random.Random(1000 + number)
    return f"# Note {number}\n\n{paragraph(dice)}\n\n## More\n\n{paragraph(dice)}\n"


@pytest.fixture
def base(from_template: Template) -> Repo:
    """A copy of a repository of short documents and two long ones, without hooks."""

    def fill(repo: Repo) -> None:
        for number in range(N_DOCUMENTS):
            repo.write(f"bundle/part{number % 3}/note{number}.md", short_document(number))
        write_document(repo, "bundle/flat.md", long_document(1, with_headings=False))
        write_document(repo, "bundle/parts.md", long_document(2, with_headings=True))
        update_and_commit(repo)

    return from_template("base", fill)


LONG = {"bundle/flat.md": False, "bundle/parts.md": True}


def read_long(path: str) -> list[str]:
    return long_document(1 + LONG[path], with_headings=LONG[path])


# What has to merge by itself


@pytest.mark.parametrize("seed", range(N_PAIRS))
def test_edits_of_different_documents_merge_fresh(base: Repo, seed: int) -> None:
    dice = random.Random(seed)
    numbers = dice.sample(range(N_DOCUMENTS), 6)

    def edit(chosen: list[int]) -> Callable[[Repo], None]:
        def change(repo: Repo) -> None:
            for number in chosen:
                path = f"bundle/part{number % 3}/note{number}.md"
                text = short_document(number).replace(".", f" {dice.randrange(10**6)}.", 1)
                repo.write(path, text)

        return change

    ours = branch(base, "main", edit(numbers[:3]))
    theirs = branch(base, "main", edit(numbers[3:]))
    assert_merges_fresh(base, ours, theirs, "--strict")


@pytest.mark.parametrize("seed", range(N_PAIRS))
def test_new_deleted_and_renamed_documents_merge_fresh(base: Repo, seed: int) -> None:
    dice = random.Random(100 + seed)
    numbers = dice.sample(range(N_DOCUMENTS), 6)

    def edit(side: int, chosen: list[int]) -> Callable[[Repo], None]:
        def change(repo: Repo) -> None:
            gone, moved, changed = (f"bundle/part{n % 3}/note{n}.md" for n in chosen)
            repo.git("rm", "--quiet", gone)
            repo.git("mv", moved, moved.replace("note", f"moved by {side} "))
            repo.write(changed, paragraph(dice) + "\n")
            for number in range(dice.randrange(1, 4)):
                repo.write(f"bundle/part{number}/new{side}-{number}.md", f"# {paragraph(dice)}\n")
            repo.write("bundle/part0/both.md", "# Both\n\nAdd the same document.\n")

        return change

    ours = branch(base, "main", edit(1, numbers[:3]))
    theirs = branch(base, "main", edit(2, numbers[3:]))
    assert_merges_fresh(base, ours, theirs, "--strict")


@pytest.mark.parametrize("path", LONG)
@pytest.mark.parametrize("seed", range(N_PAIRS))
def test_edits_far_apart_in_one_document_merge_fresh(base: Repo, seed: int, path: str) -> None:
    dice = random.Random(200 + seed)
    paragraphs = read_long(path)
    first, last = dice.randrange(1, 11), dice.randrange(19, 30)

    def edit(number: int) -> Callable[[Repo], None]:
        return lambda repo: write_document(repo, path, edited(paragraphs, number, dice))

    ours, theirs = branch(base, "main", edit(first)), branch(base, "main", edit(last))
    assert_merges_fresh(base, ours, theirs)


@pytest.mark.parametrize("seed", range(N_PAIRS))
def test_edits_of_neighbouring_sections_merge_fresh(base: Repo, seed: int) -> None:
    dice = random.Random(300 + seed)
    sections = [f"## Section {number}\n\n{paragraph(dice)}" for number in range(8)]
    base.git("checkout", "--quiet", "main")
    write_document(base, "bundle/sections.md", ["# Sections", *sections])
    update_and_commit(base)
    first = dice.randrange(7)

    def edit(number: int) -> Callable[[Repo], None]:
        text = edited(sections, number, dice)
        return lambda repo: write_document(repo, "bundle/sections.md", ["# Sections", *text])

    ours, theirs = branch(base, "main", edit(first)), branch(base, "main", edit(first + 1))
    assert_merges_fresh(base, ours, theirs)


def test_an_edit_and_a_renamed_folder_merge_fresh(base: Repo) -> None:
    ours = branch(
        base, "main", lambda repo: repo.git("mv", "bundle/part0", "bundle/moved") and None
    )
    theirs = branch(
        base,
        "main",
        lambda repo: (
            repo.write("bundle/part0/note0.md", short_document(0) + "\nOne more.\n") and None
        ),
    )
    assert_merges_fresh(base, ours, theirs)


def test_a_checkpoint_and_new_wal_files_merge_fresh(base: Repo) -> None:
    def add(name: str, n_sections: int) -> Callable[[Repo], None]:
        dice = random.Random(name)
        text = "".join(f"## {n}\n\n{paragraph(dice)}\n\n" for n in range(n_sections))
        return lambda repo: repo.write(f"bundle/{name}.md", f"# {name}\n\n{text}") and None

    start = branch(base, "main", add("many", 80))  # git takes many moved rows for a rename
    theirs = branch(base, start, add("theirs", 3))
    base.git("checkout", "--quiet", "--detach", start)
    assert run(base, "checkpoint").code == 0
    ours = base.commit()
    assert_merges_fresh(base, ours, theirs)
    assert_merges_fresh(base, theirs, ours)


def test_three_branches_merge_one_after_the_other(base: Repo) -> None:
    dice = random.Random(7)
    paragraphs = read_long("bundle/flat.md")
    tips = []
    for number in (3, 15, 27):
        text = edited(paragraphs, number, dice)
        tips.append(
            branch(base, "main", lambda repo, t=text: write_document(repo, "bundle/flat.md", t))
        )
    both = merged(base, tips[0], tips[1])
    assert both is not None
    assert_merges_fresh(base, both, tips[2])


@pytest.mark.parametrize("seed", range(N_PAIRS))
def test_a_section_inserted_above_an_edit_merges_fresh(base: Repo, seed: int) -> None:
    dice = random.Random(100 + seed)
    paragraphs = read_long("bundle/parts.md")
    below = dice.randrange(16, 29)
    inserted = [*paragraphs[:10], f"## Inserted {seed}\n\n{paragraph(dice)}", *paragraphs[10:]]
    if not paragraphs[10].startswith("## "):
        inserted[11] = f"## Continued {seed}\n\n{inserted[11]}"
    changed = edited(paragraphs, below, dice)
    ours = branch(base, "main", lambda repo: write_document(repo, "bundle/parts.md", inserted))
    theirs = branch(base, "main", lambda repo: write_document(repo, "bundle/parts.md", changed))
    assert_merges_fresh(base, ours, theirs)


@pytest.mark.parametrize("seed", range(N_PAIRS))
def test_a_renamed_document_and_an_edit_of_it_merge_fresh(base: Repo, seed: int) -> None:
    changed = edited(read_long("bundle/flat.md"), 4 + seed % 20, random.Random(200 + seed))
    ours = branch(
        base, "main", lambda repo: repo.git("mv", "bundle/flat.md", "bundle/log.md") and None
    )
    theirs = branch(base, "main", lambda repo: write_document(repo, "bundle/flat.md", changed))
    assert_merges_fresh(base, ours, theirs)


@pytest.mark.parametrize("seed", range(N_PAIRS))
def test_the_same_edit_on_both_sides_merges_fresh(base: Repo, seed: int) -> None:
    def same(repo: Repo) -> None:
        text = edited(read_long("bundle/flat.md"), seed % 28, random.Random(300 + seed))
        write_document(repo, "bundle/flat.md", text)

    def same_and_more(repo: Repo) -> None:
        same(repo)
        repo.write("bundle/part1/note1.md", short_document(1) + f"\nMore {seed}.\n")

    assert_merges_fresh(base, branch(base, "main", same), branch(base, "main", same_and_more))


@pytest.mark.parametrize("seed", range(N_PAIRS))
def test_several_commits_on_both_sides_merge_fresh(base: Repo, seed: int) -> None:
    def side(first: int) -> str:
        dice = random.Random(400 + seed + first)
        paragraphs, tip = read_long("bundle/flat.md"), "main"
        for number in (first, first + 2, first + 4):
            paragraphs = edited(paragraphs, number, dice)
            text = list(paragraphs)
            tip = branch(base, tip, lambda repo, t=text: write_document(repo, "bundle/flat.md", t))
        return tip

    assert_merges_fresh(base, side(2), side(18))


# What nobody has embedded


def in_one_passage(side: str) -> Callable[[Repo], None]:
    """Edit two neighbouring sentences of one passage, one on each side."""

    def change(repo: Repo) -> None:
        paragraphs = read_long("bundle/flat.md")
        sentences = re.split(r"(?<=\.) ", paragraphs[10])
        sentences[1 if side == "ours" else 2] = f"Edited by {side}."
        paragraphs[10] = " ".join(sentences)
        write_document(repo, "bundle/flat.md", paragraphs)

    return change


def on_separate_lines(side: str) -> Callable[[Repo], None]:
    """Edit two paragraphs of one short passage: git merges the document by itself."""

    def change(repo: Repo) -> None:
        text = short_document(0)
        head, tail = ("Ours. ", "") if side == "ours" else ("", " Theirs.")
        first, second = text.split("\n\n", 2)[1], text.rstrip("\n").rsplit("\n\n", 1)[1]
        text = text.replace(first, head + first).replace(second, second + tail)
        repo.write("bundle/part0/note0.md", text.replace("## More\n\n", ""))

    return change


def title_and_passage(side: str) -> Callable[[Repo], None]:
    """Edit the title on one side and a passage far below it on the other."""

    def change(repo: Repo) -> None:
        paragraphs = read_long("bundle/flat.md")
        if side == "ours":
            paragraphs[0] = paragraphs[0].replace("# Log 1", "# Journal")
        else:
            paragraphs[25] += " And a clause by theirs."
        write_document(repo, "bundle/flat.md", paragraphs)

    return change


def heading_and_passage(side: str) -> Callable[[Repo], None]:
    def change(repo: Repo) -> None:
        paragraphs = read_long("bundle/parts.md")
        if side == "ours":
            paragraphs[15] = paragraphs[15].replace("## Part 3", "## Third part")
        else:
            paragraphs[18] += " And a clause by theirs."
        write_document(repo, "bundle/parts.md", paragraphs)

    return change


def heading_inserted_above_and_passage(side: str) -> Callable[[Repo], None]:
    def change(repo: Repo) -> None:
        paragraphs = read_long("bundle/flat.md")
        if side == "ours":
            paragraphs.insert(8, "## Suddenly a heading")
        else:
            paragraphs = edited(paragraphs, 20, random.Random(5))
        write_document(repo, "bundle/flat.md", paragraphs)

    return change


def rename_with_title_and_passage(side: str) -> Callable[[Repo], None]:
    def change(repo: Repo) -> None:
        paragraphs = read_long("bundle/flat.md")
        if side == "ours":
            repo.git("mv", "bundle/flat.md", "bundle/renamed.md")
            paragraphs[0] = paragraphs[0].replace("# Log", "# Diary")
            write_document(repo, "bundle/renamed.md", paragraphs)
        else:
            write_document(repo, "bundle/flat.md", edited(paragraphs, 20, random.Random(6)))

    return change


def title_and_new_section(side: str) -> Callable[[Repo], None]:
    """Edit the title on one side and append a section on the other: git merges both files."""

    def change(repo: Repo) -> None:
        if side == "ours":
            repo.write("bundle/tail.md", TAIL.replace("# Old title", "# New title"))
        else:
            repo.write("bundle/tail.md", f"{TAIL}## Added\n\nUnder the old title.\n")

    return change


TAIL = "# Old title\n\nIntro.\n\n## Part\n\nText.\n\n"


@pytest.mark.parametrize(
    ("edit", "conflicts"),
    [
        (in_one_passage, True),
        (on_separate_lines, True),
        (title_and_passage, True),
        (heading_and_passage, True),
        (heading_inserted_above_and_passage, True),
        (rename_with_title_and_passage, True),
        (title_and_new_section, False),
    ],
)
def test_what_nobody_has_embedded_conflicts_or_is_called_stale_and_is_mended(
    base: Repo, edit: Callable[[str], Callable[[Repo], None]], conflicts: bool
) -> None:
    base.write("bundle/part0/note0.md", short_document(0).replace("## More\n\n", ""))
    base.write("bundle/tail.md", TAIL)
    update_and_commit(base)
    ours, theirs = branch(base, "main", edit("ours")), branch(base, "main", edit("theirs"))
    merge = merged(base, ours, theirs)
    assert (merge is None) == conflicts
    if merge is not None:
        checked = run(base, "check", "--rev", merge)
        assert checked.code == 1, "a merge that nobody embedded was called fresh"
        assert "stale-document" in checked.out or "missing-vector" in checked.out

    base.git("checkout", "--quiet", "--detach", ours)
    base.git("merge", "--quiet", "--no-edit", theirs, check=False)
    conflicted = base.git("diff", "--name-only", "--diff-filter=U").split()
    assert bool(conflicted) == (merge is None)
    for path in conflicted:
        if path.startswith("bundle/"):
            base.git("checkout", "--quiet", "--theirs", "--", path)
    base.git("add", "--all")  # outlines with their markers, too
    if conflicted:
        assert run(base, "check").code != 0
    done = run(base, "update")
    assert done.code == 0, done.err
    base.commit()
    checked = run(base, "check", "--rev", "HEAD", "--strict")
    assert checked.code == 0, checked.out


def test_resolving_a_conflict_uses_the_rows_of_both_sides(base: Repo) -> None:
    """Only the passage that was put together is embedded, even where no cache is left."""
    ours = branch(base, "main", in_one_passage("ours"))
    theirs = branch(base, "main", in_one_passage("theirs"))
    base.git("checkout", "--quiet", "--detach", ours)
    base.git("merge", "--quiet", "--no-edit", theirs, check=False)
    write_document(base, "bundle/flat.md", read_long("bundle/flat.md"))
    paragraphs = read_long("bundle/flat.md")
    paragraphs[10] += " Resolved."
    write_document(base, "bundle/flat.md", paragraphs)
    base.git("add", "--all")
    forget_local_state(base)
    done = run(base, "update")
    assert done.code == 0, done.err
    found = re.search(r"(\d+) embedded", done.out)
    assert found
    assert 1 <= int(found.group(1)) <= 3


# Squashed


def squash(repo: Repo, tip: str) -> str:
    """Land a branch as a server does: one commit with the tip's tree on top of main."""
    repo.git("checkout", "--quiet", "main")
    parents = ("-p", "main")
    squashed = repo.git("commit-tree", f"{tip}^{{tree}}", *parents, "-m", "squashed").strip()
    repo.git("reset", "--quiet", "--hard", squashed)
    return squashed


def branch_of_two_commits(repo: Repo) -> str:
    """A branch whose first version of a document is in no history once it is squashed."""
    sections = [f"## Section {n}\n\nText {n}.\n\n" for n in range(4)]
    first = branch(
        repo, "main", lambda r: r.write("bundle/new.md", "# New\n\n" + "".join(sections)) and None
    )
    sections[0] = "## Another section\n\nMoves everything below it.\n\n"
    return branch(
        repo, first, lambda r: r.write("bundle/new.md", "# New\n\n" + "".join(sections)) and None
    )


def assert_live_rows_dereference(repo: Repo) -> None:
    """Assert that the table's row of each live key cites, in history, what was embedded."""
    states = open_index(repo.root, "HEAD").compare(load_embedder("hash").identity)
    shown = {
        entry.key: entry.shown
        for state in states
        if isinstance(state, Proven)
        for entry in state.entries
        if entry.shown is not None
    }
    reachable = {line.split()[0] for line in repo.git("rev-list", "--objects", "HEAD").splitlines()}
    rows = {row.key: row for row in table_rows(repo.root / ".kbindex")[0]}
    assert shown.keys() <= rows.keys()
    for key, text in shown.items():
        row = rows[key]
        assert row.blob in reachable, f"{row.path} {row.heading}: no commit holds its blob"
        passage = repo.git("cat-file", "blob", row.blob, check=False)[row.char_start : row.char_end]
        assert text.rstrip().endswith(passage.rstrip())


def test_a_checkpoint_after_a_squash_cites_what_is_in_history(base: Repo) -> None:
    squash(base, branch_of_two_commits(base))
    assert run(base, "check", "--rev", "HEAD").code == 0
    assert run(base, "checkpoint").code == 0
    base.commit("checkpoint")
    assert_live_rows_dereference(base)


def test_a_checkpoint_with_an_edit_after_a_squash_cites_what_is_in_history(base: Repo) -> None:
    squash(base, branch_of_two_commits(base))
    base.write("kbindex.toml", 'embedder = "hash"\ncheckpoint_every = 1\n')
    text = (base.root / "bundle/new.md").read_text()
    base.write("bundle/new.md", text + "## Last\n\nAdded later.\n")
    base.git("add", "--all")
    assert run(base, "hook", "pre-commit").code == 0
    base.commit("an edit and a checkpoint")
    assert not list((base.root / ".kbindex/wal").glob("*.arrow"))
    assert run(base, "check", "--rev", "HEAD").code == 0
    assert_live_rows_dereference(base)
