"""Each number of docs/anatomy.md stands in the JSON document of its command, where the page says.

The numbers are those of the study notes that archlab's users learn from; what a text elsewhere has wrong is right here.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from archlab.cli.app import answer

PAGE = Path(__file__).parents[2] / "docs" / "anatomy.md"


class Row:
    """One row of the page. command: without `archlab`; where: the place in its document."""

    def __init__(self, what: str, number: str, shown: str) -> None:
        self.what, self.number = what, number
        self.command, self.where = shown.removeprefix("`archlab ").removesuffix("`").split("`: `")


def page() -> Iterator[Row]:
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[2].startswith("`archlab "):
            yield Row(*cells)


def by_command() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in page():
        found.setdefault(row.command, []).append(row)
    return found


PLACE = re.compile(r"(?P<name>[\w ]+)(?P<picked>(?:\[[^\]]*\])*)\.(?P<key>.+)")


def at(document: Mapping[str, Any], where: str) -> Any:
    """The value at `table[column=value].column`, or at `texts.title`."""
    place = PLACE.fullmatch(where)
    assert place, where
    tables = document["tables"]
    held = tables[place["name"]]["rows"] if place["name"] in tables else document[place["name"]]
    if isinstance(held, Mapping):
        return held[place["key"]]
    picked = re.findall(r"\[([^=\]]+)=([^\]]*)\]", place["picked"])
    [row] = [row for row in held if all(is_called(row[column], value) for column, value in picked)]
    return row[place["key"]]


def is_called(value: Any, name: str) -> bool:
    return value == float(name) if isinstance(value, float) else str(value) == name


def shows(number: str, value: Any) -> bool:
    """Whether the value is the number as it is written: code is the text, quoted is in it, a float to its digits."""
    if number.startswith("`"):
        return bool(value == number.strip("`"))
    if number.startswith('"'):
        return number.strip('"') in (value if isinstance(value, str) else "\n".join(value))
    digits = number.split(" ")[0].replace(",", "")
    if re.fullmatch(r"-?\d+", digits):
        return bool(value == pytest.approx(int(digits), rel=1e-12))
    mantissa, _, exponent = digits.partition("e")
    half = 0.5 * 10 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(value - float(digits)) <= half * (1 + 1e-9)


COMMANDS = [
    pytest.param(command, marks=pytest.mark.slow if command.startswith("lab ") else ()) for command in by_command()
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_number_is_shown_where_the_page_says(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer([*shlex.split(command), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    for row in by_command()[command]:
        value = at(document, row.where)
        assert shows(row.number, value), f"{row.what}: {row.number} is {value} at {row.where}"


def test_every_row_is_walked() -> None:
    tables = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    heads = [line for line in tables if line.endswith("| command: where |")]
    assert len(list(page())) == len(tables) - len(heads)


def test_what_counts_as_shown() -> None:
    assert shows("12,582,912 (12 MiB)", 12_582_912)
    assert not shows("12,582,912", 12_582_913)
    assert shows("0.866", 0.86596)
    assert not shows("0.87", 0.8644)
    assert shows("1.334e-6", 1.33352e-6)
    assert not shows("1.334e-6", 1.3346e-6)
    assert shows("`[B, n]`", "[B, n]")
    assert shows('"b"', "a b c")
    assert not shows('"d"', ["a", "b"])
