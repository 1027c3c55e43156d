"""Time points one after the other, or in turns, and keep each one's record as soon as it is there."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from archlab import stdout
from archlab.bench.child import alone
from archlab.bench.figures import Figures, Trouble, missing
from archlab.errors import RequestError
from archlab.frozen import Frozen, replace
from archlab.point import interrupted_point, invalid_point, point_in_turns, save
from archlab.record import Record
from archlab.timing.points import Point, found_cells
from archlab.timing.rounds import Ratio, Running, Sitting, interleave, ratios

Tell = Callable[[Point, Figures], None]


class Timed(Frozen):
    """What became of the points: records by the point's number, and, in turns, ratios to the first of each cell.

    in_turns: whether they were to be. interrupted: Ctrl-C ended it; what was finished is there. lost: how many records
    could not be written.
    """

    points: Sequence[Point]
    records: dict[int, Record]
    ratios: list[Ratio]
    folder: Path
    interrupted: bool = False
    lost: int = 0
    in_turns: bool = False

    @property
    def kept(self) -> bool:
        """Whether there is a record in the folder."""
        return len(self.records) > self.lost

    @property
    def ok(self) -> bool:
        """Whether every point was timed, and its record kept."""
        ended = [record.ok for record in self.records.values()]
        return all(ended) and len(ended) == len(self.points) and not self.lost


def fresh_folder() -> Path:
    """Where a run lands, as a sweep's does: `outputs/<date>/<time>`."""
    return Path("outputs") / f"{datetime.datetime.now():%Y-%m-%d/%H-%M-%S-%f}"


def time_points(points: Sequence[Point], in_turns: bool, tell: Tell, folder: Path) -> Timed:
    """Time all points. A record that cannot be written is told of and shown all the same.

    Raises RequestError for a point that its process refuses, but once another is finished, that one is `invalid`.
    """
    made = _Made(points, tell, folder)
    interrupted = False
    try:
        if in_turns:
            for cell in found_cells(points):
                _side_by_side(cell, made)
        else:
            for number, point in enumerate(points):
                made.done(number, alone(_running(point, made, functools.partial(made.told, point), turns=False)))
    except KeyboardInterrupt:
        interrupted = True
        made.end()
    return Timed(points, made.records, made.ratios(), folder, interrupted, made.lost, in_turns)


class _Made:
    """What there is so far.

    figures: of each point, those that were told of, also where it is not done. sittings: of the points of each cell, by
    the number of the first.
    """

    def __init__(self, points: Sequence[Point], tell: Tell, folder: Path) -> None:
        self.points, self.tell, self.folder = points, tell, folder
        self.records: dict[int, Record] = {}
        self.figures: dict[int, Figures] = {}
        self.sittings: dict[int, list[Sitting]] = {}
        self.lost = 0

    def told(self, point: Point, figures: Figures) -> None:
        """Keep what was measured of a point, and tell of it."""
        self.figures.setdefault(id(point), {}).update(figures)  # two points may be equal
        self.tell(point, figures)

    def done(self, number: int, record: Record) -> None:
        """Keep a point's record."""
        self.records[number] = record
        if not _keep(record, self.folder / str(number) if len(self.points) > 1 else self.folder):
            self.lost += 1

    def ratios(self) -> list[Ratio]:
        """Of each cell, to its first point."""

        def tokens(phase: str, number: int) -> int:
            return _tokens(self.points[number], phase)

        return [ratio for first, sat in self.sittings.items() for ratio in ratios(sat, first, tokens)]

    def end(self) -> None:
        """Keep what was measured of points that were interrupted."""
        for number, point in enumerate(self.points):
            if number not in self.records and id(point) in self.figures:
                about = point.config, point.overrides, point.typed
                self.done(number, interrupted_point(*about, self.figures[id(point)]))


def _running(point: Point, made: _Made, told: Callable[[Figures], None], turns: bool) -> Running:
    """The point's record. Raises RequestError where its process refuses it and nothing was finished before it."""
    try:
        return (yield from point_in_turns(point.config, point.overrides, point.typed, None, told, turns))
    except RequestError as error:
        if not made.records:
            raise
        record = invalid_point(point.config, point.overrides, error)
        for phase in point.request.bench.phases:
            figures = missing(phase, Trouble("invalid", str(error)), "not timed")
            record.figures |= figures
            told(figures)
        return record


def _side_by_side(cell: tuple[int, int], made: _Made) -> None:
    """The points of a cell in turns: once for their records, then in new processes for their ratios alone."""
    points = {number: point for number, point in enumerate(made.points) if point.cell == cell}
    first, sittings = min(points), list[Sitting]()
    made.sittings[first] = sittings
    running = {at: _running(point, made, functools.partial(made.told, point), True) for at, point in points.items()}
    _sit(running, made.done, sittings)
    rounds = [each for of_phase in sittings[0].values() for each in of_phase if first in each]
    beside = sorted({number for each in rounds for number in each})
    if len(beside) > 1:
        _sit_again({number: points[number] for number in beside}, made, sittings)


def _sit_again(points: Mapping[int, Point], made: _Made, sittings: list[Sitting]) -> None:
    """The points that have a ratio, and the first, in new processes; what they figure there is in no record."""
    processes = max(point.request.bench.processes for point in points.values())
    for sitting in range(1, processes):
        stdout.say(f"in turns in new processes, for the ratios: {sitting + 1} of {processes}")
        start, numbers = sitting % len(points), [*points]
        order = numbers[start:] + numbers[:start]
        again = {number: _running(_again(points[number]), made, lambda figures: None, True) for number in order}
        _sit(again, lambda number, record: None, sittings)


def _sit(running: Mapping[int, Running], done: Callable[[int, Record], None], sittings: list[Sitting]) -> None:
    """One sitting, put down also where it is interrupted."""
    sittings.append({})
    try:
        interleave(running, done, sittings[-1])
    finally:
        for each in running.values():
            each.close()  # where one was refused or interrupted, the others' processes end too


def _again(point: Point) -> Point:
    """The point once more, without what its record has already; all that follow take the time of the first together."""
    bench = point.request.bench
    seconds = bench.seconds / max(1, bench.processes - 1)
    block = {**(point.config.get("bench") or {}), "ceilings": False, "seconds": seconds}
    return replace(point, config={**point.config, "bench": block, "verify": False})


def _tokens(point: Point, phase: str) -> int:
    """Tokens of one timed run."""
    workload = point.request.workload
    return workload.batch * (workload.new if phase == "decode" else workload.prompt)


def _keep(record: Record, folder: Path) -> bool:
    """Write a record; whether that could be."""
    try:
        save(record, folder)
    except OSError as error:
        stdout.say(f"archlab: {folder}: the record cannot be written: {error.strerror}")
        return False
    return True
