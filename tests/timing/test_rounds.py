"""Points in turns: the order of the rounds, the phases together, and ratios that a slow spell does not touch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from archlab.bench.child import Turn
from archlab.record import Record
from archlab.timing.rounds import Running, Sitting, interleave, ratios


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


def played(*running: Running) -> Sitting:
    """The rounds of points that are numbered as they come."""
    rounds: Sitting = {}
    interleave(dict(enumerate(running)), lambda number, record: None, rounds)
    return rounds


def names(stage: Stage, phase: str) -> list[str]:
    return [ran.split()[1] for ran in stage.ran if ran.startswith(phase)]


def test_rounds_begin_with_the_next_each_time(stage: Stage) -> None:
    done: list[int] = []
    interleave(
        {number: stage.point(name, 1.0, {"decode": 3}) for number, name in enumerate("ABC")},
        lambda number, record: done.append(number),
        {},
    )
    assert "".join(names(stage, "decode")) == "ABCBCACAB"
    assert sorted(done) == [0, 1, 2]


def test_all_go_on_until_each_has_enough_and_then_to_the_next_phase_together(stage: Stage) -> None:
    rounds = played(
        stage.point("A", 1.0, {"prefill": 1, "decode": 2}), stage.point("B", 1.0, {"prefill": 4, "decode": 1})
    )
    assert {phase: len(made) for phase, made in rounds.items()} == {"prefill": 4, "decode": 2}
    assert [ran.split()[0] for ran in stage.ran] == ["prefill"] * 8 + ["decode"] * 4


def test_a_point_without_a_phase_waits_for_the_others(stage: Stage) -> None:
    played(stage.point("A", 1.0, {"train": 2}), stage.point("B", 1.0, {"prefill": 2, "train": 2}))
    assert names(stage, "prefill") == ["B", "B"]
    assert sorted(names(stage, "train")) == ["A", "A", "B", "B"]


def test_a_point_that_fails_in_a_run_leaves_the_others_theirs(stage: Stage) -> None:
    rounds = played(
        stage.point("A", 1.0, {"prefill": 3, "decode": 3}),
        stage.point("B", 1.0, {"prefill": 3, "decode": 3}, fails="prefill"),
    )
    assert [sorted(made) for made in rounds["prefill"]] == [[0], [0], [0]]
    assert [sorted(made) for made in rounds["decode"]] == [[0, 1]] * 3


def nothing_to_time() -> Iterator[Any]:
    yield from ()
    return Record({"model": {"name": "too large"}})


def test_a_point_that_times_nothing_is_done_at_once(stage: Stage) -> None:
    done: list[int] = []
    running = {0: nothing_to_time(), 1: stage.point("B", 1.0, {"decode": 1})}
    interleave(running, lambda number, record: done.append(number), {})
    assert done == [0, 1]


def one(phase: str, number: int) -> int:
    return 1


def test_a_ratio_is_of_runs_side_by_side(stage: Stage) -> None:
    """The machine gets 7 times slower meanwhile; the median of all A's runs and all B's would say nothing."""
    rounds = played(stage.point("A", 2.0, {"decode": 10}), stage.point("B", 1.0, {"decode": 10}))
    (found,) = ratios([rounds], 0, one)
    assert (found.phase, found.number, found.rounds, found.processes) == ("decode", 1, 10, 1)
    assert (found.low, found.median, found.high) == (pytest.approx(2.0),) * 3  # A B B A: each is first once
    assert found.interval is None


@pytest.mark.parametrize("rounds", [4, 8, 9])
def test_what_a_run_finds_in_the_caches_favours_nobody(rounds: int) -> None:
    """Of A B, B A, A B, .. each run but the first is quicker by a fifth where the one before it was its own."""
    pattern: list[dict[int, float]] = [{0: 0.8, 1: 1.0}, {0: 1.0, 1: 0.8}]
    made = [{0: 1.0, 1: 1.0}, *(pattern[at % 2] for at in range(1, rounds))]
    (found,) = ratios([{"decode": made}], 0, one)
    assert found.median == pytest.approx(1.0)


def test_a_ratio_is_of_rates_where_runs_differ_in_tokens(stage: Stage) -> None:
    rounds = played(stage.point("A", 1.0, {"decode": 2}), stage.point("B", 1.0, {"decode": 2}))
    (found,) = ratios([rounds], 0, lambda phase, number: 10 * (number + 1))
    assert found.median == pytest.approx(2.0)


def test_a_sitting_that_is_broken_off_leaves_its_rounds(stage: Stage) -> None:
    def broken_off() -> Running:
        yield from stage.point("B", 1.0, {"prefill": 3})
        raise KeyboardInterrupt

    rounds: Sitting = {}
    with pytest.raises(KeyboardInterrupt):
        interleave({0: stage.point("A", 1.0, {"prefill": 3}), 1: broken_off()}, lambda number, record: None, rounds)
    assert len(rounds["prefill"]) == 3


def test_an_interval_is_over_processes_and_not_over_the_runs_of_one_pair() -> None:
    """Each process is as fast as its memory lies: the 50 runs of a sitting agree, and tell nothing of the next one."""
    sittings: list[Sitting] = [
        {"decode": [{0: 1.0, 1: 1 / speed}] * 50} for speed in (1.04, 0.98, 1.01, 0.97, 1.02, 0.99)
    ]
    (found,) = ratios(sittings, 0, one)
    assert (found.median, found.rounds, found.processes) == (pytest.approx(1.0), 300, 6)
    assert found.interval == (pytest.approx(0.97), pytest.approx(1.04))
    (few,) = ratios(sittings[:5], 0, one)
    assert few.interval is None


def test_a_phase_that_failed_in_a_sitting_is_of_the_others() -> None:
    (found,) = ratios([{"decode": [{0: 1.0}]}, {"decode": [{0: 1.0, 2: 0.5}]}, {}], 0, one)
    assert (found.number, found.median, found.rounds, found.processes) == (2, 2.0, 1, 1)


def test_one_model_twice_is_inside_its_interval_as_often_as_is_said() -> None:
    """Processes differ by 3 %, runs by 1 %: 6 processes each enclose 1 in all but 2 of 64 draws."""
    drawn = random.Random(0)

    def sitting() -> Sitting:
        speeds = [drawn.gauss(1, 0.03), drawn.gauss(1, 0.03)]
        return {"decode": [{at: drawn.gauss(1, 0.01) / speed for at, speed in enumerate(speeds)} for _ in range(9)]}

    found = [next(ratios([sitting() for _ in range(6)], 0, one)).interval for _ in range(1000)]
    inside = sum(interval is not None and interval[0] <= 1 <= interval[1] for interval in found)
    assert inside == pytest.approx(1000 * 62 / 64, abs=3 * (1000 * 62 * 2 / 64**2) ** 0.5)
