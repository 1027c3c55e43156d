"""Many records, in short: which of them to look at, and what each choice did to the figures.

A record of a sweep is read whole only where it is shown; of the others a `Row` is kept.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from types import MappingProxyType
from typing import Any, NamedTuple

from archlab import record as records
from archlab.constraints import broken
from archlab.decoder.describe import flat
from archlab.document import Column, Table
from archlab.errors import ConfigError, RequestError, is_folder, nearest, shortened
from archlab.frozen import Frozen, replace
from archlab.merit import Wishes, agreed, direction, wishes
from archlab.record import SHORT, Record, full_name, no_figure
from archlab.report.compare import competing, split_overrides
from archlab.units import counted, first_few
from archlab.where import condition

FRONT = ("params", "kv_bytes_per_token", "decode_tok_s")
"""The figures of the Pareto front, where records have them."""

MOST_ROWS = 40
"""Points above which a sweep's table is folded to its front."""
MOST_VALUES = 8
"""Values of one axis whose effect is shown."""


class Row(NamedTuple):
    """A record in short: its file, how it ended, its figures that hold, and its options (none where not asked for).

    breaks: the constraints of its sweep that it does not keep.
    """

    file: Path
    name: str
    overrides: dict[str, str]
    status: str
    reason: str | None
    values: dict[str, float | int]
    options: dict[str, Any]
    breaks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def wanted(self) -> bool:
        """Whether it may be the best: it is ok and keeps the constraints of its sweep."""
        return self.ok and not self.breaks

    def facts(self) -> dict[str, Any]:
        """What a condition may ask of it."""
        typed = {key: _read(text) for key, text in self.overrides.items()}
        short = {
            re.sub("^model[./]", "", key): value for key, value in typed.items()
        }  # an invalid point has no options
        about = {"name": self.name, "status": self.status, "breaks": ", ".join(self.breaks) or None}
        return {**short, **typed, **self.options, **self.values, **about}


class Results(Frozen):
    """Rows, and the unit of each figure that one of them has. told: which way is better, where a sweep was told."""

    rows: list[Row]
    units: dict[str, str]
    told: Wishes = MappingProxyType({})

    def only(self, rows: Iterable[Row]) -> Results:
        return replace(self, rows=list(rows))

    @property
    def varying(self) -> list[str]:
        """The keys of the overrides that are not the same for all, as far as their files can be read."""
        rows = [row for row in self.rows if row.name != records.UNREADABLE]
        keys = dict.fromkeys(key for row in rows for key in row.overrides)
        return [key for key in keys if len({row.overrides.get(key) for row in rows}) > 1]

    def better(self, name: str) -> int:
        """Whether more of a figure is better (1), less is (-1), or neither."""
        return self.told.get(name, direction(self.units[name]))

    def figure(self, name: str, asked: str) -> str:
        """A figure's full name. Raises ConfigError, with those there are, where no record has it."""
        full = full_name(name)
        if full not in self.units:
            known = [*self.units, *(short for short, long in SHORT.items() if long in self.units)]
            raise no_figure(asked, name, known)
        return full

    def front_names(self, asked: str | None) -> list[str]:
        """The figures that make the front: those named, or the usual ones that are there."""
        if asked is None:
            return [name for name in FRONT if name in self.units]
        names = list(dict.fromkeys(self.figure(name.strip(), "pareto") for name in asked.split(",")))
        for name in names:
            if not self.better(name):
                raise ConfigError("pareto", f"of {name} neither less nor more is better", value=name)
        return names

    def where(self, text: str) -> Results:
        """The rows for which a condition holds. Raises RequestError."""
        known = dict.fromkeys((key for row in self.rows for key in row.facts()), "")
        short = {name: full for name, full in SHORT.items() if full in self.units and name not in known}
        test = condition(text, known | self.units | {name: self.units[full] for name, full in short.items()})

        def holds(row: Row) -> bool:
            return test(row.facts() | {name: row.values.get(full) for name, full in short.items()})

        return self.only(filter(holds, self.rows))


def read(files: Iterable[Path], figures: Iterable[str] | None = None) -> Results:
    """The rows of record files. figures: those to keep, and then no options; None keeps all."""
    wanted = None if figures is None else set(figures)
    units: dict[str, str] = {}
    rows = []
    told: list[Wishes] = []
    for file in files:
        record = records.row(file)
        rows.append(_row(file, record, wanted))
        if record.ok and wishes(record.config) not in told:
            told.append(wishes(record.config))
        for name, figure in record.figures.items():
            if wanted is None or name in wanted:
                units.setdefault(sys.intern(name), figure.unit)
    return Results(rows, units, agreed(told))


def find(folders: Sequence[str]) -> list[Path]:
    """The record files at or under some folders. Raises RequestError for a folder without any."""
    found: dict[Path, Path] = {}
    for folder in map(Path, folders):
        if not folder.exists():
            raise RequestError(f"{folder}: there is no such folder")
        here = records.files(folder) if is_folder(folder, os.R_OK | os.X_OK) else [folder]
        if not here:
            raise RequestError(f"{folder}: no {records.FILE} at or under this folder")
        if folder.is_file() and folder.name != records.FILE:
            records.load(folder)  # a record may have another name; what is none is not a point that failed
        for file in here:
            found.setdefault(file.absolute(), file)
    return list(found.values())


def _row(file: Path, record: Record, wanted: set[str] | None) -> Row:
    values = {}
    for name, figure in record.figures.items():
        value = competing(figure) if wanted is None or name in wanted else None
        if value is not None:
            values[sys.intern(name)] = value
    overrides = {sys.intern(key): sys.intern(value) for key, value in split_overrides(record).items()}
    options = flat(record.composition) if wanted is None else {}
    breaks = tuple(broken(record))
    return Row(file, sys.intern(record.name), overrides, record.status, record.reason, values, options, breaks)


def _read(text: str) -> Any:
    """An override's value as a condition compares it."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# --- the front --------------------------------------------------------------------------------------------------------


def front(results: Results, names: Sequence[str]) -> list[Row]:
    """The rows that none beats in every figure named, by the first of them; of equal rows the first.

    A row that lacks one of the figures, breaks a constraint, or did not end well, is not on it.
    """
    signs = [-results.better(name) for name in names]
    able = [row for row in results.rows if row.wanted and all(name in row.values for name in names)]
    costs = [(tuple(sign * row.values[name] for sign, name in zip(signs, names, strict=True)), row) for row in able]
    kept: list[tuple[tuple[float, ...], Row]] = []
    for cost, row in sorted(costs, key=lambda pair: pair[0]):  # whatever beats a row comes before it
        if not any(all(a <= b for a, b in zip(better, cost, strict=True)) for better, _ in kept):
            kept.append((cost, row))
    return [row for _, row in kept] if names else []


def ordered(results: Results, sort: str | None) -> list[Row]:
    """The rows by a figure, `-NAME` for the highest first; those without it last. Raises ConfigError."""
    if not sort:
        return results.rows
    name, sign = results.figure(sort.removeprefix("-"), "sort"), -1 if sort.startswith("-") else 1
    return sorted(results.rows, key=lambda row: (name not in row.values, sign * row.values.get(name, 0)))


def unread(results: Results) -> str | None:
    """How many records cannot be used, and which, as one line; None where all can."""
    files = [shortened(str(row.file)) for row in results.rows if row.name == records.UNREADABLE]
    if not files:
        return None
    return f"{len(files):,} of {counted(len(results.rows), 'record')} cannot be used: {first_few(files)}"


def troubles(results: Results) -> list[str]:
    """Why points are not ok, the most frequent reasons first."""
    counts = Counter(f"{row.status}: {row.reason}" if row.reason else row.status for row in results.rows if not row.ok)
    return [f"{count:,} {reason}" for reason, count in counts.most_common()]


# --- what each choice did ---------------------------------------------------------------------------------------------


def effects(results: Results, names: Sequence[str]) -> Table | None:
    """For each axis that varies, how the figures change on average when only its choice differs, in percent."""
    columns = [Column("axis"), Column("choice"), Column("against"), Column("pairs", "1")]
    columns += [Column(name, "%", how=f"mean change of {name}") for name in names]
    rows = [row for key in results.varying for row in _effects_of(results, key, names)]
    about = "mean change where only that choice differs"
    return Table("effects", "Effect of each axis", columns, rows, about) if rows else None


def _effects_of(results: Results, key: str, names: Sequence[str]) -> list[dict[str, Any]]:
    alike: dict[tuple[tuple[str, str], ...], dict[str, Row]] = {}
    for row in results.rows:
        if row.ok and key in row.overrides:
            others = tuple(sorted(pair for pair in row.overrides.items() if pair[0] != key))
            alike.setdefault(others, {}).setdefault(row.overrides[key], row)
    base, *values = dict.fromkeys(value for group in alike.values() for value in group) or [""]
    paired = {value: pairs for value in values if (pairs := _pairs(base, value, alike.values()))}
    return [_effect(key, value, base, paired[value], names) for value in _some([*paired])]


def _pairs(base: str, value: str, groups: Iterable[dict[str, Row]]) -> list[tuple[Row, Row]]:
    """The rows that differ in one choice alone: `base` and `value`."""
    return [(group[base], group[value]) for group in groups if base in group and value in group]


def _some(values: list[str]) -> list[str]:
    """At most `MOST_VALUES` of the values, the first and the last among them."""
    if len(values) <= MOST_VALUES:
        return values
    return [values[round(i * (len(values) - 1) / (MOST_VALUES - 1))] for i in range(MOST_VALUES)]


def _effect(key: str, value: str, base: str, pairs: list[tuple[Row, Row]], names: Sequence[str]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name in names:
        held = [(a.values[name], b.values[name]) for a, b in pairs if a.values.get(name) and name in b.values]
        changes[name] = 100 * fmean(after / before - 1 for before, after in held) if held else None
    return {"axis": key, "choice": value, "against": base, "pairs": len(pairs), **changes}


def groups(results: Results, by: str, names: Sequence[str]) -> Table:
    """The rows by the value of an option or an override: how many, and the best and the median of each figure."""
    known = dict.fromkeys(key for row in results.rows for key in row.facts())
    if by not in known:
        raise ConfigError("group-by", f"no option {by!r}", value=by, valid=sorted(known), nearest=nearest(by, known))
    held: dict[str, list[Row]] = {}
    for row in results.rows:
        held.setdefault(str(row.facts().get(by, "-")), []).append(row)
    columns = [Column(by), Column("points", "1"), Column("not ok", "1")]
    for name in names:
        unit = results.units[name]
        columns += [Column(f"{name} best", unit), Column(f"{name} median", unit)]
    return Table("groups", f"By {by}", columns, [_group(by, key, rows, results, names) for key, rows in held.items()])


def _group(by: str, value: str, rows: list[Row], results: Results, names: Sequence[str]) -> Mapping[str, Any]:
    made: dict[str, Any] = {by: value, "points": len(rows), "not ok": sum(not row.ok for row in rows)}
    for name in names:
        numbers = [row.values[name] for row in rows if row.ok and name in row.values]
        able = [row.values[name] for row in rows if row.wanted and name in row.values]
        best = max if results.better(name) > 0 else min
        made |= {f"{name} best": best(able, default=None), f"{name} median": median(numbers) if numbers else None}
    return made
