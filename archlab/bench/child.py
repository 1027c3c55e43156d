"""Time a point in a process of its own, and take its results as they are made. No torch here.

A child that dies (a crash, the out-of-memory killer) loses the phase that it was in; the phases after it are timed in
a new one. A child that goes past the point's time limit is ended, and the phases it had not finished are `timeout`.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from archlab import host
from archlab.bench.figures import Figures, Trouble, missing
from archlab.errors import RequestError
from archlab.frozen import Frozen
from archlab.record import Figure
from archlab.workload import PHASES

Progress = Callable[[str, float], None]
Event = dict[str, Any]

START = "import sys; sys.path.insert(0, {root!r}); from archlab.worker import main; main()"
"""The child runs this package, whichever way the parent found it; `-P` keeps the working folder out of its path."""


class Measured(Frozen):
    """What a point's children told. notes: on weights; checks: of the module; environment: what figures hold for."""

    figures: Figures
    notes: list[str]
    checks: list[dict[str, Any]]
    environment: dict[str, Any]


def measure(
    config: Mapping[str, Any],
    phases: Sequence[str],
    limit: float,
    on_progress: Progress | None,
    typed: Collection[str] = (),
) -> Measured:
    """Time `phases` of a composed config within `limit` seconds. Raises RequestError where the child refused it.

    typed: dotted keys that the user set, which decide what of the config holds.
    """
    measured = Measured({}, [], [], {})
    left, deadline = [phase for phase in PHASES if phase in phases], time.monotonic() + limit
    first = True
    while left:
        job = {"config": dict(config), "typed": sorted(typed), "phases": left, "check": first}
        trouble = _run(job, deadline, limit, measured, on_progress or _silent)
        left = [phase for phase in left if f"{phase}_tok_s" not in measured.figures]
        if trouble is None:
            break
        lost = left if trouble.status == "timeout" else left[:1]
        for phase in lost:
            measured.figures.update(missing(phase, trouble, "not timed"))
        left, first = left[len(lost) :], False
    return measured


def _silent(phase: str, share: float) -> None:
    pass


def _run(job: Event, deadline: float, limit: float, measured: Measured, on_progress: Progress) -> Trouble | None:
    """One child from its start to its end; what ended it early, if anything did."""
    killed_before = host.oom_kills()
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-P", "-c", START.format(root=root)]
    done = False
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8") as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            print(json.dumps(job), file=child.stdin, flush=True)
            for event in _events(child.stdout, deadline):
                _take(event, measured, on_progress)
                done = "environment" in event
        except TimeoutError:
            return Trouble("timeout", f"over the time limit of {limit:g} s for a point (bench.timeout)")
        except BrokenPipeError:
            pass  # it died at once; its exit code says how
        finally:
            child.kill()  # after its last event too: what it still tears down is of no use
    return None if done else _trouble(child.returncode, host.oom_kills() > killed_before)


def _events(stdout: IO[str], deadline: float) -> Iterator[Event]:
    """The child's events until it has told all or has ended. Raises TimeoutError at the deadline."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError from None
        if not line:
            return
        event = json.loads(line)
        yield event
        if "environment" in event:
            return


def _take(event: Event, measured: Measured, on_progress: Progress) -> None:
    """Put what an event tells where it belongs. Raises RequestError where the child refused the job."""
    if "refused" in event:
        raise RequestError(event["refused"])
    if "progress" in event:
        on_progress(*event["progress"])
    measured.notes.extend(event.get("notes", []))
    measured.checks.extend(event.get("checks", []))
    measured.figures.update({name: Figure(**figure) for name, figure in event.get("figures", {}).items()})
    measured.environment.update(event.get("environment", {}))


def _trouble(code: int, out_of_memory: bool) -> Trouble:
    """What an exit code says of a child that did not get to its end."""
    if code == -signal.SIGKILL and out_of_memory:
        return Trouble("oom", "out of memory: the system killed the process that timed it")
    if code < 0:
        return Trouble("failed", f"the process that timed it was ended by {_signal(-code)}")
    return Trouble("failed", f"the process that timed it ended with exit code {code}; its error is above")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
