"""Points that take turns: A B C, B C A, .., so that what a machine does meanwhile falls on all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from archlab.bench.child import Turn
from archlab.bench.clock import median_half_width, quantile
from archlab.frozen import Frozen
from archlab.record import Record
from archlab.workload import PHASES

Running = Generator[Turn, bool, Record]
Round = Mapping[int, float]
"""Seconds of a run by the point's number; without those that failed in it."""


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


def interleave(running: Sequence[Running], done: Callable[[int, Record], None]) -> dict[str, list[Round]]:
    """Time points side by side, phase by phase, until the runs of each are enough; the rounds of each phase.

    done: is told of each point's record, as it ends.
    """
    players = [Player(number, each) for number, each in enumerate(running)]
    rounds: dict[str, list[Round]] = {}
    for player in players:
        player.move(None)
    while True:
        for player in players:
            player.tell(done)
        waiting = [player for player in players if player.turn is not None]
        if not waiting:
            return rounds
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
    """How many times as fast a point is as the first one: the median of the rounds' ratios, 10th and 90th percentile.

    half_width: of the median's 95 % interval, a share of it; None of few rounds.
    """

    phase: str
    number: int
    median: float
    low: float
    high: float
    half_width: float | None
    rounds: int


def ratios(rounds: Mapping[str, Sequence[Round]], tokens: Callable[[str, int], int]) -> list[Ratio]:
    """Each point beside the first, phase by phase. tokens: of a run of a phase, by the point's number."""
    found = []
    for phase, made in rounds.items():
        for number in sorted({number for each in made for number in each} - {0}):
            share = tokens(phase, number) / tokens(phase, 0)
            values = [share * each[0] / each[number] for each in made if 0 in each and number in each]
            if values:
                middle, low, high = (quantile(values, at) for at in (0.5, 0.1, 0.9))
                found.append(Ratio(phase, number, middle, low, high, median_half_width(values), len(values)))
    return found
