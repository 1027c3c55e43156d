"""The command as a user gives it, in this process; its JSON document as it is printed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asked import Lab

from archlab.cli.app import answer


@pytest.fixture
def lab(capsys: pytest.CaptureFixture[str]) -> Lab:
    def ask(*words: str) -> dict[str, Any]:
        code = answer(["lab", *words, "--json"])
        printed = capsys.readouterr()
        assert (code, printed.err) == (0, ""), printed.out
        document: dict[str, Any] = json.loads(printed.out)
        return document

    return ask
