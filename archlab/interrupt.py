"""Ctrl-C, and what else asks a process to end, where others would lose it: code that catches whatever is raised, and
goes on or raises something else."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDS = ("SIGTERM", "SIGHUP")
"""What `timeout`, a scheduler and a terminal that is closed send; by name, for Windows has not both."""

GRACE = 1.0
"""Seconds in which a process that was told as well ends this one."""

Then = Callable[[int, "FrameType | None"], Any]
_taken: list[int] = []
_came: list[int] = []


def take_ends() -> None:
    """Take what else asks this process to end for Ctrl-C from here on, but for what it was told to ignore (nohup)."""
    for number in _ends():
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _handler(signal.default_int_handler, []))
            _taken.append(number)


def leave_ends() -> None:
    """Leave it to another process to end this one: it is told as well, or this one alone was, and ends after `GRACE`.

    Ctrl-C, which is always for both, is ignored; the others are not, for programs that are started would inherit it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told: list[float] = []

    def later(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not told:
            told.append(now)  # before the timer starts, so that its signal is not taken for one that came meanwhile
            threading.Timer(GRACE, os.kill, (os.getpid(), number)).start()
        elif now >= told[0] + GRACE:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in _ends():
        signal.signal(number, later)


def exit_code(otherwise: int = 128 + signal.SIGINT) -> int:
    """128 + the signal that was taken for Ctrl-C; without one that of Ctrl-C."""
    return 128 + _came[-1] if _came else otherwise


@contextmanager
def held_back() -> Iterator[None]:
    """Let a Ctrl-C wait until the block has ended, and raise KeyboardInterrupt then."""
    with _on_interrupt(lambda number, frame: None) as came:
        yield
    if came:
        raise KeyboardInterrupt


@contextmanager
def noticed() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt as ever; the list that the block gets is not empty once that has happened."""
    with _on_interrupt(signal.default_int_handler) as came:
        yield came


def _ends() -> list[int]:
    return [getattr(signal, name) for name in ENDS if hasattr(signal, name)]


@contextmanager
def _on_interrupt(then: Then) -> Iterator[list[int]]:
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        yield came
        return
    heard = [number for number in (signal.SIGINT, *_taken) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _handler(then, came)) for number in heard}  # a shell has jobs ignore some
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handler(then: Then, came: list[int]) -> Then:
    def handle(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT:
            if _came:  # a process and its group may both be told, and what is finished is to be kept undisturbed
                return
            _came.append(number)
        came.append(number)
        then(number, frame)

    return handle
