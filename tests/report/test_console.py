"""The console as a process meets it: through a pipe, on a terminal, and with the variables that change either."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

PAGE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from conftest import make_record
from archlab.report.build import show_build
from archlab.report.compare import comparison
from archlab.report.console import console
from archlab.report.formats import render
record = make_record(speed=1.0, name="mödel[bold]")
show_build(record, console())
compared = comparison([record, make_record(["model/attention=mqa"], attention={{"choice": "mqa"}})])
render(compared, "table", console())
"""

CLEAN = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE")}


def piped(**variables: str) -> bytes:
    environment = CLEAN | {"PYTHONIOENCODING": "utf-8"} | variables
    return subprocess.run([sys.executable, "-c", PAGE], env=environment, capture_output=True, check=True).stdout


def on_terminal(**variables: str) -> str:
    """What the page writes to a pseudo-terminal, its line ends undone."""
    environment = CLEAN | {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"} | variables
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", PAGE], env=environment, stdout=slave)
    os.close(slave)
    chunks = []
    while True:
        try:
            chunks.append(os.read(master, 65536))
        except OSError:  # the other end is closed
            break
    os.close(master)
    assert process.wait() == 0
    return b"".join(chunks).decode().replace("\r\n", "\n")


def test_a_pipe_is_plain_and_unlimited_whatever_columns_says() -> None:
    text = piped(COLUMNS="40").decode()
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) > 150
    assert "63,912,192" in text


def test_a_terminal_has_colour_and_respects_columns() -> None:
    text = on_terminal(COLUMNS="60")
    assert "\x1b[32m" in text
    assert "63,912,192" in text


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_escape_where_it_is_not_wanted(variables: dict[str, str]) -> None:
    text = on_terminal(COLUMNS="72", **variables)
    assert "\x1b" not in text
    assert 60 < max(map(len, text.splitlines())) <= 72
    assert "*60,373,248" in text


def test_an_ascii_stream_gets_ascii() -> None:
    text = piped(PYTHONIOENCODING="ascii").decode("ascii")
    assert r"m\xf6del[bold]" in text
    assert "-----" in text


def test_reports_import_fast_and_without_rich_torch_or_hydra() -> None:
    modules = ", ".join(f"archlab.report.{name}" for name in ("build", "formats", "tables", "catalog", "console"))
    code = f"import {modules}; import sys; print({{'rich', 'torch', 'hydra', 'omegaconf'}} & set(sys.modules))"
    start = time.process_time()
    done = subprocess.run([sys.executable, "-c", code], env=CLEAN, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "set()"
    assert time.process_time() - start < 5  # of this process: a busy machine must not fail it
