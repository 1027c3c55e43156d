"""The command reference has every command, and of each what its help says."""

from __future__ import annotations

import re

import pytest
from pages import commands

from archlab.cli.app import COMMANDS, answer

PAGE = commands.page()


def section(name: str) -> str:
    found = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


def plain(text: str) -> str:
    """Markdown without its escapes."""
    return re.sub(r"\\(?=\W)", "", text)


def test_the_commands_are_those_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["--help"]) == 0
    listed = re.findall(r"^  ([a-z]+)  ", capsys.readouterr().out.partition("Commands:")[2], re.MULTILINE)
    shown = re.findall(r"^## (\S+)$", PAGE, re.MULTILINE)
    assert sorted(shown) == sorted(listed) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_all_that_a_commands_help_says_is_there(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert answer([name, "--help"]) == 0
    said, shown = capsys.readouterr().out, plain(section(name))
    cells = re.split(r"\n\s*|\s{2,}", said.removeprefix("Usage: "))
    left = [cell for cell in cells if cell not in shown and cell not in HEADS]
    assert left == []


HEADS = ("Arguments:", "Options:", "-h, --help", "Show this message and exit.")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_option_says_what_it_is(name: str) -> None:
    """Click 8.5 would lose what Typer 0.25 hands it of an argument."""
    rows = re.findall(r"^\| `(.+?)` \| (.*) \|$", section(name), re.MULTILINE)
    assert rows
    assert [name for name, said in rows if not said.partition("\\[")[0].strip()] == []
