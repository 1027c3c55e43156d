"""What a report says of many records: all of them, what tells them apart, the effects as `archlab results` has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archlab.errors import ConfigError, RequestError
from archlab.overview import Asked, overview
from archlab.record import Figure, Record
from archlab.results import Results, find, read


def record(overrides: dict[str, str], **values: float) -> Record:
    units = {
        "params": "parameters",
        "kv_bytes_per_token": "B/token",
        "solved_d_ff": "features",
        "budget_params": "parameters",
    }
    made = {name: Figure(value, units[name], "exact", "by hand") for name, value in values.items()}
    return Record({"model": {"name": "m"}}, [f"{key}={text}" for key, text in overrides.items()], figures=made)


def found(folder: Path, *made: Record) -> Results:
    for index, one in enumerate(made):
        one.save(folder / str(index))
    return read(find([str(folder)]))


def told(folder: Path, *made: Record, **asked: Any) -> dict[str, Any]:
    return overview(found(folder, *made), Asked(**asked), [str(folder)])


def test_points_are_named_by_what_varies_without_the_group_that_all_share(tmp_path: Path) -> None:
    grid = [("mha", "2"), ("mha", "4"), ("mqa", "2"), ("mqa", "4")]
    made = [record({"model/attention": a, "model.n_layers": n, "bench": "none"}, params=1) for a, n in grid]
    assert told(tmp_path, *made)["labels"] == ["attention", "n_layers"]


def test_points_that_nothing_tells_apart_have_their_folders(tmp_path: Path) -> None:
    data = told(tmp_path, record({}, params=1), record({}, params=2))
    assert data["labels"] == ["model", "folder"]
    assert data["points"]["in"]["label"]["in"]["folder"] == {"each": ["0", "1"]}


def test_a_condition_leaves_out_points_and_their_count_is_told(tmp_path: Path) -> None:
    made = [record({"model.n_layers": str(n)}, params=n, kv_bytes_per_token=n) for n in range(1, 6)]
    data = told(tmp_path, *made, where="params>=4")
    assert (data["found"], data["count"], data["where"]) == (5, 2, "params>=4")
    with pytest.raises(RequestError, match="none of 5 points"):
        told(tmp_path, where="params>9")


def test_each_point_has_the_choices_that_vary_without_quotes(tmp_path: Path) -> None:
    made = [
        record({"model/norm": n, "seed": "1", **f}, params=1) for n, f in (("a", {}), ("'b, c'", {"model/ffn": "x"}))
    ]
    data = told(tmp_path, *made)
    assert data["swept"] == [{"key": "model/norm", "name": "norm"}, {"key": "model/ffn", "name": "ffn"}]
    swept = data["points"]["in"]["swept"]["in"]
    assert swept["model/norm"] == {"each": ["a", "b, c"]}
    assert swept["model/ffn"] == {"of": ["x"], "at": [-1, 0]}  # the first has none


def test_a_point_that_breaks_a_constraint_says_which(tmp_path: Path) -> None:
    made = [record({"a": str(n)}, params=n, kv_bytes_per_token=n) for n in (1, 5)]
    for one in made:
        one.config["constraints"] = ["params<=2", "kv<=4"]
    assert told(tmp_path, *made)["points"]["in"]["breaks"] == {"of": ["params<=2, kv<=4"], "at": [-1, 0]}


def test_what_a_search_was_told_is_better_in_the_page_too(tmp_path: Path) -> None:
    made = [record({"a": str(n)}, params=n, kv_bytes_per_token=n) for n in (1, 5)]
    for one in made:
        one.config |= {"objective": ["params"], "direction": ["maximize"]}
    better = {figure["name"]: figure["better"] for figure in told(tmp_path, *made)["figures"]}
    assert better == {"params": 1, "kv_bytes_per_token": -1}


def test_of_what_was_asked_for_neither_is_better(tmp_path: Path) -> None:
    made = [record({"a": str(n)}, params=n, solved_d_ff=n, budget_params=9, kv_bytes_per_token=n) for n in (1, 2)]
    merits = {figure["name"]: figure["merit"] for figure in told(tmp_path, *made)["figures"]}
    assert merits == {"params": True, "kv_bytes_per_token": True, "solved_d_ff": False, "budget_params": False}


def test_a_file_that_is_no_record_is_a_point_that_failed(tmp_path: Path) -> None:
    results = found(tmp_path, record({"a": "1"}, params=1, kv_bytes_per_token=1), record({"a": "2"}, params=2))
    (tmp_path / "1" / "record.json").write_text("{")
    data = overview(read(find([str(tmp_path)])), Asked(), ["x"])
    status = data["points"]["in"]["record"]["in"]["status"]
    assert status == {"of": ["ok", "failed"], "at": [0, 1]} or status == {"each": ["ok", "failed"]}
    assert len(results.rows) == data["count"] == 2


def test_axes_and_front_that_no_record_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="parms"):
        told(tmp_path, record({}, params=1, kv_bytes_per_token=1), chart="parms,kv")
    with pytest.raises(ConfigError, match="speed"):
        told(tmp_path, pareto="speed")
