"""Every exact figure's explanation is worked out again from its own text, so that none can drift from its figure."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from strategies import CONTEXT, specs
from worked import BARE, evaluate, with_numbers

import archlab
from archlab import presets
from archlab.cost.explain import explain
from archlab.cost.figures import exact_figures
from archlab.decoder.spec import DecoderSpec
from archlab.options import options_of
from archlab.workload import Workload

WORKLOADS = (Workload(), Workload(batch=3, prompt=1000, kv_dtype="fp32"))


def check_all(spec: DecoderSpec, workload: Workload) -> None:
    figures, explained = exact_figures(spec, workload), explain(spec, workload)
    assert explained.keys() == figures.keys()
    for name, made in explained.items():
        arithmetic, _, result = made.worked.rpartition(" = ")
        found = evaluate(arithmetic or result)
        assert float(found) == pytest.approx(figures[name].value, rel=1e-12), name
        assert abs(found - Fraction(result.replace(",", ""))) <= Fraction(1, 200), name
        assert made.kind == "exact"
        assert made.assumptions == (figures[name].how,)


@pytest.mark.parametrize("preset", presets.names())
def test_each_figure_of_each_preset(preset: str) -> None:
    for workload in WORKLOADS:
        check_all(archlab.load(preset), workload)


@pytest.mark.slow
@settings(max_examples=150)
@given(specs())
def test_each_figure_of_any_composition(spec: DecoderSpec) -> None:
    check_all(spec, Workload(prompt=CONTEXT - 2, contexts=(1, 5, CONTEXT)))


ALIKE = [name for name in presets.names() if len(archlab.load(name).layer_kinds) == 1]


@pytest.mark.parametrize("preset", ALIKE)
def test_the_symbols_stand_for_the_options_of_that_name(preset: str) -> None:
    """With the options' values in the place of their names, the formula is the worked text."""
    spec, workload = archlab.load(preset), WORKLOADS[1]
    values = {name: getattr(spec, name) for name in ("d_model", "n_layers", "vocab_size", "context")}
    values |= {"prompt": 1000, "batch": 3, "params": archlab.parameters(spec).total}
    for part in (*spec.layers[0].axes().values(), spec.head):
        values |= part.options()
    expert = values.get("expert")
    values |= {f"expert.{name}": getattr(expert, name) for name in (options_of(type(expert)) if expert else ())}
    for name, made in explain(spec, workload).items():
        values["bytes"] = 2 if name == "weight_bytes" else 4
        values["context"] = int(name.removeprefix("kv_bytes.")) if name.startswith("kv_bytes.") else spec.context
        assert with_numbers(made.formula, values) == made.worked.rpartition(" = ")[0] or made.worked == "0", name


def test_h02_a_lookup_is_no_matmul_and_a_tied_head_is_one() -> None:
    for head in ("tied", "untied"):
        worked = explain(archlab.load("gpt2", f"model/head={head}"), Workload())["flops_decode_per_token"].worked
        assert worked.count("50,257") == 1
        assert "2 x 768 x 50,257" in worked


def test_a02_each_total_says_what_it_counts() -> None:
    with_biases = explain(archlab.load("gpt2"), Workload())
    assert with_biases["params"].worked.endswith("= 124,439,808")
    assert with_biases["params_non_embedding"].worked.endswith("= 85,056,000")
    assert with_biases["params"].assumptions != with_biases["params_non_embedding"].assumptions
    without = explain(archlab.load("gpt2", *BARE), Workload())
    assert without["params"].worked.endswith("= 124,337,664")
    assert without["params.positions"].worked == f"1,024 x 768 = {124_337_664 - 123_551_232:,}"
    assert without["params.embedding"].worked == "50,257 x 768 = 38,597,376"
    assert without["params.attention"].worked == "12 x (2 x 768 x 12 x 64 + 2 x 768 x 12 x 64) = 28,311,552"
    assert 28_311_552 + exact_figures(archlab.load("gpt2", *BARE), Workload())["params.ffn"].value == 84_934_656


def test_a10_active_parameters_leave_the_idle_experts_out() -> None:
    made = explain(archlab.load("mixtral-8x7b"), Workload())
    assert made["params"].worked.endswith("= 46,702,792,704")
    assert made["params_active"].worked.endswith("- 3 x 32 x (8 - 2) x 4,096 x 14,336 = 12,879,925,248")


def test_layers_that_cost_the_same_are_counted_together() -> None:
    made = explain(archlab.load("deepseek-v3"), Workload())
    assert made["kv_bytes_per_token"].worked == "61 x (512 + 64) x 2 = 70,272"
    assert made["params.ffn.dense"].formula == "3 n_layers[0-2] d_model d_ff"
    windows = explain(archlab.load("gpt-oss-20b"), Workload())["kv_bytes.2048"]
    assert windows.formula == (
        "2 n_layers[0,2,..,22] n_kv_heads head_dim window bytes batch"
        " + 2 n_layers[1,3,..,23] n_kv_heads head_dim context bytes batch"
    )
