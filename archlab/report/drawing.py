"""Drawings made of characters: as they are, or, where the terminal has no more, of plain ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archlab.document import Drawing
from archlab.report.grid import heading

if TYPE_CHECKING:
    from rich.console import Console

PLAIN = str.maketrans("─│┌┐└┘├┤┬┴┼■□·→↗↑↖←↙↓↘", "-|++++++++" + "+#o.>/^\\</v\\")
"""A plain character for each that a drawing may have."""


def show_drawing(drawing: Drawing, console: Console) -> None:
    """Print a drawing under its title; its lines are never wrapped."""
    heading(console, drawing.title, drawing.about)
    for text in drawing.lines:
        console.print(f"  {shown(text, console.options.ascii_only)}".rstrip(), soft_wrap=True)


def shown(text: str, plain: bool) -> str:
    """A line of a drawing as it is printed."""
    return text.translate(PLAIN) if plain else text
