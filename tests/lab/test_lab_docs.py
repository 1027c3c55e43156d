"""docs/lab.md and the README: each command is one that is understood, and what is said to be seen is seen."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from asked import conducted

from archlab.lab.catalog import EXPERIMENTS, find, sort

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")
TEXTS = PAGE + (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted({found.strip() for found in re.findall(r"archlab lab ([a-z][^\n`#]*)", TEXTS)})
SEEN = re.findall(r"<!-- seen: archlab lab (.*?) -->\n```text\n\$ .*?\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_understood(command: str) -> None:
    name, *words = [word for word in shlex.split(command.rstrip(":;,.)")) if word != "-->"]
    kept = re.sub(r"--(png|seed|format|plugin) \S+", "", shlex.join(words))
    sort(find(name), shlex.split(kept))


@pytest.mark.parametrize(("command", "text"), SEEN)
def test_what_is_seen(command: str, text: str) -> None:
    made = conducted(*command.split())
    assert f"{made.model} {made.verdict}".split() == text.split()


def test_every_experiment_has_its_line() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(EXPERIMENTS)
    assert len(SEEN) == 2
