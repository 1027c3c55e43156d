"""Records side by side: a neutral table of what was compared, and the order, the best and the names in it.

A `Comparison` is a matrix: fields (an override, an option, a figure) by records. It knows no orientation, no width
and no format; `formats.render` draws or writes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from archlab.constraints import broken
from archlab.decoder.describe import differences
from archlab.frozen import Frozen
from archlab.merit import NO_MERIT, Wishes, agreed, direction, wishes
from archlab.quotes import unquoted
from archlab.record import UNREADABLE, Figure, Record, full_name, no_figure
from archlab.report.text import clean, number, value_text

HEADLINE = (
    *("params", "params_non_embedding", "kv_bytes_per_token"),
    *("solved_d_ff", "solved_n_layers", "solved_d_model"),
    *("budget_params", "budget_params_active", "budget_params_non_embedding"),
    *("budget_kv_bytes_per_token", "budget_flops_per_token", "budget_residual"),
    *("flops_decode_per_token", "flops_prefill_per_token.full", "weight_bytes"),
    *("prefill_tok_s", "decode_tok_s", "train_tok_s"),
    *("prefill_peak_bytes", "decode_peak_bytes", "train_peak_bytes"),
)
"""The figures of a sweep's table, where a record has them."""

SECTIONS = (
    *(("parameters", "params"), ("budget", "solved_"), ("budget", "budget_")),
    *(("memory", "weight_bytes"), ("KV cache", "kv_"), ("FLOPs", "flops_")),
)
"""Sections of the figures by the names they begin with; others go by their kind."""


class Cell(Frozen):
    """One record's entry: the raw value, how it reads, and whether it is the best of its field."""

    value: Any
    text: str
    best: bool = False


class Field(Frozen):
    """One thing compared. better: -1 where less is better, 1 where more is, 0 where neither is.

    label: it names the record (its name, an override that varies).
    """

    name: str
    section: str
    cells: tuple[Cell, ...]
    unit: str = ""
    kind: str = ""
    better: int = 0
    label: bool = False


class Comparison(Frozen):
    """What was compared, field by field, each with a cell a record; `detail` where that is everything."""

    records: list[Record]
    fields: list[Field]
    detail: bool = False

    @property
    def labels(self) -> list[Field]:
        return [field for field in self.fields if field.label]

    @property
    def figures(self) -> list[Field]:
        return [field for field in self.fields if not field.label]

    @property
    def notes(self) -> list[str]:
        """What was dropped or assumed, by record; one that is not ok has said why already."""
        return [f"{record.title}: {note}" for record in self.records if record.ok for note in record.notes]


def comparison(
    records: Iterable[Record], sort: str | None = None, detail: bool = False, varying: Sequence[str] | None = None
) -> Comparison:
    """The headline figures of records after what tells them apart; with `detail` every figure and every difference.

    sort: a figure's name, `-NAME` for the highest first. varying: the keys of the overrides to show, where the records
    are some of more. Raises ConfigError where no record has the figure.
    """
    records = sorted_records(records, sort)
    names = figure_names(records)
    told = agreed(wishes(record.config) for record in records if record.ok)
    if not detail:
        shown = [figure_field(records, name, told) for name in names if name in HEADLINE]
    else:
        figures = [figure_field(records, name, told) for name in _telling(records, names)]
        shown = [*_differences(records), *_by_section(figures)]
    return Comparison(records, [*_labels(records, varying), *shown], detail)


def figure_names(records: Iterable[Record]) -> list[str]:
    """Every figure that a record has, the headline ones first."""
    found = dict.fromkeys(name for record in records for name in record.figures)
    return [*(name for name in HEADLINE if name in found), *(name for name in found if name not in HEADLINE)]


def _telling(records: Sequence[Record], names: Iterable[str]) -> list[str]:
    """The figures without what says nothing: parts that no record has, totals that repeat another, one layer kind."""
    kinds = max(sum(name.startswith("params.layers.") for name in record.figures) for record in records)
    dense = all(record.value("params_active") in (None, record.value("params")) for record in records)

    def tells(name: str) -> bool:
        if name.startswith("params.layers."):
            return kinds > 1
        if name == "params_active":
            return not dense
        return not name.startswith("params.") or any(record.value(name) for record in records)

    return [name for name in names if tells(name)]


def _by_section(fields: Iterable[Field]) -> list[Field]:
    order = [title for title, _ in SECTIONS]
    return sorted(fields, key=lambda field: order.index(field.section) if field.section in order else len(order))


# --- order ------------------------------------------------------------------------------------------------------------


def sorted_records(records: Iterable[Record], sort: str | None) -> list[Record]:
    """The records by a figure; those without it last, equal ones in the order they came."""
    records = list(records)
    if not sort:
        return records
    name = full_name(sort.removeprefix("-"))
    names = figure_names(records)
    if name not in names:
        raise no_figure("sort", name, names, sort)
    sign = -1 if sort.startswith("-") else 1

    def place(record: Record) -> tuple[bool, float]:
        value = competing(record.figures.get(name))
        return (True, 0.0) if value is None else (False, sign * value)

    return sorted(records, key=place)


def competing(figure: Figure | None) -> float | int | None:
    """The value of a figure that holds: it is there, finite and not marked invalid."""
    if figure is None or figure.status != "ok" or figure.value is None or not math.isfinite(figure.value):
        return None
    return figure.value


# --- figures ----------------------------------------------------------------------------------------------------------


def figure_field(records: Sequence[Record], name: str, told: Wishes) -> Field:
    """A figure over the records, its best marked: among records that are ok, where they are not all equal."""
    figures = [record.figures.get(name) for record in records]
    first = next(figure for figure in figures if figure is not None)
    usual = 0 if name.startswith(NO_MERIT) or first.kind == "bound" else direction(first.unit)
    better = told.get(name, usual)
    winner = _winner(records, figures, better)
    cells = []
    for record, figure in zip(records, figures, strict=True):
        value = competing(figure)
        cells.append(Cell(value, figure_text(figure), winner is not None and _is_wanted(record) and value == winner))
    kinds = dict.fromkeys(figure.kind for figure in figures if figure is not None)
    return Field(name, _section(name, first), tuple(cells), first.unit, ", ".join(kinds), better)


def _winner(records: Sequence[Record], figures: Sequence[Figure | None], better: int) -> float | int | None:
    """The best value, None where there is no contest."""
    values = [competing(figure) for record, figure in zip(records, figures, strict=True) if _is_wanted(record)]
    held = {value for value in values if value is not None}
    if better == 0 or len(held) < 2:
        return None
    return max(held) if better > 0 else min(held)


def _is_wanted(record: Record) -> bool:
    """Whether a record may be the best: it is ok and keeps the constraints of its sweep."""
    return record.ok and not broken(record)


def figure_text(figure: Figure | None) -> str:
    """A figure's number, or the status that it has instead of one."""
    if figure is None:
        return "-"
    if competing(figure) is None or figure.value is None:
        return "-" if figure.status == "ok" else clean(figure.status)
    return number(figure.value, figure)


def _section(name: str, figure: Figure) -> str:
    return next((title for title, prefix in SECTIONS if name.startswith(prefix)), figure.kind)


# --- what tells the records apart -------------------------------------------------------------------------------------


def _labels(records: Sequence[Record], keys: Sequence[str] | None) -> list[Field]:
    """The models and the overrides that vary; the folders where these leave two alike; what is not as wanted."""
    splits = [split_overrides(record) for record in records]
    keys = varying_overrides(records) if keys is None else keys
    varying = [key for key in keys if key != "model" and not key.startswith("hydra")]
    fields = [_label(key, [split.get(key, "") for split in splits]) for key in varying]
    models = [_model_name(record, split) for record, split in zip(records, splits, strict=True)]
    if not fields or len({*models} - {UNREADABLE}) > 1:
        fields.insert(0, _label("model", models))
    told_apart = {tuple(field.cells[i].text for field in fields) for i in range(len(records))}
    if len(told_apart) < len(records) and any(record.folder for record in records):
        fields.append(_label("folder", [record.folder or "" for record in records]))
    breaks = [", ".join(broken(record)) for record in records]
    if any(breaks):
        fields.append(_label("breaks", breaks))
    if not all(record.ok for record in records):
        fields.append(_label("status", [status_text(record) for record in records]))
    return fields


def _model_name(record: Record, overrides: Mapping[str, str]) -> str:
    """The name that the config gives, or, where it was not composed, the one that was asked for."""
    named = (record.config.get("model") or {}).get("name")
    return str(named or overrides.get("model") or record.name)


def _label(name: str, texts: Iterable[str]) -> Field:
    return Field(clean(name), "", tuple(Cell(text, clean(text)) for text in texts), label=True)


def status_text(record: Record) -> str:
    """`ok`; `oom: needs 14.00 GiB`."""
    return f"{record.status}: {record.reason}" if record.reason and not record.ok else record.status


def split_overrides(record: Record) -> dict[str, str]:
    """`model/attention=gqa` as key and value, without Hydra's `+` and `~` and without quotes."""
    pairs = (override.partition("=") for override in record.overrides)
    return {key.lstrip("+~"): unquoted(value) for key, _, value in pairs}


def varying_overrides(records: Sequence[Record]) -> list[str]:
    """The keys of the overrides that are not the same for all, as far as their files can be read."""
    splits = [split_overrides(record) for record in records if record.name != UNREADABLE]
    keys = dict.fromkeys(key for split in splits for key in split)
    return [key for key in keys if len({split.get(key) for split in splits}) > 1]


def _differences(records: Sequence[Record]) -> list[Field]:
    """The parts of the compositions that differ: sizes, choices and their options."""
    fields = []
    for key, values in differences([record.composition for record in records]).items():
        cells = tuple(Cell(value, "-" if value is None else value_text(value)) for value in values)
        fields.append(Field(clean(key), "composition", cells))
    return fields
