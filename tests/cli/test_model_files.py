"""What is wrong in a user's own model file, or with an interpolation: one line that names the file, or the key."""

import pytest

from archlab.cli.app import answer

UNKNOWN_AXES = {
    "an axis": ("defaults: [nrom: x]", "model/nrom", "did you mean model/norm?"),
    "an axis with a choice of another": (
        "defaults: [atention: mqa]",
        "model/atention",
        "did you mean model/attention?",
    ),
    "an axis in full": ("defaults: [/model/nrom: rmsnorm]", "model/nrom", "did you mean model/norm?"),
    "one to override": ("defaults: [gqa, override nrom: x]", "model/nrom", "did you mean model/norm?"),
    "a group": ("defaults: [/worklod: short]", "worklod", "did you mean workload?"),
}


@pytest.mark.parametrize("case", UNKNOWN_AXES)
@pytest.mark.parametrize("command", [("kv",), ("build", "bench=none", "--from")])
def test_the_defaults_name_what_there_is_not(case, command, tmp_path, monkeypatch, capsys):
    text, key, near = UNKNOWN_AXES[case]
    (tmp_path / "mine.yaml").write_text(f"{text}\nd_model: 64\n")
    monkeypatch.chdir(tmp_path)
    assert answer([*command, "mine.yaml"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"archlab: {key}: no such setting or group (in the defaults of mine.yaml); {near}")
    assert said.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize("defaults", ["{norm: rmsnorm}", "3", "gqa"])
def test_the_defaults_are_no_list(defaults, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.yaml").write_text(f"defaults: {defaults}\n")
    monkeypatch.chdir(tmp_path)
    assert answer(["kv", "mine.yaml"]) == 2
    assert capsys.readouterr().err.startswith("archlab: mine.yaml: its defaults are no list, such as [")


@pytest.mark.parametrize(
    "text", ["defaults: [gqa]\nn_layers: 2\nn_layers: 3\n", "d_model: 64\nnorm: {choice: none}\nd_model: 65\n"]
)
@pytest.mark.parametrize("command", [("kv",), ("build", "bench=none", "--from")])
def test_a_key_that_is_given_twice(text, command, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert answer([*command, "mine.yaml"]) == 2
    key, _, _ = text.splitlines()[-1].partition(":")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith(key)]
    expected = f"the key '{key}' is given twice, in lines {lines[0]} and {lines[1]}"
    assert capsys.readouterr().err == f"archlab: mine.yaml: cannot be read: {expected}\n"


@pytest.mark.parametrize("key", ["name", "family", "attention.backend"])
@pytest.mark.parametrize("command", [("kv",), ("build", "bench=none", "--from")])
def test_a_text_that_is_empty(key, command, tmp_path, monkeypatch, capsys):
    """But for `about`, which is empty unless it is set."""
    name, _, option = key.partition(".")
    setting = f"{name}: {{{option}: ' '}}" if option else f"{name}: ''"
    (tmp_path / "mine.yaml").write_text(f"defaults: [gqa, _self_]\nabout: ''\n{setting}\n")
    monkeypatch.chdir(tmp_path)
    assert answer([*command, "mine.yaml"]) == 2
    expected = f"archlab: model.{key}: an empty text was given; give a value, or leave it out\n"
    assert capsys.readouterr().err == expected
    assert [file.name for file in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_key_that_is_given_twice_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.yaml").write_text("defaults: [gqa, _self_]\nnorm: {eps: 1e-5, eps: 1e-6}\n")
    monkeypatch.chdir(tmp_path)
    assert answer(["kv", "mine.yaml"]) == 2
    assert "the key 'eps' is given twice, in lines 2 and 2" in capsys.readouterr().err


def test_a_key_in_place_of_a_merged_one_is_not_given_twice(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.yaml").write_text(
        "defaults: [gqa, _self_]\nattention: &heads {n_heads: 4, n_kv_heads: 2}\n"
        "layers: [{attention: {<<: *heads, n_kv_heads: 1}}]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert answer(["kv", "mine.yaml"]) == 0
    assert capsys.readouterr().err == ""


UNRESOLVED = {
    "no key": ("model.name=${foo}", "model.name: ${foo} cannot be resolved: Interpolation key 'foo' not found"),
    "no variable": ("model.name=${oc.env:NOT_SET}", "model.name: ${oc.env:NOT_SET} cannot be resolved: "),
    "no resolver": ("model.name=${nothing:x}", "model.name: ${nothing:x} cannot be resolved: "),
    "a key of the model": ("model.d_model=${model.n_layer}", "model.d_model: ${model.n_layer} cannot be resolved: "),
    "in a list": ("model.layers=[{ffn:{d_ff:${foo}}}]", "model.layers[0].ffn.d_ff: ${foo} cannot be resolved: "),
}


@pytest.mark.parametrize("case", UNRESOLVED)
def test_an_interpolation_that_leads_nowhere_names_its_key_and_how_it_is_written(case, shell):
    override, said = UNRESOLVED[case]
    for command in (("build", "bench=none"), ("kv", "gqa")):
        answer = shell(*command, override)
        assert answer.code == 2
        assert answer.err.startswith(f"archlab: {said}")
        assert answer.err.count("\n") == 1
    assert shell.left() == []


def test_one_that_leads_nowhere_in_every_point_alike_refuses_the_sweep(shell):
    answer = shell("build", "-m", "-q", "model.n_layers=2,3", "model.name=${foo}", "bench=none")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("archlab: model.name: ${foo} cannot be resolved: ")
    assert shell.left() == []


def test_a_record_has_an_interpolation_as_it_was_typed(shell):
    override = "model.ffn.d_ff=${model.d_model}"
    answer = shell("build", "bench=none", "verify=false", override, "model.d_model=128", "--json")
    assert answer.code == 0, answer.err
    assert override in answer.json["overrides"]
    assert answer.json["composition"]["axes"]["ffn"]["d_ff"] == 128
