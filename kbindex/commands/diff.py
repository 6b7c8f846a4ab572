"""``kbindex diff``: what changed in the index between two trees, without checkout or model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbindex.configuration.recipe import compare_recipes
from kbindex.core.errors import ExitCode, KbindexError
from kbindex.core.model import SEPARATOR, Line, Recipe
from kbindex.core.text import as_text
from kbindex.evaluation.questions import Question, read_questions
from kbindex.git.client import Git
from kbindex.outline.diff import DocumentChange, SectionChange, diff_outlines
from kbindex.outline.file import OutlineMismatch, parse_outline
from kbindex.output.console import note, put
from kbindex.output.formats import Format
from kbindex.output.render import to_json
from kbindex.repo.repository import repository_at
from kbindex.storage.tree import IndexTree, index_at

STAGED = "staged"
WORKTREE = "worktree"
_MOST_LINES = 200
"""Most lines of Markdown: a comment on a pull request holds 65,536 characters on GitHub."""


def diff(
    directory: Path | None,
    before: str,
    after: str,
    form: Format,
    *,
    exit_code: bool,
    queries: Path | None = None,
) -> ExitCode:
    """Print the changes from ``before`` to ``after``: revisions, ``staged`` or ``worktree``.

    With ``queries``, a question file, also whose answers move.
    """
    questions = read_questions(queries) if queries else ()
    git = Git(directory)
    old, new = _index(git, before), _index(git, after)
    changes = diff_outlines(_outlines(old), _outlines(new))
    facts = {
        "before": before,
        "after": after,
        "recipe": _recipe_changes(old, new),
        "documents": [_document_json(change) for change in changes],
        "embedded": sum(change.n_embedded for change in changes),
        "reused": sum(change.n_reused for change in changes),
        "bytes_added": _bytes_added(old, new),
    }
    if questions:
        is_same = old.snapshot.tree == new.snapshot.tree
        facts["answers"] = (
            {"questions": len(questions), "moved": []}
            if is_same
            else _moved_answers(old, new, questions)
        )
    put(_render(facts, changes, form))
    return ExitCode.NEGATIVE if exit_code and (changes or facts["recipe"]) else ExitCode.OK


def _index(git: Git, name: str) -> IndexTree:
    """Return the index of a revision, of ``staged`` or of ``worktree``."""
    if name == STAGED:
        tree = git.index.write_tree()
    elif name == WORKTREE:
        tree = git.index.write_worktree_tree(".")
    else:
        tree = git.trees.resolve(name)
    return index_at(repository_at(git, tree), tree)


def _outlines(tree: IndexTree) -> dict[str, Sequence[Line]]:
    """Return the lines of every document's outline; one that can't be read counts as empty."""
    found: dict[str, Sequence[Line]] = {}
    outlines = tree.snapshot.outlines
    paths = sorted(outlines)
    listings = tree.git.objects.read_blobs([outlines[path] for path in paths])
    for path, (_, listing) in zip(paths, listings, strict=True):
        try:
            found[path] = parse_outline(listing.decode("utf-8", "replace"))
        except OutlineMismatch as error:
            note(f"{path}: {error.reason}")
            found[path] = ()
    return found


def _moved_answers(
    before: IndexTree, after: IndexTree, questions: Sequence[Question]
) -> dict[str, Any]:
    from kbindex.evaluation.compare import find_moves, move_json  # a plain diff can spare them

    moves, reason = find_moves(before, after, questions)
    if reason:
        note(f"answers are compared from words alone: {reason}")
    return {"questions": len(questions), "moved": [move_json(move) for move in moves]}


def _recipe_changes(old: IndexTree, new: IndexTree) -> list[str]:
    recipes: list[Recipe | None] = []
    said = set()
    for tree in (old, new):
        try:
            recipes.append(tree.recipe)
        except KbindexError as error:
            if error.message not in said:
                note(error.message)
                note(f"remedy: {error.remedy}")
            said.add(error.message)
            recipes.append(None)
    before, after = recipes
    if before is None or after is None:
        return [] if before is after else ["there is no readable recipe on one side"]
    return [str(change) for change in compare_recipes(before, after)]


def _bytes_added(old: IndexTree, new: IndexTree) -> int:
    before, after = (
        {oid for _, oid, _ in tree.git.trees.files(tree.snapshot.tree, tree.config.index_dir)}
        for tree in (old, new)
    )
    return new.git.objects.total_size(sorted(after - before))


def _document_json(change: DocumentChange) -> dict[str, Any]:
    found: dict[str, Any] = {
        "change": change.kind,
        "path": change.path,
        "was": change.was,
        "embedded": change.n_embedded,
        "reused": change.n_reused,
        "sections": [_section_json(section) for section in change.sections],
    }
    return {name: value for name, value in found.items() if value is not None}


def _section_json(section: SectionChange) -> dict[str, Any]:
    found: dict[str, Any] = {
        "change": section.kind,
        "heading": list(section.heading),
        "was": None if section.was is None else list(section.was),
        "embedded": section.n_embedded,
    }
    return {name: value for name, value in found.items() if value is not None}


def _render(facts: dict[str, Any], changes: list[DocumentChange], form: Format) -> str:
    if form == Format.JSON:
        return to_json(facts)
    is_markdown = form == Format.MARKDOWN
    lines = [f"recipe: {_word(change, is_markdown)}" for change in facts["recipe"]]
    for change in changes:
        lines += _document_lines(change, is_markdown)
    if "answers" in facts:
        lines += _answer_lines(facts["answers"], is_markdown)
    total = (
        f"{len(changes)} documents differ; {facts['embedded']} chunks embedded, "
        f"{facts['reused']} reused; {facts['bytes_added']} bytes added to the index"
    )
    if is_markdown:
        cut = len(lines) - _MOST_LINES
        shown = [*lines[:_MOST_LINES], f"- … and {cut} more lines"] if cut > 0 else lines
        return as_text(["### Search index", "", total, "", *shown])
    return as_text([*lines, total])


def _document_lines(change: DocumentChange, is_markdown: bool) -> list[str]:
    name = _word(change.path, is_markdown)
    was = f" (was {_word(change.was, is_markdown)})" if change.was else ""
    counts = f"{change.n_embedded} embedded, {change.n_reused} reused"
    lines = [f"{'- ' if is_markdown else ''}{change.kind} {name}{was}: {counts}"]
    for section in change.sections:
        heading = _word(SEPARATOR.join(section.heading), is_markdown) or "(beginning)"
        before = f", was {_word(section.was[-1], is_markdown)}" if section.was else ""
        bullet = "  - " if is_markdown else "  "
        lines.append(f"{bullet}{section.kind} {heading}{before}: {section.n_embedded} embedded")
    return lines


def _answer_lines(answers: dict[str, Any], is_markdown: bool) -> list[str]:
    bullet, below = ("- ", "  - ") if is_markdown else ("", "  ")
    lines = [
        f"{bullet}answers move for {len(answers['moved'])} of {answers['questions']} questions"
    ]
    for move in answers["moved"]:
        old, new = move["answer_rank"]["before"], move["answer_rank"]["after"]
        rank = "" if old == new else f" (answer at {new or 'none'}, was {old or 'none'})"
        asked = _word(f"{move['id']} {move['query']}", is_markdown)
        lines.append(f"{below}{asked}{rank}")
        for name in ("before", "after"):
            named = (
                f"{hit['id']}#{hit['section']}" if "section" in hit else hit["id"]
                for hit in move[name]
            )
            hits = _word(", ".join(named), is_markdown) or "nothing"
            lines.append(f"  {below}{name}: {hits}")
    return lines


def _word(text: str, is_markdown: bool) -> str:
    """Return a text of the repository's; in Markdown as code, where nothing links or calls."""
    if not is_markdown or not text:
        return text
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence, room = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{room}{text}{room}{fence}"
