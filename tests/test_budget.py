"""Sizes that meet budgets, against scans of every size, built modules and public cases."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import models

import archlab
from archlab import compose, presets
from archlab.budget import MEASURES, Budget, last_within, measure, solve
from archlab.decoder.build import build
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError
from archlab.workload import Workload

WORKLOAD = Workload()


def found(model: dict[str, Any], typed: tuple[str, ...] = (), **budget: Any) -> Any:
    return solve(model, typed, Budget(**budget), WORKLOAD)


def built(spec: DecoderSpec) -> int:
    """Parameters of the module, each once."""
    return sum(parameter.numel() for parameter in build(spec, device="meta").parameters())


def with_width(model: dict[str, Any], value: int) -> dict[str, Any]:
    """The model with a d_ff of the FFN, or of a mixture's experts."""
    ffn = {key: held for key, held in model["ffn"].items() if key != "rule"}
    if ffn["choice"] != "moe":
        return {**model, "ffn": {**ffn, "d_ff": value}}
    expert = {key: held for key, held in (ffn.get("expert") or {}).items() if key != "rule"}
    return {**model, "ffn": {**ffn, "expert": {**expert, "d_ff": value}}}


# --- the search -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(-3, 200))
def test_bisection_finds_what_a_scan_finds(rises, budget):
    costs = [Fraction(sum(rises[: i + 1])) for i in range(len(rises))]
    scanned = max((k for k, cost in enumerate(costs, 1) if cost <= budget), default=0)
    assert last_within(lambda k: costs[k - 1], Fraction(budget), len(costs)) == scanned


FIGURES = st.sampled_from(sorted(MEASURES))


def figure_of(model: dict[str, Any], name: str) -> Fraction:
    return measure(name, resolve(model).spec, WORKLOAD)


@given(models(), FIGURES, st.integers(1, 40), st.fractions(0, 1), st.integers(1, 4))
@settings(max_examples=60)
def test_d_ff_is_the_widest_within_the_budget_as_a_scan_of_every_width_finds_it(model, name, width, share, multiple):
    costs = {n: figure_of(with_width(model, n), name) for n in range(1, 50)}
    if costs[1] == costs[49]:  # it does not depend on it: KV bytes, or layers that all have widths of their own
        asked = int(costs[1])
        with pytest.raises(ConfigError, match=r"does not depend on d_ff"):
            found(model, **{name: asked}, solve="d_ff", multiple=multiple)
        return
    asked = int(costs[width] + share * (costs[width + 1] - costs[width]))
    widths = [n for n in range(multiple, 50, multiple) if costs[n] <= asked]
    if not widths:
        with pytest.raises(ConfigError, match=rf"= {multiple}, the least, has .* over by"):
            found(model, **{name: asked}, solve="d_ff", multiple=multiple)
        return
    if widths[-1] + multiple < 50:
        solution = found(model, **{name: asked}, solve="d_ff", multiple=multiple)
        assert solution.answer.value == widths[-1]
        assert solution.answer.figure == costs[widths[-1]]
        assert solution.above.figure == costs[widths[-1] + multiple] > asked
        assert solution.residual == asked - costs[widths[-1]] >= 0


@given(models(), FIGURES, st.integers(1, 30), st.integers(1, 3))
@settings(max_examples=60)
def test_n_layers_is_the_deepest_within_the_budget_as_a_scan_finds_it(model, name, depth, multiple):
    costs = {n: figure_of({**model, "n_layers": n}, name) for n in range(1, 40)}
    asked = int(costs[depth]) + 1
    deepest = max((n for n in range(multiple, 40, multiple) if costs[n] <= asked), default=0)
    if deepest and deepest + multiple < 40 and costs[deepest + multiple] > asked:
        solution = found(model, **{name: asked}, solve="n_layers", multiple=multiple)
        assert (solution.answer.value, solution.answer.figure) == (deepest, costs[deepest])


@given(models(), st.sampled_from(["d_ff", "n_layers"]), st.integers(500, 30_000))
@settings(max_examples=40)
def test_the_module_that_is_built_keeps_the_budget_and_the_next_size_does_not(model, size, asked):
    least = archlab.parameters(resolve(with_width(model, 1) if size == "d_ff" else {**model, "n_layers": 1}).spec).total
    if asked < least:
        with pytest.raises(ConfigError, match=rf"the least, has {least:,}, over by {least - asked:,}$"):
            found(model, params=asked, solve=size, multiple=1)
        return
    if size == "d_ff" and archlab.parameters(resolve(with_width(model, 2)).spec).total == least:
        return  # every layer has a width of its own
    solution = found(model, params=asked, solve=size, multiple=1)
    assert built(solution.answer.resolved.spec) == solution.answer.figure <= asked
    assert built(solution.above.resolved.spec) == solution.above.figure > asked


@pytest.mark.parametrize("size", ["d_ff", "n_layers", "d_model"])
@pytest.mark.parametrize("name", presets.names())
def test_what_a_preset_has_as_a_budget_gives_the_preset_back(name, size):
    model = compose.preset(name)
    spec = resolve(model).spec
    solution = found(model, params=archlab.parameters(spec).total, solve=size, multiple=1)
    assert solution.residual == 0
    assert solution.answer.value == solution.start.value
    assert archlab.parameters(solution.answer.resolved.spec) == archlab.parameters(spec)
    assert archlab.kv_cache(solution.answer.resolved.spec).bytes == archlab.kv_cache(spec).bytes


# --- public cases -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("multiple", "rounding", "d_ff"), [(64, "down", 13632), (256, "down", 13568), (256, "up", 13824)]
)
def test_e01_swiglu_at_the_parameters_of_a_plain_ffn_rounds_as_asked(multiple, rounding, d_ff):
    plain = compose.preset("llama-2-7b") | {"d_model": 5120, "attention": {"choice": "mha", "n_heads": 40}}
    gelu = resolve(plain | {"ffn": {"choice": "gelu", "rule": "4x"}}).spec
    asked = archlab.parameters(gelu).total
    solution = found(plain, params=asked, solve="d_ff", multiple=multiple, round=rounding)
    assert solution.answer.value == d_ff


def test_e04_and_e08_equal_parameters_put_swiglu_at_two_thirds_of_four():
    gelu = archlab.load("gqa", "model.d_model=768", "model/ffn=gelu", "model.ffn.rule=4x")
    gated = archlab.load(
        "gqa", "model.d_model=768", "model/ffn=swiglu", f"budget.params={archlab.parameters(gelu).total}"
    )
    assert gelu.layers[0].ffn.d_ff == 4 * 768 == 3072
    assert gated.layers[0].ffn.d_ff == 8 * 768 // 3 == 2048
    assert archlab.parameters(gated).by_part == archlab.parameters(gelu).by_part
    assert archlab.parameters(gated).by_part["ffn"] == 8 * 4_718_592


@pytest.mark.parametrize(
    ("budget", "total"),
    [({"params": "124439808"}, 124_439_808), ({"params_non_embedding": 85_056_000}, 85_056_000)],
)
def test_a02_a_budget_says_which_total_it_is_of(budget, total):
    solution = found(compose.preset("gpt2"), **budget)
    assert solution.answer.value == 3072
    assert solution.answer.figure == total


def test_a10_active_parameters_of_a_mixture_are_another_budget_than_all_of_them():
    model = compose.preset("minimind-moe")  # 198,416,640, of which 63,936,768 active
    assert found(model, params="198416640").answer.value == 2432
    assert found(model, params_active=63_936_768).answer.value == 2432
    assert found(model, params_active="198416640").answer.value > 2432


@pytest.mark.parametrize(
    ("name", "asked", "n_layers"),
    [
        ("llama-3-8b", "96KiB", 24),  # 4,096 B a layer
        ("deepseek-v3", 70_272, 61),  # 576 latent features of 2 B a layer
        ("gemma-2-2b", 106_495, 25),
    ],
)
def test_kv_bytes_per_token_set_the_depth(name, asked, n_layers):
    assert found(compose.preset(name), kv_bytes_per_token=asked, solve="n_layers").answer.value == n_layers


def test_kv_bytes_are_of_the_caches_dtype():
    model = compose.preset("llama-3-8b")
    wide = solve(model, (), Budget(kv_bytes_per_token="96KiB", solve="n_layers"), Workload(kv_dtype="fp32"))
    assert wide.answer.value == 12


def test_flops_are_those_of_the_workloads_prompt():
    model = compose.preset("gpt2")  # nanoGPT: 291,648,307,200 of 1,024 tokens
    asked = 291_648_307_200 // 1024
    at_1024 = solve(model, (), Budget(flops_per_token=asked, solve="n_layers"), Workload(prompt=1024))
    assert at_1024.answer.value == 12
    assert solve(model, (), Budget(flops_per_token=asked, solve="n_layers"), Workload(prompt=128)).answer.value > 12


# --- what moves with d_model ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["llama-3-8b", "gpt2", "qwen3-0.6b", "gemma-2-2b", "minimind-moe", "falcon-7b", "deepseek-v3"]
)
@pytest.mark.parametrize("factor", [Fraction(1, 2), 3])
def test_heads_keep_their_features_and_their_groups_when_d_model_moves(name, factor):
    spec = resolve(compose.preset(name)).spec
    asked = int(archlab.parameters(spec).total * factor)
    solution = found(compose.preset(name), params=asked, solve="d_model")
    made = solution.answer.resolved.spec
    assert made.d_model == solution.answer.value != spec.d_model
    for before, after in zip(spec.layers, made.layers, strict=True):
        assert after.attention.rotary_width == before.attention.rotary_width
        assert Fraction(after.attention.n_heads, before.attention.n_heads) == Fraction(made.d_model, spec.d_model)
        old, new = (getattr(layer.attention, "n_kv_heads", None) for layer in (before, after))
        assert new == old or Fraction(new, old) == Fraction(made.d_model, spec.d_model)
        widths = [getattr(layer.ffn, "expert", layer.ffn).d_ff for layer in (before, after)]
        assert abs(widths[1] / widths[0] / (made.d_model / spec.d_model) - 1) < 0.05  # a rule rounds to its multiple


def test_a_rule_of_the_kv_heads_does_not_make_them_jump():
    model = compose.preset("gqa")
    model = {**model, "attention": {"choice": "gqa", "n_heads": 8}}  # the rule gives 2
    solution = found(model, params="400M", solve="d_model")
    attention = solution.answer.resolved.spec.layers[0].attention
    assert attention.n_heads == 4 * attention.n_kv_heads
    assert solution.above.figure > 400_000_000


def test_heads_that_were_typed_stay():
    model = compose.preset("gqa")
    model = {**model, "attention": {**model["attention"], "n_heads": 16, "n_kv_heads": 4}}
    solution = found(model, ("model.attention.n_heads",), params="400M", solve="d_model", multiple=8)
    attention = solution.answer.resolved.spec.layers[0].attention
    assert (attention.n_heads, attention.n_kv_heads) == (16, 4)
    assert attention.head_dim == solution.answer.value / 16
    assert solution.size.step == 32


@pytest.mark.parametrize(
    ("size", "typed"),
    [
        ("d_ff", "model.ffn.d_ff"),
        ("d_ff", "model.ffn.rule"),
        ("n_layers", "model.n_layers"),
        ("d_model", "model.d_model"),
    ],
)
def test_a_size_that_was_typed_is_not_solved_for(size, typed):
    with pytest.raises(ConfigError, match=rf"budget\.solve: {typed} is set and solved for"):
        found(compose.preset("gqa"), (typed,), params="39M", solve=size)


def test_layers_of_a_pattern_keep_a_width_of_their_own_and_take_part_in_d_model():
    model = compose.preset("deepseek-v3")
    by_experts = found(model, params_active="30B").answer.resolved.spec
    assert by_experts.layers[0].ffn.d_ff == 18432
    assert by_experts.layers[3].ffn.expert.d_ff < 2048
    by_width = found(model, params_active="10B", solve="d_model").answer.resolved.spec
    assert by_width.layers[0].ffn.d_ff == 18432 * by_width.d_model // 7168
    with pytest.raises(ConfigError, match=r"give the layers in a YAML"):
        found(model, ("model.layers",), params="30B", solve="d_model")


# --- what cannot be met -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"params": "20M"}, r"model\.ffn\.d_ff = 64, the least, has 22,422,016, over by 2,422,016"),
        ({"params": "9000T", "solve": "n_layers"}, r"n_layers = 10,000, the most that is tried, has 28,2.* short by"),
        ({"kv_bytes_per_token": 4096}, r"does not depend on d_ff: it is 4,096 B/token"),
        ({"params": "1.5"}, r"'1\.5' is not a whole number"),
        ({"params": 1.5}, r"is not a whole number"),
        ({"params": -1}, r"'?-1'? is not a count"),
        ({"kv_bytes_per_token": "32K"}, r"can be 32,000 bytes \(KB\) or 32,768 bytes \(KiB\)"),
        ({"flops_per_token": "3B"}, r"'B' is no unit of FLOPs"),
        ({"params": "39M", "multiple": 2**31}, r"budget\.multiple: 2,147,483,648 is more than the largest d_ff"),
        ({"base": "mhaa"}, r"budget\.base: no preset 'mhaa'; did you mean mha\?"),
    ],
)
def test_what_cannot_be_met_says_how_near_it_comes(budget, said):
    with pytest.raises(ConfigError, match=said):
        found(compose.preset("gqa"), **budget)


def test_two_budgets_for_one_unknown_are_refused():
    with pytest.raises(
        ConfigError, match=r"params = 39M and kv_bytes_per_token = 4KiB are 2 budgets for one unknown, d_ff"
    ):
        Budget(params="39M", kv_bytes_per_token="4KiB")
    with pytest.raises(ConfigError, match=r"base = mha and params = 39M"):
        Budget(params="39M", base="mha")
    with pytest.raises(ConfigError, match=r"there is no base"):
        Budget(params="39M", figure="params")


@pytest.mark.parametrize(("rounding", "d_ff"), [("down", 1408), ("up", 1472), ("nearest", 1408)])
def test_rounding(rounding, d_ff):
    assert found(compose.preset("gqa"), params="39.2M", round=rounding).answer.value == d_ff
    exact = found(compose.preset("gqa"), params=38_937_088, round=rounding)
    assert (exact.answer.value, exact.residual) == (1408, 0)


def test_nearest_may_be_above():
    solution = found(compose.preset("gqa"), params="39.7M", round="nearest")
    assert (solution.answer.value, solution.residual) == (1472, 39_700_000 - 39_723_520)


def test_numbers_are_read_as_hydra_gives_them():
    for given_as in ("39M", "39_000_000", 39_000_000, 39e6, 3.9e7):
        assert found(compose.preset("gqa"), params=given_as).asked == 39_000_000


# --- everywhere a request is read -------------------------------------------------------------------------------------


def test_load_request_and_sweep_take_the_same_keys():
    spec = archlab.load("gqa", "model/attention=mha", "budget.params=39M", "budget.multiple=8")
    assert spec.layers[0].ffn.d_ff == 1152
    asked = compose.request("gqa", ["model/attention=mha", "budget.params=39M", "budget.multiple=8"])
    assert asked.spec == spec
    assert asked.model["ffn"]["d_ff"] == 1152
    assert compose.request("gqa", budget={"params": "39M"}).spec.layers[0].ffn.d_ff == 1408
    variants = {"model/attention": ["mha", "mqa"], "budget.params": ["39M", "20M"], "budget.multiple": [8]}
    points = list(archlab.sweep("gqa", variants))
    assert points[0].spec == spec
    assert [point.ok for point in points] == [True, False, True, False]
    assert "cannot be met" in str(points[1].error)


def test_figures_say_the_budget_what_is_left_and_the_size():
    figures = compose.request("gqa", budget={"base": "mha", "multiple": 8}).figures()
    values = {name: figure.value for name, figure in figures.items() if name.startswith(("budget_", "solved_"))}
    assert values == {"budget_params": 42_082_816, "budget_residual": 0, "solved_d_ff": 1664}
    assert figures["budget_params"].how.startswith("budget: what mha has")
    assert not [name for name in compose.request("gqa").figures() if name.startswith(("budget_", "solved_"))]


def test_a_setting_of_a_budget_without_one_is_refused():
    with pytest.raises(ConfigError, match=r"budget\.solve: is set, but there is no budget"):
        archlab.load("gqa", "budget.solve=n_layers")
