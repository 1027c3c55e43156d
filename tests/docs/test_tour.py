"""examples/tour.ipynb runs from top to bottom and gives the text that is stored with it."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

TOUR = Path(__file__).parents[2] / "examples" / "tour.ipynb"
Cell = Mapping[str, Any]


def code_cells(text: str) -> list[Cell]:
    return [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]


def said(cell: Cell) -> str:
    """What a cell printed, and the value that it ends with; of a picture nothing."""
    texts = [out.get("text") or out.get("data", {}).get("text/plain", "") for out in cell["outputs"]]
    return "".join("".join(text) for text in texts if not "".join(text).startswith("<Figure"))


def run(source: str, names: dict[str, Any]) -> str:
    """What a cell prints, and the value of its last line."""
    tree, out = ast.parse(source), io.StringIO()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "cell", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return out.getvalue() + ("" if value is None else repr(value))


@pytest.fixture
def pictures() -> Iterator[None]:
    """Matplotlib without a window."""
    matplotlib = pytest.importorskip("matplotlib", reason="pictures need archlab[report]")
    before = matplotlib.get_backend()
    matplotlib.use("agg")
    yield
    matplotlib.pyplot.close("all")
    matplotlib.use(before)


@pytest.mark.slow
def test_every_cell_gives_what_is_stored(pictures: None) -> None:
    names: dict[str, Any] = {}
    cells = code_cells(TOUR.read_text(encoding="utf-8"))
    assert len(cells) == 9
    for cell in cells:
        source = "".join(cell["source"])
        assert run(source, names) == said(cell), source


def test_what_is_stored_is_small_and_right() -> None:
    """MiniMind's parameters and cache as its notes have them."""
    text = TOUR.read_text(encoding="utf-8")
    assert len(text) < 50_000
    told = " ".join(map(said, code_cells(text)))
    for number in ("63,912,192", "68,630,784 parameters  48 MiB", "  24 MiB of cache", "  6 MiB of cache"):
        assert number in told


@pytest.mark.slow
def test_jupyter_runs_it(tmp_path: Path) -> None:
    pytest.importorskip("nbconvert", reason="notebooks need archlab[notebook]")
    pytest.importorskip("ipykernel", reason="notebooks need archlab[notebook]")
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--stdout", str(TOUR)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    stored = code_cells(TOUR.read_text(encoding="utf-8"))
    assert [said(cell) for cell in code_cells(done.stdout)] == [said(cell) for cell in stored]
