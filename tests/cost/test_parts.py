"""What a choice costs is what it adds to the model's figures, and its formulas come to the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from strategies import CONTEXT, specs
from worked import evaluate

import archlab
from archlab import presets
from archlab.components.position.module import Table
from archlab.cost.explain import explanation
from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.cost.parts import COSTS, TABLE_WIDTH, at
from archlab.cost.symbols import symbolic, whole
from archlab.decoder.spec import DecoderSpec
from archlab.registry import AXES


def made(spec: DecoderSpec, axis: str) -> Iterator[str]:
    """The choices that the model makes, of the norm and the positions those around the layers too."""
    found = {layer.axes()[axis].choice for layer, _ in spec.layer_kinds} if axis != "head" else {spec.head.choice}
    around = {spec.norm.choice} if axis == "norm" else {spec.position.choice} if axis == "position" else set()
    yield from sorted(found | around)


def total(spec: DecoderSpec, axis: str, figure: str, tokens: int = CONTEXT) -> int:
    """Over all the choices that the model makes on the axis."""
    return sum(COSTS[axis][figure].total(spec, axis, name, at(spec, tokens, 2)) for name in made(spec, axis))


def check(spec: DecoderSpec, tokens: int) -> None:
    counts = parameters(spec)
    assert total(spec, "attention", "params") == counts.by_part["attention"]
    assert total(spec, "ffn", "params") == counts.by_part["ffn"]
    assert total(spec, "norm", "params") == counts.by_part["norms"]
    assert total(spec, "position", "params") == counts.by_part["positions"]
    assert total(spec, "head", "params") == counts.by_part["lm_head"]
    idle = counts.total - counts.active
    assert total(spec, "ffn", "params") - total(spec, "ffn", "params_active") == idle
    assert total(spec, "attention", "kv_bytes_per_token") == kv_cache(spec, 1, 1, "bf16").bytes_per_token
    if spec.head.last_token_only:
        return
    parts = archlab.flops(spec, 1, tokens - 1, 1).by_part
    prefill = archlab.flops(spec, 1, tokens - 1, 0).by_part
    decoded = {part: parts[part] - prefill[part] for part in parts}
    attention = total(spec, "attention", "flops_projections") + total(spec, "attention", "flops_scores", tokens)
    assert attention == decoded["attention"]
    assert total(spec, "ffn", "flops") == decoded["ffn"]
    assert total(spec, "head", "flops") == decoded["lm_head"]


@pytest.mark.parametrize("preset", presets.names())
def test_the_choices_of_a_preset_add_up_to_its_figures(preset: str) -> None:
    check(archlab.load(preset), 700)


@settings(max_examples=40)
@given(specs())
def test_the_choices_of_any_composition_do(spec: DecoderSpec) -> None:
    check(spec, CONTEXT)


@pytest.mark.parametrize("preset", ["minimind", "deepseek-v3", "gpt-oss-20b", "gpt2", "gemma-3-1b", "bloom-560m"])
def test_formulas_come_to_the_same(preset: str) -> None:
    spec = archlab.load(preset)
    symbols = symbolic(spec)
    for axis in AXES:
        for name in made(spec, axis):
            for figure, cost in COSTS[axis].items():
                value = cost.total(spec, axis, name, at(spec, 900, 2))
                form = whole(symbols, cost.total(symbols, axis, name, at(symbols, 900, 2)))
                why = explanation(figure, form, "exact")
                arithmetic, _, result = why.worked.rpartition(" = ")
                assert evaluate(arithmetic or result) == value
                assert int(result.replace(",", "")) == value


@pytest.mark.parametrize("preset", ["phi-2", "minimind", "gemma-3-1b", "mpt-7b", "transformer-2017", "gpt2"])
def test_tables_are_those_of_the_built_module(preset: str) -> None:
    spec = archlab.load(preset)
    built = [part for part in archlab.build(spec, device="meta").modules() if isinstance(part, Table)]
    elements = sum(table.numel() for part in built for table in part.tables)
    assert total(spec, "position", "table_bytes") == TABLE_WIDTH * elements


def test_the_norms_of_a_layout_by_hand() -> None:
    """GPT-2 has two a layer and one at the end; Gemma 3 four and one; BLOOM one more, on its embedding."""
    found = {preset: total(archlab.load(preset), "block", "norms") for preset in ("gpt2", "gemma-3-1b", "bloom-560m")}
    assert found == {"gpt2": 2 * 12 + 1, "gemma-3-1b": 4 * 26 + 1, "bloom-560m": 2 * 24 + 2}
