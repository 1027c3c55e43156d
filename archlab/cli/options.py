"""The options that commands share, and the ways in which they print."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from archlab import completion
from archlab.errors import RequestError
from archlab.record import json_line, write_named
from archlab.stdout import is_named

if TYPE_CHECKING:
    from archlab.document import Document

T = TypeVar("T")

OPEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help", "-h"]}
"""Settings of a command whose overrides and Hydra flags stand anywhere on the line."""


def load_plugins(words: list[str] | None) -> list[str] | None:
    """Load the plugins that are named, before anything else of the line is looked at."""
    if words:
        from archlab.plugins import load

        for word in words:
            if word.startswith("-"):
                raise RequestError(f"--plugin needs a file or a module, not {word}")
            load(word)
    return words


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
Explain = Annotated[
    str | None, typer.Option("--explain", help="How a figure was got: its formula with the numbers; all for every one.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Plugins = Annotated[
    list[str] | None,
    typer.Option("--plugin", help="A Python file or a module that brings choices of your own.", callback=load_plugins),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing of how far it is.")]
Format = Annotated[str, typer.Option("--format", help="table, json, csv or md.")]
Output = Annotated[str | None, typer.Option("--output", "-o", help="A file to write; without it, print.")]
Sort = Annotated[str | None, typer.Option("--sort", help="A figure to sort by; -NAME for descending.")]
Model = Annotated[
    str,
    typer.Argument(
        help="A preset, an archlab YAML, a config.json, a run.",
        autocompletion=completion.complete_model,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="What to change first.", autocompletion=completion.complete_override),
]


def print_answer(answer: Callable[[], Document], form: str, as_json: bool, explain: str | None) -> None:
    """Print the document that a command makes; a wrong format is refused before it is made.

    What code of others prints meanwhile goes to stderr.
    """
    from archlab.report.console import console
    from archlab.report.document import print_document
    from archlab.report.formats import check_format

    check_format(form)
    with contextlib.redirect_stdout(sys.stderr):
        made = answer()
    print_document(made, "json" if as_json else form, console(), explain)


def tokens(text: str | None) -> int | None:
    """`8k` as 8,192; None stays."""
    from archlab.units import read_tokens

    return None if text is None else read_tokens(text, "context")


def listed(text: str | None, read: Callable[[str], T]) -> list[T] | None:
    """What stands between commas, each read; None stays."""
    return None if text is None else [read(item) for item in text.split(",")]


def given(**settings: Any) -> dict[str, Any]:
    """The workload settings that an option in short gave."""
    return {name: value for name, value in settings.items() if value is not None}


def print_json(document: Any) -> None:
    """One JSON document on one line of stdout."""
    print(json_line(document), end="")


def deliver(text: str, told: str, output: str | None) -> None:
    """Print the text, or write it and say what was written."""
    if output is None or is_named(output):
        print(text, end="")
    else:
        print(f"{write_named(output, text)}: {told}")
