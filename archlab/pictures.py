"""A report as pictures: the scatter with its front, the KV cache over context, what was timed with its spread."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from archlab import record as records
from archlab.errors import RequestError
from archlab.frozen import Frozen
from archlab.overview import Asked, held, labelled
from archlab.record import Record
from archlab.report.palette import SERIES, Key, key_of
from archlab.report.png import Bars, Cloud, Curves, Quantity, save
from archlab.results import Results, Row
from archlab.scatter import Scatter, scatter

MOST_BARS, MOST_CURVES, MOST_NAME = 24, 24, 40


class Points(Frozen):
    """What all pictures say alike of each point, by its file: its name, its value of what colours it, the front."""

    key: Key | None
    names: Mapping[Path, str]
    values: Mapping[Path, str]
    front: Collection[Path]

    @classmethod
    def of(cls, kept: Results, shown: Scatter) -> Points:
        key, column = _colouring(kept)
        files = [row.file for row in kept.rows]
        told, values = (dict(zip(files, texts, strict=True)) for texts in (names(kept), column))
        return cls(key, told, values, {row.file for row in shown.best})


def draw(found: Results, asked: Asked, where_to: str) -> list[Path]:
    """Write the pictures that the records have figures for; their files. where_to: a folder, or a file for the scatter.

    Raises RequestError for what cannot be drawn or written.
    """
    kept = held(found, asked)
    target = Path(where_to)
    shown = scatter(kept, asked.chart)
    points = Points.of(kept, shown)
    if target.suffix.lower() == ".png":
        return [save(_cloud(shown, points), target)]
    if target.suffix:
        raise RequestError(f"{where_to}: pictures are PNG; name a folder, or a file that ends in .png")
    pictures = {"scatter": _cloud(shown, points), "kv_cache": _curves(kept, points), **dict(_timed(kept, points))}
    return [save(drawn, target / f"{name}.png") for name, drawn in pictures.items() if drawn is not None]


def names(kept: Results) -> list[str]:
    """Who each row is, in a line: the values of what varies."""
    texts = [" · ".join(text or "–" for text in of_row) for of_row in zip(*labelled(kept).values(), strict=True)]
    return [text if len(text) <= MOST_NAME else f"{text[: MOST_NAME - 1]}…" for text in texts]


def _cloud(shown: Scatter, points: Points) -> Cloud:
    groups: dict[str, list[tuple[float, float]]] = {value: [] for value in points.values.values()}
    for row in (*shown.best, *shown.others):
        groups[points.values[row.file]].append(shown.at(row))
    front = sorted(map(shown.at, shown.best))
    some = _some_record(shown)
    x, y = (
        Quantity(name, unit, _kind(some, name), log)
        for name, unit, log in zip((shown.x, shown.y), shown.units, (shown.log_x, shown.log_y), strict=True)
    )
    drawn = {value: at for value, at in groups.items() if at}
    return Cloud(x, y, drawn, front, shown.better[0] < 0, points.key)


def _colouring(kept: Results) -> tuple[Key | None, list[str]]:
    """What colours the points, and each row's value: the first of what varies that has few of them.

    All are of one group where there is none.
    """
    for name, column in labelled(kept).items():
        if 1 < len(set(column)) <= len(SERIES):
            return key_of(name, column), column
    return None, [f"points ({len(kept.rows):,})"] * len(kept.rows)


def _some_record(shown: Scatter) -> Record | None:
    rows = [*shown.best, *shown.others]
    return records.row(rows[0].file) if rows else None


def _kind(record: Record | None, name: str) -> str:
    return record.figures[name].kind if record is not None and name in record.figures else ""


# --- the KV cache -----------------------------------------------------------------------------------------------------


def _curves(kept: Results, points: Points) -> Curves | None:
    """A curve for each way in which the cache grows, the front's marked; of very many some of them."""
    held_by = _by_curve(kept)
    if not held_by:
        return None
    curves = _spread(sorted(held_by, key=lambda curve: curve[-1][1]))
    series: dict[str, Curve] = {}
    for number, curve in enumerate(curves, 1):
        name = _of_many([points.names[file] for file in held_by[curve]])
        series[name if name and name not in series else f"{name} {number}".strip()] = curve
    marked = [any(file in points.front for file in held_by[curve]) for curve in curves]
    values = [{points.values[file] for file in held_by[curve]} for curve in curves]
    left = f"required, {len(curves)} of {len(held_by)} curves" if len(curves) < len(held_by) else "required"
    x, y = Quantity("context", "tokens", "", True), Quantity("KV cache", "B", f"exact, {left}", True)
    of = [min(held) if len(held) == 1 else None for held in values]
    return Curves(x, y, series, marked, key=points.key, of=of)


Curve = tuple[tuple[float, float], ...]


def _by_curve(kept: Results) -> dict[Curve, list[Path]]:
    """The points that are ok by their cache's bytes at each context."""
    contexts = sorted(int(name.removeprefix("kv_bytes.")) for name in kept.units if _is_context(name))
    held: dict[Curve, list[Path]] = {}
    for row in kept.rows:
        curve = tuple((n, row.values[f"kv_bytes.{n}"]) for n in contexts if f"kv_bytes.{n}" in row.values)
        if row.ok and len(curve) > 1:
            held.setdefault(curve, []).append(row.file)
    return held


def _is_context(name: str) -> bool:
    return name.startswith("kv_bytes.") and name.removeprefix("kv_bytes.").isdecimal()


def _spread(curves: list[Curve]) -> list[Curve]:
    if len(curves) <= MOST_CURVES:
        return curves
    return [curves[round(i * (len(curves) - 1) / (MOST_CURVES - 1))] for i in range(MOST_CURVES)]


def _of_many(names: list[str]) -> str:
    """The first point of a curve and how many others there are."""
    return f"{names[0]} and {len(names) - 1:,} more" if len(names) > 1 else names[0]


# --- what was timed ---------------------------------------------------------------------------------------------------


def _timed(kept: Results, points: Points) -> Iterator[tuple[str, Bars]]:
    """For each phase that was timed the fastest points, with their spread."""
    for phase in ("prefill", "decode", "train"):
        name = f"{phase}_tok_s"
        rows = sorted((row for row in kept.rows if row.ok and name in row.values), key=lambda row: -row.values[name])
        if rows:
            yield name, _bars(name, rows, points)


def _bars(name: str, rows: list[Row], points: Points) -> Bars:
    chosen = [row.file for row in rows[:MOST_BARS]]
    found = [records.row(file).figures[name] for file in chosen]
    spreads = [None if one.low is None or one.high is None else (one.low, one.high) for one in found]
    left = f", the fastest {len(chosen)} of {len(rows):,}" if len(chosen) < len(rows) else ""
    return Bars(
        Quantity(name, "tok/s", f"{found[0].kind}, median and 10th to 90th percentile{left}"),
        [points.names[file] for file in chosen],
        [row.values[name] for row in rows[:MOST_BARS]],
        spreads,
        [file in points.front for file in chosen],
        points.key,
        [points.values[file] for file in chosen],
    )
