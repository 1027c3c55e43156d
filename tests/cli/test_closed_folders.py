"""Folders and files that may not be read: each is told of in one line, and what can be read is shown."""

import csv
import errno
import io
import os
from pathlib import Path

import pytest

from archlab.cli.app import answer


@pytest.fixture
def sweep(tmp_path, monkeypatch, capsys):
    """The folder of a sweep of three points."""
    monkeypatch.chdir(tmp_path)
    words = ("model.n_layers=2,3,4", "bench=none", "verify=false", "hydra.sweep.dir=swept")
    assert answer(["build", "-m", "-q", *words]) == 0
    capsys.readouterr()
    return Path("swept")


@pytest.fixture
def close(monkeypatch):
    """Take the rights to a folder away, from whoever runs the tests: root may read what it may not."""

    def close(folder):
        closed = folder.absolute()

        def denied(path):
            at = Path("/" if isinstance(path, int) else os.fsdecode(path)).absolute()
            return at == closed or closed in at.parents

        def guarded(call, inside):
            def guard(path, *rest, **named):
                if denied(path) and not (inside and Path(path).absolute() == closed):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
                return call(path, *rest, **named)

            return guard

        monkeypatch.setattr(os, "scandir", guarded(os.scandir, inside=False))
        monkeypatch.setattr(os, "stat", guarded(os.stat, inside=True))
        access = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: not denied(path) and access(path, mode))

    return close


@pytest.mark.parametrize("command", ["results", "report"])
def test_a_folder_that_is_named_and_closed_is_refused(command, sweep, close, capsys):
    close(sweep)
    assert answer([command, "swept", *(["-o", "page.html"] if command == "report" else [])]) == 2
    assert capsys.readouterr().err == "archlab: swept: this folder may not be read\n"


def test_results_says_how_many_and_which_and_shows_the_others(sweep, close, capsys):
    close(sweep / "1")
    assert answer(["results", "swept", "--format", "csv"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "archlab: 1 of 3 records cannot be used: swept/1/record.json\n"
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert [row["status"] for row in rows] == ["ok", "failed", "ok"]
    assert "Permission denied" in rows[1]["reason"]


def test_report_says_it_too(sweep, close, capsys):
    pytest.importorskip("plotly", reason="the extra is not installed: pip install 'archlab[report]'")
    close(sweep / "1")
    assert answer(["report", "swept", "-o", "page.html"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "archlab: 1 of 3 records cannot be used: swept/1/record.json\n"
    assert "3 points" in printed.out


def test_resume_is_refused_before_any_point_runs(sweep, close, capsys):
    (sweep / "2" / "record.json").unlink()  # this one would run
    close(sweep / "1")
    assert answer(["resume", "swept", "-q"]) == 2
    assert capsys.readouterr().err == "archlab: 1 folder of points may not be read and written here: swept/1\n"
    assert not (sweep / "2" / "record.json").exists()


def test_all_of_a_sweep_may_not_be_read(sweep, close, capsys):
    close(sweep)
    for words in (["build", "-m", "model.n_layers=2,3", "bench=none", "hydra.sweep.dir=swept"], ["resume", "swept"]):
        assert answer(words) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "cannot be read" in said or "may not be read" in said
        assert "Traceback" not in said


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("swept/1", "this folder may not be read"),
        *((f"swept/1/{name}", "cannot be read or written: Permission denied") for name in ("m.yaml", "a.json", "deep")),
    ],
)
@pytest.mark.parametrize(
    "words", [["kv"], ["compare"], ["build", "bench=none", "--from"], ["export"], ["import"], ["resume"], ["results"]]
)
def test_what_may_not_be_read_is_told_of_by_the_name_that_it_was_given(words, named, problem, sweep, close, capsys):
    close(sweep / "1")
    assert answer([*words, named]) == 2
    printed = capsys.readouterr()
    assert printed.err == f"archlab: {named}: {problem}\n"
    assert printed.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ["--config-dir", "own"],
        ["-cd", "own"],
        ["--config-dir=own", "-m"],
        ["--config-dir=own", "--cfg", "job"],
        ["hydra.searchpath=[file://own]"],
        ["hydra.searchpath=[pkg://archlab.report,own]"],
    ],
)
@pytest.mark.parametrize("model", ["mine", "gqa"])
def test_a_folder_of_ones_own_that_may_not_be_searched(words, model, close, tmp_path, monkeypatch, capsys):
    """Of a preset in it nothing would be found, and of one that is shipped too the other would be taken."""
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "gqa"):
        (tmp_path / "own" / "model").mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / "model" / f"{name}.yaml").write_text("defaults: [mha, _self_]\nn_layers: 1\n")
    words = ["build", *words, f"model={model}", "bench=none", "verify=false", "hydra.run.dir=out"]
    if model == "mine" and "-m" not in words and "--cfg" not in words:
        assert answer(words) == 0
        assert "n_layers 1," in capsys.readouterr().out
    close(tmp_path / "own")
    assert answer(words) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "archlab: own: this folder may not be read\n")


def test_a_closed_folder_that_has_the_name_of_a_preset_is_not_meant(close, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gqa").mkdir()
    (tmp_path / "gqa" / "record.json").write_text("{}")
    assert answer(["kv", "gqa"]) == 0
    assert "./gqa is here too" in capsys.readouterr().out
    close(tmp_path / "gqa")
    assert answer(["kv", "gqa"]) == 0
    assert "is here too" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [["kv"], ["results"], ["compare"], ["build", "bench=none", "--from"]])
def test_a_name_longer_than_any_file_may_have(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert answer([*words, "x" * 5000]) == 2
    said = capsys.readouterr().err
    assert said.startswith("archlab: ")
    assert said.count("\n") == 1
    assert len(said) < 400


@pytest.mark.parametrize("words", [["build", "bench=none"], ["build", "-m", "bench=none", "model.n_layers=1,2"]])
def test_the_folder_that_it_was_started_in_is_gone(words, tmp_path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert answer(words) == 2
    assert capsys.readouterr().err == "archlab: the folder that this was started in is no longer there\n"
    assert list(tmp_path.iterdir()) == []
