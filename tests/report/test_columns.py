"""Records as columns: whatever goes in comes out again, as a reader of the format's description would read it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from archlab.report.html.columns import Columns

ABSENT = object()
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(-2, 2).map(lambda x: x + 0.0), st.text("ab<", max_size=2)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def read(node: dict[str, Any], row: int) -> Any:
    """What a row has at a node."""
    if "all" in node:
        return node["all"]
    if "each" in node:
        return node["each"][row]
    if "at" in node and node["at"][row] >= 0:
        return node["of"][node["at"][row]]
    inside = {key: read(inner, row) for key, inner in node.get("in", {}).items()}
    return {key: value for key, value in inside.items() if value is not ABSENT} or ABSENT


def columns(rows: list[Any]) -> dict[str, Any]:
    made = Columns()
    for row in rows:
        made.add(row)
    return json.loads(json.dumps(made.as_dict()))


@given(st.lists(VALUES, min_size=1, max_size=6))
def test_rows_come_back_as_they_were(rows: list[Any]) -> None:
    made = columns(rows)
    assert [json.dumps(read(made, index), sort_keys=True) for index in range(len(rows))] == [
        json.dumps(row, sort_keys=True) for row in rows
    ]


def test_what_all_have_is_written_once() -> None:
    made = columns([{"seed": 0, "how": "x", "n": n} for n in range(4)])
    assert made == {"in": {"seed": {"all": 0}, "how": {"all": "x"}, "n": {"each": [0, 1, 2, 3]}}}


def test_what_some_lack_is_told_from_null() -> None:
    made = columns([{"a": None, "b": 1}, {"b": 1}, {"a": {}, "b": 1}])
    assert made["in"]["a"] == {"of": [None, {}], "at": [0, -1, 1]}
