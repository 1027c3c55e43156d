"""A comparison for other programs and for pages: JSON, CSV, Markdown. The terminal's table is in `tables.py`."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from archlab.document import Explanation
from archlab.errors import ConfigError, RequestError, extra_needed, nearest
from archlab.record import SCHEMA, Record, write_named
from archlab.report.compare import Comparison, Field, figure_names, split_overrides, varying_overrides
from archlab.report.text import clean

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = ("table", "json", "csv", "md")
"""What every command that prints a table can print."""


def check_format(name: str, known: Sequence[str] = FORMATS) -> str:
    """The format, or a ConfigError with those there are."""
    if name not in known:
        raise ConfigError("format", f"no format {name!r}", value=name, valid=known, nearest=nearest(name, known))
    return name


def render(compared: Comparison, format: str, console: Console, explained: Explained | None = None) -> None:
    """Print a comparison in a format. All but `table` are written as they are, whatever the console's width.

    explained: what gives a record's explanations by figure, for JSON.
    """
    if check_format(format) == "table":
        from archlab.report.tables import show_comparison

        show_comparison(compared, console)
    elif format == "json":
        console.file.write(json_text(compared, explained))
    else:
        console.file.write({"csv": csv_text, "md": md_text}[format](compared))


Explained = Callable[[Record], Mapping[str, Explanation]]


def point(record: Record, explained: Explained | None) -> dict[str, Any]:
    """What `--json` prints of a record: all of it, and how each figure was got."""
    if explained is None:
        return record.as_dict()
    return record.as_dict() | {"explanations": {name: made.as_dict() for name, made in explained(record).items()}}


def json_text(compared: Comparison, explained: Explained | None = None) -> str:
    """One JSON document of the whole records."""
    points = [point(record, explained) for record in compared.records]
    return json.dumps({"schema": SCHEMA, "points": points}, indent=1, allow_nan=False) + "\n"


def csv_text(compared: Comparison) -> str:
    """A line a record: who it is, how it ended, the overrides that vary, then every figure, unrounded."""
    import csv

    head, rows = sheet(compared)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([head, *rows])
    return out.getvalue()


def sheet(compared: Comparison) -> tuple[list[str], list[list[Any]]]:
    """The heads and the rows that CSV and Parquet have."""
    import shlex

    records = compared.records
    varying, figures = varying_overrides(records), figure_names(records)
    rows = []
    for record in records:
        own = split_overrides(record)
        about = [record.name, shlex.join(record.overrides), record.status, record.reason or ""]
        texts = [clean(text) for text in (*about, *(own.get(key, "") for key in varying))]
        rows.append([*texts, *(_whole(record.value(name)) for name in figures)])
    return ["name", "overrides", "status", "reason", *varying, *figures], rows


def to_parquet(compared: Comparison, output: str | None) -> None:
    """Write what CSV has as a Parquet file, or as its bytes into a pipe.

    Raises RequestError at a terminal, without pyarrow, or where the file cannot be written.
    """
    if output is None and sys.stdout.isatty():
        raise RequestError("parquet is no text; name a file: --output FILE")
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from pyarrow import parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise extra_needed("parquet", "parquet") from None
    head, rows = sheet(compared)
    table = pyarrow.table({name: [row[index] for row in rows] for index, name in enumerate(head)})
    held = io.BytesIO()
    parquet.write_table(table, held)
    if output is None:
        sys.stdout.buffer.write(held.getvalue())
    else:
        write_named(output, held.getvalue())


def _whole(value: float | int | None) -> float | int | None:
    """A float that is a whole number without its `.0`."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def md_text(compared: Comparison) -> str:
    """A GitHub table, a row a record, the best in bold; below it what was dropped to compose them."""
    head = [_md_head(field) for field in compared.fields]
    rule = ["---" if field.label or not field.unit else "---:" for field in compared.fields]
    rows = [[_md_cell(field, index) for field in compared.fields] for index in range(len(compared.records))]
    table = "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *rows))
    notes = "".join(f"- {md_escape(note)}\n" for note in compared.notes)
    return f"{table}\n{notes}" if notes else table


def _md_head(field: Field) -> str:
    about = ", ".join(filter(None, (field.unit, field.kind)))
    return md_escape(f"{field.name} ({about})" if about else field.name)


def _md_cell(field: Field, index: int) -> str:
    cell = field.cells[index]
    return f"**{md_escape(cell.text)}**" if cell.best else md_escape(cell.text)


def md_escape(text: str) -> str:
    """Text that Markdown shows as it is; an underscore inside a word needs no escape."""
    import re

    return re.sub(r"[\\`*\[\]<>|~&$]|(?<!\w)_|_(?!\w)", lambda found: f"\\{found[0]}", clean(text))
