"""What asks a process to end, in processes of their own: once, as Ctrl-C would, and not where it is ignored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

SENDS = """
import os, signal, sys
from archlab import interrupt

ends = [getattr(signal, name) for name in sys.argv[1:]]
interrupt.take_ends()
with {block} as came:
    try:
        for end in ends:
            os.kill(os.getpid(), end)
        print("went on")
    except KeyboardInterrupt:
        print("interrupted")
        for end in ends:
            os.kill(os.getpid(), end)
        print("undisturbed")
sys.exit(interrupt.exit_code())
"""


def sends(*names: str, block: str = "interrupt.noticed()", **how: object) -> tuple[list[str], int]:
    command = [sys.executable, "-c", SENDS.format(block=block), *names]
    ended = subprocess.run(command, capture_output=True, text=True, **how)  # type: ignore[call-overload]
    return ended.stdout.splitlines(), ended.returncode


@pytest.mark.parametrize(("names", "code"), [(("SIGTERM",), 143), (("SIGHUP",), 129), (("SIGTERM", "SIGHUP"), 143)])
def test_it_is_taken_for_ctrl_c_once(names: tuple[str, ...], code: int) -> None:
    assert sends(*names) == (["interrupted", "undisturbed"], code)
    assert sends(*names, block="__import__('contextlib').nullcontext()") == (["interrupted", "undisturbed"], code)


def test_what_the_process_was_told_to_ignore_stays_ignored() -> None:
    def as_nohup() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    assert sends("SIGHUP", preexec_fn=as_nohup) == (["went on"], 130)
    assert sends("SIGTERM", preexec_fn=as_nohup) == (["interrupted", "undisturbed"], 143)


def test_it_ends_a_job_that_a_shell_told_to_ignore_ctrl_c() -> None:
    def as_in_the_background() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    assert sends("SIGINT", preexec_fn=as_in_the_background) == (["went on"], 130)
    assert sends("SIGTERM", preexec_fn=as_in_the_background) == (["interrupted", "undisturbed"], 143)


def test_it_is_held_back() -> None:
    """The traceback of the KeyboardInterrupt, which ends Python by its signal, comes after the block."""
    said, code = sends("SIGTERM", block="interrupt.held_back()")
    assert said == ["went on"]
    assert code == -signal.SIGINT


LEAVES = """
import os, signal, time
from archlab import interrupt

interrupt.leave_ends()
with interrupt.held_back():
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGHUP)
print("went on", flush=True)
time.sleep(30)
"""


def test_who_leaves_it_to_another_ends_all_the_same_where_that_does_not_come() -> None:
    ended = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=20)
    assert (ended.stdout, ended.stderr) == ("went on\n", "")
    assert ended.returncode == -signal.SIGTERM


ASKED = """
import os, signal, sys
from archlab.cli.app import main
from archlab.timing import points

def told(asked):
    os.kill(os.getpid(), getattr(signal, os.environ["END"]))

points.points = told
sys.argv[1:] = ["bench", "gqa"]
main()
"""


@pytest.mark.parametrize(("end", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_command_that_had_nothing_yet_ends_with_its_signal(end: str, code: int) -> None:
    """Typer says 130 of each."""
    command = [sys.executable, "-c", ASKED]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "END": end})
    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    assert "Traceback" not in ended.stderr
