"""What a report says of many records, as plain data: every record, what tells them apart, and what each choice did."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import archlab
from archlab import record as records
from archlab.errors import RequestError
from archlab.frozen import Frozen
from archlab.merit import NO_MERIT
from archlab.record import SCHEMA
from archlab.report.compare import HEADLINE
from archlab.report.html.columns import Columns
from archlab.report.text import clean
from archlab.results import Results, Row
from archlab.scatter import axes
from archlab.units import counted

Texts = dict[str, list[str]]
"""A column of text by its name, a text a row."""


class Asked(Frozen):
    """What of the results to report, see `archlab report --help`."""

    where: str | None = None
    pareto: str | None = None
    chart: str | None = None


def held(found: Results, asked: Asked) -> Results:
    """The results that the report is of. Raises RequestError where none is so."""
    kept = found.where(asked.where) if asked.where is not None else found
    if not kept.rows:
        raise RequestError(f"none of {counted(len(found.rows), 'point')} is so: {asked.where}")
    return kept


def overview(found: Results, asked: Asked, sources: Sequence[str]) -> dict[str, Any]:
    """The data of the page. sources: the folders and files that were asked for."""
    kept = held(found, asked)
    front = kept.front_names(asked.pareto)
    labels, options = labelled(kept), _options(kept)
    return {
        "schema": SCHEMA,
        "archlab": archlab.__version__,
        "title": ", ".join(Path(source).name or source for source in sources),
        "sources": list(sources),
        "where": asked.where,
        "found": len(found.rows),
        "count": len(kept.rows),
        "labels": list(labels),
        "options": list(options),
        "figures": figures(kept),
        "front": front,
        "axes": list(axes(kept, asked.chart)) if len(kept.units) > 1 else [],
        "swept": [{"key": key, "name": short(key)} for key in kept.varying],
        "points": _points(kept, labels, options),
    }


def _points(kept: Results, labels: Texts, options: Mapping[str, list[Any]]) -> dict[str, Any]:
    """The records whole, each with its labels and with what varies; one record at a time is held."""
    points, swept = Columns(), kept.varying
    for index, row in enumerate(kept.rows):
        about = {
            "label": {name: texts[index] for name, texts in labels.items()},
            "option": {key: made[index] for key, made in options.items()},
            "swept": {key: row.overrides[key] for key in swept if key in row.overrides},
        }
        breaks = {"breaks": ", ".join(row.breaks)} if row.breaks else {}
        points.add({"record": _document(row), **about, **breaks})
    return points.as_dict()


def _document(row: Row) -> dict[str, Any]:
    """A record as its file has it, which was checked when the row was read; one that says so where it is none."""
    if row.name == records.UNREADABLE:
        return records.row(row.file).as_dict()
    document: dict[str, Any] = json.loads(row.file.read_text(encoding="utf-8"))
    return document


def figures(kept: Results) -> list[dict[str, Any]]:
    """Each figure, the headline ones first. better: 1 more, -1 less, 0 neither; merit: whether that is worth a mark."""
    units = kept.units
    names = [*(name for name in HEADLINE if name in units), *(name for name in units if name not in HEADLINE)]
    return [
        {"name": name, "unit": units[name], "better": kept.better(name), "merit": _merit(name, kept)}
        | {"headline": name in HEADLINE}
        for name in names
        if not name.startswith("params.layers.")  # named by layers, so that no two depths have the same
    ]


def _merit(name: str, kept: Results) -> bool:
    return name in kept.told or (kept.better(name) != 0 and not name.startswith(NO_MERIT))


# --- what tells the points apart --------------------------------------------------------------------------------------


def labelled(results: Results) -> Texts:
    """The texts that name each point: its model, the overrides that vary, its folder where these leave two alike."""
    keys = [key for key in results.varying if key != "model" and not key.startswith("hydra")]
    texts = {short(key): [row.overrides.get(key, "") for row in results.rows] for key in keys}
    models = [row.name if row.options else row.overrides.get("model", row.name) for row in results.rows]
    if not texts or len({*models} - {records.UNREADABLE}) > 1:
        texts = {"model": models} | texts
    if len(set(zip(*texts.values(), strict=True))) < len(results.rows):
        texts["folder"] = _folders([row.file for row in results.rows])
    return {name: [clean(text) for text in column] for name, column in texts.items()}


def short(key: str) -> str:
    """An override's key without the group that nearly all share: `model/attention` is `attention`."""
    return re.sub("^model[./]", "", key)


def _folders(files: Sequence[Path]) -> list[str]:
    """The files' folders, below the one that holds them all."""
    top = os.path.commonpath([file.parent.parent.absolute() for file in files])
    return [os.path.relpath(file.parent.absolute(), top) for file in files]


def _options(results: Results) -> dict[str, list[Any]]:
    """The options that vary, by dotted key, but for those that part the points as one before them does."""
    parted = {_parts(texts) for texts in labelled(results).values()}
    keys = dict.fromkeys(key for row in results.rows for key in row.options)
    kept = {}
    for key in keys:
        values = [row.options.get(key) for row in results.rows]
        parts = _parts(str(row.options[key]) for row in results.rows if key in row.options)
        if len(set(parts)) > 1 and parts not in parted:
            parted.add(parts)
            kept[key] = values
    return kept


def _parts(values: Iterable[str]) -> tuple[int, ...]:
    """Which of the values are the same: the number of each among the distinct ones."""
    places: dict[str, int] = {}
    return tuple(places.setdefault(value, len(places)) for value in values)
