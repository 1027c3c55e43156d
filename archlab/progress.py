"""How far a run or a sweep is: a line that is kept up to date on a terminal, plain lines elsewhere, nothing with -q."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from archlab import stdout
from archlab.plan import read_record
from archlab.units import counted

QUIET = "ARCHLAB_QUIET"
"""The variable by which whatever process runs a point knows of -q."""

SAY_EVERY = 2.0
"""Seconds, at least, between two plain lines; a long sweep says less often, 20 lines at most for each tenfold."""
LOOK_EVERY = 0.5
"""Seconds between two looks for the records of other processes."""


def is_quiet() -> bool:
    """Whether -q was given."""
    return QUIET in os.environ


def say(what: str) -> None:
    """Say what is about to be done, or how far it is, in a line of its own."""
    if not is_quiet():
        stdout.say(f"[INFO] {what}")


class Tally:
    """Points done and not ok, of so many. tell: called with each change."""

    def __init__(self, points: int, tell: Callable[[Tally], None] = lambda tally: None) -> None:
        self.points, self.done, self.wrong = points, 0, 0
        self.started, self._tell = time.monotonic(), tell

    def add(self, ok: bool) -> None:
        """Count a point that has ended."""
        self.done += 1
        self.wrong += not ok
        self._tell(self)

    @property
    def elapsed(self) -> float:
        return max(time.monotonic() - self.started, 1e-9)

    def __str__(self) -> str:
        rate = self.done / self.elapsed
        left = f", {duration((self.points - self.done) / rate)} left" if 0 < self.done < self.points else ""
        return f"{self.done:,} of {counted(self.points, 'point')}, {self.wrong:,} not ok, {_rate(rate)}{left}"


def _rate(rate: float) -> str:
    """`152 a second`, `4.2 a minute`."""
    number, unit = (rate, "second") if rate >= 1 else (rate * 60, "minute")
    return f"{number:,.0f} a {unit}" if number >= 10 else f"{number:.1f} a {unit}"


def duration(seconds: float) -> str:
    """`58 s`, `12 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextlib.contextmanager
def of_points(points: int) -> Iterator[Tally]:
    """Show how far a sweep of so many points is, as the block counts them."""
    if is_quiet() or not points:
        yield Tally(points)
    elif sys.stderr.isatty():
        with _kept_up_to_date(points) as tally:
            yield tally
    else:
        with _now_and_then(points) as tally:
            yield tally


@contextlib.contextmanager
def _now_and_then(points: int) -> Iterator[Tally]:
    said = [time.monotonic()]

    def tell(tally: Tally) -> None:
        if time.monotonic() > said[0] + max(SAY_EVERY, tally.elapsed / 10) and tally.done < tally.points:
            said[0] = time.monotonic()
            say(str(tally))

    tally = Tally(points, tell)
    yield tally
    say(str(tally))


@contextlib.contextmanager
def _kept_up_to_date(points: int) -> Iterator[Tally]:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    with _bar(TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn()) as bar:
        task = bar.add_task("", total=points)
        tally = Tally(points, lambda tally: bar.update(task, completed=tally.done, description=str(tally)))
        bar.update(task, description=str(tally))
        yield tally


def _bar(*columns: Any) -> Any:
    """A line at the foot of stderr, which goes when it is done; what is logged meanwhile stands above it."""
    from rich.progress import Progress

    from archlab.report.console import console

    return Progress(*columns, console=console(stderr=True), transient=True, refresh_per_second=5)


@contextlib.contextmanager
def watched(files: Sequence[Path]) -> Iterator[None]:
    """Show how far a sweep is whose records other processes write, or code that says nothing of each."""
    if is_quiet():
        yield
        return
    ended = threading.Event()
    before = {file: _changed(file) for file in files}
    with of_points(len(files)) as tally:
        thread = threading.Thread(target=_watch, args=(before, tally, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _watch(left: dict[Path, int | None], tally: Tally, ended: threading.Event) -> None:
    """Count the records that are new or changed, until the block has ended and for a last time then."""
    while left:
        last = ended.wait(LOOK_EVERY)
        for file in [file for file, changed in left.items() if _changed(file) != changed]:
            del left[file]
            record = read_record(file)
            tally.add(record is not None and record.ok)
        if last:
            return


def _changed(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None


@contextlib.contextmanager
def of_phases() -> Iterator[Any]:
    """A bar for each phase of a single run that is timed, on a terminal only."""
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<8}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with _bar(*columns, TimeElapsedColumn()) as bar:
        tasks: dict[str, Any] = {}

        def update(phase: str, done: float) -> None:
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=1.0)
            bar.update(tasks[phase], completed=done)

        yield update
