"""The site builds by the README's command, strictly, and needs nothing from outside to be read."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sphinx", reason="the site's generator is not installed: archlab[docs]")
pytest.importorskip("myst_parser", reason="the site's Markdown is not installed: archlab[docs]")
pytest.importorskip("furo", reason="the site's theme is not installed: archlab[docs]")

ROOT = Path(__file__).parents[2]


def sphinx(folder: Path) -> subprocess.CompletedProcess[str]:
    """The README's command, in a copy of the repository."""
    flags = re.search(r"sphinx-build (.*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert flags
    command = [sys.executable, "-m", "sphinx", *shlex.split(flags[1])]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: Any) -> Path:
    """What the site is built from, and the site in it."""
    folder: Path = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("axes", "commands.md", "start.md"))
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copy(ROOT / "README.md", folder)
    done = sphinx(folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture
def site(copy: Path) -> Path:
    return copy / "build" / "site"


class Loaded(HTMLParser):
    """What a page has a browser load, and what it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        address = named.get("src") or (named.get("href") if tag == "link" else None)
        if address:
            self.loads.append(address)


@pytest.mark.slow
def test_every_page_is_there_and_none_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    for name in ("index", "start", "tutorial", "numbers", "anatomy", "commands", "axes/attention", "architecture"):
        assert site / f"{name}.html" in pages
    for page in pages:
        read = Loaded()
        read.feed(page.read_text(encoding="utf-8"))
        assert read.loads
        for address in read.loads:
            assert not re.match(r"(?:https?:)?//", address), f"{page.name} loads {address}"
            assert (page.parent / address.partition("?")[0].partition("#")[0]).exists()
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")), style


BROKEN = ("nowhere.md", "numbers.md#nowhere", "axes/attention.md#mhaa")


@pytest.mark.slow
def test_broken_links_fail_the_build(copy: Path) -> None:
    page = copy / "docs" / "numbers.md"
    text = page.read_text(encoding="utf-8")
    try:
        page.write_text("\n\n".join([text, *(f"[x]({link})" for link in BROKEN)]), encoding="utf-8")
        done = sphinx(copy)
    finally:
        page.write_text(text, encoding="utf-8")
    assert done.returncode != 0
    for link in BROKEN:
        assert re.search(rf"numbers.md:\d+: WARNING: .*{re.escape(link.partition('#')[2] or link)}", done.stderr), link


# --- in a browser -----------------------------------------------------------------------------------------------------


class Tab:
    """A page without a network, and what it asked for."""

    def __init__(self, browser: Any, page: Path, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        self.tab = self.context.new_page()
        self.trouble: list[str] = []
        self.tab.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.tab.on("requestfailed", lambda request: self.trouble.append(request.url))
        self.open(page)

    def open(self, page: Path, query: str = "") -> None:
        self.tab.goto(page.as_uri() + query)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tab, name)


@pytest.fixture
def tabs(browser: Any) -> Iterator[Any]:
    opened: list[Tab] = []

    def open_tab(*arguments: Any, **settings: Any) -> Tab:
        opened.append(Tab(browser, *arguments, **settings))
        return opened[-1]

    yield open_tab
    for tab in opened:
        assert tab.trouble == []
        tab.context.close()


@pytest.mark.browser
def test_no_page_is_wider_than_a_phone(tabs: Any, site: Path) -> None:
    tab = tabs(site / "index.html", width=390)
    for page in sorted(site.rglob("*.html")):
        tab.open(page)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, page.name


@pytest.mark.browser
def test_light_and_dark_are_the_systems(tabs: Any, site: Path) -> None:
    for scheme, dark in (("light", False), ("dark", True)):
        tab = tabs(site / "axes" / "attention.html", scheme=scheme)
        ground, text = (
            sum(map(int, re.findall(r"\d+", tab.evaluate(f"getComputedStyle(document.body).{style}"))[:3])) / 3
            for style in ("backgroundColor", "color")
        )
        assert (ground < 60, text > 150) == (dark, dark)


@pytest.mark.browser
def test_the_search_finds_a_choice_without_a_network(tabs: Any, site: Path) -> None:
    tab = tabs(site / "search.html")
    tab.open(site / "search.html", "?q=sandwich")
    tab.wait_for_selector("#search-results li a")
    assert "axes/block.html" in " ".join(
        link.get_attribute("href") for link in tab.locator("#search-results li a").all()
    )
