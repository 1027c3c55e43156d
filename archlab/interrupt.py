"""Ctrl-C, where others would lose it: code that catches whatever is raised, and goes on or raises something else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


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


@contextmanager
def _on_interrupt(then: Callable[[int, FrameType | None], Any]) -> Iterator[list[int]]:
    came: list[int] = []
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as a shell's background jobs are told to
    if ignored or threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        yield came
        return

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)
        then(number, frame)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)
