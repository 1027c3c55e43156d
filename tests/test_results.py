"""The front, the effects and the groups of many records, against what is worked out by hand or by brute force."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archlab.errors import ConfigError, RequestError
from archlab.record import Figure, Record
from archlab.results import Results, Row, effects, find, front, groups, ordered, read, troubles

UNITS = {"params": "parameters", "kv_bytes_per_token": "B/token", "decode_tok_s": "tok/s"}


def row(number: int, overrides: dict[str, str] | None = None, status: str = "ok", **values: float) -> Row:
    return Row(Path(f"{number}"), "gqa", overrides or {}, status, None, values, {})


def results(*rows: Row) -> Results:
    return Results(list(rows), UNITS)


VALUES = st.lists(st.tuples(*[st.integers(0, 6)] * 3), max_size=40)


@given(VALUES)
def test_the_front_is_what_brute_force_finds(points: list[tuple[int, int, int]]) -> None:
    rows = [row(i, params=p, kv_bytes_per_token=k, decode_tok_s=d) for i, (p, k, d) in enumerate(points)]
    costs = [(p, k, -d) for p, k, d in points]
    unbeaten = {a for a in costs if not any(b != a and all(x <= y for x, y in zip(b, a, strict=True)) for b in costs)}
    found = front(results(*rows), list(UNITS))
    assert {(r.values["params"], r.values["kv_bytes_per_token"], -r.values["decode_tok_s"]) for r in found} == unbeaten
    assert len(found) == len(unbeaten)  # of equal ones one


def test_what_failed_or_lacks_a_figure_is_not_on_the_front() -> None:
    held = results(row(0, params=2), row(1, status="failed", params=1), row(2, decode_tok_s=9))
    assert [r.file.name for r in front(held, ["params"])] == ["0"]
    assert front(held, []) == []


def test_the_effect_of_an_axis_is_the_mean_change_where_only_it_differs() -> None:
    cells = {("mha", "a"): 100, ("mqa", "a"): 50, ("mha", "b"): 200, ("mqa", "b"): 160, ("mqa", "c"): 1}
    rows = [row(i, {"attention": x, "norm": y}, params=v) for i, ((x, y), v) in enumerate(cells.items())]
    table = effects(results(*rows), ["params"])
    assert table is not None
    by = {(made["axis"], made["choice"]): made for made in table.rows}
    assert by["attention", "mqa"]["params"] == pytest.approx((-50 - 20) / 2)
    assert by["attention", "mqa"]["pairs"] == 2
    assert by["norm", "b"]["params"] == pytest.approx((100 + 220) / 2)
    assert by["norm", "c"]["params"] == pytest.approx(-98)
    assert effects(results(row(0, {"norm": "a"}, params=1)), ["params"]) is None


def test_a_choice_that_nothing_stands_beside_has_no_effect() -> None:
    """As in a search, which draws here and there: of 20 widths three have a pair, whatever is drawn between them."""
    drawn = [("1", "64"), *((str(n), str(n)) for n in range(2, 20)), ("1", "20"), ("7", "64"), ("1", "30")]
    rows = [row(i, {"n_layers": layers, "d_model": width}, params=i + 1) for i, (layers, width) in enumerate(drawn)]
    table = effects(results(*rows), ["params"])
    assert table is not None
    pairs = [(made["axis"], made["choice"], made["pairs"]) for made in table.rows]
    assert pairs == [("n_layers", "7", 1), ("d_model", "20", 1), ("d_model", "30", 1), ("d_model", "7", 1)]


def test_what_a_search_was_told_is_better_decides_the_front_and_the_best() -> None:
    rows = [row(i, {"a": "x"}, params=p, kv_bytes_per_token=k) for i, (p, k) in enumerate([(1, 1), (5, 1), (9, 4)])]
    told = results(*rows)
    wanted = Results(told.rows, UNITS, {"params": 1})
    names = ["params", "kv_bytes_per_token"]
    assert [r.values["params"] for r in front(told, names)] == [1]
    assert [r.values["params"] for r in front(wanted, names)] == [9, 5]
    assert groups(wanted, "a", names).rows[0]["params best"] == 9


def test_what_breaks_a_constraint_is_the_best_of_no_group() -> None:
    held = results(row(0, {"a": "x"}, params=3), row(1, {"a": "x"}, params=1)._replace(breaks=("params>=2",)))
    (made,) = groups(held, "a", ["params"]).rows
    assert (made["params best"], made["params median"], made["points"]) == (3, 2, 2)


def test_a_file_that_cannot_be_read_tells_no_points_apart() -> None:
    lost = row(2, status="failed")._replace(name="?")
    held = results(*(row(i, {"a": str(i), "bench": "none"}, params=1) for i in (0, 1)), lost)
    assert held.varying == ["a"]


def test_groups_give_the_best_and_the_median() -> None:
    values = [("a", 3, 5.0), ("a", 1, 7.0), ("a", 2, 6.0), ("b", 9, 1.0)]
    rows = [row(i, {"norm": n}, params=p, decode_tok_s=d) for i, (n, p, d) in enumerate(values)]
    failed = row(9, {"norm": "b"}, status="oom", params=1)
    table = groups(results(*rows, failed), "norm", ["params", "decode_tok_s"])
    a, b = table.rows
    assert (a["points"], a["params best"], a["params median"]) == (3, 1, 2)
    assert (a["decode_tok_s best"], a["decode_tok_s median"]) == (7.0, 6.0)
    assert (b["points"], b["not ok"], b["params best"]) == (2, 1, 9)
    with pytest.raises(ConfigError, match="norn"):
        groups(results(*rows), "norn", ["params"])


def test_order_and_names() -> None:
    held = results(row(0, params=2), row(1), row(2, params=1))
    assert [r.file.name for r in ordered(held, "params")] == ["2", "0", "1"]
    assert [r.file.name for r in ordered(held, "-params")] == ["0", "2", "1"]
    assert held.front_names("params, kv,decode") == list(UNITS)
    with pytest.raises(ConfigError, match="parms") as error:
        held.front_names("parms")
    assert error.value.nearest == "params"


def test_troubles_are_counted() -> None:
    rows = [row(i, status="invalid")._replace(reason="3 does not divide 8") for i in range(3)]
    held = results(*rows, row(3, status="oom"), row(4))
    assert troubles(held) == ["3 invalid: 3 does not divide 8", "1 oom"]


def test_rows_are_read_from_files_broken_ones_too(tmp_path: Path) -> None:
    figure = Figure(7, "parameters", "exact", "by hand")
    Record({"model": {"name": "m"}}, ["model.n_layers=3"], figures={"params": figure}).save(tmp_path / "0")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "record.json").write_text(json.dumps({"schema": 1}))
    found = read(find([str(tmp_path)]))
    assert [(r.status, r.values) for r in found.rows] == [("ok", {"params": 7}), ("failed", {})]
    assert [r.file.parent.name for r in found.where("params=7 and model.n_layers>2").rows] == ["0"]
    assert [r.file.name for r in results(row(0, kv_bytes_per_token=1024), row(1)).where("kv<=1KiB").rows] == ["0"]


def test_a_record_is_found_once_by_whatever_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(3):
        Record({"model": {"name": "m"}}, []).save(tmp_path / "sweep" / str(index))
    monkeypatch.chdir(tmp_path)
    found = find(["sweep/1", str(tmp_path / "sweep"), "./sweep/2/record.json"])
    assert [file.parent.name for file in found] == ["1", "0", "2"]


@pytest.mark.parametrize("text", ["<html>", "{}", '{"schema": 1, "points": []}'])
def test_a_file_that_was_named_and_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.html").write_text(text)
    with pytest.raises(RequestError, match=r"report\.html: is no"):
        find([str(tmp_path / "report.html")])
    kept = Record({"model": {"name": "m"}}, []).save(tmp_path / "one").rename(tmp_path / "kept.json")
    assert find([str(kept)]) == [kept]
