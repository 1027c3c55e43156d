"""Import torch, once, in a way that a Ctrl-C during the import is not lost."""

from __future__ import annotations

import importlib
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


def import_torch(*more: str) -> None:
    """Import torch and `more`. Raises KeyboardInterrupt afterwards, where Ctrl-C came meanwhile."""
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch runs without it, and says so
    with _interrupt_later():
        for name in ("torch", *more):
            importlib.import_module(name)


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """Hold Ctrl-C back: torch catches whatever is raised while some of its parts are imported, and goes on."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
