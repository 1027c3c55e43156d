"""A comparison says what was dropped to compose its records."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from archlab.report.compare import comparison
from archlab.report.formats import render
from archlab.sources import gather

DROPPED = "minimind model/position=learned: dropped model.position.base"


@pytest.mark.parametrize("detail", [False, True])
@pytest.mark.parametrize("format", ["table", "md"])
def test_notes_stand_below_the_table(format: str, detail: bool) -> None:
    out = io.StringIO()
    compared = comparison(gather(["minimind", "minimind", "model/position=learned"]), detail=detail)
    render(compared, format, Console(file=out, width=200))
    assert DROPPED in out.getvalue()


def test_no_notes_no_lines() -> None:
    assert comparison(gather(["minimind", "gqa"])).notes == []
