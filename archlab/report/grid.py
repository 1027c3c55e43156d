"""Tables that never cut a number: text folds; a table too wide for the terminal becomes several, or moves its notes.

A `Grid` is plain data. It is laid out here, by width alone; rich colours and prints it, and is imported only then.
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
    from rich.console import Console
    from rich.segment import Segment
    from rich.style import Style

GAP = 2
NARROWEST = 8
"""Columns of a text that nothing else can make room for."""
LEAST_TEXT = 16
"""Columns below which text is not folded: narrower, it is a heap of syllables."""
LONGEST_RULE = 120
"""Columns of a rule beyond the last head: where a line has no edge, as in a pipe, its last text may be a page."""
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
        _print_lines(_lines(piece, console, width), console, indent)
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
    column = grid.columns[index]
    lines = itertools.chain(column.head.split("\n"), *(row[index].shown.split("\n") for row in grid.rows))
    natural = max(map(_cell_len, lines))
    return (natural if column.number else min(natural, LEAST_TEXT)), natural


Piece = tuple[str, "str | Style"]
"""Text and its style."""


def _lines(grid: Grid, console: Console, width: int) -> Iterator[list[Piece]]:
    """The grid line by line: heads, a rule under them, rows. (rich's own table takes three times as long.)"""
    widths = _widths(grid, width)
    if any(column.head for column in grid.columns):
        heads = [column.head.split("\n") for column in grid.columns]
        tallest = max(map(len, heads))
        cells = [
            Cell("\n" * (tallest - len(head)) + "\n".join(head), "dim") for head in heads
        ]  # they stand on the rule
        yield from _row(grid, cells, widths)
        dash = "-" if console.options.ascii_only else "\u2500"
        yield [(dash * _rule(grid, widths), "")]
    for row in grid.rows:
        yield from _row(grid, row, widths)


def _rule(grid: Grid, widths: Sequence[int]) -> int:
    """How long the rule is: as all columns, but beyond the last head and the last number no longer than that."""
    starts = itertools.accumulate(widths, lambda at, width: at + width + GAP, initial=0)
    heads = [
        start + (width if column.number else max(map(_cell_len, column.head.split("\n"))))
        for start, width, column in zip(starts, widths, grid.columns, strict=False)
        if column.head
    ]
    return min(sum(widths) + GAP * (len(widths) - 1), max(*heads, LONGEST_RULE))


def _widths(grid: Grid, width: int) -> list[int]:
    """The columns' widths: natural ones where there is room, else text folds, what needs least of it in full."""
    sizes = [_sizes(grid, index) for index in range(len(grid.columns))]
    widths = [least for least, _ in sizes]
    spare = max(0, width - sum(widths) - GAP * (len(sizes) - 1))
    wanting = sorted((natural - least, index) for index, (least, natural) in enumerate(sizes) if natural > least)
    for place, (lacking, index) in enumerate(wanting):
        given = min(lacking, spare // (len(wanting) - place))
        widths[index] += given
        spare -= given
    return _narrowed(grid, widths, width)


def _narrowed(grid: Grid, widths: list[int], width: int) -> list[int]:
    """The widths, with less for the widest texts where all together do not stand."""
    narrowed, texts = list(widths), [index for index, column in enumerate(grid.columns) if not column.number]
    for _ in range(sum(widths) + GAP * (len(widths) - 1) - width):
        widest = max(texts, key=narrowed.__getitem__, default=None)
        if widest is None or narrowed[widest] <= NARROWEST:
            break
        narrowed[widest] -= 1
    return narrowed


def _row(grid: Grid, cells: Sequence[Cell], widths: Sequence[int]) -> Iterator[list[Piece]]:
    """Cells side by side, over as many lines as the tallest needs."""
    folded = [_folded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for lines in itertools.zip_longest(*folded, fillvalue=[]):
        pieces: list[Piece] = []
        for column, line, width in zip(grid.columns, lines, widths, strict=True):
            styled: list[Piece] = [(text, f"{column.style} {style}".strip()) for text, style in line]
            blank: Piece = (" " * (width - sum(_cell_len(text) for text, _ in line)), "")
            pieces += [blank, *styled] if column.number else [*styled, blank]
            pieces.append((" " * GAP, ""))
        yield pieces


def _folded(cell: Cell, width: int) -> list[list[Piece]]:
    """A cell as lines that stand in a width."""
    *others, last = cell.text.split("\n")
    ending = cell._replace(text=last)
    if max(map(_cell_len, (*others, ending.shown))) > width:
        return [[(line, cell.style)] for line in _fold(cell.shown, width)]
    above: list[list[Piece]] = [[(line, cell.style)] for line in others]
    return [*above, _pieces(ending)]


def _pieces(cell: Cell) -> list[Piece]:
    """A cell in one line."""
    return [(cell.text, cell.style), (f" {cell.unit}", "dim")] if cell.unit else [(cell.text, cell.style)]


def _fold(text: str, width: int) -> list[str]:
    """Text broken between words, and inside one that is longer than a line."""
    from rich.console import Console
    from rich.text import Text

    return [line.plain.rstrip() for line in Text(text).wrap(Console(), width, overflow="fold")]


def _cell_len(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _print_lines(lines: Iterable[Sequence[Piece]], console: Console, indent: int) -> None:
    """Print line by line, indented, without blanks at a line's end; past the edge rather than cut."""
    from rich.segment import Segment, Segments

    shown: list[Segment] = []
    for pieces in lines:
        styled = [Segment(text, console.get_style(style) if style else None) for text, style in pieces]
        shown += [*_without_blanks([Segment(" " * indent), *styled]), Segment.line()]
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
    pieces: list[Piece] = []
    for cell in cells:
        if cell.text:
            pieces += [(" " * GAP, ""), *_pieces(cell)] if pieces else _pieces(cell)
    if pieces:
        _print_lines(_wrapped(pieces, console, max(1, console.width - indent)), console, indent)


def lines(console: Console, *cells: Cell, indent: int = 0) -> None:
    """Print cells one after the other, as many on a line as go whole."""
    row: list[Cell] = []
    left = room = console.width - indent
    for cell in cells:
        width = _cell_len(cell.text) + GAP
        if row and width > left + GAP:
            line(console, *row, indent=indent)
            row, left = [], room
        row, left = [*row, cell], left - width
    line(console, *row, indent=indent)


def _wrapped(pieces: list[Piece], console: Console, width: int) -> Iterator[list[Piece]]:
    """A line of text, or several of it."""
    if sum(_cell_len(text) for text, _ in pieces) <= width and not any("\n" in text for text, _ in pieces):
        yield pieces
        return
    from rich.text import Text

    for wrapped in Text.assemble(*pieces).wrap(console, width, overflow="fold"):
        yield [(segment.text, segment.style or "") for segment in wrapped.render(console)]


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
