"""Results as they are shown: the points asked for side by side, then what was left out and what each choice did."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

from archlab import record as records
from archlab.document import Document, Table
from archlab.errors import RequestError
from archlab.explained import explanations
from archlab.frozen import Frozen
from archlab.record import SCHEMA, Record, json_line
from archlab.report.compare import HEADLINE, Comparison, comparison
from archlab.report.console import console
from archlab.report.document import csv_text, md_text, show_document
from archlab.report.formats import point, render, to_parquet
from archlab.results import MOST_ROWS, Results, Row, effects, front, groups, ordered, read, troubles
from archlab.scatter import in_terminal, scatter
from archlab.units import counted

MOST_TROUBLES = 5
ALL = "archlab results --all shows every point"


class Selection(Frozen):
    """What of the results was asked for, see `archlab results --help`."""

    where: str | None = None
    sort: str | None = None
    pareto: str | None = None
    group_by: str | None = None
    everything: bool = False
    chart: str | None = None


def print_summary(found: Results, asked: Selection, form: str, output: str | None = None) -> None:
    """Print results, or write them into a file."""
    held = found.where(asked.where) if asked.where is not None else found
    if not held.rows:
        raise RequestError(f"none of {counted(len(found.rows), 'point')} is so: {asked.where}")
    names = held.front_names(asked.pareto)
    shown, verdict = _shown(held, asked, names, fold=form in ("table", "md"))
    tables = [groups(held, asked.group_by, names)] if asked.group_by else _effects(held, names)
    document = Document(
        "results",
        counted(len(held.rows), "point"),
        tables,
        verdict,
        charts=[in_terminal(scatter(held, asked.chart))] if asked.chart else (),
        notes=[*_troubles(held), ALL] if len(shown) < len(held.rows) else (),
    )
    if form == "parquet":
        to_parquet(_comparison(shown, held.varying), output)
        if output is not None:
            print(f"{output}: written")
    elif output is None:
        _print(shown, held.varying, document, form, bool(asked.group_by))
    else:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            _print(shown, held.varying, document, form, bool(asked.group_by))
        print(f"{records.write_named(output, text.getvalue())}: written")


def print_end(files: Sequence[Path], as_json: bool, lost: Sequence[Record] = ()) -> bool:
    """The end of a sweep: every point where they are few, else the front of them. Whether all are ok, and kept.

    lost: the records that have no file, each of which is shown.
    """
    if as_json:
        return _print_points(itertools.chain(map(records.row, files), lost)) and not lost
    if len(files) <= MOST_ROWS:
        found = [*map(records.row, files), *lost]
        render(comparison(found), "table", console())
        return all(record.ok for record in found) and not lost
    objective = [records.full_name(name) for name in records.row(files[0]).config.get("objective") or []]
    results = read(files, (*HEADLINE, *objective))
    told = ",".join(objective) if objective != ["params"] and set(objective) <= set(results.units) else None
    print_summary(results, Selection(pareto=told), "table")
    if lost:
        render(comparison(lost), "table", console())
    return all(row.ok for row in results.rows) and not lost


def _print_points(found: Iterable[Record]) -> bool:
    """One JSON document of whole records, of which one at a time is held. Whether all are ok."""
    print(f'{{"schema": {SCHEMA}, "points": [', end="")
    all_ok = True
    for number, record in enumerate(found):
        all_ok = all_ok and record.ok
        print(", " if number else "", json_line(point(record, explanations)).rstrip(), sep="", end="")
    print("]}")
    return all_ok


def _shown(held: Results, asked: Selection, names: list[str], fold: bool) -> tuple[list[Row], str]:
    """The rows to show, and a sentence on them where they are not all."""
    total = len(held.rows)
    if asked.pareto is None and (asked.everything or not fold or total <= MOST_ROWS):
        return ordered(held, asked.sort), ""
    best = ordered(held.only(front(held, names)), asked.sort)
    shown = best if asked.everything or not fold else best[:MOST_ROWS]
    wrong = sum(not row.ok for row in held.rows)
    broke = sum(row.ok and bool(row.breaks) for row in held.rows)
    parts = [
        f"{len(best):,} of {total:,} make the front of {', '.join(names)}",
        f"the first {len(shown):,} of them are shown" if len(shown) < len(best) else "",
        f"{total - len(best) - wrong - broke:,} are no better in any of these",
        f"{broke:,} break a constraint" if broke else "",
        f"{wrong:,} are not ok" if wrong else "",
    ]
    return shown, "; ".join(filter(None, parts))


def _effects(held: Results, names: Sequence[str]) -> list[Table]:
    table = effects(held, names)
    return [] if table is None else [table]


def _troubles(held: Results) -> list[str]:
    reasons = troubles(held)
    more = [f"{len(reasons) - MOST_TROUBLES:,} more reasons"] if len(reasons) > MOST_TROUBLES else []
    return [*reasons[:MOST_TROUBLES], *more]


def _comparison(rows: Sequence[Row], varying: Sequence[str]) -> Comparison:
    return comparison((records.row(row.file) for row in rows), varying=varying)


def _print(shown: Sequence[Row], varying: Sequence[str], document: Document, form: str, grouped: bool) -> None:
    if form == "json":
        points = [records.row(row.file).as_dict() for row in shown]
        print(json_line({"schema": SCHEMA, "points": points, "summary": document.as_dict()}), end="")
    elif form == "csv":
        if grouped:
            print(csv_text(document), end="")
        else:
            render(_comparison(shown, varying), form, console())
    else:
        if shown and not grouped:
            render(_comparison(shown, varying), form, console())
        if form == "md":
            print("\n" + md_text(document), end="")
        else:
            print()
            show_document(document, console())
