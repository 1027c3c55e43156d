"""A report as pictures: the scatter with its front, the KV cache over context, what was timed with its spread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from archlab import record as records
from archlab.errors import RequestError
from archlab.overview import Asked, held, labelled
from archlab.record import Record
from archlab.report.png import Bars, Cloud, Curves, Quantity, save
from archlab.results import Results, Row
from archlab.scatter import Scatter, scatter

MOST_GROUPS = 8
"""Colours that are told apart; a column with more values is not coloured by."""
MOST_BARS, MOST_CURVES, MOST_NAME = 24, 24, 40


def draw(found: Results, asked: Asked, where_to: str) -> list[Path]:
    """Write the pictures that the records have figures for; their files. where_to: a folder, or a file for the scatter.

    Raises RequestError for what cannot be drawn or written.
    """
    kept = held(found, asked)
    target = Path(where_to)
    shown = scatter(kept, asked.chart)
    if target.suffix.lower() == ".png":
        return [save(_cloud(kept, shown), target)]
    if target.suffix:
        raise RequestError(f"{where_to}: pictures are PNG; name a folder, or a file that ends in .png")
    pictures = {"scatter": _cloud(kept, shown), "kv_cache": _curves(kept, shown), **dict(_timed(kept, shown))}
    return [save(drawn, target / f"{name}.png") for name, drawn in pictures.items() if drawn is not None]


def names(kept: Results) -> list[str]:
    """Who each row is, in a line: the values of what varies."""
    texts = [" · ".join(text or "–" for text in of_row) for of_row in zip(*labelled(kept).values(), strict=True)]
    return [text if len(text) <= MOST_NAME else f"{text[: MOST_NAME - 1]}…" for text in texts]


def _cloud(kept: Results, shown: Scatter) -> Cloud:
    drawn = {row.file for row in (*shown.best, *shown.others)}
    by, column = _colouring(kept)
    groups: dict[str, list[tuple[float, float]]] = {}
    for row, value in zip(kept.rows, column, strict=True):
        if row.file in drawn:
            groups.setdefault(value, []).append(shown.at(row))
    front = sorted(map(shown.at, shown.best))
    some = _some_record(shown)
    x, y = (
        Quantity(name, unit, _kind(some, name), log)
        for name, unit, log in zip((shown.x, shown.y), shown.units, (shown.log_x, shown.log_y), strict=True)
    )
    return Cloud(x, y, groups, front, shown.better[0] < 0, by)


def _colouring(kept: Results) -> tuple[str, list[str]]:
    """The first of what varies that has few values, and each row's; all of one group where there is none."""
    for name, column in labelled(kept).items():
        if 1 < len(set(column)) <= MOST_GROUPS:
            return name, column
    return "", [f"points ({len(kept.rows):,})"] * len(kept.rows)


def _some_record(shown: Scatter) -> Record | None:
    rows = [*shown.best, *shown.others]
    return records.row(rows[0].file) if rows else None


def _kind(record: Record | None, name: str) -> str:
    return record.figures[name].kind if record is not None and name in record.figures else ""


# --- the KV cache -----------------------------------------------------------------------------------------------------


def _curves(kept: Results, shown: Scatter) -> Curves | None:
    """A curve for each way in which the cache grows, the front's marked; of very many some of them."""
    contexts = sorted(int(name.removeprefix("kv_bytes.")) for name in kept.units if _is_context(name))
    best = {row.file for row in shown.best}
    held_by: dict[tuple[tuple[float, float], ...], list[tuple[str, bool]]] = {}
    for row, name in zip(kept.rows, names(kept), strict=True):
        curve = tuple((n, row.values[f"kv_bytes.{n}"]) for n in contexts if f"kv_bytes.{n}" in row.values)
        if row.ok and len(curve) > 1:
            held_by.setdefault(curve, []).append((name, row.file in best))
    if not held_by:
        return None
    curves = _spread(sorted(held_by, key=lambda curve: curve[-1][1]))
    series = {_of_many(held_by[curve], index): curve for index, curve in enumerate(curves)}
    marked = [any(on_front for _, on_front in held_by[curve]) for curve in curves]
    left = f"required, {len(curves)} of {len(held_by)} curves" if len(curves) < len(held_by) else "required"
    return Curves(
        Quantity("context", "tokens", "", True), Quantity("KV cache", "B", f"exact, {left}", True), series, marked
    )


def _is_context(name: str) -> bool:
    return name.startswith("kv_bytes.") and name.removeprefix("kv_bytes.").isdecimal()


def _spread(curves: list[tuple[tuple[float, float], ...]]) -> list[tuple[tuple[float, float], ...]]:
    if len(curves) <= MOST_CURVES:
        return curves
    return [curves[round(i * (len(curves) - 1) / (MOST_CURVES - 1))] for i in range(MOST_CURVES)]


def _of_many(rows: list[tuple[str, bool]], index: int) -> str:
    """The first point of a curve and how many others there are; the number keeps two of one name apart."""
    more = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
    return f"{rows[0][0]}{more}" or str(index)


# --- what was timed ---------------------------------------------------------------------------------------------------


def _timed(kept: Results, shown: Scatter) -> Iterator[tuple[str, Bars]]:
    """For each phase that was timed the fastest points, with their spread."""
    best = {row.file for row in shown.best}
    told = {row.file: name for row, name in zip(kept.rows, names(kept), strict=True)}
    for phase in ("prefill", "decode", "train"):
        name = f"{phase}_tok_s"
        rows = sorted((row for row in kept.rows if row.ok and name in row.values), key=lambda row: -row.values[name])
        if rows:
            yield f"{phase}_tok_s", _bars(name, rows, told, best)


def _bars(name: str, rows: list[Row], told: dict[Path, str], best: set[Path]) -> Bars:
    chosen = rows[:MOST_BARS]
    found = [records.row(row.file).figures[name] for row in chosen]
    spreads = [None if one.low is None or one.high is None else (one.low, one.high) for one in found]
    left = f", the fastest {len(chosen)} of {len(rows):,}" if len(chosen) < len(rows) else ""
    about = Quantity(name, "tok/s", f"{found[0].kind}, median and 10th to 90th percentile{left}")
    return Bars(
        about,
        [told[row.file] for row in chosen],
        [row.values[name] for row in chosen],
        spreads,
        [row.file in best for row in chosen],
    )
