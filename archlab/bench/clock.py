"""The clock: warm up the very call that is timed, repeat it until its median is known, say why it stopped."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from archlab.frozen import Frozen
from archlab.workload import BenchOptions

Call = Callable[[], object]
Timer = Callable[[Call], float]
"""Runs a call to its very end, on the device too, and gives the seconds that it took."""

Turn = Callable[[str | None, Sequence[float]], bool]
"""Whether there is another run: told why those made are enough (None while they are not), and their seconds."""

STEADY = 0.05
"""Warm-up goes on while a run is faster than the one before by more than this share."""

PATIENCE = 5
"""To make `min_repeats`, slow runs may take this many times the budget; beyond it fewer are made."""

REFILLED = 1.0
"""Seconds of a run beyond which it does not matter what it finds in the caches: they are filled in much less."""

MISSES = 20
"""A 95 % interval misses what it is for one time in this many."""


class Sample(Frozen):
    """Seconds of a call. p10 and p90 span the runs; `half_width` is of the median's 95 % interval, a share of it.

    first: the cold first call. warmup: all calls before the clock started, the first among them. compiled: what was
    compiled meanwhile, before the clock started and while it ran; the latter are recompiles and should be none.
    """

    median: float
    p10: float
    p90: float
    repeats: int
    half_width: float | None
    first: float
    warmup: float
    warmup_runs: int
    stopped: str
    compiled: tuple[int, int] = (0, 0)

    def describe(self) -> str:
        """`median of 12 runs after 2 to warm up`, for a figure's `how`."""
        runs = "1 run" if self.repeats == 1 else f"median of {self.repeats} runs"
        return f"{runs} after {self.warmup_runs} to warm up"


def stopwatch(now: Callable[[], float]) -> Timer:
    """A timer that reads the clock `now` (seconds) before and after."""

    def timer(call: Call) -> float:
        start = now()
        call()
        return now() - start

    return timer


def until_enough(stopped: str | None, runs: Sequence[float]) -> bool:
    """The turns of a call that is timed alone: as long as its runs are not enough."""
    return stopped is None


def refilled(turn: Turn, call: Call, timer: Timer) -> Turn:
    """The turns of a call that others run between: each begins with a run that is not timed, and so does not count.

    Whoever ran meanwhile has taken the caches; the run that is timed finds in them what it does where it is alone.
    Once a run has taken more than `REFILLED`, it is the only one of its turn.
    """

    def turn_of_its_own(stopped: str | None, runs: Sequence[float]) -> bool:
        another = turn(stopped, runs)
        if another and (not runs or runs[-1] <= REFILLED):
            timer(call)
        return another

    return turn_of_its_own


def measure(
    call: Call,
    options: BenchOptions,
    timer: Timer,
    on_progress: Callable[[float], None],
    turn: Turn = until_enough,
    compiles: Callable[[], int] = int,
) -> Sample:
    """Time `call`. Raises whatever it raises.

    Runs until the median's interval is within `options.precision`, `options.seconds` are spent or `max_repeats` are
    made; at least `min_repeats`, but no more than `PATIENCE` budgets allow, and one in any case; `turn` may hold each
    run back, and may have the last word. compiles: how often a compiler has run so far.
    """
    on_progress(0.0)
    counts = [compiles()]
    warm = _warm_up(call, options, timer, compiles)
    counts.append(compiles())
    runs: list[float] = []
    while turn(_stopped(runs, options), runs):
        runs.append(timer(call))
        on_progress(_share(runs, options))
    counts.append(compiles())
    on_progress(1.0)
    compiled = counts[1] - counts[0], counts[2] - counts[1]
    return _sample(warm, runs, _stopped(runs, options) or "its turns were over", compiled)


def _sample(warm: list[float], runs: list[float], stopped: str, compiled: tuple[int, int]) -> Sample:
    return Sample(
        median=quantile(runs, 0.5),
        p10=quantile(runs, 0.1),
        p90=quantile(runs, 0.9),
        repeats=len(runs),
        half_width=median_half_width(runs),
        first=warm[0],
        warmup=sum(warm),
        warmup_runs=len(warm),
        stopped=stopped,
        compiled=compiled,
    )


def _warm_up(call: Call, options: BenchOptions, timer: Timer, compiles: Callable[[], int]) -> list[float]:
    """Seconds of the untimed runs: at least `options.warmup`, until steady or as long as the budget.

    Runs in which something was compiled do not count against it.
    """
    runs: list[float] = []
    spent = 0.0
    while not runs or (spent < options.seconds and (len(runs) < options.warmup or not _steady(runs))):
        before = compiles()
        runs.append(timer(call))
        spent += runs[-1] if compiles() == before else 0.0
    return runs


def _steady(runs: list[float]) -> bool:
    """Whether the last run was no longer faster than the one before."""
    return len(runs) > 1 and runs[-1] >= (1 - STEADY) * runs[-2]


def _share(runs: list[float], options: BenchOptions) -> float:
    """How much of the timing is done, 0 to 1."""
    share = max(sum(runs) / options.seconds, len(runs) / options.max_repeats)
    return min(1.0, share, len(runs) / options.min_repeats)


def _stopped(runs: list[float], options: BenchOptions) -> str | None:
    """Why these runs are enough, None while they are not."""
    if not runs:
        return None
    spent, budget = sum(runs), f"the budget of {options.seconds:g} s"
    if len(runs) < options.min_repeats:
        too_slow = spent + runs[-1] > PATIENCE * options.seconds
        return f"{options.min_repeats} runs would take over {PATIENCE} times {budget}" if too_slow else None
    half_width = median_half_width(runs)
    if half_width is not None and half_width <= options.precision:
        return f"the median is known to {half_width:.1%} (95 % interval)"
    if spent >= options.seconds:
        return f"{budget} is spent"
    return f"max_repeats = {options.max_repeats}" if len(runs) >= options.max_repeats else None


def quantile(values: list[float], share: float) -> float:
    """The quantile at `share`, linear between order statistics (Hyndman and Fan 1996, type 7)."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def median_half_width(values: list[float]) -> float | None:
    """Half the width of the median's 95 % interval, as a share of the median; None below 6 values."""
    interval = median_interval(values)
    if interval is None:
        return None
    (low, high), middle = interval, quantile(values, 0.5)
    return (high - low) / 2 / middle if middle > 0 else 0.0


def median_interval(values: list[float]) -> tuple[float, float] | None:
    """The ends of the median's 95 % interval; None below 6 values.

    Distribution-free: the interval between the k-th lowest and the k-th highest value (Conover 1999, section 3.2).
    """
    k = _interval_rank(len(values))
    if k is None:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[-k]


@functools.cache
def _interval_rank(n: int) -> int | None:
    """The largest k for which the k-th lowest and k-th highest of n values enclose the median at 95 %."""
    tail, k = 0, 0
    while (tail := tail + math.comb(n, k)) * 2 * MISSES <= 2**n:
        k += 1
    return k or None
