"""Time points one after the other, or in turns, and keep each one's record as soon as it is there."""

from __future__ import annotations

import datetime
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from archlab.bench.child import alone
from archlab.bench.figures import Figures, Trouble, missing
from archlab.errors import RequestError
from archlab.frozen import Frozen, replace
from archlab.point import interrupted_point, invalid_point, point_in_turns, save
from archlab.record import Record
from archlab.timing.points import Point, found_cells
from archlab.timing.rounds import Ratio, Running, interleave, ratios

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
    found: list[Ratio] = []
    interrupted = False
    try:
        if in_turns:
            for cell in found_cells(points):
                found += _side_by_side(points, cell, made)
        else:
            for number, point in enumerate(points):
                made.done(number, alone(_running(point, made, turns=False)))
    except KeyboardInterrupt:
        interrupted = True
        made.end()
    return Timed(points, made.records, found, folder, interrupted, made.lost, in_turns)


class _Made:
    """What there is so far. figures: of each point, those that were told of, also where it is not done."""

    def __init__(self, points: Sequence[Point], tell: Tell, folder: Path) -> None:
        self.points, self.tell, self.folder = points, tell, folder
        self.records: dict[int, Record] = {}
        self.figures: dict[int, Figures] = {}
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

    def end(self) -> None:
        """Keep what was measured of points that were interrupted."""
        for number, point in enumerate(self.points):
            if number not in self.records and id(point) in self.figures:
                about = point.config, point.overrides, point.typed
                self.done(number, interrupted_point(*about, self.figures[id(point)]))


def _running(point: Point, made: _Made, turns: bool) -> Running:
    """The point's record. Raises RequestError where its process refuses it and nothing was finished before it."""
    told = functools.partial(made.told, point)
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


def _side_by_side(points: Sequence[Point], cell: tuple[int, int], made: _Made) -> list[Ratio]:
    """The points of a cell in turns; their ratios, by the number among all."""
    numbers = [number for number, point in enumerate(points) if point.cell == cell]
    running = [_running(points[number], made, turns=True) for number in numbers]
    try:
        rounds = interleave(running, lambda at, record: made.done(numbers[at], record))
    finally:
        for each in running:
            each.close()  # where one was refused or interrupted, the others' processes end too
    found = ratios(rounds, lambda phase, at: _tokens(points[numbers[at]], phase))
    return [replace(ratio, number=numbers[ratio.number]) for ratio in found]


def _tokens(point: Point, phase: str) -> int:
    """Tokens of one timed run."""
    workload = point.request.workload
    return workload.batch * (workload.new if phase == "decode" else workload.prompt)


def _keep(record: Record, folder: Path) -> bool:
    """Write a record; whether that could be."""
    try:
        save(record, folder)
    except OSError as error:
        print(f"archlab: {folder}: the record cannot be written: {error.strerror}", file=sys.stderr)
        return False
    return True
