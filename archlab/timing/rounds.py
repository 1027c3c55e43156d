"""Points that take turns: A B C, B C A, .., so that what a machine does meanwhile falls on all of them alike.

They do so in several sittings, each in new processes: the same code may take several per cent longer in one process
than in the next, as its memory lies, so that the runs of one pair, however many, do not tell how well their ratio is
known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

from archlab.bench.child import Turn
from archlab.bench.clock import median_interval, quantile
from archlab.frozen import Frozen
from archlab.record import Record
from archlab.workload import PHASES

Running = Generator[Turn, bool, Record]
Round = Mapping[int, float]
"""Seconds of a run by the point's number; without those that failed in it."""

Sitting = dict[str, list[Round]]
"""The rounds of each phase."""


class Player:
    """A point in a round of them: where it is, and its record once it is done."""

    def __init__(self, number: int, running: Running) -> None:
        self.number, self.running = number, running
        self.turn: Turn | None = None
        self.record: Record | None = None

    @property
    def phase(self) -> str:
        """The phase that it is in; nothing once it is done."""
        return "" if self.turn is None else self.turn.phase

    def tell(self, done: Callable[[int, Record], None]) -> None:
        """Tell of its record, once."""
        if self.record is not None:
            done(self.number, self.record)
            self.record = None

    def move(self, go: bool | None) -> None:
        """Let it go on to its next turn, or to its end. go: whether it makes another run; None starts it."""
        try:
            self.turn = next(self.running) if go is None else self.running.send(go)
        except StopIteration as end:
            self.turn, self.record = None, end.value


def interleave(running: Mapping[int, Running], done: Callable[[int, Record], None], rounds: Sitting) -> None:
    """Time points side by side, phase by phase, until the runs of each are enough, and put down each round as it ends.

    running: by the point's number, in the order in which they start. done: is told of each point's record, as it ends.
    """
    players = [Player(number, each) for number, each in running.items()]
    for player in players:
        player.move(None)
    while True:
        for player in players:
            player.tell(done)
        waiting = [player for player in players if player.turn is not None]
        if not waiting:
            return
        phase = min((player.phase for player in waiting), key=PHASES.index)
        _play([player for player in waiting if player.phase == phase], rounds.setdefault(phase, []))


def _play(players: Sequence[Player], made: list[Round]) -> None:
    """One more round of a phase, each beginning with the next player; or its end, where all have enough."""
    first, phase = len(made) % len(players), players[0].phase
    enough = all(player.turn is not None and player.turn.stopped is not None for player in players)
    seconds: dict[int, float] = {}
    for player in (*players[first:], *players[:first]):
        player.move(not enough)
        if not enough and player.phase == phase and player.turn is not None and player.turn.seconds is not None:
            seconds[player.number] = player.turn.seconds
    if seconds:
        made.append(seconds)


class Ratio(Frozen):
    """How many times as fast a point is as the first one: the median over sittings, of each the median of its rounds.

    low, high: 10th and 90th percentile of all rounds. interval: the ends of the median's 95 % interval over sittings;
    None of few. processes: of the point, one a sitting. Of rounds, the geometric mean of as many in a row as there are
    points is meant, in which each began once, so that neither its place in a round nor a drift favours a point.
    """

    phase: str
    number: int
    median: float
    low: float
    high: float
    interval: tuple[float, float] | None
    rounds: int
    processes: int


def ratios(sittings: Sequence[Sitting], first: int, tokens: Callable[[str, int], int]) -> Iterator[Ratio]:
    """Each point beside the first, phase by phase. tokens: of a run of a phase, by the point's number."""
    for phase in dict.fromkeys(phase for sitting in sittings for phase in sitting):
        made = [sitting.get(phase, []) for sitting in sittings]
        for number in sorted({number for rounds in made for each in rounds for number in each} - {first}):
            share = tokens(phase, number) / tokens(phase, first)
            both = [[each for each in rounds if first in each and number in each] for rounds in made]
            found = [_in_a_row(rounds, [share * each[first] / each[number] for each in rounds]) for rounds in both]
            if any(found):
                yield _ratio(phase, number, [shares for shares in found if shares], sum(map(len, both)))


def _in_a_row(rounds: Sequence[Round], shares: Sequence[float]) -> list[float]:
    """The geometric means of the shares of as many rounds in a row as have points; of all, where there are fewer."""
    wide = min(len(shares), max(map(len, rounds), default=0))
    starts = range(len(shares) - wide + 1) if wide else ()
    return [math.prod(shares[start : start + wide]) ** (1 / wide) for start in starts]


def _ratio(phase: str, number: int, found: Sequence[list[float]], rounds: int) -> Ratio:
    """A ratio of what was found in each sitting."""
    middles, every = [quantile(shares, 0.5) for shares in found], [share for shares in found for share in shares]
    low, high = (quantile(every, at) for at in (0.1, 0.9))
    return Ratio(phase, number, quantile(middles, 0.5), low, high, median_interval(middles), rounds, len(middles))
