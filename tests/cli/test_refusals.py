"""Bad input: one clear message with the valid values or the nearest spelling, exit 2, nothing left behind."""

import contextlib
import json
import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import archlab
from archlab import cli
from archlab import record as records
from archlab.cli.app import run
from archlab.cli.build import print_comparison
from archlab.errors import ArchlabError, RequestError
from archlab.frozen import fields_of

QUICK = ("bench=none", "verify=false")

REFUSED = {
    "unknown preset": (["model=gqqa"], "no preset 'gqqa'", "did you mean model=gqa?"),
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
    "a group is no number": (["model=1"], "model: 1 is no name of a choice", "gqa"),
    "a group is no number with a blank": (["model/block=1_000"], "model/block: 1_000 is no name", "pre_norm"),
    "a group is not null": (["workload=null"], "workload: null is no name of a choice", "valid: default"),
    "nor is that of experiments": (
        ["experiment=null"],
        "experiment: null is no name of a choice",
        "valid: attention_equal_params",
    ),
    "a group is no flag": (["model/norm=true"], "model/norm: true is no name of a choice", "rmsnorm"),
    "a group is no list": (["model=[null]"], "model: [null] is no name of a choice", "gqa"),
    "a group is no mapping": (["model/attention=[{a:b}]"], "model/attention: [{a:b}] is no name", "mqa"),
    "a group is no range": (["-m", "model=range(1,3)"], "model: range(1,3) is no name", "gqa"),
    "a bench is no number": (["bench=1"], "bench: 1 is no name of a choice", "valid: full, none, quick"),
    "a launcher is no number": (["hydra/launcher=1"], "hydra/launcher: 1 is no name of a choice", ""),
    "a deletion by number": (["~model/block=1"], "model/block: 1 is no name of a choice", "pre_norm"),
    "no model": (["~model"], "model: cannot be left out", ""),
    "a preset beyond ASCII": (["model=m\u00f6del"], "no preset 'm\u00f6del'", "valid: bloom-560m"),
    "a choice beyond ASCII": (["model/norm=n\u00f6rm"], "no choice 'n\u00f6rm'", "rmsnorm"),
    "a value beyond ASCII": (["model.name=m\u00f6del"], "cannot be read as an override", "quotes"),
    "a stray bracket": (["model.d_model=(1"], "cannot be read as an override", "quotes"),
    "no key": (["=1"], "=1 names no setting", ""),
    "nothing": ([""], "an empty text was given", ""),
    "an integer of 5000 digits": (["model.d_model=" + "9" * 5000], "cannot be read as an override", "digits"),
    "a width beyond 64 bits": (["model.d_model=" + "9" * 26], "model.d_model: " + "9" * 26, "must be <= 2147483647"),
    "a vocabulary beyond any": (["model.vocab_size=9999999999"], "model.vocab_size: 9999999999", "<= 2147483647"),
    "a seed beyond 64 bits": (["seed=" + "9" * 26], "seed: " + "9" * 26, "must be < 9223372036854775808"),
    "Hydra's wrong view": (
        ["--cfg", "nonsense"],
        "--cfg: 'nonsense' is not one of its values",
        "valid: job, hydra, all",
    ),
    "Hydra's wrong view, joined": (["--cfg=nonsense"], "'nonsense' is not one of its values", "valid: job, hydra, all"),
    "Hydra's wrong information": (["--info=x"], "--info: 'x' is not one of its values", "defaults-tree"),
    "Hydra's view of nothing": (["--cfg"], "--cfg needs a value", "valid: job, hydra, all"),
    "a flag for a value": (["--config-dir", "-m"], "--config-dir needs a value", ""),
    "a value for a flag": (["--multirun=3"], "--multirun has no value, but '3' was given", ""),
    "Hydra's two wishes": (["--run", "--multirun"], "Only one of --run, --multirun", ""),
    "resolve alone": (["--resolve"], "--resolve flag can only be used", ""),
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
        '{"schema": 1, "figures": {}}',
    ],
)
def test_a_corrupt_record(shell, text):
    (shell.folder / "record.json").write_text(text)
    answer = shell("compare", "record.json")
    assert answer.code == 2
    assert "record.json" in answer.err
    assert "Traceback" not in answer.err


FIGURE = {"value": 1, "unit": "count", "kind": "exact", "how": "counted"}
SIZES = {"d_model": 1, "n_layers": 1, "vocab_size": 1, "context": 1}
WHOLE = {"schema": 1, "config": {"model": {"name": "x"}}, "figures": {"params": FIGURE}}
MQA = {"attention": {"choice": "mqa"}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *(
            ({name: value}, name)
            for name in records.Record.__dataclass_fields__
            for value in (5, [5], {"x": 5}, "x", None)
        ),
        *(({"figures": {"params": value}}, "figures.params") for value in (5, "x", None, [], {}, {"value": 3})),
        *(({"figures": {"params": FIGURE | {name: []}}}, f"params.{name}") for name in fields_of(records.Figure)),
        *(
            ({"figures": {"params": FIGURE | {"value": value}}}, "params.value")
            for value in ("3", True, math.nan, 10**400)
        ),
        ({"figures": {"params": FIGURE | {"more": 1}}}, "params.more"),
        ({"config": {"model": 3}}, "config.model"),
        ({"config": {"workload": []}}, "config.workload"),
        ({"composition": SIZES}, "layer_kinds"),
        ({"composition": SIZES | {"layer_kinds": []}}, "axes"),
        ({"composition": SIZES | {"layer_kinds": [], "axes": {}, "more_kinds": "7"}}, "more_kinds"),
        ({"composition": SIZES | {"layer_kinds": [5], "axes": {}}}, "layer_kinds"),
        ({"composition": SIZES | {"layer_kinds": [{"layers": [0], "axes": 3}], "axes": {}}}, "layer_kinds"),
        ({"composition": SIZES | {"layer_kinds": [{"layers": ["0"], "axes": {}}], "axes": {}}}, "layer_kinds"),
        ({"composition": SIZES | {"layer_kinds": [], "axes": {"attention": "mqa"}}}, "axes.attention"),
        ({"composition": SIZES | {"layer_kinds": [], "axes": {"ffn": {"choice": "moe", "expert": {}}}}}, "axes.ffn"),
    ],
)
def test_a_record_with_a_wrong_type(tmp_path, change, said):
    """Each is refused with the field's name, or else compares without an error."""
    file = tmp_path / "record.json"
    file.write_text(json.dumps(WHOLE | change))
    found, message = None, None
    try:
        found = records.load(file)
    except RequestError as error:
        message = str(error)
    if message is not None:
        assert said in message
        assert len(message.splitlines()) == 1
    else:
        harmless = ("created", "folder", "reason", "environment", "config", "copy_of")
        assert next(iter(change)) in harmless
        assert cli.run(lambda: print_comparison([found, found], None, "table", detail=True), []) == 0


def test_a_broken_record_on_the_command_line(shell):
    (shell.folder / "r.json").write_text(json.dumps(WHOLE | {"composition": 5}))
    answer = shell("compare", "r.json", "--json")
    assert answer.code == 2
    assert answer.json["error"]["message"] == "r.json: is no record of archlab: composition is not a group"


SOURCES = ["", "a\0b", 5, None, "no/such", "\u00f6", "gqa "]


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_that_is_none(source):
    with pytest.raises(RequestError):
        archlab.load(source)


def test_the_empty_name_and_what_is_no_text():
    with pytest.raises(RequestError, match="no model named ''"):
        archlab.load("")
    with pytest.raises(RequestError, match=r"an override is text, such as .*, not 5"):
        archlab.load("gqa", 5)


KEYS = st.sampled_from(
    [
        "model",
        "bench",
        "workload",
        "seed",
        "hydra",
        "hydra/launcher",
        "model/attention",
        "model/nosuch",
        "model.d_model",
        "model.layers",
        "model.attention.n_heads",
        "model.name",
        "hydra.run.dir",
        "model/norm@x",
        "workload.batch",
        "",
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        ["1", "null", "true", "1.5", "[null]", "{a:b}", "[{a:b}]", "gqa,mqa", "glob(*)", "range(1,3)", "''"]
    ),
    st.sampled_from(
        ["${model}", "${x}", "${oc.env:X}", "${", "int(a)", "str(1)", "extend_list(1)", "1_000", "inf", "nan"]
    ),
    st.text("[]{}(),:=~+@$'\"\\ .-/*?ab1\u00f6\n\t\0\ud800", max_size=8),
    st.text(max_size=6),
)
PARTS = st.tuples(st.sampled_from(["", "+", "++", "~", "-", "@"]), KEYS, st.sampled_from(["=", "", ":", "=="]), VALUES)


@pytest.mark.slow
@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.one_of(PARTS.map("".join), st.text(max_size=12)))
def test_only_an_archlab_error_comes_of_an_override(override):
    with contextlib.suppress(ArchlabError):
        archlab.load("gqa", override)


@pytest.mark.parametrize("flag", [("--cfg", "job"), ("-c", "all"), ("--info",), ("-i", "config"), ("--hydra-help",)])
def test_what_hydra_prints_is_no_json(shell, flag):
    answer = shell("build", *flag, "--json")
    assert answer.code == 2
    assert answer.json["error"]["message"].startswith(f"{flag[0]} prints text of Hydra's own")


@pytest.mark.parametrize("form", [("--json",), ()])
def test_a_format_that_is_none_is_refused_also_beside_json(shell, form):
    answer = shell("compare", "gqa", "--format", "nope", *form)
    assert answer.code == 2
    assert "no format 'nope'" in answer.out + answer.err


@pytest.mark.slow
def test_ascii_only_output_of_a_name_beyond_it(shell):
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    for arguments in (("build", "model=m\u00f6del"), ("compare", "m\u00f6del"), ("components", "n\u00f6rm")):
        answer = shell(*arguments, "--json", env=ascii_only)
        assert answer.code == 2
        assert "\u00f6" in answer.json["error"]["message"]
    name = "model.name='m\u00f6del'"
    built = shell("build", *QUICK, name, "hydra.run.dir='\u00fc \udcff'", "--json", env=ascii_only)
    assert (built.code, built.json["config"]["model"]["name"]) == (0, "m\u00f6del"), built.err
    assert built.json["folder"].endswith("\u00fc \udcff")
    for form in ((), ("--json",), ("--format", "csv"), ("--format", "md")):
        answer = shell("compare", "gqa", name, *form, env=ascii_only)
        assert answer.code == 0, answer.err
    assert shell("build", *QUICK, name, env=ascii_only).code == 0


def test_the_error_document_is_the_only_thing_on_stdout(shell):
    answer = shell("build", "model=gqqa", "--json")
    assert json.loads(answer.out).keys() == {"error"}
    assert len(answer.out.splitlines()) == 1


@pytest.mark.parametrize("arguments", [(), ("-m",)])
def test_i03_a_misspelt_key_names_the_nearest_and_lists_the_valid_ones(shell, arguments):
    answer = shell("build", *arguments, "wrokload.batch=1", "bench=none")
    assert answer.code == 2
    assert "wrokload: no such setting; did you mean workload?; valid: bench, budget, " in answer.err
    assert "+wrokload" not in answer.err  # to add it would not help
    assert shell.left() == []


@pytest.mark.parametrize(("ended", "code"), [(0, 0), (1, 0), (2, 2), (15, 15), (143, 143), ("a message", 1)])
def test_an_end_that_no_error_is_keeps_its_code(ended, code, capsys):
    """Hydra's own parser ends with 2; a library that was told to end, by a signal, is not a wrong command line."""
    assert run(lambda: sys.exit(ended), []) == code
    assert ("Hydra refused" in capsys.readouterr().err) == (ended == 2)


@pytest.mark.parametrize("entry", ["norm: rmsnorm", "override norm: rmsnorm"])
def test_a_file_that_makes_a_choice_twice(shell, entry):
    """The defaults come after the file's own values here, and the other choice would be lost."""
    (shell.folder.parent / "twice.yaml").write_text(f"defaults: [_self_, {{{entry}}}]\nnorm: {{choice: layernorm}}\n")
    answer = shell("kv", "../twice.yaml")
    assert (answer.code, answer.out) == (2, "")
    assert "norm.choice is layernorm, and the defaults choose norm: rmsnorm; leave one of them" in answer.err


BOMB = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"a0: &a0 [1, 1]\n{BOMB}\n", "its aliases stand for more than 100,000 values"),
        ("norm: &n {eps: *n}\n", "its aliases stand for more than 100,000 values"),
        ("5: 3\n", "the key 5 is no name of a setting"),
        ("norm: {null: 3}\n", "the key None is no name of a setting"),
        ("n_layers: [1\n", "cannot be read"),
    ],
)
def test_a_file_that_is_not_read(shell, text, said):
    (shell.folder.parent / "wrong.yaml").write_text(f"defaults: [gqa, _self_]\n{text}")
    answer = shell("kv", "../wrong.yaml")
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1
