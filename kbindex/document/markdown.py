"""The Markdown parser: text with YAML frontmatter → Document with its blocks and headings.

Structure comes from a CommonMark parser with source positions. No content raises: a malformed
frontmatter yields ``Frontmatter.problems``, each with its line. Not here: where chunks begin
(``chunk``) and the embedded text (``compose``).

Open Knowledge Format v0.1 and v0.2: ``type`` is required there and optional here; unknown keys
are ignored; ``index.md`` and ``log.md`` are reserved names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import PurePosixPath

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from kbindex.analysis.language import AUTO, NONE, named_language
from kbindex.core.model import Block, Document, Frontmatter, Heading

MOST_DOCUMENT_BYTES = 32 << 20
_MOST_PROBLEMS = 20
RESERVED_TYPES = {"index.md": "Index", "log.md": "Log"}

_BOM = "\ufeff"
_EOL = r"(?:\r\n?|\n)"
_OPENING = re.compile(rf"{_BOM}?---[ \t]*{_EOL}")
_CLOSING = re.compile(rf"(?<=[\r\n])(?:---|\.\.\.)[ \t]*(?:{_EOL}|\Z)")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML forbids and a document may contain."""

_BLANK_LINES = re.compile(rf"(?:[ \t]*{_EOL})*")
# Splits lines as CommonMark does: not at form feeds, U+2028 and the like, as str.splitlines would.
_LINE = re.compile(rf"[^\r\n]*{_EOL}|[^\r\n]+\Z")
_KEY_LINE = re.compile(
    r"^(title|description|tags|type|status|language|lang):[ \t]*(\S[^\r\n]*)", re.MULTILINE
)

_KINDS = {
    "heading_open": "heading",
    "paragraph_open": "paragraph",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "table_open": "table",
    "fence": "code",
    "code_block": "code",
}


class UnreadableDocument(Exception):
    """A blob that is no Markdown text; ``line`` (1-based) names the first evidence."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def decode(blob: bytes | None) -> str:
    """Return the text of a blob, its newlines and byte order mark kept.

    Raises UnreadableDocument if it isn't UTF-8, is the pointer of a file kept elsewhere, or was too
    large to be read (``None``).
    """
    if blob is None:
        most = MOST_DOCUMENT_BYTES >> 20
        raise UnreadableDocument(1, f"it is larger than the {most} MiB that are read")
    if blob.startswith(b"version https://git-lfs.github.com/spec/"):
        raise UnreadableDocument(1, "it is a Git LFS pointer, its text is not in the repository")
    try:
        return blob.decode("utf-8")
    except UnicodeDecodeError as error:
        line = blob.count(b"\n", 0, error.start) + 1
        raise UnreadableDocument(
            line, f"it is not UTF-8 (byte 0x{blob[error.start]:02x} at {error.start})"
        ) from None


def parse(text: str) -> Document:
    """Return the structure of ``text``, a decoded blob with its newlines as they are."""
    frontmatter = parse_frontmatter(text)
    body_start = frontmatter.end + text.startswith(_BOM, frontmatter.end)
    lines = [body_start + start for start in _line_starts(text[body_start:])]
    headings, blocks = [], []
    for token, item_lines in _top_level_blocks(text[body_start:]):
        assert token.map is not None
        first, last = token.map
        start = lines[first]
        if token.type == "heading_open":
            end = lines[last] if last < len(lines) else len(text)
            level = int(token.tag[1])
            found = match_heading(text[start:end], level)
            headings.append(Heading(start, end, level, found[0] if found else ""))
        kind = _KINDS.get(token.type, "other")
        blocks.append(Block(start, kind, tuple(lines[line] for line in item_lines)))
    return Document(text, frontmatter, tuple(headings), tuple(blocks))


def parse_frontmatter(text: str) -> Frontmatter:
    """Return the YAML block at the beginning of ``text``, if there is one.

    A leading ``---`` that is never closed, or that encloses something other than a mapping, is
    a thematic break and the text belongs to the body. A block that looks like a mapping but is
    not valid YAML is still frontmatter: its plain ``key: value`` lines are read.
    """
    opening = _OPENING.match(text)
    closing = _CLOSING.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        return Frontmatter()
    source = text[opening.end() : closing.start()]
    blank = _BLANK_LINES.match(text, closing.end())
    end = blank.end() if blank else closing.end()
    try:
        node = yaml.compose(_UNPRINTABLE.sub("\ufffd", source), Loader=_yaml_loader())
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return _salvage_frontmatter(source, end, error)
    if node is None:
        return Frontmatter(end)
    if not isinstance(node, yaml.MappingNode):
        return Frontmatter()
    frontmatter = _read_mapping(node, source, end)
    forbidden = _UNPRINTABLE.search(source)
    if forbidden:
        line = source.count("\n", 0, forbidden.start()) + 2
        problem = (line, "the frontmatter holds a character that YAML forbids")
        frontmatter = replace(frontmatter, problems=(*frontmatter.problems, problem))
    return frontmatter


def nested_headings(text: str) -> list[tuple[int, str]]:
    """Return (char_start, text) of the headings inside lists and quotes.

    They open no section, but GitHub gives them anchors, which counts for repeated ones.
    """
    body_start = parse_frontmatter(text).end
    body_start += text.startswith(_BOM, body_start)
    if not _MAYBE_NESTED.search(text, body_start):
        return []
    lines = [body_start + start for start in _line_starts(text[body_start:])]
    found = []
    tokens = _markdown().parse(text[body_start:])
    for index, token in enumerate(tokens):
        if token.type == "heading_open" and token.level > 0 and token.map:
            found.append((lines[token.map[0]], _one_line(tokens[index + 1].content)))
    return found


# A heading after a quote or list marker, or indented as in a list item; costs no parse elsewhere.
# Each run is taken once, so that the time is linear in the line.
_MARKS = r"[ \t>*+\-0-9.)]*+"
_UNDERLINE = r"=+[ \t]*+\r?$"
_MAYBE_NESTED = re.compile(
    r"^(?:[ \t]++|(?:>|(?:[*+-]|\d{1,9}[.)])(?=[ \t])))[ \t>*+0-9.)]*+"
    rf"(?:\#{{1,6}}[ \t]|{_UNDERLINE}|-{_MARKS}(?:\#{{1,6}}[ \t]|{_UNDERLINE}|\r?$))",
    re.MULTILINE,
)


def match_heading(source: str, level: int) -> tuple[str, int] | None:
    """Return the heading of ``level`` that ``source`` begins with: its text, and where it ends.

    ``None`` if it doesn't begin with one. The text is on one line, with its markup as written.
    This reads one heading whose place is known; finding headings is the parser's work.
    """
    begin = len(source) - len(source.lstrip("\ufeff \t\r\n"))
    heading: list[str] = []
    for match in _LINE.finditer(source, begin):
        line = match.group().rstrip("\r\n")
        if not heading:
            atx = re.match(rf"#{{{level}}}(?:[ \t]+(.*))?$", line, re.DOTALL)
            if atx:
                return _one_line(_without_closing(atx.group(1) or "")), match.end()
        elif level <= 2 and _SETEXT_UNDERLINE[level].match(line):
            return _one_line(" ".join(heading)), match.end()
        if level > 2 or not line.strip(" \t"):
            return None
        heading.append(line)
    return None


def _without_closing(content: str) -> str:
    """Return an ATX heading's content without the hashes that may close it."""
    content = content.rstrip(" \t")
    opened = content.rstrip("#")
    return opened if not opened or opened[-1] in " \t" else content


_SETEXT_UNDERLINE = {1: re.compile(r" {0,3}=+[ \t]*$"), 2: re.compile(r" {0,3}-+[ \t]*$")}
METADATA_PIECE = 480
"""Most UTF-8 bytes of metadata in one embedded text. A token has at least one byte in any
tokenizer, so that a piece fits every embedder."""


def metadata_pieces(frontmatter: Frontmatter) -> list[str]:
    """Return title, description and tags as texts to embed: usually one; words stay whole."""
    values = (frontmatter.title, frontmatter.description, ", ".join(frontmatter.tags))
    rest = "\n".join(value for value in values if value)
    pieces = []
    while len(rest.encode()) > METADATA_PIECE:
        room = len(rest.encode()[:METADATA_PIECE].decode(errors="ignore"))
        cut = max(rest.rfind(" ", 1, room), rest.rfind("\n", 1, room)) + 1
        cut = cut or _last_boundary(rest, room)
        pieces.append(rest[:cut])
        rest = rest[cut:]
    return [*pieces, rest] if rest else pieces


def _last_boundary(text: str, at: int) -> int:
    """Return the last offset ≤ ``at`` between two grapheme clusters, ``at`` without one."""
    import regex  # slow to import and hardly ever needed

    starts = [match.start() for match in regex.finditer(r"\X", text[: at + 1])]
    return starts[-1] or at


def _one_line(text: str) -> str:
    return " ".join(text.split())


def document_type(path: str, declared: str | None) -> str | None:
    """Return a document's type: what its frontmatter says, or that of a reserved file name."""
    return declared or RESERVED_TYPES.get(PurePosixPath(path).name)


def _line_starts(text: str) -> list[int]:
    return [match.start() for match in _LINE.finditer(text)]


@cache
def _markdown() -> MarkdownIt:
    # Only block structure is needed: inline parsing is most of the time of a full parse.
    return MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])


def _top_level_blocks(body: str) -> Iterator[tuple[Token, list[int]]]:
    """Yield each top-level block with the first lines of its list items or table rows."""
    tokens = _markdown().parse(body)
    starts = [i for i, token in enumerate(tokens) if token.level == 0 and token.nesting >= 0]
    for i, j in pairwise([*starts, len(tokens)]):
        if tokens[i].map is not None:
            yield tokens[i], _item_lines(tokens, i, j)


def _item_lines(tokens: list[Token], start: int, end: int) -> list[int]:
    kind = tokens[start].type
    if kind == "table_open":
        first, last = tokens[start].map or (0, 0)
        return list(range(first + 2, last))  # below the header row and its delimiter
    if kind not in ("bullet_list_open", "ordered_list_open"):
        return []
    items = (t for t in tokens[start:end] if t.type == "list_item_open" and t.level == 1)
    return [token.map[0] for token in items if token.map][1:]


@cache
def _yaml_loader() -> type:
    # Scalars stay the strings that were written: a date, a version or "no" is not converted.
    return getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _read_mapping(node: yaml.MappingNode, source: str, end: int) -> Frontmatter:
    values: dict[str, yaml.Node] = {}
    problems = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.value in values:
            problems.append((_line_of(key.start_mark, source), f"'{key.value}' stands twice"))
        values[key.value] = value
    for name in ("title", "description", "type", "status"):
        if name in values and not isinstance(values[name], yaml.ScalarNode):
            line = _line_of(values[name].start_mark, source)
            problems.append((line, f"'{name}' is not a text"))
    language = _scalar(values.get("language")) or _scalar(values.get("lang"))
    if language and language not in (AUTO, NONE) and named_language(language) is None:
        line = _line_of((values.get("language") or values["lang"]).start_mark, source)
        problems.append((line, f"language '{language}' has no stemmer: words are as written"))
    return Frontmatter(
        end=end,
        title=_scalar(values.get("title")),
        description=_scalar(values.get("description")),
        tags=_tags(values.get("tags")),
        type=_scalar(values.get("type")),
        status=_scalar(values.get("status")),
        language=language,
        problems=tuple(problems[:_MOST_PROBLEMS]),
    )


def _line_of(mark: yaml.Mark, source: str) -> int:
    """Return the document's line (1-based) of a place in its frontmatter ``source``."""
    # YAML also ends lines at U+2028 and the like, which mark.line counts.
    return source.count("\n", 0, mark.index) + 2


def _scalar(node: yaml.Node | None) -> str | None:
    if not isinstance(node, yaml.ScalarNode) or (not node.style and node.value in ("~", "null")):
        return None
    return _one_line(node.value) or None


def _tags(node: yaml.Node | None) -> tuple[str, ...]:
    if isinstance(node, yaml.SequenceNode):
        return tuple(tag for tag in map(_scalar, node.value) if tag)
    return _split_tags(_scalar(node) or "")


def _split_tags(text: str) -> tuple[str, ...]:
    return tuple(tag for tag in (part.strip(" \t\"'[]") for part in text.split(",")) if tag)


def _salvage_frontmatter(source: str, end: int, error: Exception) -> Frontmatter:
    found = {key: value.strip(" \t\"'") for key, value in _KEY_LINE.findall(source)}
    if not found and not re.match(r"\s*[\w-]+:", source):
        return Frontmatter()
    mark = getattr(error, "problem_mark", None)
    line = _line_of(mark, source) if mark else 1
    reason = getattr(error, "problem", None) or getattr(error, "reason", "nested too deeply")
    return Frontmatter(
        end=end,
        title=_one_line(found.get("title", "")) or None,
        description=_one_line(found.get("description", "")) or None,
        tags=_split_tags(found.get("tags", "")),
        type=found.get("type"),
        status=found.get("status"),
        language=found.get("language") or found.get("lang"),
        problems=((line, f"the frontmatter is not valid YAML: {reason}"),),
    )
