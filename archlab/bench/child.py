"""Time a point in a process of its own, and take its results as they are made. No torch here.

A child that dies (a crash, the out-of-memory killer) loses the phase that it was in; the phases after it are timed in
a new one. A child that goes past the point's time limit is ended, and the phases it had not finished are `timeout`.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from archlab import host
from archlab.bench.figures import Figures, Trouble, missing, room
from archlab.errors import RequestError
from archlab.frozen import Frozen
from archlab.record import Figure
from archlab.units import show_bytes
from archlab.workload import PHASES

Progress = Callable[[str, float], None]
Event = dict[str, Any]
LAST = frozenset(("done", "lacks"))
"""What only a child's last event tells."""

CHUNK = 1 << 16
"""Bytes that are read from a child at once."""

T = TypeVar("T")

START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "sys.path.insert(0, {root!r}); from archlab.worker import main; main()"
)
"""The child runs this package, whichever way the parent found it; `-P` keeps the working folder out of its path.

Ctrl-C is the parent's, who ends it: before the child can import `leave_ends`, it would stop it in an import.
"""


class Turn(Frozen):
    """A child asks for another run of a phase. stopped: why those made are enough, None while they are not.

    seconds: of the last run, None before the first.
    """

    phase: str
    stopped: str | None
    seconds: float | None


class Measured(Frozen):
    """What a point's children told. notes: on weights; checks: of the module; environment: what figures hold for.

    needed: bytes that phases need, estimated.
    """

    figures: Figures
    notes: list[str]
    checks: list[dict[str, Any]]
    environment: dict[str, Any]
    needed: dict[str, int]


class Job(Frozen):
    """What a child is to do, and whom to tell. limit: seconds for all of it, less what it waits for its turns.

    typed: dotted keys that the user set, which decide what of the config holds. turns: whether it waits to be told
    before each timed run. plugins: those that the config is made of, see `archlab.plugins.named`.
    """

    config: Mapping[str, Any]
    phases: Sequence[str]
    limit: float
    on_progress: Progress | None = None
    typed: Collection[str] = ()
    turns: bool = False
    on_figures: Callable[[Figures], None] | None = None
    plugins: Sequence[Mapping[str, Any]] = ()


Turns = Generator[Turn, bool, Measured]


def measure(job: Job) -> Measured:
    """Time a job alone. Raises RequestError where the child refused it."""
    return alone(turns(job))


def alone(running: Generator[Turn, bool, T]) -> T:
    """What comes of a job that has nobody to take turns with."""
    try:
        turn = next(running)
        while True:
            turn = running.send(turn.stopped is None)
    except StopIteration as end:
        result: T = end.value
        return result


def turns(job: Job) -> Turns:
    """Time a job, asking before each timed run whether to make it, where it takes turns. Raises RequestError."""
    measured = Measured({}, [], [], {}, {})
    left, clock = [phase for phase in PHASES if phase in job.phases], Clock(job.limit)
    first = True
    while left:
        trouble = yield from _run(job, left, first, clock, measured)
        left = _untimed(left, measured)
        if trouble is None:
            break
        lost = left if trouble.status == "timeout" else left[:1]
        for phase in lost:
            _figures(missing(phase, trouble, "not timed"), measured, job)
        left, first = left[len(lost) :], False
    return measured


class Clock:
    """The time that a job has left; it stands still while the job waits for its turn."""

    def __init__(self, limit: float) -> None:
        self.deadline = time.monotonic() + limit

    @property
    def left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    @contextmanager
    def stopped(self) -> Iterator[None]:
        before = time.monotonic()
        yield
        self.deadline += time.monotonic() - before


def _run(
    job: Job, phases: Sequence[str], check: bool, clock: Clock, measured: Measured
) -> Generator[Turn, bool, Trouble | None]:
    """One child from its start to its end; what ended it early, if anything did."""
    asked = {"config": dict(job.config), "typed": sorted(job.typed), "phases": phases, "check": check}
    asked |= {"turns": job.turns, "plugins": list(job.plugins)}
    killed_before = host.oom_kills()
    last: Event = {}
    try:
        with _process() as child:
            last = yield from _told(child, asked, clock, measured, job)
    except TimeoutError:
        return Trouble("timeout", f"over the time limit of {job.limit:g} s for a point (bench.timeout)")
    if "done" in last:
        return None
    if "lacks" in last:
        return Trouble("oom", f"out of memory: {last['lacks']}; {_asked(phases, measured)}")
    counted = host.oom_kills() > killed_before
    return _trouble(child.returncode, counted, _is_ready(measured), _asked(phases, measured))


@contextmanager
def _process() -> Iterator[subprocess.Popen[str]]:
    """A child, which is killed at the end: what it still tears down after its last event is of no use.

    A pipe that breaks ends what is done with it, and no more: the child died before it was told all, and its exit code
    says how.
    """
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-P", "-c", START.format(root=root)]
    with (
        suppress(BrokenPipeError),
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8") as child,
    ):
        try:
            yield child
        finally:
            child.kill()


def _told(
    child: subprocess.Popen[str], asked: Event, clock: Clock, measured: Measured, job: Job
) -> Generator[Turn, bool, Event]:
    """Hand a child its job and take all that it tells; the last of it. Raises TimeoutError when no time is left."""
    assert child.stdin is not None
    assert child.stdout is not None
    print(json.dumps(asked), file=child.stdin, flush=True)
    event: Event = {}
    for event in _events(child.stdout, clock):
        if "turn" in event:
            with clock.stopped():
                go = yield Turn(*event["turn"])
            print("go" if go else "enough", file=child.stdin, flush=True)
        _take(event, measured, job)
    return event


def _is_ready(measured: Measured) -> bool:
    """Whether torch has told which device there is."""
    return "timed_dtype" in measured.environment


def _asked(phases: Sequence[str], measured: Measured) -> str:
    """The memory that the phase needs in which a child ended, and what there is."""
    needed = next((measured.needed.get(phase) for phase in _untimed(phases, measured)), None)
    has = f"there are {show_bytes(host.total_memory())} in all"
    return room(needed, has, _is_ready(measured))


def _untimed(phases: Sequence[str], measured: Measured) -> list[str]:
    return [phase for phase in phases if f"{phase}_tok_s" not in measured.figures]


def _events(stdout: IO[str], clock: Clock) -> Iterator[Event]:
    """The child's events to its last one, or as long as it lives. Raises TimeoutError when no time is left."""
    for line in _lines(stdout, clock):
        event = json.loads(line)
        yield event
        if not LAST.isdisjoint(event):
            return


def _lines(stdout: IO[str], clock: Clock) -> Iterator[bytes]:
    """Whole lines as they come; half of one is of a child that died while it told of it. Raises TimeoutError.

    No thread reads them: in what threads wait for each other by, Ctrl-C may be lost or come as an error of a lock.
    """
    rest, pipe = b"", stdout.fileno()
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        while ready.select(clock.left):
            read = os.read(pipe, CHUNK)
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            yield from lines
    raise TimeoutError


def _take(event: Event, measured: Measured, job: Job) -> None:
    """Put what an event tells where it belongs. Raises RequestError where the child refused the job."""
    if "refused" in event:
        raise RequestError(event["refused"])
    if "progress" in event and job.on_progress is not None:
        job.on_progress(*event["progress"])
    measured.notes.extend(event.get("notes", []))
    measured.checks.extend(event.get("checks", []))
    measured.needed.update(event.get("needs", {}))
    measured.environment.update(event.get("environment", {}))
    if "figures" in event:
        _figures({name: Figure(**figure) for name, figure in event["figures"].items()}, measured, job)


def _figures(made: Figures, measured: Measured, job: Job) -> None:
    """Keep figures, and tell of them."""
    measured.figures.update(made)
    if job.on_figures is not None:
        job.on_figures(made)


def _trouble(code: int, counted: bool, ready: bool, asked: str) -> Trouble:
    """What an exit code says of a child that did not get to its end.

    counted: whether the kernel killed something for want of memory meanwhile. ready: whether torch had found the
    device. asked: the memory that the phase needs, and what there is.
    """
    ended = f"was ended by {_signal(-code)}" if code < 0 else f"ended with exit code {code}; its error is above"
    said = f"the process that timed it {ended}"
    if code == -signal.SIGKILL and counted:
        return Trouble("oom", f"{said}, and the kernel counted an out-of-memory kill meanwhile; {asked}")
    if host.address_limit() is None:
        return Trouble("failed", said)
    said = f"{said}; addresses are limited (ulimit -v)"  # libraries that cannot have them each end a process their way
    return Trouble("failed", said) if ready else Trouble("oom", f"{said}; {asked}")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
