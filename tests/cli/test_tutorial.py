"""The tutorial's commands run, in its order and one folder, and print what it shows of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def shown() -> Iterator[tuple[str, list[str]]]:
    """Each command of the page, with the lines that are shown below it."""
    for block in re.findall(r"^```console\n(.*?)^```$", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            yield command, [line for line in lines if line != ".."]


def is_cut_from(line: str, printed: str) -> bool:
    """Whether the words of a line, before its `..` if it has one, stand in one that was printed, in that order."""
    words = iter(printed.split())
    return all(word in words for word in line.removesuffix("..").split())


@pytest.mark.slow
def test_every_command_prints_what_is_shown(shell: Any) -> None:
    commands = list(shown())
    assert len(commands) == 13
    for command, lines in commands:
        first, *arguments = shlex.split(command)
        assert first == "archlab"
        answer = shell(*arguments)
        assert answer.code == 0, answer.err
        printed = answer.out.splitlines()
        assert lines
        assert [line for line in lines if not any(is_cut_from(line, other) for other in printed)] == [], command
    assert (shell.folder / "report.html").is_file()


def test_no_command_of_the_page_is_left_out() -> None:
    """All but the one for a machine that is not there stands in a block that is run."""
    text = TUTORIAL.read_text(encoding="utf-8")
    assert len(re.findall(r"^(?:\$ )?archlab ", text, re.MULTILINE)) == len(list(shown())) + 1


def test_what_counts_as_shown() -> None:
    assert is_cut_from("  gqa  131,072", "gqa  8,030,261,248  131,072  14,336")
    assert not is_cut_from("gqa 131,072", "mqa 131,072")
    assert not is_cut_from("131,072 gqa", "gqa 131,072")
