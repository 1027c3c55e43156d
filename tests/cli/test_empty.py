"""An empty text, wherever one can be given, is refused as such: it is no path, no figure and no choice."""

import pytest

from archlab.cli.app import answer, parser


def taking_text():
    """Each option of each command that takes a value, as it is typed."""
    for name, command in parser().commands.items():
        for param in command.params:
            if not getattr(param, "is_flag", True):
                yield from ((name, flag) for flag in param.opts)


@pytest.mark.parametrize(("command", "flag"), list(taking_text()))
@pytest.mark.parametrize("empty", ["", " "])
def test_every_option(command, flag, empty, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [[flag, empty], [f"{flag}={empty}"]] if flag.startswith("--") else [[flag, empty]]
    for given in words:
        assert answer([command, "gqa", *given]) == 2
        assert capsys.readouterr().err == f"archlab: {flag}: an empty text was given; give a value, or leave it out\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["results", "kv", "compare", "resume", "new", "import", "lab", "explain", "build"])
def test_every_argument(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert answer([command, ""]) == 2
    assert f"after {command}: an empty text was given" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "key", ["hydra.sweep.dir", "hydra.run.dir", "weights", "model.name", "device", "workload.dtype"]
)
@pytest.mark.parametrize("value", ["", "''", '""', "' '"])
def test_every_setting(key, value, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in (["build", "-m", "model.n_layers=1,2"], ["build"]):
        assert answer([*words, "bench=none", f"{key}={value}"]) == 2
        assert capsys.readouterr().err.startswith(f"archlab: {key}: an empty text was given; ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["'',a", "a,' '"])
def test_one_of_many(value, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert answer(["build", "-m", "bench=none", f"model.name={value}"]) == 2
    assert capsys.readouterr().err.startswith("archlab: model.name: an empty text was given; ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "override", ["+hydra.job.env_set.CUDA_VISIBLE_DEVICES=''", "hydra.help.footer=", "hydra.job.name=''"]
)
def test_what_hydra_may_have_empty(override, shell):
    assert shell("build", "model=gqa", "bench=none", "verify=false", override).code == 0


def test_what_is_deleted_has_no_value(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    answer(["build", "bench=none", "~model.attention.n_kv_heads="])
    assert "an empty text" not in capsys.readouterr().err
