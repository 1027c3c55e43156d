"""Curves and clouds of points in the terminal: one mark a series, ceilings as dashed lines; plain ASCII where the
terminal has no more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from archlab.document import Chart
from archlab.frozen import Frozen
from archlab.report.grid import Cell, heading, lines
from archlab.report.text import clean, digits
from archlab.units import show_bytes, show_count

if TYPE_CHECKING:
    from rich.console import Console

HEIGHT, CLOUD_HEIGHT = 12, 18
WIDTH, CLOUD_WIDTH = 72, 110
"""Columns of a chart with its labels, where the console has as many."""
MARKS, PLAIN_MARKS = "●■▲◆○□△◇", "ox+*#@%&"
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "white", "bright_black")
CLOUD_MARKS, PLAIN_CLOUD_MARKS = "·●", ".o"
CLOUD_COLOURS = ("dim", "bold cyan")

Canvas = list[list[Cell]]


class Axis(Frozen):
    """Where values of one axis lie: from low to high on so many places, evenly or by their logarithm."""

    low: float
    high: float
    places: int
    log: bool

    def place(self, value: float) -> int:
        """The place of a value, 0 to places - 1; values outside lie at the edge."""
        low, high, at = (math.log(x) if self.log else x for x in (self.low, self.high, max(value, self.low)))
        share = (at - low) / (high - low) if high > low else 0.5
        return min(self.places - 1, max(0, round(share * (self.places - 1))))

    def value(self, place: int) -> float:
        """The value that lies at a place."""
        share = place / max(1, self.places - 1)
        return self.low * (self.high / self.low) ** share if self.log else self.low + share * (self.high - self.low)


def show_chart(chart: Chart, console: Console) -> None:
    """Draw a chart under its title, with a legend and the axes' values."""
    points = [point for curve in chart.series.values() for point in curve]
    if not points:
        return
    heading(console, chart.title, f"{chart.y} over {chart.x}")
    plain = console.options.ascii_only
    marks = _marks(chart, plain)
    rows, columns = (HEIGHT, WIDTH) if chart.joined else (CLOUD_HEIGHT, CLOUD_WIDTH)
    y = _axis([*(p[1] for p in points), *chart.ceilings.values()], rows, chart.log_y, chart.joined)
    show = _writer(chart.unit)
    labels = {row: show(y.value(row)) for row in (0, rows // 2, rows - 1)}
    margin = max(map(len, labels.values())) + 1
    places = max(16, min(console.width - 2, columns) - margin - 1)
    x = _axis([p[0] for p in points], places, chart.log_x, chart.joined)
    for row, cells in enumerate(reversed(_draw(chart, x, y, marks, plain))):
        label = labels.get(rows - 1 - row, "").rjust(margin)
        _print_row(console, Cell(f"{label}{'|' if plain else '│'}", "dim"), *cells)
    _print_row(console, Cell(_foot(x, margin, _writer(chart.x_unit) if chart.x_unit else _short), "dim"))
    _legend(chart, console, marks, show)


def _marks(chart: Chart, plain: bool) -> list[Cell]:
    """The mark of each series; of points that are not joined the last series stands out."""
    count = len(chart.series)
    if not chart.joined:
        marks = PLAIN_CLOUD_MARKS if plain else CLOUD_MARKS
        return [Cell(*pair) for pair in zip(marks, CLOUD_COLOURS, strict=True)][-count:]
    marks = PLAIN_MARKS if plain else MARKS
    return [Cell(marks[index % len(marks)], COLOURS[index % len(COLOURS)]) for index in range(count)]


def _writer(unit: str) -> Callable[[float], str]:
    """How a value of a unit reads."""
    if unit.split("/")[0] == "B":
        return show_bytes
    return lambda value: show_count(value) if 1000 <= abs(value) < 1e15 else digits(value)


def _axis(values: Sequence[float], places: int, log: bool, zero: bool) -> Axis:
    """An axis over these values; one by logarithm starts at the least value above zero.

    An even one starts at zero where `zero` says so, for a curve's height is read, and a cloud's is not.
    """
    above = [value for value in values if value > 0]
    if log and above:
        return Axis(min(above), max(above), places, True)
    return Axis(min(0, *values) if zero else min(values), max(values), places, False)


def _draw(chart: Chart, x: Axis, y: Axis, marks: Sequence[Cell], plain: bool) -> Canvas:
    """Rows from the lowest up, of cells from the left."""
    canvas = [[Cell(" ") for _ in range(x.places)] for _ in range(y.places)]
    for ceiling in chart.ceilings.values():
        canvas[y.place(ceiling)] = [Cell("-" if plain else "╌", "dim") for _ in range(x.places)]
    lying: dict[tuple[int, int], list[Cell]] = {}
    for mark, series in zip(marks, chart.series.values(), strict=True):
        passed = _trace(series, x, y) if chart.joined else [(x.place(px), y.place(py)) for px, py in series]
        for place in dict.fromkeys(passed):
            lying.setdefault(place, []).append(mark)
    for (column, row), there in lying.items():  # curves that run together take turns, so that none hides another
        canvas[row][column] = there[column % len(there)] if chart.joined else there[-1]
    return canvas


def _trace(curve: Sequence[tuple[float, float]], x: Axis, y: Axis) -> list[tuple[int, int]]:
    """The places that a curve passes, straight between its points as they lie on the axes."""
    placed = [(x.place(px), y.place(py)) for px, py in curve]
    passed = placed[:1]
    for (c0, r0), (c1, r1) in pairwise(placed):
        steps = max(abs(c1 - c0), abs(r1 - r0), 1)
        passed += [(c0 + round(i * (c1 - c0) / steps), r0 + round(i * (r1 - r0) / steps)) for i in range(1, steps + 1)]
    return passed


def _foot(x: Axis, margin: int, show: Callable[[float], str]) -> str:
    """The x axis' values: its ends and, where there is room, its middle."""
    ends = [show(x.value(place)) for place in (0, x.places // 2, x.places - 1)]
    room = x.places - sum(map(len, ends))
    if room < 4:
        return " " * (margin + 1) + ends[0] + " " * max(1, x.places - len(ends[0]) - len(ends[2])) + ends[2]
    left = max(1, x.places // 2 - len(ends[1]) // 2 - len(ends[0]))
    start = ends[0] + " " * left + ends[1]
    return " " * (margin + 1) + start + " " * max(1, x.places - len(start) - len(ends[2])) + ends[2]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else digits(value)


def _print_row(console: Console, *cells: Cell) -> None:
    from rich.text import Text

    text = Text.assemble(*((cell.text, cell.style) for cell in cells))
    text.rstrip()
    console.print(text, soft_wrap=True)


def _legend(chart: Chart, console: Console, marks: Sequence[Cell], show: Callable[[float], str]) -> None:
    if len(chart.series) > 1 or chart.ceilings or not chart.joined:
        names = [Cell(f"{mark.text} {clean(name)}", mark.style) for mark, name in zip(marks, chart.series, strict=True)]
        limits = [Cell(f"-- {clean(name)} {show(value)}", "dim") for name, value in chart.ceilings.items()]
        lines(console, *names, *limits, indent=2)
