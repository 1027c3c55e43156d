"""Points in turns: the order of the rounds, the phases together, and ratios that a slow spell does not touch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from archlab.bench.child import Turn
from archlab.record import Record
from archlab.timing.rounds import Running, interleave, ratios


class Stage:
    """A pretend machine whose speed drifts: every run makes it slower by a tenth."""

    def __init__(self) -> None:
        self.slowness = 1.0
        self.ran: list[str] = []

    def point(self, name: str, seconds: float, phases: dict[str, int], fails: str | None = None) -> Running:
        """A point whose runs take `seconds` on the machine as it was, and are enough after so many in each phase."""
        for phase, wanted in phases.items():
            runs, last = 0, None
            while (yield Turn(phase, "enough" if runs >= wanted else None, last)):
                self.ran.append(f"{phase} {name}")
                runs, last = runs + 1, seconds * self.slowness
                self.slowness *= 1.1
                if phase == fails:
                    break
        return Record({"model": {"name": name}})


@pytest.fixture
def stage() -> Stage:
    return Stage()


def names(stage: Stage, phase: str) -> list[str]:
    return [ran.split()[1] for ran in stage.ran if ran.startswith(phase)]


def test_rounds_begin_with_the_next_each_time(stage: Stage) -> None:
    done: list[int] = []
    running = [stage.point(name, 1.0, {"decode": 3}) for name in "ABC"]
    interleave(running, lambda number, record: done.append(number))
    assert "".join(names(stage, "decode")) == "ABCBCACAB"
    assert sorted(done) == [0, 1, 2]


def test_all_go_on_until_each_has_enough_and_then_to_the_next_phase_together(stage: Stage) -> None:
    running = [stage.point("A", 1.0, {"prefill": 1, "decode": 2}), stage.point("B", 1.0, {"prefill": 4, "decode": 1})]
    rounds = interleave(running, lambda number, record: None)
    assert {phase: len(made) for phase, made in rounds.items()} == {"prefill": 4, "decode": 2}
    assert [ran.split()[0] for ran in stage.ran] == ["prefill"] * 8 + ["decode"] * 4


def test_a_point_without_a_phase_waits_for_the_others(stage: Stage) -> None:
    running = [stage.point("A", 1.0, {"train": 2}), stage.point("B", 1.0, {"prefill": 2, "train": 2})]
    interleave(running, lambda number, record: None)
    assert names(stage, "prefill") == ["B", "B"]
    assert sorted(names(stage, "train")) == ["A", "A", "B", "B"]


def test_a_point_that_fails_in_a_run_leaves_the_others_theirs(stage: Stage) -> None:
    running = [
        stage.point("A", 1.0, {"prefill": 3, "decode": 3}),
        stage.point("B", 1.0, {"prefill": 3, "decode": 3}, fails="prefill"),
    ]
    rounds = interleave(running, lambda number, record: None)
    assert [sorted(made) for made in rounds["prefill"]] == [[0], [0], [0]]
    assert [sorted(made) for made in rounds["decode"]] == [[0, 1]] * 3


def nothing_to_time() -> Iterator[Any]:
    yield from ()
    return Record({"model": {"name": "too large"}})


def test_a_point_that_times_nothing_is_done_at_once(stage: Stage) -> None:
    done: list[int] = []
    interleave([nothing_to_time(), stage.point("B", 1.0, {"decode": 1})], lambda number, record: done.append(number))
    assert done == [0, 1]


def test_a_ratio_is_of_runs_side_by_side(stage: Stage) -> None:
    """The machine gets 7 times slower meanwhile; the median of all A's runs and all B's would say nothing."""
    running = [stage.point("A", 2.0, {"decode": 10}), stage.point("B", 1.0, {"decode": 10})]
    (found,) = ratios(interleave(running, lambda number, record: None), lambda phase, number: 1)
    assert (found.phase, found.number, found.rounds) == ("decode", 1, 10)
    assert found.median == pytest.approx(2.0, rel=0.011)
    assert (found.low, found.high) == (pytest.approx(2 / 1.1), pytest.approx(2 * 1.1))
    assert found.half_width == pytest.approx((2 * 1.1 - 2 / 1.1) / 2 / found.median)


def test_a_ratio_is_of_rates_where_runs_differ_in_tokens(stage: Stage) -> None:
    running = [stage.point("A", 1.0, {"decode": 2}), stage.point("B", 1.0, {"decode": 2})]
    rounds = interleave(running, lambda number, record: None)
    (found,) = ratios(rounds, lambda phase, number: 10 * (number + 1))
    assert found.median == pytest.approx(2.0, rel=0.01)
