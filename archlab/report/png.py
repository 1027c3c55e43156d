"""Pictures for papers: matplotlib, which needs no browser, on white, in the page's colours, sized for a column."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from archlab.errors import RequestError
from archlab.frozen import Frozen, field
from archlab.record import write_named
from archlab.report.palette import SERIES, Key, key_of
from archlab.report.text import clean

SIZE, DPI = (6.0, 3.8), 300
"""Inches, and dots an inch: 1,800 x 1,140."""
ACCENT, INK, MUTED, FAINT, RULE = "#0b5fa5", "#1b1e23", "#63696f", "#a9b0b7", "#e3e4e3"
DASHES = ("-", "--", ":", "-.")
"""Of curves that have one colour."""
MOST_TICKS = 12
"""Places of curves up to which each has a tick; beyond it they are matplotlib's."""
BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
DECIMAL = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))
STYLE = {
    "font.family": ["DejaVu Sans"], "font.size": 8, "axes.edgecolor": FAINT, "axes.labelcolor": INK,
    "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": RULE,
    "grid.linewidth": 0.5, "axes.axisbelow": True, "xtick.color": MUTED, "ytick.color": MUTED, "xtick.major.size": 3,
    "ytick.major.size": 3, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "legend.frameon": False,
    "legend.fontsize": 7, "text.parse_math": False, "savefig.facecolor": "white", "figure.dpi": DPI,
}  # fmt: skip


class Quantity(Frozen):
    """What an axis is of: the figure's name, its unit, how it was got, and whether it is drawn by the logarithm."""

    name: str
    unit: str
    kind: str
    log: bool = False

    @property
    def label(self) -> str:
        about = ", ".join(filter(None, (self.unit, self.kind, "log" if self.log else "")))
        return f"{clean(self.name)} ({about})" if about else clean(self.name)


class Cloud(Frozen):
    """Points by two figures: groups by what colours them, and the front of them in rising x.

    less_x: whether the front wants less of x, so that its steps go along x first. key: of the groups, if it has any.
    """

    x: Quantity
    y: Quantity
    groups: Mapping[str, Sequence[tuple[float, float]]]
    front: Sequence[tuple[float, float]]
    less_x: bool
    key: Key | None = None


class Bars(Frozen):
    """Medians with their 10th and 90th percentile, None where there is none; marked ones stand out.

    key, of: what colours them, and the value of each.
    """

    x: Quantity
    names: Sequence[str]
    values: Sequence[float]
    spreads: Sequence[tuple[float, float] | None]
    marked: Sequence[bool]
    key: Key | None = None
    of: Sequence[str] = ()


class Curves(Frozen):
    """Curves by name, each of (x, y) points; marked ones stand out. limits: lines at a y, by name.

    key, of: what colours them, and the value of each, None for one of several values; without, each has its own colour.
    """

    x: Quantity
    y: Quantity
    series: Mapping[str, Sequence[tuple[float, float]]]
    marked: Sequence[bool]
    title: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    key: Key | None = None
    of: Sequence[str | None] = ()


class Shades(Frozen):
    """Numbers of 0 or more in rows and columns; None where nothing is to be seen."""

    title: str
    x: str
    y: str
    rows: Sequence[Sequence[float | None]]


Drawn = Cloud | Bars | Curves | Shades


def figure(*drawn: Drawn) -> Any:
    """The matplotlib figure, one below the other where there are several. Raises RequestError without matplotlib."""
    matplotlib = load()
    with matplotlib.rc_context(STYLE):
        from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]

        made = Figure(figsize=(SIZE[0], SIZE[1] * len(drawn)), layout="constrained")
        for place, each in enumerate(drawn, 1):
            _draw(made.add_subplot(len(drawn), 1, place), each)
    return made


def _draw(axes: Any, drawn: Drawn) -> None:
    if isinstance(drawn, Cloud):
        _cloud(axes, drawn)
    elif isinstance(drawn, Bars):
        _bars(axes, drawn)
    elif isinstance(drawn, Curves):
        _curves(axes, drawn)
    else:
        _shades(axes, drawn)


def save(drawn: Drawn | Sequence[Drawn], file: Path) -> Path:
    """Write a picture, whole or not at all. Raises RequestError."""
    several = drawn if isinstance(drawn, Sequence) else [drawn]
    made, picture = figure(*several), io.BytesIO()
    with load().rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a letter that the font lacks is drawn as a box
        made.savefig(picture, dpi=DPI, format="png")
    return write_named(file, picture.getvalue())


def load() -> Any:
    """The library. Raises RequestError where it is not installed."""
    try:
        import matplotlib  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise RequestError("pictures need matplotlib, which is not installed: pip install 'archlab[report]'") from None
    return matplotlib


def _cloud(axes: Any, drawn: Cloud) -> None:
    _quantities(axes, drawn.x, drawn.y)
    for name, points in drawn.groups.items():
        colour, mark = drawn.key.looks[name] if drawn.key else (FAINT, "o")
        look = {"color": colour, "marker": mark, "s": 14, "linewidths": 0, "alpha": 0.8}
        axes.scatter(*_columns(points), label=_named(name), **look)
    if drawn.front:
        steps = "steps-post" if drawn.less_x else "steps-pre"
        axes.plot(*_columns(drawn.front), color=ACCENT, linewidth=0.9, drawstyle=steps, zorder=3)
        ring = {"s": 42, "facecolors": "none", "edgecolors": ACCENT, "linewidths": 1.0, "zorder": 4}
        axes.scatter(*_columns(drawn.front), label=f"front ({len(drawn.front):,})", **ring)
    axes.legend(title=clean(drawn.key.by) if drawn.key else None, title_fontsize=7, loc="best")


def _bars(axes: Any, drawn: Bars) -> None:
    places = range(len(drawn.names))
    axes.barh(places, drawn.values, height=0.66, **_bar_looks(drawn))
    for place, value, spread in zip(places, drawn.values, drawn.spreads, strict=True):
        if spread is not None:
            reach = [[value - spread[0]], [spread[1] - value]]
            axes.errorbar(value, place, xerr=reach, color=INK, linewidth=0.7, capsize=1.8)
    axes.set_yticks(places, [clean(name) for name in drawn.names])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(drawn.x.label)
    axes.xaxis.set_major_formatter(_written(drawn.x.unit))
    if drawn.key:
        edge = {"facecolor": "none", "edgecolor": INK, "linewidth": 1.2, "label": "on the front"}
        _legend(axes, drawn.key, drawn.of, "lower right", [edge] if any(drawn.marked) else [])


def _bar_looks(drawn: Bars) -> dict[str, list[Any]]:
    """Marked bars in the accent colour, or with an edge where colours stand for something else."""
    if drawn.key is None:
        return {"color": [ACCENT if marked else FAINT for marked in drawn.marked]}
    colours = [drawn.key.colour(value) for value in drawn.of]
    return {"color": colours, "edgecolor": [INK] * len(colours), "linewidth": [1.2 * marked for marked in drawn.marked]}


def _legend(
    axes: Any, key: Key, used: Sequence[str | None], place: str, more: Sequence[Mapping[str, Any]] = ()
) -> None:
    """What the colours that are used stand for. more: patches beside them."""
    from matplotlib.patches import Patch  # type: ignore[import-not-found,unused-ignore]

    own = [{"color": key.colour(value), "label": _named(value)} for value in key.looks if value in used]
    several = [{"color": MUTED, "label": "several"}] if None in used else []
    handles = [Patch(**patch) for patch in (*own, *several, *more)]
    axes.legend(handles=handles, title=clean(key.by), title_fontsize=7, loc=place)


def _named(value: str) -> str:
    return clean(value) or "–"


def _curves(axes: Any, drawn: Curves) -> None:
    _quantities(axes, drawn.x, drawn.y)
    legend = len(drawn.series) <= len(SERIES)
    looks = zip(drawn.series.items(), drawn.marked, _curve_looks(drawn), strict=True)
    for (name, points), marked, (colour, dash) in looks:
        width, order = (1.4, 3) if marked else (0.8, 2)
        look = {"color": colour, "linestyle": dash, "linewidth": width, "zorder": order}
        axes.plot(*_columns(points), marker="o", ms=2.2, label=clean(name), **look)
    for name, y in drawn.limits.items():
        axes.axhline(y, color=MUTED, linewidth=0.8, linestyle="--", label=clean(name))
    axes.set_title(clean(drawn.title))
    places = sorted({x for points in drawn.series.values() for x, _ in points})
    if len(places) <= MOST_TICKS:
        axes.set_xticks(places)
        axes.minorticks_off()
    if legend and (len(drawn.series) > 1 or drawn.limits):
        axes.legend(loc="best")
    elif drawn.key:
        _legend(axes, drawn.key, drawn.of, "best")


def _curve_looks(drawn: Curves) -> list[tuple[str, str]]:
    """The colour and the dashes of each curve; without a key each of few has a colour of its own."""
    few = len(drawn.series) <= len(SERIES)
    if drawn.key is None and not few:
        return [(ACCENT if marked else FAINT, DASHES[0]) for marked in drawn.marked]
    key, of = (drawn.key, drawn.of) if drawn.key else (key_of("", list(drawn.series)), list(drawn.series))
    colours = [MUTED if value is None else key.colour(value) for value in of]
    before = [colours[:index].count(colour) if few else 0 for index, colour in enumerate(colours)]
    return [(colour, DASHES[count % len(DASHES)]) for colour, count in zip(colours, before, strict=True)]


def _shades(axes: Any, drawn: Shades) -> None:
    cells = [[math.nan if value is None else value for value in row] for row in drawn.rows]
    shown = axes.imshow(cells, cmap="Blues", vmin=0.0, interpolation="nearest")
    axes.figure.colorbar(shown, ax=axes)
    axes.grid(visible=False)
    axes.set_facecolor(RULE)  # what cannot be seen
    axes.set(title=clean(drawn.title), xlabel=clean(drawn.x), ylabel=clean(drawn.y))


def _quantities(axes: Any, x: Quantity, y: Quantity) -> None:
    """Name the axes, scale them, and write their values in the units of the field."""
    for axis, quantity, scale, name in (
        (axes.xaxis, x, axes.set_xscale, axes.set_xlabel),
        (axes.yaxis, y, axes.set_yscale, axes.set_ylabel),
    ):
        name(quantity.label)
        if quantity.log:
            scale("log", base=2 if _binary(quantity.unit) or quantity.unit == "tokens" else 10)
        axis.set_major_formatter(_written(quantity.unit))
        axis.set_minor_formatter(lambda value, place: "")


def _written(unit: str) -> Callable[[float, int], str]:
    """How an axis of a unit writes its values."""
    steps = BINARY if _binary(unit) else DECIMAL

    def text(value: float, place: int) -> str:
        if unit == "tokens":
            return f"{value:,.0f}"
        size, power = next(((size, power) for power, size in steps if abs(value) >= size), (1, ""))
        return f"{value / size:,.4g} {power}".strip()

    return text


def _binary(unit: str) -> bool:
    return unit.split("/")[0] == "B"


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
