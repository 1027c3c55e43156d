"""Standard output, kept for what is shown: what else writes to its descriptor is sent to stderr.

`print` can be redirected in Python; a C library and `os.write` know the descriptor 1 alone, and so do the processes
that are started.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

NAMES = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
"""Files that mean it."""


def keep() -> TextIO:
    """What was standard output when this process began; from here on descriptor 1 is that of stderr."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed, and what is opened next would have its descriptor
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    copy = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), 1)
    # a name that it has no letters for is escaped
    return open(copy, "w", encoding=sys.stdout.encoding, errors="backslashreplace", closefd=False)


def drop(stream: TextIO | None = None) -> None:
    """Let go what is still to be written to a stream, standard output: nobody reads it, or there is no room for it."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), (stream or sys.stdout).fileno())


def say(what: str) -> None:
    """Say it on standard error, if anybody is still there to read it."""
    try:
        print(what, file=sys.stderr, flush=True)
    except OSError:
        drop(sys.stderr)


def is_named(file: str | None) -> bool:
    """Whether a file that a user named is standard output, which has another descriptor once it is kept."""
    return file in NAMES
