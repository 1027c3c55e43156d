"""The clock against machines whose speed is known."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from archlab.bench.clock import (
    PATIENCE,
    measure,
    median_half_width,
    quantile,
    refilled,
    stopwatch,
    until_enough,
)
from archlab.bench.figures import compiling
from archlab.frozen import replace
from archlab.workload import BenchOptions

LONG = BenchOptions(seconds=10.0, max_repeats=1000, precision=0.01)


def timed(machine: Any, work: float, options: BenchOptions = LONG) -> Any:
    return measure(machine.job(work), options, machine.timer, lambda done: None)


def test_a_known_rate_is_measured_within_2_percent(machine: Any) -> None:
    sample = timed(machine(rate=1000.0, jitter=0.05), 100.0)
    assert 100.0 / sample.median == pytest.approx(1000.0, rel=0.02)
    assert sample.p10 <= sample.median <= sample.p90
    assert sample.half_width <= 0.01
    assert "median is known" in sample.stopped


@pytest.mark.parametrize("factor", [2, 5])
def test_g01_time_scales_with_work(machine: Any, factor: int) -> None:
    one, more = (timed(machine(rate=1000.0, jitter=0.02), 100.0 * times) for times in (1, factor))
    assert more.median / one.median == pytest.approx(factor, rel=0.02)


def test_g01_the_real_clock_sees_the_whole_call() -> None:
    options = BenchOptions(seconds=0.1, min_repeats=3, max_repeats=5)
    one, two = (
        measure(lambda s=s: time.sleep(s), options, stopwatch(time.perf_counter), lambda done: None)
        for s in (0.01, 0.02)
    )
    assert one.p10 >= 0.01
    assert two.p10 >= 0.02


def test_g06_the_cold_start_is_apart(machine: Any) -> None:
    sample = timed(machine(rate=1000.0, cold_seconds=3.0), 100.0)
    assert sample.median == pytest.approx(0.1)
    assert sample.p90 == pytest.approx(0.1)
    assert sample.first == pytest.approx(3.1)
    assert sample.warmup >= sample.first
    assert sample.warmup_runs >= 2


def test_warm_up_goes_on_until_steady() -> None:
    seconds = iter([8.0, 4.0, 2.0, 1.0, *[1.0] * 100])
    sample = measure(lambda: None, BenchOptions(seconds=50.0), lambda call: next(seconds), lambda done: None)
    assert (sample.warmup_runs, sample.warmup, sample.median) == (5, 16.0, 1.0)


class Shared:
    """A pretend processor with room in its caches for one: a run after another's takes a quarter longer."""

    def __init__(self) -> None:
        self.now, self.holder, self.ran = 0.0, "", 0

    def run(self, name: str, seconds: float = 1.0) -> None:
        self.now += seconds * (1.0 if self.holder == name else 1.25)
        self.holder, self.ran = name, self.ran + 1


@pytest.mark.parametrize("between", [(), (True,), (True, False)], ids=["alone", "of three", "of two"])
@pytest.mark.parametrize("repeats", [4, 5])
def test_a_run_finds_the_same_in_the_caches_whoever_runs_between(between: tuple[bool, ...], repeats: int) -> None:
    """Of A B C, B C A others run before each of a point's runs, of A B, B A before every second, alone before none."""
    shared, others = Shared(), itertools.cycle(between or (False,))

    def turn(stopped: str | None, runs: Sequence[float]) -> bool:
        if next(others):
            shared.run("another")
        return until_enough(stopped, runs)

    def call() -> None:
        shared.run("it")

    timer, options = stopwatch(lambda: shared.now), replace(LONG, max_repeats=repeats)
    sample = measure(call, options, timer, lambda done: None, refilled(turn, call, timer))
    assert (sample.p10, sample.median, sample.p90, sample.repeats) == (1.0, 1.0, 1.0, repeats)
    held_back = measure(call, options, timer, lambda done: None, turn)
    assert (held_back.p90 == 1.0) is (not any(between))


@pytest.mark.parametrize(("seconds", "untimed"), [(1.0, 4), (1.5, 1)])
def test_what_a_long_run_finds_in_the_caches_does_not_matter(seconds: float, untimed: int) -> None:
    """It is made twice once, before it is known how long it is."""
    shared, options = Shared(), replace(LONG, max_repeats=4)

    def call() -> None:
        shared.run("it", seconds)

    timer = stopwatch(lambda: shared.now)
    sample = measure(call, options, timer, lambda done: None, refilled(until_enough, call, timer))
    assert shared.ran == sample.warmup_runs + sample.repeats + untimed


def test_warm_up_is_never_less_than_asked(machine: Any) -> None:
    assert timed(machine(rate=1.0), 0.01, BenchOptions(warmup=7)).warmup_runs == 7


def test_the_budget_ends_it(machine: Any) -> None:
    sample = timed(machine(rate=1.0, jitter=0.5), 0.1, BenchOptions(seconds=2.0, precision=1e-6, max_repeats=1000))
    assert sample.repeats == pytest.approx(20, abs=4)
    assert "budget of 2 s is spent" in sample.stopped


def test_max_repeats_ends_it(machine: Any) -> None:
    sample = timed(machine(rate=1.0, jitter=0.5), 0.1, BenchOptions(seconds=99.0, precision=1e-6, max_repeats=9))
    assert (sample.repeats, sample.stopped) == (9, "max_repeats = 9")


@pytest.mark.parametrize(("seconds", "repeats", "warmups"), [(0.4, 3, 2), (1.5, 3, 1), (2.1, 2, 1), (60.0, 1, 1)])
def test_a_slow_run_is_repeated_less(machine: Any, seconds: float, repeats: int, warmups: int) -> None:
    options = BenchOptions(seconds=1.0, min_repeats=3)
    sample = timed(machine(rate=1.0), seconds, options)
    assert (sample.repeats, sample.warmup_runs) == (repeats, warmups)
    assert (repeats == 3) == ("is spent" in sample.stopped)
    assert repeats * seconds <= PATIENCE * options.seconds or repeats == 1
    assert f"{repeats} run" in sample.describe()


def test_progress_rises_from_0_to_1(machine: Any) -> None:
    seen: list[float] = []
    measure(machine(rate=1.0).job(0.1), BenchOptions(seconds=1.0), machine(rate=1.0).timer, seen.append)
    assert (seen[0], seen[-1], seen) == (0.0, 1.0, sorted(seen))


def test_what_the_call_raises_is_raised(machine: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 / 0, LONG, machine(rate=1.0).timer, lambda done: None)


def test_quantiles_are_of_order_statistics() -> None:
    assert [quantile([3.0, 1.0, 2.0], q) for q in (0.0, 0.5, 1.0)] == [1.0, 2.0, 3.0]
    assert quantile([1.0, 2.0], 0.1) == pytest.approx(1.1)
    assert quantile([7.0], 0.9) == 7.0


def test_the_interval_needs_6_runs_and_then_spans_them_all() -> None:
    assert median_half_width([1.0] * 5) is None
    assert median_half_width([0.9, 1.0, 1.0, 1.0, 1.0, 1.1]) == pytest.approx(0.1)
    assert median_half_width([float(n) for n in range(1, 2001)]) == pytest.approx(0.0438, rel=0.02)


def test_the_interval_holds_the_median_19_times_in_20() -> None:
    rng = random.Random(1)
    draws = [[math.exp(rng.gauss(0, 1)) for _ in range(15)] for _ in range(2000)]
    k = 4  # of 15: 1 - 2 P(Bin(15, 1/2) <= 3) = 0.965
    held = sum(sorted(d)[k - 1] <= 1.0 <= sorted(d)[-k] for d in draws)
    assert held / len(draws) == pytest.approx(0.965, abs=0.015)
    ordered = sorted(draws[0])
    wanted = (ordered[-k] - ordered[k - 1]) / 2 / ordered[7]
    assert median_half_width(draws[0]) == pytest.approx(wanted)


def test_g07_recompiles_under_the_clock_are_counted_apart_from_the_first(machine: Any) -> None:
    """The first call compiles for 60 s; the sixth, long after the warm-up, does again."""
    compiled = {1: 60.0, 6: 60.0}
    calls = [0]

    def timer(call: Any) -> float:
        calls[0] += 1
        return 1.0 + compiled.get(calls[0], 0.0)

    def compiles() -> int:
        return sum(calls[0] >= call for call in compiled)

    options = BenchOptions(seconds=20.0, max_repeats=9, precision=1e-9)
    sample = measure(lambda: None, options, timer, lambda done: None, compiles=compiles)
    assert sample.compiled == (1, 1)
    assert (sample.first, sample.median) == (61.0, 1.0)
    assert sample.warmup_runs >= 3  # compiling does not use up what warm-up may take
    figures = compiling("decode", sample)
    assert figures["decode_compile_seconds"].value == 60.0
    assert figures["decode_recompiles"].value == 1
    assert figures["decode_recompiles"].status == "invalid"
    assert "while the clock ran" in figures["decode_recompiles"].reason


def test_turns_decide_how_often_it_runs(machine: Any) -> None:
    told: list[tuple[str | None, int]] = []

    def turn(stopped: str | None, runs: list[float]) -> bool:
        told.append((stopped, len(runs)))
        return len(runs) < 12

    one = machine(rate=1.0)
    sample = measure(one.job(0.01), BenchOptions(max_repeats=9), one.timer, lambda done: None, turn)
    assert sample.repeats == 12
    assert told[0] == (None, 0)
    assert told[-1][0] is not None
