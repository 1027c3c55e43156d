"""The process in which a point is timed: what it tells, and what is left when it crashes, hangs or is killed."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from archlab import host
from archlab.bench import child
from archlab.bench.child import Job, measure, turns
from archlab.bench.device import Cpu
from archlab.bench.needs import phase_memory
from archlab.bench.run import memory_of
from archlab.errors import RequestError
from archlab.request import read_request
from archlab.units import show_bytes

BEFORE = """
import os, signal, sys, time
from contextlib import contextmanager
from archlab.bench import phases, run
whole = phases.PHASES[{phase!r}]

@contextmanager
def broken(decoder, workload, seed):
    {fault}
    with whole(decoder, workload, seed) as timed:
        yield timed

phases.PHASES[{phase!r}] = broken
"""


@pytest.fixture
def config(model: dict[str, Any]) -> dict[str, Any]:
    workload = {"batch": 2, "prompt": 12, "new": 5, "dtype": "fp32"}
    bench = {"seconds": 0.05, "max_repeats": 2, "min_repeats": 1, "ceilings": False}
    return {"model": model, "workload": workload, "bench": bench, "verify": True, "device": "cpu"}


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the child do something of its own before a phase is prepared."""

    def inject(phase: str, fault: str) -> None:
        before, after = child.START.split("from archlab.worker")
        made = BEFORE.format(phase=phase, fault=fault).replace("{", "{{").replace("}", "}}")
        monkeypatch.setattr(child, "START", f"{before}\n{made}\nfrom archlab.worker{after}")

    return inject


PHASES = ("prefill", "decode", "train")


def statuses(measured: child.Measured) -> dict[str, str]:
    return {phase: measured.figures[f"{phase}_tok_s"].status for phase in PHASES}


@pytest.mark.slow
def test_a_point_is_checked_and_timed(config: dict[str, Any]) -> None:
    seen: list[str] = []
    measured = measure(Job(config, PHASES, 120, lambda phase, share: seen.append(phase)))
    assert statuses(measured) == dict.fromkeys(PHASES, "ok")
    assert list(dict.fromkeys(seen)) == ["build", *PHASES]
    assert [check["ok"] for check in measured.checks] == [True, True]
    assert measured.environment["timed_dtype"] == "fp32"


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        "os.kill(os.getpid(), signal.SIGSEGV)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
        "os._exit(7)",
    ],
)
def test_a_crash_loses_its_phase_and_no_other(config: dict[str, Any], faulty: Any, fault: str) -> None:
    faulty("decode", fault)
    measured = measure(Job(config, PHASES, 120))
    assert statuses(measured) == {"prefill": "ok", "decode": "failed", "train": "ok"}
    said = measured.figures["decode_tok_s"].reason or ""
    assert re.search(r"SIGSEGV|SIGKILL|SIGTERM|exit code 7", said)
    assert len(measured.checks) == 2


@pytest.mark.slow
def test_what_the_figures_hold_for_is_known_where_the_last_phase_dies(config: dict[str, Any], faulty: Any) -> None:
    faulty("train", "os._exit(7)")
    measured = measure(Job(config, PHASES, 120))
    assert statuses(measured) == {"prefill": "ok", "decode": "ok", "train": "failed"}
    assert (measured.environment["device"], measured.environment["timed_dtype"]) == ("cpu", "fp32")
    assert "warning" not in measured.environment  # how loaded the machine is, no moment tells


def to_its_end(running: child.Turns) -> child.Measured:
    """What comes of a job that has nobody to take turns with from here on."""
    go = True
    try:
        while True:
            go = running.send(go).stopped is None
    except StopIteration as end:
        measured: child.Measured = end.value
        return measured


@pytest.mark.slow
def test_a_child_that_is_killed_while_it_waits_for_its_turn_loses_its_phase_and_no_other(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[str]] = []
    whole = subprocess.Popen

    def noted(*args: Any, **named: Any) -> Any:
        started.append(whole(*args, **named))
        return started[-1]

    monkeypatch.setattr(child.subprocess, "Popen", noted)
    running = turns(Job(config, PHASES, 120, turns=True))
    assert next(running).phase == "prefill"
    started[0].kill()
    os.waitid(os.P_PID, started[0].pid, os.WEXITED | os.WNOWAIT)  # its end of the pipe is closed
    measured = to_its_end(running)
    assert statuses(measured) == {"prefill": "failed", "decode": "ok", "train": "ok"}
    assert "SIGKILL" in (measured.figures["prefill_tok_s"].reason or "")


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_the_systems_killer_is_out_of_memory_with_what_was_asked(
    phase: str, config: dict[str, Any], faulty: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty(phase, "os.kill(os.getpid(), signal.SIGKILL)")
    counts = iter([3, 4, 4, 4])
    monkeypatch.setattr(host, "oom_kills", lambda: next(counts))
    monkeypatch.setattr(host, "total_memory", lambda: 3 * 2**30)
    measured = measure(Job(config, PHASES, 120))
    assert statuses(measured) == dict.fromkeys(PHASES, "ok") | {phase: "oom"}
    said = measured.figures[f"{phase}_tok_s"].reason or ""
    request = read_request(config, ())
    needed = show_bytes(memory_of(phase, request.spec, request.workload, Cpu()))
    assert said.endswith(f"; needs {needed} (estimated), there are 3.00 GiB in all")


@pytest.fixture
def before_torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the child do something of its own as soon as it is about to import torch."""

    def inject(fault: str) -> None:
        before, after = child.START.split("main()")
        made = f"import os, resource, signal, archlab.worker as w; true = w.import_torch; w.import_torch = {fault}"
        monkeypatch.setattr(child, "START", f"{before}{made}; main(){after}")

    return inject


def needed_at_least(config: dict[str, Any], phase: str) -> str:
    request = read_request(config, ())
    return show_bytes(phase_memory(phase, request.spec, request.workload, "cpu"))


def test_the_systems_killer_before_torch_is_there_is_told_with_what_was_asked(
    config: dict[str, Any], before_torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_torch("lambda *_: os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setattr(host, "oom_kills", iter([3, 4, 4, 5]).__next__)
    monkeypatch.setattr(host, "total_memory", lambda: 3 * 2**30)
    measured = measure(Job(config, ("prefill", "train"), 120))
    for phase in ("prefill", "train"):
        figure = measured.figures[f"{phase}_tok_s"]
        assert figure.status == "oom"
        asked = f"needs at least {needed_at_least(config, phase)} (estimated) beside torch, there are 3.00 GiB in all"
        assert (figure.reason or "").endswith(asked)


def test_torch_that_has_no_room_is_out_of_memory(config: dict[str, Any], before_torch: Any) -> None:
    """Its libraries alone are larger than these 200 MiB."""
    before_torch("lambda *_: (resource.setrlimit(resource.RLIMIT_AS, (200 * 2**20, -1)), true())")
    figure = measure(Job(config, ("prefill",), 120)).figures["prefill_tok_s"]
    assert figure.status == "oom"
    assert "failed to map segment" in (figure.reason or "")
    assert f"needs at least {needed_at_least(config, 'prefill')} (estimated) beside torch" in (figure.reason or "")


@pytest.mark.parametrize(
    ("code", "counted", "ready", "limit", "status", "said"),
    [
        (-signal.SIGKILL, False, True, None, "failed", "SIGKILL"),
        (-signal.SIGKILL, True, True, None, "oom", "counted an out-of-memory kill meanwhile; asked"),
        (-signal.SIGABRT, True, False, None, "failed", "SIGABRT"),
        (-signal.SIGABRT, False, False, 2**20, "oom", "SIGABRT; addresses are limited (ulimit -v); asked"),
        (127, False, False, 2**20, "oom", "exit code 127"),
        (-signal.SIGSEGV, False, True, 2**20, "failed", "SIGSEGV; addresses are limited (ulimit -v)"),
    ],
)
def test_an_end_is_told_as_far_as_it_is_known(
    code: int,
    counted: bool,
    ready: bool,
    limit: int | None,
    status: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "address_limit", lambda: limit)
    trouble = child._trouble(code, counted, ready, "asked")
    assert trouble.status == status
    assert said in trouble.reason


UNDER_A_LIMIT = (
    "import resource, torch; "
    "held = int(open('/proc/self/statm').read().split()[0]) * 4096; "
    "resource.setrlimit(resource.RLIMIT_AS, (held + 2**28, -1)); torch.empty(2**30)"
)


@pytest.mark.slow
def test_out_of_memory_under_a_limit_says_what_was_asked_and_what_there_was(
    config: dict[str, Any], faulty: Any
) -> None:
    faulty("prefill", UNDER_A_LIMIT)
    measured = measure(Job(config, PHASES, 120))
    assert statuses(measured) == {"prefill": "oom", "decode": "ok", "train": "ok"}
    said = measured.figures["prefill_tok_s"].reason or ""
    assert f"{2**32}" in said
    free = re.search(r"cpu has ([\d.]+) MiB free$", said)
    assert free is not None
    assert float(free[1]) <= 256


@pytest.mark.parametrize("chunk", [1, 7, child.CHUNK])
def test_an_event_that_the_child_died_in_is_none(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of what it told is read at once."""
    monkeypatch.setattr(child, "CHUNK", chunk)
    read, write = os.pipe()
    os.write(write, '{"said": ["ü", 0.5]}\n{"figures": {"prefill_tok_s": {"val'.encode())
    os.close(write)
    with os.fdopen(read) as told:
        assert list(child._events(told, child.Clock(60))) == [{"said": ["ü", 0.5]}]


def test_a_child_that_tells_nothing_is_waited_for_no_longer_than_there_is_time() -> None:
    read, write = os.pipe()
    os.write(write, b'{"turn": 1}\n{"tu')
    with os.fdopen(read) as told, os.fdopen(write):
        events = child._events(told, child.Clock(0.2))
        assert next(events) == {"turn": 1}
        with pytest.raises(TimeoutError):
            next(events)


@pytest.mark.slow
def test_a_hang_is_ended_at_the_time_limit(config: dict[str, Any], faulty: Any) -> None:
    faulty("decode", "time.sleep(600)")
    start = time.monotonic()
    measured = measure(Job(config, PHASES, 20))
    assert time.monotonic() - start < 60
    assert statuses(measured)["decode"] == statuses(measured)["train"] == "timeout"
    assert "20 s" in (measured.figures["train_tok_s"].reason or "")


@pytest.mark.slow
def test_a_refusal_in_the_child_is_the_callers(config: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="cuda:99"):
        measure(Job(config | {"device": "cuda:99"}, PHASES, 120))


@pytest.mark.slow
def test_what_prints_in_the_child_does_not_disturb_its_events(config: dict[str, Any], faulty: Any) -> None:
    faulty("prefill", "print('noise'); os.write(1, b'more noise')")
    assert statuses(measure(Job(config, PHASES, 120))) == dict.fromkeys(PHASES, "ok")


PARENT = """
from archlab.bench import child
child.START = "import os, sys; print('child', os.getpid(), file=sys.stderr, flush=True); " + child.START
child.measure(child.Job({config!r}, ("prefill", "decode", "train"), 600))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_no_child_outlives_its_parent(config: dict[str, Any], how: signal.Signals) -> None:
    config["bench"] |= {"seconds": 60.0, "max_repeats": 10**6, "precision": 1e-9}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(config=config)], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stderr is not None
    pid = int(parent.stderr.readline().split()[1])
    time.sleep(0.5)
    os.killpg(parent.pid, how) if how == signal.SIGINT else parent.send_signal(how)
    parent.wait(60)
    deadline = time.monotonic() + 30
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _alive(pid)


def test_ctrl_c_while_a_child_imports_is_left_to_its_parent(tmp_path: Path) -> None:
    package = tmp_path / "archlab"
    package.mkdir()
    (package / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    (package / "worker.py").write_text("def main():\n    print('went on')\n")
    command = [sys.executable, "-P", "-c", child.START.format(root=str(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("went on\n", "", 0)


def test_a_child_whose_parent_was_interrupted_before_it_asked_says_nothing() -> None:
    command = [sys.executable, "-P", "-c", child.START.format(root=str(Path(child.__file__).parents[2]))]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


INTERRUPTED = """
import collections, os, random, signal, sys
from archlab.bench import child

def interrupt(number, frame):
    if armed:  # else it came when all was told
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
sys.setswitchinterval(1e-6)
came, held = collections.Counter(), collections.deque(maxlen=100)
for trial in range(8000):
    read, write = os.pipe()
    os.write(write, b'{"turn": 1}\\n' * 400)
    os.close(write)
    held.append(os.fdopen(read))
    try:
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + random.random() * 0.002)
            came[sum(1 for _ in child._events(held[-1], child.Clock(60)))] += 1
        finally:
            armed = False
    except BaseException as error:
        came[type(error).__name__] += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
print(dict(came))
"""


@pytest.mark.slow
def test_ctrl_c_while_a_child_tells_is_always_ctrl_c() -> None:
    """From a thread that reads by `queue.Queue` one in some thousand is an error of a lock, or is not heard of."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    came = ast.literal_eval(done.stdout)
    assert came["KeyboardInterrupt"] > 100
    assert came.keys() <= {400, "KeyboardInterrupt"}


def _alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
def test_no_phase_imports_a_compiler() -> None:
    """torch's optimizers and its newer profiler do, unasked, 1 to 2 s each; `to_empty` brings sympy, 0.6 s."""
    timed = """
import sys
import archlab
from archlab.bench.run import run
from archlab.workload import BenchOptions, Workload

spec = archlab.load("gqa", "model.n_layers=1", "model.d_model=32", "model.vocab_size=64")
figures, _ = run(spec, Workload(prompt=4, new=2), BenchOptions(seconds=0.01, min_repeats=1), "cpu")
print([figures[f"{phase}_tok_s"].status for phase in ("prefill", "decode", "train")])
print(sorted({"torch._dynamo", "torch._inductor", "sympy"} & set(sys.modules)))
"""
    told = subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True)
    assert told.stdout == "['ok', 'ok', 'ok']\n[]\n"
