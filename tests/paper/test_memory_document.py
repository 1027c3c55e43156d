"""What archlab memory says: its rows, its explanations, its assumptions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import CONTEXT, specs
from worked import evaluate

import archlab
from archlab.components.tape import RECOMPUTE
from archlab.compose import request
from archlab.cost.activations import Training, kept
from archlab.cost.kv import kv_cache
from archlab.cost.memory import training_memory
from archlab.cost.optimizers import RECIPES
from archlab.cost.parallel import Split
from archlab.decoder.spec import DecoderSpec
from archlab.document import Document, Row
from archlab.errors import ConfigError, RequestError
from archlab.frozen import replace
from archlab.paper.memory import document
from archlab.report.document import csv_text, md_text

GIB = 2**30
ROOT = request("gqa")


def asked(model: str, workload: dict[str, Any] | None = None, **options: Any) -> Document:
    return document(request(model, **(workload or {})), **options)


def table(made: Document, name: str = "memory", key: str = "part") -> dict[str, Row]:
    rows = {table.name: table for table in made.tables}[name].rows
    return {row[key]: row for row in rows}


def test_inference_by_part() -> None:
    found = table(asked("llama-3-8b", context=8192))
    assert list(found) == ["weights", "cache", "tables", "logits", "working", "total"]
    assert found["weights"]["per_device"] == 2 * 8_030_261_248
    assert found["cache"]["per_device"] == GIB
    assert found["total"]["per_device"] == sum(row["per_device"] for row in found.values()) / 2
    assert [row["kind"] for row in found.values()] == ["exact"] * 4 + ["estimated"] * 2
    assert sum(row["share"] for row in found.values()) == pytest.approx(200)


def test_the_cache_has_a_dtype_of_its_own() -> None:
    found = table(asked("llama-3-8b", {"batch": 4}, context=4096, weights_dtype="int4", kv_dtype="fp8"))
    assert found["cache"]["per_device"] == kv_cache(archlab.load("llama-3-8b"), 4, 4096, "fp8").required
    assert 4 * GIB < found["weights"]["per_device"] < 6 * GIB
    caches = [table(asked("gqa", dtype=dtype))["cache"]["per_device"] for dtype in ("bf16", "int4")]
    assert caches[0] == caches[1]


def test_h08_every_recipe_is_named_with_its_bytes() -> None:
    found = table(asked("llama-2-7b", train=True, context=64), "recipes", "recipe")
    assert list(found) == list(RECIPES)
    for recipe, each, gb in (("fp32-12", 12, 80.9), ("fp32", 16, 107.8), ("mixed-16", 16, 107.8)):
        assert (found[recipe]["total"], round(found[recipe]["per_device"] / 1e9, 1)) == (each, gb)
    for recipe, each, gb in (("mixed-18", 18, 121.3), ("mixed-20", 20, 134.8)):
        assert (found[recipe]["total"], round(found[recipe]["per_device"] / 1e9, 1)) == (each, gb)
    assert all(row["source"] for row in found.values())


def test_h11_what_recompute_saves_under_flash_and_without() -> None:
    made = asked("gpt2", train=True, context=1024, device="cuda", attention="math")
    found = table(made, "recompute", "recompute")
    layers, s, h, a = 12, 1024, 768, 12
    assert found["none"]["published"] == layers * (34 * s * h + 5 * a * s * s)
    assert found["selective"]["published"] == layers * 34 * s * h
    flash = [found[what]["sdpa"] for what in ("none", "selective", "full")]
    assert flash[1] / flash[0] > 0.98  # selective saves next to nothing
    assert found["selective"]["math"] / found["none"]["math"] < 0.2
    assert found["selective"]["math"] == found["selective"]["sdpa"]
    assert flash[2] < flash[1] / 5
    assert table(made)["activations"]["per_device"] == found["none"]["math"]


def test_h12_logits_and_the_copies_of_the_loss() -> None:
    found = table(asked("llama-3-8b", train=True, context=4096))
    assert round(found["logits"]["per_device"] / GIB, 3) == 0.979
    assert found["loss"]["per_device"] == 6 * found["logits"]["per_device"]


def test_j01_all_experts_are_resident() -> None:
    made = asked("mixtral-8x7b", context=64)
    assert table(made)["weights"]["per_device"] == 2 * 46_702_792_704
    assert "all 46.70 B parameters lie in memory; a token uses 12.88 B" in made.notes


def test_what_is_kept_adds_up_to_what_torch_counts() -> None:
    """Equality with torch's hooks is tests/cost/test_activations.py's."""
    made = asked("gqa", {"batch": 2}, train=True, context=100)
    everything = kept(ROOT.spec, Training(2, 100))
    found = table(made, "kept", "kept_for")
    assert {name: row["bytes"] for name, row in found.items() if name != "total"} == everything
    assert found["total"]["bytes"] == sum(everything.values())
    assert found["total"]["per_token"] == sum(everything.values()) / 200
    assert table(made)["activations"]["per_device"] == sum(everything.values()) - everything["loss"]


def test_kernels_are_said_and_those_of_cuda_are_not_called_exact() -> None:
    cpu, cuda = (asked("gpt2", train=True, device=device) for device in ("cpu", "cuda"))
    assert (cpu.assumptions["kernels"], cuda.assumptions["kernels"]) == ("cpu", "cuda")
    assert table(cpu)["activations"]["kind"] == "exact"
    assert table(cuda)["activations"]["kind"] == "estimated"
    assert table(cuda)["activations"]["per_device"] < table(cpu)["activations"]["per_device"] / 3
    assert any("with CUDA's about" in note for note in cpu.notes)


def test_devices_and_what_divides_each_part() -> None:
    split = Split(dp=8, tp=2, pp=4, zero=1)
    made = asked("llama-3-8b", train=True, context=4096, split=split)
    memory = training_memory(archlab.load("llama-3-8b"), Training(1, 4096), RECIPES["mixed-16"], split)
    found = table(made)
    for part, size in memory.parts.items():
        assert (found[part]["per_device"], found[part]["all_devices"]) == (size, memory.everywhere(part))
        assert found[part]["divided_by"]
    assert found["total"]["all_devices"] == 16 * sum(sum(stage.values()) for stage in memory.stages)
    assert f"on each of 64 devices, at most: pipeline stage {memory.fullest + 1} of 4" in made.verdict
    for said in ("dp", "tp", "pp", "zero", "schedule"):
        assert said in made.assumptions


def test_defaults_are_the_workloads_and_the_models_context() -> None:
    made = asked("gpt2", {"batch": 3, "dtype": "fp32", "recompute": "full"}, train=True)
    assert made.assumptions["recompute"] == "full"
    assert made.assumptions["optimizer"].startswith("fp32,")
    assert made.tables[0].about == "micro-batch 3 x 1,024 tokens, fp32"
    assert asked("gqa").tables[0].about == "batch 1 x 4,096 tokens, weights bf16, cache bf16"


TRAINED = [("bf16", name) for name in RECIPES if name != "fp32"] + [("fp32", "fp32")]
"""A dtype for each recipe."""


@given(specs(), st.none() | st.sampled_from(TRAINED), st.sampled_from([1, 2]), st.sampled_from(RECOMPUTE))
@settings(max_examples=60)
def test_explanations_come_to_their_figures(
    spec: DecoderSpec, trained: tuple[str, str] | None, dp: int, recompute: str
) -> None:
    dtype, optimizer = trained or ("int4", None)
    workload = replace(ROOT.workload, recompute=recompute if trained else "none")
    whole = any(layer.attention.shares_kv for layer in spec.layers)  # a stage keeps what its layers share
    split = Split(dp=dp, pp=1 if whole else spec.n_layers, zero=3 if trained else 0)
    asked_for = {"train": trained is not None, "optimizer": optimizer, "dtype": dtype, "context": CONTEXT}
    made = document(replace(ROOT, spec=spec, workload=workload), **asked_for, split=split)
    sizes = {name: row["per_device"] for name, row in table(made).items()}
    sizes |= {f"kept.{name}": row["bytes"] for name, row in table(made, "kept", "kept_for").items()} if trained else {}
    assert {why.figure for why in made.explanations} == sizes.keys() - {"kept.total"}
    for why in made.explanations:
        numbers, _, result = why.worked.rpartition(" = ")
        assert evaluate(numbers or result) == evaluate(result) == sizes[why.figure], why


def test_formulas_are_those_of_the_modules() -> None:
    """With a d_ff of 4 d_model, and heads that are d_model wide together, the 34 s b h of Korthikanti et al. 2022."""
    made = {why.figure: why.formula for why in asked("gpt2", train=True, device="cuda").explanations}
    each, heads = "batch context", "n_heads head_dim"
    assert made["logits"] == f"2 {each} vocab_size"
    assert made["kept.ffn"] == f"2 n_layers {each} d_ff"
    assert made["kept.dropout"] == f"2 n_layers {each} d_model + {each} d_model"
    norms = f"n_layers (4 {each} d_model + 16 {each})"
    assert made["kept.norms"] == f"{norms} + 2 {each} d_model + 8 {each}"
    qkv, result, log_sums = f"2 {each} ({heads} + 2 n_kv_heads head_dim)", f"2 {each} {heads}", f"4 {each} n_heads"
    assert made["kept.attention"] == f"n_layers ({qkv} + {result} + {log_sums})"
    assert made["kept.inputs"] == f"n_layers (4 {each} d_model + 2 {each} d_ff) + 2 {each} d_model"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "sgd"}, "optimizer: is for training; add --train"),
        ({"split": Split(zero=2)}, "zero: is for training; add --train"),
        ({"split": Split(tp=2, sequence=True)}, "sequence_parallel: is for training; add --train"),
        ({"train": True, "optimizer": "mixed16"}, "optimizer: no recipe 'mixed16'; did you mean mixed-16?"),
        ({"train": True, "optimizer": "mixed-16", "dtype": "fp32"}, "dtype: mixed-16 is not for fp32"),
        ({"train": True, "dtype": "int4"}, "dtype: 'int4' is no dtype"),
        ({"train": True, "kv_dtype": "bf16"}, "kv_dtype: is for inference"),
        ({"train": True, "weights_dtype": "int4"}, "weights_dtype: is for inference"),
        ({"dtype": "int5"}, "dtype: 'int5' is nothing that weights are kept in"),
        ({"attention": "flash"}, "attention: 'flash' is not one of its values; valid: sdpa, math"),
        ({"device": "tpu"}, "device: no device 'tpu'; did you mean cpu?; valid: cpu, cuda"),
    ],
)
def test_a_wrong_request_names_the_valid_ones(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        asked("gqa", **options)
    assert str(refused.value).startswith(words)


def test_what_is_beyond_the_model_is_refused_or_noted() -> None:
    with pytest.raises(RequestError, match="positions end at 1024 tokens; 1025 were asked for"):
        asked("gpt2", context=1025)
    assert "9,000 tokens are beyond the model's context of 8,192" in asked("llama-3-8b", context=9000).notes


def test_every_model_in_every_format() -> None:
    made = asked("gemma-2-2b", train=True, context=5000)
    assert made.charts[0].series.keys() == {"total", "activations"}
    rising = [y for _, y in made.charts[0].series["total"]]
    assert rising == sorted(rising)
    assert "activations" in csv_text(made)
    assert "| activations |" in md_text(made)
