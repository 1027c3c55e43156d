"""Input of odd kinds: numbers that are none, bytes that are no text, files of another kind."""

import pytest

import archlab
from archlab.cli.app import answer
from archlab.errors import RequestError

QUICK = ("bench=none", "verify=false")


TWICE = {
    "a block": ("model.attention={window:8,window:9}", "model.attention", "window"),
    "of a choice too": ("model.attention={choice:gqa, window : 8, window: 9}", "model.attention", "window"),
    "the choice": ("model.attention={choice:gqa,choice:mha}", "model.attention", "choice"),
    "equal values": ("model.attention={window:8,window:8}", "model.attention", "window"),
    "a block of a list": ("model.layers=[{ffn:{d_ff:5}},{ffn:{d_ff:5,d_ff:6}}]", "model.layers", "d_ff"),
    "blocks themselves": ("model.layers=[{attention:{window:5},attention:{sinks:1}}]", "model.layers", "attention"),
    "a block of a block": ("model.ffn={choice:moe,expert:{d_ff:3,d_ff:4}}", "model.ffn", "d_ff"),
    "one of many": ("model.attention={window:1},{window:2,window:3}", "model.attention", "window"),
    "Hydra's own": ("hydra.job.env_set={A:1,A:2}", "hydra.job.env_set", "A"),
}  # fmt: skip


@pytest.mark.parametrize("case", TWICE)
@pytest.mark.parametrize("command", [("kv", "gqa"), ("build", *QUICK), ("build", "-m", "seed=1,2", *QUICK)])
def test_a_key_is_given_once_in_a_block(case, command, tmp_path, monkeypatch, capsys):
    override, key, twice = TWICE[case]
    monkeypatch.chdir(tmp_path)
    assert answer([*command, override]) == 2
    assert capsys.readouterr().err == f"archlab: {key}: the key '{twice}' is given twice\n"
    assert list(tmp_path.iterdir()) == []


def test_a_key_may_stand_in_several_blocks_and_in_quotes():
    layers = "model.layers=[{attention:{window:5},norm:{eps:1e-5}},{attention:{window:6},norm:{eps:1e-6}}]"
    spec = archlab.load("gqa", layers, "model.name='{a:1,a:2}'", "model.n_layers=2")
    assert [layer.attention.window for layer in spec.layers] == [5, 6]
    assert [layer.norm.eps for layer in spec.layers] == [1e-5, 1e-6]
    assert spec.name == "{a:1,a:2}"


@pytest.mark.parametrize("limit", ["inf", "-inf", "nan", "1e999"])
def test_a_limit_is_finite(limit, shell):
    answer = shell("build", *QUICK, f"constraints=[params<={limit}]")
    assert answer.code == 2
    assert answer.err == f"archlab: constraints: params<={limit}: '{limit}' is no finite number\n"


def test_bytes_that_are_no_text_are_told_of_with_what_holds_them(shell):
    """`ö` in Latin-1: the system hands it on as a lone surrogate."""
    for command in (("build", *QUICK), ("kv", "gqa")):
        answer = shell(*command, 'model.name="gr\udcf6sse"')
        assert answer.code == 2
        assert answer.err.startswith("archlab: 'model.name=\"gr\\udcf6sse\"' is no text in UTF-8")
    assert shell.left() == []


def test_a_plugin_is_a_python_file(shell):
    (shell.folder / "notes.txt").write_text("mine")
    answer = shell("kv", "gqa", "--plugin", "./notes.txt")
    assert answer.code == 2
    assert answer.err.endswith("notes.txt: is no Python file: its name does not end in .py\n")


@pytest.mark.parametrize("function", [archlab.parameters, archlab.kv_cache, archlab.flops, archlab.build])
@pytest.mark.parametrize("wrong", ["gpt2", None, 3, {"d_model": 64}])
def test_what_is_no_spec_says_how_to_get_one(function, wrong):
    with pytest.raises(RequestError, match=r"a model is a spec, as archlab.load\('gpt2'\) gives, not "):
        function(wrong)


@pytest.mark.parametrize("seed", [-1, 2**63, 2**70, 1.0, "1", True])
def test_a_seed_that_is_none(seed):
    with pytest.raises(RequestError, match=r"seed: .* is not a whole number from 0 to 2"):
        archlab.build(archlab.load("gpt2"), device="meta", seed=seed)


@pytest.mark.parametrize("choices", [3, None, "model.n_layers", [("model.n_layers", [1])], {3: [1]}])
def test_what_is_swept_is_values_by_key(choices):
    with pytest.raises(RequestError, match="what is swept is values by key, such as"):
        archlab.sweep("gqa", choices)


@pytest.mark.parametrize("flag", ["-m", "--multirun", "--cfg", "--info"])
def test_a_flag_of_build_is_not_the_nearest_to_itself(flag, capsys):
    assert answer(["kv", "gqa", flag]) == 2
    assert capsys.readouterr().err == f"archlab: no option {flag} here; archlab build has it\n"


@pytest.mark.parametrize("command", [("kv", "gqa"), ("build",)])
def test_a_commands_own_option_after_two_dashes(command, capsys):
    assert answer([*command, "--", "--json"]) == 2
    assert "stands after --, where no option is read" in capsys.readouterr().out


ENTRIES = ["[gqa]", "{norm: {a: b}}", "null", "3", "{norm: rmsnorm, position: rope}", "{norm: [rmsnorm]}"]


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_of_the_defaults_that_chooses_nothing_names_the_file(entry, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.yaml").write_text(f"defaults: [{entry}, _self_]\n")
    monkeypatch.chdir(tmp_path)
    assert answer(["kv", "mine.yaml"]) == 2
    assert "mine.yaml: defaults: " in capsys.readouterr().err


@pytest.mark.parametrize("value", ["!!binary aGVsbG8=", "!!set {a}"])
def test_a_value_that_no_setting_has_names_the_file(value, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.yaml").write_text(f"defaults: [gqa, _self_]\nname: {value}\n")
    monkeypatch.chdir(tmp_path)
    assert answer(["kv", "mine.yaml"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("archlab: mine.yaml: cannot be read: ")
    assert "is no text, number, list or group of settings" in said


@pytest.mark.parametrize(
    ("text", "why"),
    [("NaN", "NaN is not a number"), ("1e400", "out of range"), ('1, "n_embd": 2', "stands in it twice")],
)
def test_json_that_is_none_says_why_whichever_name_it_has(text, why, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.json").write_text('{"model_type": "gpt2", "n_embd": ' + text + "}")
    monkeypatch.chdir(tmp_path)
    assert answer(["kv", "mine.json"]) == 2
    assert why in capsys.readouterr().err
