"""Shared by all tests; it also puts this folder on the path, for `strategies`."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Of torch, here and in the processes that tests start: models this small lose time to a second thread, and threads
that wait for each other stand still while tests beside them have the cores."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
"""A job in a shell's background ignores Ctrl-C and hands that on to what it starts, where tests send one."""

if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""As under nohup the end of a terminal."""

settings.register_profile("archlab", deadline=None, print_blob=True)
settings.load_profile("archlab")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test's random numbers are its own, whatever ran before it in its process."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(zlib.crc32(item.nodeid.encode()))


@pytest.fixture
def own_choices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone after it."""
    from archlab import plugins, registry

    registry._load_specs()  # archlab's own, which else would be gone with them
    monkeypatch.setattr(registry, "_choices", {axis: dict(known) for axis, known in registry._choices.items()})
    monkeypatch.setattr(registry, "_places", dict(registry._places))
    monkeypatch.setattr(plugins, "_named", dict(plugins._named))
    monkeypatch.setattr(plugins, "_installed", dict(plugins._installed))
    monkeypatch.setattr(plugins, "_looked", list(plugins._looked))
    yield
    monkeypatch.undo()
    registry.forget_reads()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium, the one on the PATH or Playwright's own; skips where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next(filter(None, map(shutil.which, names)), None)
    arguments = ["--enable-unsafe-swiftshader", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with api.sync_playwright() as driver:
        if found is None and not Path(driver.chromium.executable_path).exists():
            pytest.skip(f"no browser: none of {', '.join(names)} is on the PATH, and Playwright has none of its own")
        opened = driver.chromium.launch(executable_path=found, args=arguments)
        yield opened
        opened.close()
