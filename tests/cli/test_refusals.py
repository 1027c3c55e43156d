"""Bad input: one clear message with the valid values or the nearest spelling, exit 2, nothing left behind."""

import json

import pytest

QUICK = ("bench=none", "verify=false")

REFUSED = {
    "unknown preset": (["model=gqqa"], "no choice 'gqqa'", "did you mean model=gqa?"),
    "unknown choice": (["model/attention=mqaa"], "no choice 'mqaa'", "did you mean model/attention=mqa?"),
    "unknown workload": (["workload=defualt"], "no choice 'defualt'", "did you mean workload=default?"),
    "unknown key": (["model.n_layer=4"], "no such setting", "did you mean model.n_layers?"),
    "unknown key added": (["+model.n_layer=4"], "no such setting", "did you mean model.n_layers?"),
    "unknown key forced": (["++model.n_layer=4"], "no such setting", "did you mean model.n_layers?"),
    "unknown key on an axis": (["model.attention.n_head=4"], "no such", "did you mean model.attention.n_heads?"),
    "unknown key below a value": (["model.n_layers.x=4"], "nothing below it", "model.n_layers"),
    "unknown top key": (["sed=1"], "no such setting", "did you mean seed?"),
    "unknown top key added": (["+new.key=1"], "no such setting", "new"),
    "unknown workload key": (["workload.bacth=1"], "no such setting", "did you mean workload.batch?"),
    "unknown bench key": (["bench.phase=[train]"], "no such setting", "did you mean bench.phases?"),
    "unknown phase": (["bench.phases=[trian]"], "trian", "did you mean train?"),
    "unknown dtype": (["workload.dtype=bf61"], "bf61", "bf16"),
    "unknown group": (["model/atention=mha"], "no such setting or group", "did you mean model/attention?"),
    "unknown option": (["--mutirun"], "no option --mutirun", "did you mean --multirun?"),
    "misplaced choice": (["model.norm=layernorm"], "model.norm", "did you mean model/norm=layernorm?"),
    "misplaced choice in full": (["model.norm.choice=layernorm"], "model.norm", "model/norm=layernorm"),
    "misplaced preset": (["model.attention=mqaa"], "model.attention", "did you mean model/attention=mqa?"),
    "kv heads": (["model.attention.n_kv_heads=3"], "does not divide n_heads = 8", "valid: 1, 2, 4, 8"),
    "option the choice lacks": (["model/attention=mha", "model.attention.n_kv_heads=2"], "mha fixes it", "gqa"),
    "odd rotary": (["model.attention.head_dim=63"], "63 features", "even number"),
    "learned too short": (
        ["model=gpt2", "workload.prompt=1000"],
        "prompt 1000 + new 32 = 1032 tokens",
        "learned positions end at 1024",
    ),
    "zero": (["model.d_model=0"], "model.d_model", "0 must be >= 1"),
    "negative": (["model.n_layers=-2"], "model.n_layers", "-2 must be >= 1"),
    "too many layers": (["model.n_layers=1000000000"], "model.n_layers", "must be < 10001"),
    "not a number": (["model.d_model=wide"], "'wide' is not a whole number", "model.d_model"),
    "dropout of one": (["model/dropout=classic", "model.dropout.p=1.0"], "model.dropout.p", "must be < 1"),
    "negative dropout": (["model/dropout=all", "model.dropout.ffn=-0.5"], "model.dropout.ffn", "must be >= 0"),
    "null": (["model.vocab_size=null"], "model.vocab_size", "not a whole number"),
    "unfinished list": (["model.layers=[1"], "[1", "input"),
    "sweep without -m": (["model=gqa,mqa"], "model=gqa,mqa", "--multirun"),
    "no such config dir": (["--config-dir"], "--config-dir needs a value", ""),
    "no such device": (["device=quantum"], "quantum", ""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(shell, case):
    arguments, *texts = REFUSED[case]
    timed = [] if case in ("unknown phase", "no such device") else QUICK
    answer = shell("build", *timed, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("archlab: ")
    assert len(answer.err.splitlines()) == 1
    for text in texts:
        assert text in answer.err
    assert "Traceback" not in answer.err
    assert shell.left() == []


def test_refused_as_json(shell):
    answer = shell("build", *QUICK, "model.attention.n_kv_heads=3", "--json")
    assert answer.code == 2
    assert answer.json["error"]["key"] == "model.attention.n_kv_heads"
    assert answer.json["error"]["valid"] == [1, 2, 4, 8]
    assert shell.left() == []


@pytest.mark.parametrize(
    "arguments", [("compare", "gqa", "--sort", "parms"), ("components", "attn"), ("compare", "nosuch"), ("models", "x")]
)
def test_other_commands_refuse_as_json_too(shell, arguments):
    answer = shell(*arguments, "--json")
    assert answer.code == 2
    assert answer.json["error"]["message"]


def test_debug_shows_the_traceback(shell):
    answer = shell("build", *QUICK, "model.d_model=0", "--debug")
    assert answer.code == 2
    assert "Traceback" in answer.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("defaults: [gqa, _self_]\nn_layers: [1\n", "model/mine"),
        ("defaults: [gqa, _self_]\nn_layerz: 3\n", "did you mean model.n_layers?"),
        ("defaults: [gqa, _self_]\nn_layers: many\n", "'many' is not a whole number"),
        ("defaults: [gqa, _self_]\nattention: mqa\n", "model/attention=mqa"),
        ("defaults: [gqqa, _self_]\n", "did you mean model=gqa?"),
        ("- 1\n- 2\n", "not a group of settings"),
        ("\x00\x01", "mine"),
    ],
)
def test_an_unreadable_or_wrong_yaml(shell, text, expected):
    folder = shell.folder.parent / "conf"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "mine.yaml").write_text(text)
    answer = shell("build", *QUICK, "--config-dir", str(folder), "model=mine")
    assert (answer.code, answer.out) == (2, "")
    assert expected in answer.err
    assert "Traceback" not in answer.err
    assert shell.left() == []


@pytest.mark.parametrize("flag", [(), ("-m", "model.n_layers=1,2")])
def test_an_output_folder_that_cannot_be_made(shell, flag):
    (shell.folder / "outputs").write_text("a file stands where the folder should be")
    answer = shell("build", *QUICK, *flag)
    assert (answer.code, answer.out) == (2, "")
    assert "outputs" in answer.err
    assert "cannot be written" in answer.err
    assert shell.left() == ["outputs"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"schema": 99, "figures": {}}',
        '{"schema": 1, "figures": {"params": 3}}',
        '{"figures": {}}',
    ],
)
def test_a_corrupt_record(shell, text):
    (shell.folder / "record.json").write_text(text)
    answer = shell("compare", "record.json")
    assert answer.code == 2
    assert "record.json" in answer.err
    assert "Traceback" not in answer.err


def test_the_error_document_is_the_only_thing_on_stdout(shell):
    answer = shell("build", "model=gqqa", "--json")
    assert json.loads(answer.out).keys() == {"error"}
    assert len(answer.out.splitlines()) == 1
