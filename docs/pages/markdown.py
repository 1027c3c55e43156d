"""Markdown as the pages need it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from archlab.report.formats import md_escape


def code(text: str) -> str:
    """Text that stands for itself: a name, an override."""
    return f"`{text}`" if text else ""


def block(lines: Iterable[str], language: str = "text") -> str:
    """Lines as they are."""
    return "\n".join([f"```{language}", *lines, "```"])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are Markdown already."""
    every = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in every)


def titled(title: str, about: str = "") -> str:
    """A line above a table or a drawing."""
    return f"**{md_escape(title)}**" + (f" ({md_escape(about)})" if about else "")
