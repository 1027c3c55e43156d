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
from archlab.point import invalid_point, point_in_turns, save
from archlab.record import Record
from archlab.timing.points import Point, found_cells
from archlab.timing.rounds import Ratio, Running, interleave, ratios

Tell = Callable[[Point, Figures], None]


class Timed(Frozen):
    """What became of the points: records by the point's number, and, in turns, ratios to the first of each cell.

    interrupted: Ctrl-C ended it; what was finished is there. lost: how many records could not be written.
    """

    points: Sequence[Point]
    records: dict[int, Record]
    ratios: list[Ratio]
    folder: Path
    interrupted: bool = False
    lost: int = 0

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
    records: dict[int, Record] = {}
    found: list[Ratio] = []
    lost: list[int] = []

    def done(number: int, record: Record) -> None:
        records[number] = record
        if not _keep(record, folder / str(number) if len(points) > 1 else folder):
            lost.append(number)

    interrupted = False
    try:
        if in_turns:
            for cell in found_cells(points):
                found += _side_by_side(points, cell, tell, done, first=not records)
        else:
            for number, point in enumerate(points):
                done(number, alone(_running(point, tell, turns=False, first=not records)))
    except KeyboardInterrupt:
        interrupted = True
    return Timed(points, records, found, folder, interrupted, len(lost))


def _running(point: Point, tell: Tell, turns: bool, first: bool) -> Running:
    """The point's record. Raises RequestError where its process refuses it and nothing was finished before it."""
    told = functools.partial(tell, point)
    try:
        return (yield from point_in_turns(point.config, point.overrides, point.typed, None, told, turns))
    except RequestError as error:
        if first:
            raise
        record = invalid_point(point.config, point.overrides, error)
        for phase in point.request.bench.phases:
            made = missing(phase, Trouble("invalid", str(error)), "not timed")
            record.figures |= made
            told(made)
        return record


def _side_by_side(
    points: Sequence[Point], cell: tuple[int, int], tell: Tell, done: Callable[[int, Record], None], first: bool
) -> list[Ratio]:
    """The points of a cell in turns; their ratios, by the number among all."""
    numbers = [number for number, point in enumerate(points) if point.cell == cell]
    running = [_running(points[number], tell, turns=True, first=first) for number in numbers]
    try:
        rounds = interleave(running, lambda at, record: done(numbers[at], record))
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
