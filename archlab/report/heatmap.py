"""Numbers in rows and columns as shades in the terminal; plain ASCII where it has no more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from archlab.document import Heatmap
from archlab.report.grid import Cell, heading, line
from archlab.report.text import clean, digits

if TYPE_CHECKING:
    from rich.console import Console

SHADES, PLAIN_SHADES = "·░▒▓█", ".:+*@"
"""From the least to the most; what is not to be seen stays blank."""
WIDTH = 78
"""Columns up to which a cell takes two of them."""


def show_heatmap(drawn: Heatmap, console: Console) -> None:
    """Draw the rows under a title, each with its number, and what the shades stand for."""
    most = max((value for row in drawn.rows for value in row if value is not None), default=0.0)
    heading(console, drawn.title, f"{drawn.y} down, {drawn.x} across")
    shades = PLAIN_SHADES if console.options.ascii_only else SHADES
    margin = len(str(len(drawn.rows) - 1)) + 1
    room = min(console.width, WIDTH) - 3 - margin
    wide = 2 if 2 * max(map(len, drawn.rows)) <= room else 1
    side = "|" if console.options.ascii_only else "│"
    for number, row in enumerate(drawn.rows):
        cells = "".join(_shade(value, most, shades) * wide for value in row)
        line(console, Cell(f"{number:>{margin}}{side}{cells}".rstrip()), indent=2)
    line(console, Cell(clean(_legend(most, shades)), "dim"), indent=2)


def _shade(value: float | None, most: float, shades: Sequence[str]) -> str:
    """The shade of a value, by the root of its share of the most: small ones are told apart."""
    if value is None:
        return " "
    share = math.sqrt(value / most) if most > 0 else 0.0
    return shades[min(len(shades) - 1, int(share * len(shades)))]


def _legend(most: float, shades: Sequence[str]) -> str:
    """`· <0.04, ░ <0.16, .., █ <=1.000, blank: hidden`."""
    edges = [most * ((index + 1) / len(shades)) ** 2 for index in range(len(shades))]
    below = [f"{shade} <{digits(edge)}" for shade, edge in zip(shades, edges[:-1], strict=False)]
    return ", ".join([*below, f"{shades[-1]} <={digits(most)}", "blank: hidden"])
