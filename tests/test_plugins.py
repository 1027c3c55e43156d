"""Code of others: found, run once, told of in one message where it is wrong, never run because a record names it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import archlab
from archlab import plugins
from archlab.cli.app import answer
from archlab.errors import ConfigError, RequestError
from archlab.registry import choice, choices, is_axis

pytestmark = pytest.mark.usefixtures("own_choices")

GOOD = '''
import archlab
from torch import nn

@archlab.component("norm", "NAME", summary="for a test")
class Mine(nn.Module):
    """As it came."""
    def forward(self, x):
        return x
'''


def written(folder: Path, name: str = "mine.py", text: str = GOOD, choice_name: str = "mine") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.replace("NAME", choice_name))
    return file


def test_a_file_a_folder_and_a_module_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = archlab.load_plugin(written(tmp_path, choice_name="of_file"))
    written(tmp_path, "package/inner.py", choice_name="of_package")
    written(tmp_path, "package/__init__.py", "from . import inner\n")
    folder = archlab.load_plugin(str(tmp_path / "package"))
    written(tmp_path, "site/some/thing.py", choice_name="of_module")
    written(tmp_path, "site/some/__init__.py", "")
    monkeypatch.syspath_prepend(tmp_path / "site")
    module = archlab.load_plugin("some.thing")
    assert {"of_file", "of_package", "of_module"} <= set(choices("norm"))
    assert Path(choice("norm", "of_file").origin) == tmp_path / "mine.py"
    assert module.home == str(tmp_path / "site")
    assert [told["word"] for told in plugins.named()] == [file.word, folder.word, "some.thing"]
    assert len({plugin.sha256 for plugin in (file, folder, module)}) == 3


def test_a_file_is_run_once_and_again_where_it_has_changed(tmp_path: Path) -> None:
    file = written(tmp_path, text=GOOD + "\nprint('run')\n")
    first = archlab.load_plugin(file)
    assert archlab.load_plugin(file) is not None
    file.write_text(file.read_text().replace("for a test", "changed"))
    second = archlab.load_plugin(file)
    assert choice("norm", "mine").summary == "changed"
    assert first.sha256 != second.sha256
    with pytest.raises(RequestError, match=r"has changed: it was mine\.py"):
        plugins.check_same(first, second)


def test_what_it_prints_is_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archlab.load_plugin(written(tmp_path, text=GOOD + "\nprint('hello')\n"))
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import archlab\n", "it registers no choice; @archlab.component(AXIS, NAME, summary=..) over a class does"),
        ("import archlab\n\nimport not_there\n", "ModuleNotFoundError: No module named 'not_there' (line 3)"),
        ("def broken(:\n", "cannot be imported: SyntaxError"),
        ("raise SystemExit(3)\n", "cannot be imported: SystemExit: 3 (line 1)"),
        (GOOD.replace("nn.Module", "object"), "norm/mine: Mine is no subclass of torch.nn"),
        (GOOD.replace("NAME", "rmsnorm"), "norm/rmsnorm is registered already, by archlab itself"),
        (GOOD.replace('"norm"', '"nrom"'), "nrom/mine: nrom is no axis; did you mean norm?"),
        ("import archlab\narchlab.place('conv')\n", "place conv: say before=PART or after=PART"),
    ],
)
def test_a_bad_file_is_one_message_and_archlabs_own_choices_stay(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text=text)
    with pytest.raises(RequestError) as error:
        archlab.load_plugin(file)
    assert str(error.value).startswith(f"plugin {file}: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2
    assert plugins.named() == []
    assert choice("norm", "rmsnorm").origin == ""
    with pytest.raises(ConfigError, match="no choice 'mine'"):
        choice("norm", "mine")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("nowhere.py", "there is no such file"),
        ("./nowhere/mine", "there is no such file"),
        (".", "has no __init__.py"),
        ("nowhere_at_all", "no module of that name is installed; a file is named by its path, as ./nowhere_at_all.py"),
        ("a..b", "cannot be imported"),
    ],
)
def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError) as error:
        archlab.load_plugin(word)
    assert said in str(error.value)


# --- other processes, and records -------------------------------------------------------------------------------------


def test_another_process_loads_the_same_or_refuses(tmp_path: Path) -> None:
    file = written(tmp_path)
    archlab.load_plugin(file)
    told = plugins.named()
    plugins._named.clear()
    plugins.load_again(told)
    assert plugins.named() == told
    file.write_text(file.read_text() + "\n# changed\n")
    with pytest.raises(RequestError, match="has changed"):
        plugins.load_again(told)
    file.unlink()
    with pytest.raises(RequestError, match="there is no such file"):
        plugins.load_again(told)


def test_a_module_is_found_where_the_other_process_found_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "found_here.py", choice_name="found")
    monkeypatch.syspath_prepend(tmp_path)
    archlab.load_plugin("found_here")
    told = plugins.named()
    plugins._named.clear()
    del sys.modules["found_here"]
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(tmp_path)])
    plugins.load_again(told)
    assert plugins.named() == told


def test_a_record_runs_no_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path)
    archlab.load_plugin(file)
    told = plugins.described()
    plugins.require(told, "record.json")
    plugins._named.clear()
    with pytest.raises(RequestError) as error:
        plugins.require(told, "record.json")
    assert f"--plugin {file}" in str(error.value)
    assert plugins.named() == []
    file.write_text(file.read_text() + "\n# changed\n")
    archlab.load_plugin(file)
    plugins.require(told, "record.json")
    assert "note: record.json: was made with mine.py (sha256 " in capsys.readouterr().err


def test_what_is_to_be_typed_can_be_typed(tmp_path: Path) -> None:
    file = written(tmp_path / "päth with space")
    archlab.load_plugin(file)
    told = plugins.described()
    plugins._named.clear()
    with pytest.raises(RequestError) as error:
        plugins.require(told, "record.json")
    assert shlex.split(str(error.value))[-2:] == ["--plugin", str(file)]


@pytest.mark.parametrize("command", [["shapes", "gqa"], ["verify", "gqa"]])
def test_what_it_prints_while_it_runs_is_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    loud = GOOD.replace("        return x", "        print('loud')\n        return x")
    sizes = ["model.d_model=16", "model.attention.n_heads=2", "model.attention.n_kv_heads=1", "model.n_layers=1"]
    file = written(tmp_path, text=loud)
    assert answer([*command, *sizes, "model/norm=mine", "--json", "--plugin", str(file)]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["command"] == command[0]
    assert "loud" in err


# --- installed packages -----------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs packages into a folder of the path: a module with some text, under an entry point."""

    def install(package: str, text: str) -> None:
        info = tmp_path / f"{package}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[archlab.components]\nmine = {package}\n")
        written(tmp_path, f"{package}.py", text, package)

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv(plugins.TOLD, raising=False)
    plugins._looked[0] = False
    yield install
    for name in [name for name in sys.modules if name.startswith("brings_")]:
        del sys.modules[name]


def test_an_installed_package_is_imported_when_it_is_asked_for(site: Any) -> None:
    site("brings_one", GOOD)
    choice("norm", "rmsnorm")
    assert "brings_one" not in sys.modules
    assert choice("norm", "brings_one").summary == "for a test"
    assert plugins.described() == [{"word": "brings_one", "version": "1.5"}]


def test_a_place_of_an_installed_package(site: Any) -> None:
    site("brings_place", "import archlab\narchlab.place('brought', before='ffn')\n")
    spec = archlab.load("gqa")
    assert "brings_place" not in sys.modules
    assert is_axis("brought")
    assert list(archlab.load("gqa").layers[0].axes())[-1] == "brought"
    assert list(spec.layers[0].axes())[-1] == "dropout"


def test_a_broken_package_is_told_of_once(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    site("brings_trouble", "import not_there\n")
    site("brings_good", GOOD)
    for _ in range(2):
        assert {"rmsnorm", "brings_good"} <= set(choices("norm"))
        plugins._looked[0] = False  # as in a process that this one starts
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("archlab: package brings_trouble, entry point mine: cannot be imported: ModuleNotFoundError")


def test_without_such_packages_nothing_more_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if "site-packages" not in folder])
    plugins._looked[0] = False
    monkeypatch.setitem(sys.modules, "importlib.metadata", None)  # importing it would raise
    assert "rmsnorm" in choices("norm")
