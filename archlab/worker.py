"""The child process in which a point is timed: a job in, events out, a line of JSON each.

What torch leaves in a process (an allocator's pool, a CUDA context, compiled code, threads) would be there for the next
point; in a child it is gone, and a crash or the operating system's killer ends the child alone.

The job is one line on stdin, which then stays open: when it closes, whoever asked is gone, and so is the child. A job
that takes turns with others reads a line of it before each timed run: `go`, or anything else where there are enough.
Events go to the stdout that it was started with; whatever else writes there is sent to stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from archlab import stdout
from archlab.bench.figures import Figures
from archlab.bench.listener import Listener
from archlab.bench.needs import at_least, lacks_memory
from archlab.errors import RequestError, in_short
from archlab.frozen import replace
from archlab.interrupt import leave_ends
from archlab.plugins import load_again
from archlab.request import Request, read_request
from archlab.verify import Verified, verify
from archlab.warmup import import_torch
from archlab.workload import BenchOptions

Tell = Callable[..., None]


def main() -> None:
    """Do the job on stdin, and tell of each step on stdout as it is done."""
    leave_ends()  # the parent is told too, and ends this process
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler tells of its start and stop
    events = stdout.keep()
    asked = sys.stdin.readline()
    if not asked:  # the parent was interrupted before it could ask
        return
    job = json.loads(asked)
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_end_with_the_parent, args=(sys.stdin, said), daemon=True).start()
    try:
        do(job, _teller(events), said.get)
    except RequestError as error:
        _teller(events)(refused=str(error))
    except Exception as error:  # such as of the dynamic loader, which torch comes by
        if not lacks_memory(error):
            raise
        _teller(events)(lacks=in_short(error))


def _end_with_the_parent(stdin: TextIO, said: queue.SimpleQueue[str]) -> None:
    for line in stdin:
        said.put(line.strip())
    os._exit(1)


def _teller(events: TextIO) -> Tell:
    def tell(**event: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(event), file=events, flush=True)

    return tell


def do(job: Mapping[str, Any], tell: Tell, answer: Callable[[], str]) -> None:
    """Check and time what a composed config asks for. Raises RequestError.

    job: `config`; `typed`, the keys of it that the user set; `phases`, those to time; `check`, whether the module is
    checked first; `turns`, whether each timed run is asked for; `plugins`, those of the parent.
    Events: `needs` (bytes by phase; told anew with the `environment`, once torch has found the device), `notes`,
    `checks`, `progress` (phase, share), `turn` (phase, why the runs made are enough or null, seconds of the last),
    `figures`, `environment`; the last one has `done`, or says what it `lacks` memory for.
    """
    load_again(job["plugins"])
    request = read_request(job["config"], job["typed"])
    options = replace(request.bench, phases=tuple(job["phases"]))
    if job["check"]:  # the first of a point's children: later ones know more
        spec, device = options.timed(request.spec), request.run.device
        tell(needs=at_least(options.phases, spec, request.workload, device))
    recomputes = request.workload.recompute != "none"
    import_torch(*(["torch._dynamo"] if recomputes else []))  # a checkpoint's first use imports it
    if job["check"]:
        _check(request, tell)
    listener = InTurns(tell, answer) if job["turns"] else Telling(tell)
    tell(environment=_time(request, options, listener), done=True)


def _check(request: Request, tell: Tell) -> None:
    """Tell of the weights, then of the self-check. Imports torch."""
    tell(notes=check_weights(request))
    found = self_check(request)
    tell(checks=found.checks, notes=found.notes)


def _time(request: Request, options: BenchOptions, listener: Listener) -> dict[str, Any]:
    """Have the clock run; what its figures hold for. Imports torch."""
    from archlab.bench.run import run

    how, workload = request.run, request.workload
    _, environment = run(request.spec, workload, options, how.device, how.seed, how.weights, request.hardware, listener)
    return environment


class Telling(Listener):
    """Makes events of what the clock tells."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell

    def needs(self, needed: Mapping[str, int]) -> None:
        self.tell(needs=dict(needed))

    def environment(self, found: Mapping[str, Any]) -> None:
        self.tell(environment=found)

    def progress(self, phase: str, share: float) -> None:
        self.tell(progress=[phase, share])

    def figures(self, made: Figures) -> None:
        self.tell(figures={name: figure.as_dict() for name, figure in made.items()})


class InTurns(Telling):
    """Asks before each timed run, too."""

    takes_turns = True

    def __init__(self, tell: Tell, answer: Callable[[], str]) -> None:
        super().__init__(tell)
        self.answer = answer

    def turn(self, phase: str, stopped: str | None, runs: Sequence[float]) -> bool:
        self.tell(turn=[phase, stopped, runs[-1] if runs else None])
        return self.answer() == "go"


def check_weights(request: Request) -> list[str]:
    """What of the file of weights is not loaded, a line; nothing without one. Imports torch.

    Raises RequestError for weights that do not fit, before anything is built.
    """
    if request.run.weights is None:
        return []
    from archlab.decoder.build import build
    from archlab.interop.weights import beside, load_weights

    others = load_weights(build(request.spec, device="meta"), request.run.weights)
    return [beside(others)] if others else []


def self_check(request: Request) -> Verified:
    """What the self-check of a request found; nothing, where the request wants none. Imports torch."""
    if not request.run.verify:
        return Verified([], [])
    return verify(request.spec, request.workload.cache_dtype)
