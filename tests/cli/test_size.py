"""`archlab size`, and budgets in build, in sweeps and in the other commands."""

import csv
import io
import json

import pytest

import archlab

PAPER = ("bench=none", "verify=false")


def row(answer, name="answer"):
    return next(row for row in answer.json["tables"]["sizes"]["rows"] if row["size"] == name)


def test_the_answer_its_neighbour_and_the_model_as_it_was(shell):
    answer = shell("size", "gqa", "params=39M", "multiple=8", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["command"] == "size"
    assert row(answer)["d_ff"] == row(answer, "as it was")["d_ff"] == 1408
    assert row(answer)["params"] == 38_937_088
    assert row(answer)["residual"] == 39_000_000 - 38_937_088
    step = 8 * 8 * 3 * 512  # eight layers, eight more features, three matrices of d_model
    assert row(answer, "next step up")["params"] == 38_937_088 + step > 39_000_000
    assert answer.json["tables"]["sizes"]["columns"]["params"]["how"].startswith("every parameter once")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "size", "value"),
    [
        (["params=124M", "solve=n_layers"], "n_layers", 38),  # 2,819,072 a layer over 16,384,512
        (["kv=5000", "solve=n_layers"], "n_layers", 9),  # 512 B a layer
        (["flops=100MFLOP"], "d_ff", 2112),
        (["base=mha", "multiple=8"], "d_ff", 1664),
        (["params_non_embedding=23M", "round=up"], "d_ff", 1472),
        (["params=39M", "model/ffn=gelu", "multiple=8"], "d_ff", 2112),
        (["budget.params=39M", "model/ffn=gelu", "budget.multiple=8"], "d_ff", 2112),
    ],
)
def test_budgets_of_every_kind(shell, words, size, value):
    answer = shell("size", "gqa", *words, "--json")
    assert answer.code == 0, answer.err
    assert row(answer)[size] == value


def test_flops_are_of_the_context_and_kv_of_the_dtype_that_are_asked_for(shell):
    by_prompt = [
        row(shell("size", "gqa", "flops=100M", "--json", "--context", context))["d_ff"] for context in ("256", "2k")
    ]
    assert by_prompt[0] > by_prompt[1]
    layers = [
        row(shell("size", "gqa", "kv=4096", "solve=n_layers", "--json", "--dtype", d))["n_layers"]
        for d in ("bf16", "fp32")
    ]
    assert layers == [8, 4]


def test_table_csv_md_and_narrow_without_colour_or_unicode(shell):
    plain = {"COLUMNS": "60", "NO_COLOR": "1", "PYTHONIOENCODING": "ascii"}
    table = shell("size", "gqa", "params=39M", env=plain)
    assert table.code == 0
    assert "d_ff = 1,408 has 38,937,088 parameters, 62,912 below the budget of 39,000,000" in " ".join(
        table.out.split()
    )
    assert table.out.isascii()
    assert "\x1b[" not in table.out
    assert "39,723,520" in shell("size", "gqa", "params=39M", env={"COLUMNS": "200"}).out
    rows = list(csv.DictReader(io.StringIO(shell("size", "gqa", "params=39M", "--format", "csv").out)))
    assert [row["d_ff"] for row in rows] == ["1408", "1472", "1408"]
    assert "| answer | 1,408 |" in shell("size", "gqa", "params=39M", "--format", "md").out


def test_explanations(shell):
    said = shell("size", "gqa", "params=39M", "--explain", "d_ff").out
    assert "38,937,088 <= 39,000,000 < 39,723,520" in said
    everything = shell("size", "gqa", "params=39M", "--explain", "all").out
    for name in ("residual", "params_active", "kv_bytes_per_token", "flops_per_token"):
        assert name in everything


def test_coarse_steps_say_why_and_what_to_do(shell):
    said = shell("size", "gemma-3-1b", "params=500M", "solve=d_model").out
    assert "d_model moves in steps of 576, not 64, so that heads stay whole" in " ".join(said.split())
    free = shell("size", "gemma-3-1b", "params=500M", "solve=d_model", "model.attention.n_heads=4", "--json")
    assert row(free)["d_model"] == 704


def test_a_preset_without_overrides_needs_neither_hydra_nor_torch(shell):
    code = "import sys; from archlab.cli.app import answer; answer(['size', 'gqa', 'params=39M', 'multiple=8']);"
    said = shell.python(code + "print({'torch', 'hydra', 'omegaconf'} & set(sys.modules))")
    assert said.out.endswith("set()\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "params=124M, kv=32KiB, flops=250M or base=PRESET"),
        (["params=39M", "solve=unknown"], "unknown is not one of its values; valid: d_ff, n_layers, d_model"),
        (["params=1M"], "the least, has 22,422,016, over by 21,422,016"),
        (["params=-39M"], "'-39M' is not a count"),
        (["params=0"], "must be above zero"),
        (["params="], "params: an empty text was given"),
        (["params=39MB"], "'MB' is no power of ten"),
        (["kv=4K"], "can be 4,000 bytes (KB) or 4,096 bytes (KiB)"),
        (["flops=3B"], "'B' is no unit of FLOPs"),
        (["params=39M", "kv=4KiB"], "2 budgets for one unknown"),
        (["params=39M", "base=mha"], "2 budgets for one unknown"),
        (["params=39M", "params=40M"], "given twice"),
        (["params=39M", "budget.params=40M"], "given twice"),
        (["parms=39M"], "did you mean params?"),
        (["params=39M", "multiple=0"], "0 must be >= 1"),
        (["params=39M", "multiple=-8"], "-8 must be >= 1"),
        (["params=39M", "multiple=x"], "'x' is not a whole number"),
        (["params=39M", "model.ffn.d_ff=100"], "model.ffn.d_ff is set and solved for"),
        (["params=39M", "model.n_layer=4"], "did you mean model.n_layers?"),
        (["params=39M", "model.attention.n_kv_heads=3"], "3 does not divide n_heads"),
        (["base=gq"], "did you mean gqa?"),
        (["kv=4KiB"], "does not depend on d_ff"),
        (["params=39M", "--format", "xml"], "no format 'xml'"),
        (["params=39M", "--explain", "paramz"], "did you mean params?"),
        (["params=39M", "--context", "6k"], "can be 6,000 or 6,144 tokens"),
    ],
)
def test_bad_input_is_one_message(shell, words, said):
    answer = shell("size", "gqa", *words)
    assert answer.code == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    assert said.split("'")[0] in shell("size", "gqa", *words, "--json").json["error"]["message"]


# --- build, sweeps, compare -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sweep_at_equal_size(shell):
    swept = ("model/attention=mha,gqa,mqa", "model/ffn=swiglu,gelu", "budget.params=39M", "budget.multiple=8")
    answer = shell("build", "-m", *swept, *PAPER, "--json")
    assert answer.code == 0, answer.err
    points = answer.json["points"]
    assert len(points) == 6
    for point in points:
        figures = {name: figure["value"] for name, figure in point["figures"].items()}
        axes = point["composition"]["axes"]
        matrices = 3 if axes["ffn"]["choice"] == "swiglu" else 2
        step = 8 * 8 * matrices * 512
        assert 0 <= figures["budget_residual"] == 39_000_000 - figures["params"] < step
        assert figures["budget_params"] == 39_000_000
        assert figures["solved_d_ff"] == axes["ffn"]["d_ff"] == point["config"]["model"]["ffn"]["d_ff"]
        assert point["config"]["budget"]["params"] == "39M"
        assert all(point["figures"][name]["kind"] == "exact" for name in figures)


def test_its_table_shows_the_budget_and_what_was_met(shell):
    answer = shell("build", "-m", "model/attention=mha,mqa", "budget.base=mha", "budget.multiple=8", *PAPER)
    assert answer.code == 0, answer.err
    table = " ".join(answer.out.split())
    for said in (
        "budget_params",
        "solved_d_ff",
        "1,408",
        "1,704",
        "42,082,816",
    ):  # 7 KV heads are 298.7 features of three matrices
        assert said in table


@pytest.mark.slow
def test_one_build_verifies_the_size_that_was_found_and_its_folder_is_that_model(shell):
    answer = shell("build", "model=mqa", "budget.params=39M", "budget.multiple=8", "bench=none", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["checks"][0]["ok"]
    assert answer.json["checks"][0]["found"] == 38_904_320
    folder = shell.folder / answer.json["folder"]
    assert archlab.parameters(archlab.load(folder)).total == 38_904_320
    assert archlab.load(folder).layers[0].ffn.d_ff == 1448
    printed = shell("build", "model=mqa", "budget.params=39M", "budget.multiple=8", *PAPER).out
    assert "Budget  exact" in printed
    assert "1,448" in printed


@pytest.mark.slow
def test_a_timed_build_times_the_size_that_was_found(shell):
    small = ("model.n_layers=1", "model.vocab_size=64", "workload.prompt=4", "workload.new=2")
    answer = shell("build", "budget.params=900k", "bench.phases=[prefill]", "bench.seconds=0.05", *small, "--json")
    assert answer.code == 0, answer.err
    assert all(check["ok"] for check in answer.json["checks"])
    figures = answer.json["figures"]
    assert 0 <= figures["budget_residual"]["value"] < 64 * 3 * 512
    assert figures["prefill_tok_s"]["value"] > 0


@pytest.mark.slow
def test_a_point_that_cannot_meet_the_budget_is_invalid_and_says_how_near_it_came(shell):
    answer = shell("build", "-m", "model/attention=mha,mqa", "budget.params=24M", *PAPER, "--json")
    assert answer.code == 1
    mha, mqa = answer.json["points"]
    assert mqa["status"] == "ok"
    assert mha["status"] == "invalid"
    assert "24,000,000 parameters cannot be met: model.ffn.d_ff = 64, the least, has 25,567,744" in mha["reason"]


def test_one_build_that_cannot_meet_it_is_a_wrong_request(shell):
    answer = shell("build", "budget.params=1M", *PAPER)
    assert answer.code == 2
    assert "cannot be met" in answer.err
    assert shell.left() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["budget.parms=39M"], "did you mean budget.params?"),
        (["budget.solve=n_layers"], "is set, but there is no budget"),
        (["budget.params=39M", "budget.kv_bytes_per_token=4KiB"], "2 budgets for one unknown"),
        (["budget=39M"], "budget"),
        (["budget.params=39M", "model.ffn.d_ff=100"], "is set and solved for"),
        (["budget.params=[39M]"], "is not"),
    ],
)
def test_wrong_budgets_in_build(shell, words, said):
    answer = shell("build", *words, *PAPER)
    assert answer.code == 2
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert shell.left() == []


@pytest.mark.slow
def test_compare_and_the_paper_commands_take_the_same_keys(shell):
    compared = shell("compare", "gqa", "gqa", "model/ffn=gelu", "budget.base=gqa", "budget.multiple=8", "--json")
    totals = [point["figures"]["params"]["value"] for point in compared.json["points"]]
    assert totals == [38_937_088, 38_937_088]
    paper = shell("flops", "gqa", "model/attention=mqa", "budget.params=39M", "--json").json
    assert "d_ff = 1,408 by budget params 39,000,000: 38,412,800, short by 587,200" in paper["notes"]


def test_a_budget_of_ones_own_by_its_name(shell):
    mine = shell.folder / "mine" / "budget"
    mine.mkdir(parents=True)
    (mine / "small.yaml").write_text("params: 39M\nsolve: n_layers\n")
    answer = shell("build", "--config-dir", str(mine.parent), "budget=small", *PAPER, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["composition"]["n_layers"] == 8
    assert json.loads(answer.out)["figures"]["solved_n_layers"]["value"] == 8


@pytest.mark.slow
def test_a_base_is_composed_where_presets_are_not_ready_inside_a_run(shell):
    code = (
        "import archlab.presets as p; p._all_ready = lambda: {'models': {}, 'summaries': []}\n"
        "from archlab.cli.app import answer\n"
        "answer(['build', '-m', 'model/attention=mha,mqa', 'budget.base=mha', 'bench=none', 'verify=false', '--json'])"
    )
    points = shell.python(code).json["points"]
    assert [point["figures"]["solved_d_ff"]["value"] for point in points] == [1408, 1664]
