"""`comparison`: the best by brute force, failed points kept, every format whole, names never interpreted."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from archlab.errors import ConfigError
from archlab.record import Figure, Record
from archlab.report.compare import HEADLINE, comparison
from archlab.report.formats import csv_text, json_text, md_text, render
from archlab.report.text import clean

Make = Callable[..., Record]
Paper = Callable[..., Console]


@pytest.fixture(scope="module")
def sweep(make: Make, failed: Make) -> list[Record]:
    """Six points of two axes, and one in their midst that failed."""
    points = []
    for index, (attention, norm) in enumerate((a, n) for a in ("mha", "gqa", "mqa") for n in ("layernorm", "rmsnorm")):
        overrides = [f"model/attention={attention}", f"model/norm={norm}", "bench=quick"]
        axes = {"attention": {"choice": attention}, "norm": {"choice": norm}}
        points.append(make(overrides, speed=1 + 0.07 * index, **axes))
    broken = failed(["model/attention=gqa", "model/norm=batch[bold]|norm", "bench=quick"])
    return [*points[:3], broken, *points[3:]]


def shown(records: list[Record], console: Console, form: str = "table", **options: object) -> str:
    render(comparison(records, **options), form, console)
    return console.file.getvalue()


def with_figures(**values: float | None) -> Record:
    units = {"params": "parameters", "decode_tok_s": "tok/s", "kv_bytes_per_token": "B/token"}
    figures = {name: Figure(value, units[name], "exact", "") for name, value in values.items()}
    return Record(config={"model": {"name": "m"}}, figures=figures)


# --- what is compared -------------------------------------------------------------------------------------------------


def test_overrides_that_vary_come_first_then_the_headline_figures(sweep: list[Record]) -> None:
    names = [field.name for field in comparison(sweep).fields]
    assert names[:3] == ["model/attention", "model/norm", "status"]
    assert names[3:] == [name for name in HEADLINE if name in sweep[0].figures]


def test_presets_are_told_apart_by_name(make: Make) -> None:
    labels = comparison([make(name="a"), make(name="b", overrides=["model/attention=mqa"])]).labels
    assert [(field.name, [cell.text for cell in field.cells]) for field in labels] == [
        ("model", ["a", "b"]),
        ("model/attention", ["", "mqa"]),
    ]


def test_records_that_are_alike_are_told_apart_by_folder(make: Make) -> None:
    pair = [make(), make()]
    pair[1].folder = "elsewhere"
    assert [field.name for field in comparison(pair).labels] == ["model", "folder"]


def test_detail_shows_every_figure_and_what_differs_in_composition(make: Make) -> None:
    compared = comparison([make(speed=1.0), make(attention={"choice": "mqa"})], detail=True)
    rows = {field.name: [cell.text for cell in field.cells] for field in compared.fields}
    assert rows["attention"] == ["gqa", "mqa"]
    assert rows["attention.n_kv_heads"] == ["4", "1"]
    assert "attention.head_dim" not in rows
    assert rows["params.attention"] == ["14,155,776", "10,616,832"]
    assert rows["kv_bytes.2048"] == ["25,165,824", "6,291,456"]
    assert rows["decode_tok_s"] == ["87.65", "-"]
    assert not {"params.other", "params.layers.0-7", "params_active"} & rows.keys()


# --- the best ---------------------------------------------------------------------------------------------------------

VALUES = st.none() | st.integers(0, 5) | st.floats(0, 5) | st.just(math.nan)
STATUSES = st.sampled_from(["ok", "ok", "ok", "oom", "failed"])


@settings(deadline=None)
@given(points=st.lists(st.tuples(VALUES, VALUES, STATUSES), min_size=1, max_size=7))
def test_the_best_is_marked_and_only_it(points: list[tuple[float | None, float | None, str]]) -> None:
    records = []
    for params, rate, status in points:
        record = with_figures(params=params, decode_tok_s=rate)
        record.status = status
        records.append(record)
    compared = comparison(records)
    for name, pick in (("params", min), ("decode_tok_s", max)):
        marked = [cell.best for cell in next(field for field in compared.fields if field.name == name).cells]
        values = [record.value(name) for record in records]
        running = [v for v, record in zip(values, records, strict=True) if record.ok and v is not None and v == v]
        contest = len(set(running)) > 1
        expected = [
            contest and record.ok and value is not None and value == pick(running)
            for value, record in zip(values, records, strict=True)
        ]
        assert marked == expected


def test_an_invalid_figure_does_not_win() -> None:
    slow, fast, impossible = (with_figures(decode_tok_s=rate) for rate in (10.0, 20.0, 1e9))
    impossible.figures["decode_tok_s"] = Figure(1e9, "tok/s", "measured", "", status="invalid", reason="above peak")
    cells = comparison([slow, fast, impossible]).figures[0].cells
    assert [(cell.text, cell.best) for cell in cells] == [("10", False), ("20", True), ("invalid", False)]


# --- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sort", "descending"), [("params", False), ("-params", True), ("-decode_tok_s", True)])
def test_sort(sweep: list[Record], sort: str, descending: bool) -> None:
    values = [record.value(sort.removeprefix("-")) for record in comparison(sweep, sort).records]
    assert values[-1] is None
    assert values[:-1] == sorted(values[:-1], reverse=descending)


def test_sort_by_a_short_name(sweep: list[Record]) -> None:
    assert comparison(sweep, "-decode").records == comparison(sweep, "-decode_tok_s").records


def test_sort_by_an_unknown_figure(sweep: list[Record]) -> None:
    with pytest.raises(ConfigError, match=r"no figure 'parms'; did you mean params\?; valid: params, ") as caught:
        comparison(sweep, "-parms")
    assert caught.value.as_dict()["nearest"] == "params"


# --- the table --------------------------------------------------------------------------------------------------------


def numbers(records: list[Record]) -> set[str]:
    texts = {cell.text for field in comparison(records).figures for cell in field.cells}
    return {text for text in texts if text != "-"}


@pytest.mark.parametrize("width", [None, 30, 60, 80, 120, 200])
@pytest.mark.parametrize("detail", [False, True])
def test_every_number_is_whole_at_every_width(
    sweep: list[Record], paper: Paper, width: int | None, detail: bool
) -> None:
    for records in (sweep, sweep[:2], sweep[2:4]):
        text = shown(records, paper(width), detail=detail)
        words = {word.lstrip("*") for word in re.split(r"\s+", text)}
        assert {number for number in numbers(records) if not set(number.split()) <= words} == set()
        assert "…" not in text


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(sweep: list[Record], paper: Paper, width: int) -> None:
    for records in (sweep, sweep[:2]):
        for detail in (False, True):
            lines = shown(records, paper(width), detail=detail).splitlines()
            assert max(map(len, lines)) <= width


def test_a_pipe_gets_one_table_without_escapes(sweep: list[Record], paper: Paper) -> None:
    text = shown(sweep, paper())
    assert "\x1b" not in text
    assert text.count("───\n") == 1
    failed = next(line for line in text.splitlines() if "batch[bold]|norm" in line)
    assert failed.endswith("oom     needs 14.00 GiB, there are 8.00")
    assert text.endswith("\n7 records, 1 not ok, * best of its column\n")


def test_failed_points_are_rows_with_their_reason_at_any_width(sweep: list[Record], paper: Paper) -> None:
    for width in (60, 80, 200):
        text = " ".join(shown(sweep, paper(width)).split())
        assert "oom" in text
        assert "gqa, batch[bold]|norm: needs 14.00 GiB, there are 8.00" in text or "8.00 gqa" in text


def test_the_best_is_green_on_a_terminal_and_starred_everywhere(sweep: list[Record], paper: Paper) -> None:
    assert "\x1b[1;32m*60,373,248\x1b[0m" in shown(sweep, paper(200, terminal=True))
    assert "*60,373,248" in shown(sweep, paper(200))


def test_few_records_stand_side_by_side_where_rows_do_not_fit(sweep: list[Record], paper: Paper) -> None:
    text = shown(sweep[:2], paper(60))
    row = next(line for line in text.splitlines() if "params_non" in line)
    assert row.split()[-2:] == ["63,730,176", "*63,715,584"]
    assert text.endswith("* best of its row\n")


def test_no_records(paper: Paper) -> None:
    assert shown([], paper()).strip() == "0 records"


# --- other formats ----------------------------------------------------------------------------------------------------


def test_json_is_the_records(sweep: list[Record], paper: Paper) -> None:
    body = json.loads(shown(sweep, paper(60), "json"))
    assert body == {"schema": 1, "points": [record.as_dict() for record in sweep]}


def test_json_of_figures_that_json_cannot_hold() -> None:
    body = json.loads(json_text(comparison([with_figures(params=float("nan"))])))
    assert body["points"][0]["figures"]["params"]["value"] is None


def test_csv_reads_back_to_the_same_numbers(sweep: list[Record], paper: Paper) -> None:
    rows = list(csv.DictReader(io.StringIO(shown(sweep, paper(60), "csv"))))
    assert len(rows) == len(sweep)
    for row, record in zip(rows, sweep, strict=True):
        assert (row["name"], row["status"], row["reason"]) == (record.name, record.status, record.reason or "")
        assert {name: float(row[name]) for name in record.figures} == {n: record.value(n) for n in record.figures}
        assert row["model/attention"] == record.overrides[0].split("=")[1]


@settings(deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70), text=st.text())
def test_csv_keeps_any_number_and_any_text(value: float, text: str) -> None:
    record = with_figures(params=value)
    record.status, record.reason = "failed", text
    row = next(csv.DictReader(io.StringIO(csv_text(comparison([record])), newline="")))
    assert type(value)(row["params"]) == value
    assert row["reason"] == clean(text)


def test_md_is_one_table_with_the_best_in_bold(sweep: list[Record], paper: Paper) -> None:
    lines = shown(sweep, paper(60), "md").split("\n\n")[0].splitlines()  # notes stand below
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    assert {len(row) for row in cells} == {len(comparison(sweep).fields)}
    assert "---:" in lines[1]
    assert "**60,373,248**" in lines[-1]
    assert "batch\\[bold\\]\\|norm" in lines[5]


@settings(deadline=None)
@given(name=st.text(max_size=30))
def test_md_survives_any_name(name: str) -> None:
    record = with_figures(params=1)
    record.config["model"]["name"] = f"|{name}|"
    lines = md_text(comparison([record])).splitlines()
    assert len(lines) == 3
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", lines[2])) == len(re.findall(r"\|", lines[1]))


def test_an_unknown_format(sweep: list[Record], paper: Paper) -> None:
    with pytest.raises(ConfigError, match=r"no format 'cvs'; did you mean csv\?; valid: table, json, csv, md"):
        shown(sweep, paper(), "cvs")
