"""How far an update may go. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kbindex.storage.writer import Checkpoint


@dataclass(frozen=True)
class Options:
    """The limits of one update."""

    may_change_recipe: bool = True
    """Whether outlines and rows of another recipe, and damage, may be replaced."""
    max_embedded: int | None = None
    """The most chunks to embed; ``None`` is no limit."""
    checkpoint: Checkpoint = Checkpoint.NEVER
    mid_operation: bool = False
    """A merge, pick or rebase is under way: staged WAL files may be another side's."""
    dry_run: bool = False
    """Embed nothing and change nothing."""
    embeds_only: bool = False
    """Put vectors into the cache and change nothing."""
    re_embed: str = ""
    """A document or folder whose chunks are embedded whether their vectors are known or not."""
