"""Calls that take turns on the clock, A B C, B C A, .., so that what the machine does meanwhile falls on all alike."""

from __future__ import annotations

from collections.abc import Mapping

from archlab.bench.clock import Call, median_half_width, quantile
from archlab.bench.device import Device
from archlab.frozen import Frozen

SLOW = 0.1
"""Share of the budget from which a call is warm after one run; quicker ones have two."""
LEAST, MOST = 6, 200
"""Rounds at least, whatever they take; and at most."""
PRECISION = 0.02
"""Half the width of every median's 95 % interval at which there are enough rounds."""


class Timing(Frozen):
    """Seconds of a call: median, 10th and 90th percentile, and how many runs stand behind them."""

    median: float
    low: float
    high: float
    runs: int


class Ratio(Frozen):
    """How many times as long one call took as another, round by round: median, and its 95 % interval as a share."""

    median: float
    half_width: float | None

    @property
    def told(self) -> bool:
        """Whether the clock tells the two apart."""
        return self.half_width is not None and abs(self.median - 1) > self.half_width * self.median


class Race:
    """rounds: seconds of each call by its name, a run a round."""

    def __init__(self, rounds: list[dict[str, float]]) -> None:
        self.rounds = rounds

    def timing(self, name: str) -> Timing:
        runs = [seconds[name] for seconds in self.rounds]
        return Timing(quantile(runs, 0.5), quantile(runs, 0.1), quantile(runs, 0.9), len(runs))

    def ratio(self, name: str, to: str) -> Ratio:
        shares = [seconds[name] / seconds[to] for seconds in self.rounds]
        return Ratio(quantile(shares, 0.5), median_half_width(shares))


def race(calls: Mapping[str, Call], device: Device, seconds: float, least: int = LEAST) -> Race:
    """Time calls side by side until the medians are known or the budget is spent, `least` rounds in any case."""
    for call in calls.values():
        if device.time(call) < SLOW * seconds:
            device.time(call)
    names, spent = list(calls), 0.0
    rounds: list[dict[str, float]] = []
    while not _enough(rounds, spent, seconds, least):
        turn = len(rounds) % len(names)
        rounds.append({name: device.time(calls[name]) for name in (*names[turn:], *names[:turn])})
        spent += sum(rounds[-1].values())
    return Race(rounds)


def _enough(rounds: list[dict[str, float]], spent: float, seconds: float, least: int) -> bool:
    if len(rounds) < least:
        return False
    if spent >= seconds or len(rounds) >= MOST:
        return True
    widths = [median_half_width([each[name] for each in rounds]) for name in rounds[0]]
    return all(width is not None and width <= PRECISION for width in widths)
