"""The one way to a console: whole numbers when piped, the terminal's width on a terminal, plain where asked."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 100_000
"""Columns of a pipe: a reader that is no terminal has no edge, so nothing is wrapped or cut."""


def console(stderr: bool = False) -> Console:
    """A console on stdout, or on stderr. Colour only on a terminal, and neither with NO_COLOR nor with TERM=dumb."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    _never_raise(stream)
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    return Console(
        stderr=stderr,
        width=_width(stream),
        height=25,  # with a height, rich keeps the width that it is given on a dumb terminal too
        color_system=None if plain else "auto",
        highlight=False,  # a number's colour would say nothing
        markup=False,  # names are data: `[bold]` in one is text
        emoji=False,
    )


def _width(stream: TextIO) -> int:
    if not stream.isatty():
        return PIPED_WIDTH
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _never_raise(stream: TextIO) -> None:
    """Let a stream that is not UTF-8 escape what it cannot spell (a model's name), rather than end the run."""
    encoding = (getattr(stream, "encoding", None) or "").lower()
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and not encoding.startswith("utf"):
        reconfigure(errors="backslashreplace")
