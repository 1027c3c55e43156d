"""Tables that never cut a number: text folds; a table too wide for the terminal becomes several, or moves its notes.

A `Grid` is plain data. It is laid out here, by width alone, and drawn by rich, which is imported only then.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from archlab.frozen import Frozen
from archlab.record import Record
from archlab.report.text import clean

if TYPE_CHECKING:
    from rich.box import Box
    from rich.console import Console, RenderableType
    from rich.segment import Segment
    from rich.table import Table
    from rich.text import Text

GAP = 2
LEAST_TEXT = 16
"""Columns below which text is not folded: narrower, it is a heap of syllables."""
LEAST_NOTE = 34
"""Columns below which a note leaves the table for a line of its own."""


class Cell(NamedTuple):
    """Text, its style, and a dim unit after it."""

    text: str = ""
    style: str = ""
    unit: str = ""

    @property
    def shown(self) -> str:
        return f"{self.text} {self.unit}" if self.unit else self.text


class Column(Frozen):
    """number: right-aligned, and never folded."""

    head: str = ""
    number: bool = False
    style: str = ""


@dataclass
class Grid:
    """Columns, rows of as many cells, and, for a row that has one, a note: a definition, a reason.

    labels: how many of the first columns name a row; every piece of a table that is split repeats them.
    """

    columns: list[Column]
    labels: int = 1
    rows: list[list[Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: Cell | str, note: str = "") -> None:
        self.rows.append([cell if isinstance(cell, Cell) else Cell(cell) for cell in cells])
        self.notes.append(note)

    def pick(self, indices: Sequence[int]) -> Grid:
        """The grid of some columns."""
        rows = [[row[i] for i in indices] for row in self.rows]
        return Grid([self.columns[i] for i in indices], self.labels, rows, self.notes)

    def filled(self) -> Grid:
        """The grid without the columns that hold nothing."""
        last = range(len(self.columns))
        return self.pick([i for i in last if i < self.labels or any(row[i].text for row in self.rows)])


def show(grid: Grid, console: Console, indent: int = 2) -> None:
    """Print a grid in the console's width."""
    if not grid.rows:
        return
    width = console.width - indent
    inline, below = _place_notes(grid, width)
    for number, piece in enumerate(split(inline, width)):
        if number:
            console.print()
        _print(_table(piece, console), console, indent, least=least_width(piece))
    for note in below:
        line(console, Cell(note, "dim"), indent=indent)


def split(grid: Grid, width: int) -> Iterator[Grid]:
    """The grid, or pieces of it that each stand in `width` and repeat the label columns."""
    labels = list(range(grid.labels))
    piece = list(labels)
    for index in range(grid.labels, len(grid.columns)):
        if len(piece) > len(labels) and least_width(grid, [*piece, index]) > width:
            yield grid.pick(piece)
            piece = list(labels)
        piece.append(index)
    yield grid.pick(piece)


def least_width(grid: Grid, indices: Iterable[int] | None = None) -> int:
    """The width in which these columns, or all of them, just stand, text folded."""
    sizes = [_sizes(grid, index)[0] for index in (range(len(grid.columns)) if indices is None else indices)]
    return sum(sizes) + GAP * (len(sizes) - 1)


def _place_notes(grid: Grid, width: int) -> tuple[Grid, list[str]]:
    """The notes as a last column where there is room for them, else as lines to print below the table."""
    longest = max(map(len, grid.notes), default=0)
    if not longest:
        return grid, []
    if natural_width(grid) + GAP + min(longest, LEAST_NOTE) <= width:
        rows = [[*row, Cell(note, "dim")] for row, note in zip(grid.rows, grid.notes, strict=True)]
        return Grid([*grid.columns, Column()], grid.labels, rows), []
    noted = zip(grid.rows, grid.notes, strict=True)
    return grid, [f"{', '.join(cell.text for cell in row[: grid.labels])}: {note}" for row, note in noted if note]


def natural_width(grid: Grid) -> int:
    """The width in which nothing is folded."""
    sizes = [_sizes(grid, index)[1] for index in range(len(grid.columns))]
    return sum(sizes) + GAP * (len(sizes) - 1)


def _sizes(grid: Grid, index: int) -> tuple[int, int]:
    """The least and the natural width of a column."""
    from rich.cells import cell_len

    column = grid.columns[index]
    lines = itertools.chain(column.head.split("\n"), *(row[index].shown.split("\n") for row in grid.rows))
    natural = max(map(cell_len, lines))
    return (natural if column.number else min(natural, LEAST_TEXT)), natural


def _table(grid: Grid, console: Console) -> Table:
    from rich.table import Table

    headed = any(column.head for column in grid.columns)
    table = Table(
        box=_rule(console) if headed else None,
        show_header=headed,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - headed, 0, 0),  # the box puts a blank of its own between columns
        header_style="",
        collapse_padding=True,
    )
    tallest = max(column.head.count("\n") for column in grid.columns)
    for index, column in enumerate(grid.columns):
        lower = "\n" * (tallest - column.head.count("\n"))  # heads stand on the rule
        table.add_column(
            _text(Cell(lower + column.head, "dim")),
            justify="right" if column.number else "left",
            no_wrap=column.number,
            overflow="fold",
            style=column.style,
            min_width=_sizes(grid, index)[0],
        )
    for row in grid.rows:
        table.add_row(*map(_text, row))
    return table


def _rule(console: Console) -> Box:
    """No lines but one under the heads."""
    from rich.box import Box

    dash, plain = ("-", True) if console.options.ascii_only else ("─", False)
    blank = "    \n"
    return Box(blank * 2 + f"{dash * 4}\n" + blank * 5, ascii=plain)


def _text(cell: Cell) -> Text:
    from rich.text import Text

    text = Text(cell.text, cell.style, overflow="fold")
    return text.append(f" {cell.unit}", "dim") if cell.unit else text


def _print(body: RenderableType, console: Console, indent: int, least: int = 0) -> None:
    """Print line by line, indented, without the blanks that fill a table's last column."""
    from rich.segment import Segment, Segments

    width = max(console.width - indent, least)  # past the edge rather than cut
    shown: list[Segment] = []
    for segments in console.render_lines(body, console.options.update(width=width), pad=False):
        shown += [*_without_blanks([Segment(" " * indent), *segments]), Segment.line()]
    console.print(Segments(shown), soft_wrap=True, end="")


def _without_blanks(segments: list[Segment]) -> list[Segment]:
    """The line without the blanks at its end."""
    while segments and not segments[-1].text.strip():
        segments.pop()
    if segments:
        last = segments.pop()
        segments.append(last._replace(text=last.text.rstrip()))
    return segments


def line(console: Console, *cells: Cell, indent: int = 0) -> None:
    """Print cells one after the other, wrapped at the console's width."""
    from rich.text import Text

    shown = [_text(cell) for cell in cells if cell.text]
    if shown:
        _print(Text(" " * GAP).join(shown), console, indent)


def heading(console: Console, title: str, *about: str, first: bool = False) -> None:
    """A blank line unless it is the first, then `Title  kind, assumptions`."""
    if not first:
        console.print()
    line(console, Cell(title, "bold"), Cell(", ".join(filter(None, about)), "dim"))


def status_cell(record: Record) -> Cell:
    """The record's status, green or red."""
    return Cell(clean(record.status), "green" if record.ok else "bold red")


def transposed(grid: Grid) -> Grid:
    """Rows become columns, the first column their heads."""
    turned = Grid([Column(), *(Column(row[0].text, number=True) for row in grid.rows)])
    for index, column in enumerate(grid.columns[1:], 1):
        turned.add(Cell(column.head.replace("\n", ""), "dim"), *(row[index] for row in grid.rows))
    return turned
