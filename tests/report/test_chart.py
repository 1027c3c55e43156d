"""Charts in the terminal: every point lies where its axes put it, no curve hides another, ceilings are drawn."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from archlab.document import Chart
from archlab.report.chart import HEIGHT, MARKS, PLAIN_MARKS, show_chart

Curves = Mapping[str, Sequence[tuple[float, float]]]


def drawn(series: Curves, width: int = 80, encoding: str = "utf-8", **options: Any) -> tuple[list[str], list[str]]:
    """The rows of the canvas from the top, without labels, and the lines below it."""
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    console = Console(file=out, width=width)
    show_chart(Chart("speed", "batch", "tok/s", series, **options), console)
    out.seek(0)
    lines = out.read().splitlines()
    edge = "│" if encoding == "utf-8" else "|"
    rows = [line.partition(edge)[2] for line in lines if edge in line]
    return rows, lines[lines.index(next(line for line in reversed(lines) if edge in line)) + 1 :]


def places(rows: Sequence[str], mark: str) -> list[tuple[int, int]]:
    """Column and row from below of each place that a mark takes."""
    return [(x, len(rows) - 1 - y) for y, row in enumerate(rows) for x, found in enumerate(row) if found == mark]


def test_a_straight_line_goes_from_corner_to_corner() -> None:
    rows, below = drawn({"gqa": [(0, 0), (10, 100)]})
    assert len(rows) == HEIGHT
    taken = places(rows, MARKS[0])
    last = max(x for x, _ in taken)
    assert {(0, 0), (last, HEIGHT - 1)} <= set(taken)
    for x, y in taken:
        assert y == pytest.approx(x / last * (HEIGHT - 1), abs=0.51)
    assert sorted(x for x, _ in taken) == list(range(last + 1))
    assert below[0].split()[::2] == ["0", "10"]


def test_powers_are_evenly_spaced_on_a_logarithmic_axis() -> None:
    rows, _ = drawn({"gqa": [(1, 1), (10, 10), (100, 100)]}, log_x=True, log_y=True)
    taken = places(rows, MARKS[0])
    last = max(x for x, _ in taken)
    for x, y in taken:
        assert y == pytest.approx(x / last * (HEIGHT - 1), abs=1)  # the middle point has a whole row to itself


@given(st.integers(2, 8), st.lists(st.integers(1, 99), min_size=2, max_size=5))
def test_curves_that_run_together_are_all_seen(count: int, heights: list[int]) -> None:
    curve = list(enumerate(heights))
    rows, below = drawn({f"model {index}": curve for index in range(count)})
    seen = set("".join(rows)) - {" "}
    assert seen == set(MARKS[:count])
    assert all(f"{MARKS[index]} model {index}" in "\n".join(below) for index in range(count))


def test_a_ceiling_is_drawn_above_what_stays_below_it_and_named() -> None:
    rows, below = drawn({"gqa": [(1, 10), (2, 20)]}, ceilings={"read": 40.0})
    assert set(rows[0]) == {"╌"}
    assert max(y for _, y in places(rows, MARKS[0])) == pytest.approx((HEIGHT - 1) / 2, abs=0.51)
    assert "-- read 40.00" in " ".join(below)


def test_ascii_where_the_terminal_has_no_more() -> None:
    rows, below = drawn({"a": [(1, 1), (2, 2)], "b": [(1, 2), (2, 1)]}, encoding="ascii", ceilings={"read": 3.0})
    assert all(line.isascii() for line in (*rows, *below))
    assert set("".join(rows)) == {" ", "-", *PLAIN_MARKS[:2]}


def test_the_last_of_a_cloud_stands_out() -> None:
    rows, _ = drawn({"all": [(1, 1), (2, 2), (3, 3)], "best": [(2, 2)]}, joined=False)
    assert ["·" in "".join(rows), "".join(rows).count("●")] == [True, 1]


def test_nothing_to_draw_is_no_chart() -> None:
    out = io.StringIO()
    show_chart(Chart("speed", "batch", "tok/s", {"gqa": []}), Console(file=out))
    assert not out.getvalue()
