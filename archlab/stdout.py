"""Standard output, kept for what is shown: what else writes to its descriptor is sent to stderr.

`print` can be redirected in Python; a C library and `os.write` know the descriptor 1 alone, and so do the processes
that are started.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

NAMES = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
"""Files that mean it."""


def keep() -> TextIO:
    """What was standard output when this process began; from here on descriptor 1 is that of stderr."""
    encoding = getattr(sys.stdout, "encoding", "utf-8")
    kept = os.fdopen(os.dup(1), "w", encoding=encoding, errors="backslashreplace")  # a name it has no letters for
    if sys.stderr is None:  # it was closed
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
    else:
        os.dup2(2, 1)
    return kept


def is_named(file: str | None) -> bool:
    """Whether a file that a user named is standard output, which has another descriptor once it is kept."""
    return file in NAMES
