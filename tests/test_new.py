"""Starts: each works as it is written, its test passes as it is written, and nothing is overwritten."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from archlab.cli.app import answer
from archlab.components.own import BASES
from archlab.new import PLACE
from archlab.registry import choice

VALUES = ("null", "true", "false", "yes", "off", "y", "nan", "inf")
HIDDEN = ("torch", "json", "numpy", "archlab", "sys", "builtins", "pytest", "conftest", "typing_extensions")
"""Modules of Python, built in or not, of packages and of one file, and what pytest looks for."""

pytestmark = pytest.mark.usefixtures("own_choices")


@pytest.mark.parametrize("axis", [*BASES, PLACE])
def test_a_start_passes_its_own_test(tmp_path: Path, capsys: pytest.CaptureFixture[str], axis: str) -> None:
    assert answer(["new", axis, "my_own", "-o", str(tmp_path / "mine")]) == 0
    files = sorted((tmp_path / "mine").iterdir())
    assert [file.name for file in files] == ["my_own.py", "test_my_own.py"]
    said = capsys.readouterr().out
    at, name = ("my_own", "shift") if axis == PLACE else (axis, "my_own")
    assert f"archlab verify --component {at}/{name} --plugin {files[0]}" in said
    (tested,) = [made for key, made in runpy.run_path(str(files[1])).items() if key.startswith("test_")]
    tested()
    assert choice(at, name).origin == str(files[0])
    text = files[0].read_text()
    assert "class MyOwn(" in text
    assert "tart" not in text.replace("at first", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nrom", "mine"), "nrom has no start; did you mean norm?; valid: norm, position, attention"),
        (("dropout", "mine"), "dropout has no modules: it is rates"),
        (("norm", "My-norm"), "'My-norm' is no name of a choice: small letters, digits and _, a letter first"),
        *((("norm", name), f"{name!r} is no name of a choice: in a config it is a value") for name in VALUES),
        *((("norm", name), f"{name}.py would hide the module {name} from all that runs in") for name in HIDDEN),
        (("place", "torch"), "torch.py would hide the module torch from all that runs in its folder"),
        (("norm", "rmsnorm"), "there is rmsnorm already; choose another name"),
        (("place", "norm"), "there is norm already; choose another name"),
    ],
)
def test_what_has_no_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert answer(["new", *words]) == 2
    assert capsys.readouterr().err.startswith(f"archlab: {said}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("taken", ["mine.py", "test_mine.py"])
def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str], taken: str) -> None:
    (tmp_path / taken).write_text("mine")
    assert answer(["new", "ffn", "mine", "-o", str(tmp_path)]) == 2
    assert "is there already; nothing was written" in capsys.readouterr().err
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


def test_a_file_of_ones_own_elsewhere_in_this_folder_is_no_module_to_hide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "torch").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # as `python -m archlab` has it
    assert answer(["new", "ffn", "mine", "-o", "other"]) == 0
