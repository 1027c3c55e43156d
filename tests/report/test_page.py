"""The page as a file: nothing in it asks an address, only its own scripts may run, and no name can end its data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from archlab.errors import RequestError
from archlab.report.html.page import SCRIPTS, page, script_json

HOSTILE = [
    "</script><script>x()</script>",
    "<!--<script>",
    'it\'s "quoted" & <b>bold</b>',
    "模型 ünï\u2028code",
    "\udcff",
]


class Reader(HTMLParser):
    """The page's elements, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.title, self.inside = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data
        if self.inside == "title":
            self.title += data


def data(title: str = "sweep") -> dict[str, Any]:
    return {"title": title, "points": {"all": HOSTILE}, "odd": float("nan")}


@pytest.fixture(scope="module")
def made() -> Reader:
    pytest.importorskip("plotly", reason="the page's plotting library is not installed: archlab[report]")
    return Reader(page(data(HOSTILE[0])))


def test_nothing_in_it_has_an_address(made: Reader) -> None:
    found = [
        (tag, name, value) for tag, held in made.elements for name, value in held.items() if name in ("src", "href")
    ]
    assert found == [("link", "href", "data:,")]


def test_only_the_scripts_that_are_its_own_may_run(made: Reader) -> None:
    policy = next(held["content"] or "" for tag, held in made.elements if "Content-Security-Policy" in held.values())
    run = [text for text, (tag, held) in zip(made.scripts, scripts(made), strict=True) if "type" not in held]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run]
    assert re.findall("'sha256-([^']*)'", policy) == hashes
    assert len(hashes) == 3
    assert policy.startswith("default-src 'none';")
    assert "unsafe-inline" not in policy.split("script-src")[1]


def scripts(made: Reader) -> list[tuple[str, dict[str, str | None]]]:
    return [element for element in made.elements if element[0] == "script"]


def test_names_are_data_and_come_back_as_they_were(made: Reader) -> None:
    (held,) = (
        json.loads(text) for text, (_, about) in zip(made.scripts, scripts(made), strict=True) if "type" in about
    )
    assert held["points"]["all"] == HOSTILE
    assert held["odd"] is None
    assert made.title == f"{HOSTILE[0]} · archlab"


def test_json_in_a_script_has_nothing_that_could_end_it() -> None:
    text = script_json(HOSTILE)
    assert not set("<>&") & set(text)
    assert text.isascii()
    assert json.loads(text) == HOSTILE


def test_every_script_is_in_the_page() -> None:
    from archlab.report.html.page import HERE

    assert {file.stem for file in (HERE / "script").glob("*.js")} == {*SCRIPTS, "theme"}


def test_without_the_plotting_library_one_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    with pytest.raises(RequestError, match=r"pip install 'archlab\[report\]'"):
        page(data())
