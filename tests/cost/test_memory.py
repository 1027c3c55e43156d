"""Memory part by part: by hand, by published numbers, and over many devices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import CONTEXT, specs

import archlab
from archlab.components.attention.base import Attention
from archlab.components.ffn.spec import FFN
from archlab.components.position.module import Table
from archlab.components.tape import RECOMPUTE
from archlab.cost.activations import Training, kept, korthikanti, stage_kept
from archlab.cost.kv import kv_cache
from archlab.cost.memory import Inference, Memory, inference_memory, table_elements, training_memory
from archlab.cost.optimizers import RECIPES
from archlab.cost.parallel import Split
from archlab.cost.storage import weight_bytes, weight_storage
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError
from archlab.frozen import replace, values_of

GB = 10**9


def states(spec: DecoderSpec, recipe: str, split: Split | None = None, dtype: str = "bf16") -> dict[str, int]:
    parts = training_memory(spec, Training(1, 8, dtype), RECIPES[recipe], split or Split()).parts
    return {name: parts.get(name, 0) for name in ("weights", "gradients", "optimizer")}


@pytest.mark.parametrize(
    ("recipe", "dtype", "each", "gb"),
    [
        ("fp32-12", "bf16", (4, 0, 8), 80.9),
        ("fp32", "fp32", (4, 4, 8), 107.8),
        ("mixed-16", "bf16", (2, 2, 12), 107.8),
        ("mixed-18", "bf16", (2, 4, 12), 121.3),
        ("mixed-20", "bf16", (2, 2, 16), 134.8),
    ],
)
def test_h08_12_16_18_or_20_bytes_a_parameter(recipe: str, dtype: str, each: tuple[int, ...], gb: float) -> None:
    found = states(archlab.load("llama-2-7b"), recipe, dtype=dtype)
    assert list(found.values()) == [6_738_415_616 * size for size in each]
    assert round(sum(found.values()) / GB, 1) == gb


def test_h12_the_logits_tensor() -> None:
    llama = archlab.load("llama-3-8b")
    parts = training_memory(llama, Training(1, 4096), RECIPES["mixed-16"]).parts
    assert round(parts["logits"] / 2**30, 3) == 0.979
    assert parts["loss"] == 3 * 2 * parts["logits"]  # float32: the log-softmax, its gradient, the logits' gradient
    small = archlab.load("llama-2-7b", "model.n_layers=1", "model.context=512")
    assert training_memory(small, Training(2, 512, "fp32"), RECIPES["fp32"]).parts["logits"] == 125 * 2**20


def test_i05_gb_or_gib() -> None:
    weights = inference_memory(archlab.load("llama-3-8b"), Inference(1, 16, 16)).parts["weights"]
    assert weights == 8_030_261_248 * 2
    assert (round(weights / GB, 2), round(weights / 2**30, 2)) == (16.06, 14.96)


def test_j01_memory_holds_all_experts() -> None:
    mixtral = archlab.load("mixtral-8x7b")
    counts = archlab.parameters(mixtral)
    weights = inference_memory(mixtral, Inference(1, 16, 16)).parts["weights"]
    assert weights == 2 * counts.total == 2 * 46_702_792_704
    assert counts.active == 12_879_925_248
    assert states(mixtral, "mixed-16")["optimizer"] == 12 * counts.total


def gpt_layer(training: Training, split: Split | None = None, h: int = 12288, a: int = 96) -> int:
    """What one device keeps of one layer of GPT-3's kind: a model of two layers less one of one."""
    sizes = ("model.vocab_size=96", f"model.d_model={h}", f"model.attention.n_heads={a}", "model.context=2048")
    stages = [(split or Split()).stages(archlab.load("gpt2", *sizes, f"model.n_layers={n}"))[0] for n in (1, 2)]
    one, two = (sum(stage_kept(stage, training, (split or Split()).ways).values()) for stage in stages)
    return two - one


def test_h11_flash_drops_what_selective_recompute_would_save() -> None:
    """34 s b h and 5 a s^2 b: Korthikanti et al. 2022, equation 2. Here 5 a s / h = 80."""
    s, b, h, a = 2048, 1, 12288, 96
    assert korthikanti(s, b, h, a) / GB == pytest.approx(2.87, abs=0.005)
    assert korthikanti(s, b, h, a, recompute="selective") / GB == pytest.approx(0.86, abs=0.005)
    log_sums, statistics = 4 * a * s * b, 2 * 2 * 4 * s * b
    flash = {what: gpt_layer(Training(b, s, "bf16", "cuda", what)) for what in RECOMPUTE}
    assert flash["none"] == 34 * s * b * h + log_sums + statistics
    assert flash["none"] - flash["selective"] == log_sums
    assert flash["full"] == korthikanti(s, b, h, a, recompute="full") == 2 * s * b * h


@pytest.mark.parametrize("tp", [2, 8])
def test_tensor_parallelism_divides_as_published(tp: int) -> None:
    """s b h (10 + 24 / t), and with sequence parallelism 34 s b h / t: Korthikanti et al. 2022, equations 2 and 4."""
    s, b, h, a = 2048, 1, 12288, 96
    log_sums, statistics = 4 * a * s * b, 2 * 2 * 4 * s * b
    training = Training(b, s, "bf16", "cuda")
    assert gpt_layer(training, Split(tp=tp)) == s * b * h * 10 + (24 * s * b * h + log_sums) // tp + statistics
    together = (34 * s * b * h + log_sums + statistics) // tp
    assert gpt_layer(training, Split(tp=tp, sequence=True)) == together
    for sequence in (False, True):
        published = korthikanti(s, b, h, a, tp=tp, sequence=sequence, recompute="selective")
        found = gpt_layer(Training(b, s, "bf16", "cuda", "selective"), Split(tp=tp, sequence=sequence))
        assert found - published == (statistics // tp if sequence else statistics)


def test_the_parts_of_training_by_hand() -> None:
    spec = archlab.load("gqa", "model.n_layers=2")
    parts = training_memory(spec, Training(2, 100, "bf16"), RECIPES["adamw"]).parts
    count, rows = archlab.parameters(spec).total, 200
    assert list(parts) == ["weights", "gradients", "optimizer", "tables", "activations", "logits", "loss"]
    assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (2 * count, 2 * count, 4 * count)
    assert parts["tables"] == 4096 * 64 * 4  # cosines and sines of 32 pairs
    assert (parts["logits"], parts["loss"]) == (rows * 32_000 * 2, 3 * rows * 32_000 * 4)
    everything = kept(spec, Training(2, 100, "bf16"))
    assert parts["activations"] == sum(everything.values()) - everything["loss"]


@pytest.mark.parametrize("preset", ["phi-2", "gpt-j-6b", "minimind", "gemma-3-1b", "mpt-7b", "transformer-2017"])
def test_tables_are_those_of_the_built_module(preset: str) -> None:
    """Where a share of the head is turned, cosines and sines are of that share: 0.4 of 80 features in phi-2."""
    spec = archlab.load(preset)
    built = [part for part in archlab.build(spec, device="meta").modules() if isinstance(part, Table)]
    assert table_elements(spec, 1) == sum(table.numel() for part in built for table in part.tables)
    if preset == "phi-2":
        assert table_elements(spec, 1) == 2048 * 32


@pytest.mark.parametrize("weights", ["bf16", "fp8", "int4"])
def test_the_parts_of_inference_by_hand(weights: str) -> None:
    spec = archlab.load("gemma-3-1b")
    parts = inference_memory(spec, Inference(3, 700, 1000, weights, "int8")).parts
    assert list(parts) == ["weights", "cache", "tables", "logits", "working"]
    assert parts["weights"] == weight_bytes(spec, weight_storage(weights))
    assert parts["cache"] == kv_cache(spec, 3, 1000, "int8").required
    assert parts["logits"] == 3 * 262_144 * (2 + 4)


@pytest.mark.parametrize("kv_heads", [2, 8])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_prompt_with_sinks_holds_no_scores(device: str, kv_heads: int) -> None:
    """Beside what the kernel gives: its values before and after they are rounded, what is left of each, and copies."""
    heads = ["model.attention.n_heads=8", f"model.attention.n_kv_heads={kv_heads}", "model.attention.head_dim=64"]
    shape = ["model.d_model=512", "model.ffn.d_ff=8", *heads]
    plain, sunk = (archlab.load("gqa", *shape, f"model.attention.sinks={sinks}") for sinks in ("false", "true"))
    more = 8 * (64 * 4 + 64 * 2 + 4) + (8 * (64 + 64) * 2 if kv_heads < 8 else 0)
    for tokens in (100, 3000):
        work = Inference(2, tokens, tokens, device=device)
        found = [inference_memory(spec, work).parts["working"] for spec in (plain, sunk)]
        assert found[1] - found[0] == 2 * tokens * more


def test_recipes_by_what_a_parameter_is() -> None:
    spec = archlab.load("gpt2")
    counts = archlab.parameters(spec).by_part
    tables = counts["embedding"] + counts["positions"]
    matrices = 12 * 12 * 768**2
    vectors = archlab.parameters(spec).total - tables - matrices
    assert states(spec, "muon")["optimizer"] == 8 * matrices + 12 * (tables + vectors)
    quantised = matrices + tables
    assert states(spec, "adam-8bit")["optimizer"] == 2 * quantised + 8 * quantised // 256 + 8 * vectors
    assert states(spec, "sgd")["optimizer"] == 0
    assert states(spec, "sgd-momentum")["optimizer"] == 2 * archlab.parameters(spec).total


@pytest.mark.parametrize("recipe", RECIPES)
def test_zero_shards_one_more_part_at_each_stage(recipe: str) -> None:
    spec, dtype = archlab.load("minimind"), "fp32" if recipe == "fp32" else "bf16"
    whole = states(spec, recipe, Split(dp=4), dtype)
    for zero in range(4):
        found = states(spec, recipe, Split(dp=4, zero=zero), dtype)
        for name, from_ in (("optimizer", 1), ("gradients", 2), ("weights", 3)):
            share = whole[name] / 4 if zero >= from_ else whole[name]
            assert share <= found[name] <= share + 16 * 4


def test_experts_are_shared_and_zero_reaches_as_far() -> None:
    spec = archlab.load("mixtral-8x7b")
    experts = 32 * 8 * 3 * 4096 * 14336
    dense = archlab.parameters(spec).total - experts
    assert states(spec, "mixed-16", Split(dp=8, ep=4))["weights"] == 2 * (dense + experts // 4)
    assert states(spec, "mixed-16", Split(dp=8, ep=4, zero=3))["weights"] == 2 * (dense + experts) // 8


def test_pipeline_stages_hold_every_parameter_once() -> None:
    spec = archlab.load("llama-3-8b")
    memory = training_memory(spec, Training(1, 64), RECIPES["mixed-16"], Split(pp=4, dp=2))
    assert memory.everywhere("weights") == 2 * 2 * archlab.parameters(spec).total
    assert len(memory.stages) == 4
    layers = [stage["activations"] for stage in memory.stages]
    assert layers[1] / layers[2] == 3 / 2  # micro-batches in flight
    assert [stage for stage in memory.stages if "logits" in stage] == [memory.stages[3]]


def test_a_tied_head_on_a_stage_of_its_own_is_a_copy() -> None:
    spec = archlab.load("gpt2")
    embedding = 50257 * 768
    memory = training_memory(spec, Training(1, 64), RECIPES["mixed-16"], Split(pp=2))
    assert memory.everywhere("weights") == 2 * (archlab.parameters(spec).total + embedding)


@pytest.mark.parametrize(("axis", "method", "base"), [("ffn", "on_tape", FFN), ("attention", "attended", Attention)])
def test_a_choice_that_does_not_say_what_it_keeps_is_named(axis: str, method: str, base: type) -> None:
    """One message, for whoever asks: which choice, which method, which class."""
    spec = archlab.load("gqa")
    part = getattr(spec.layers[0], axis)
    silent = type("Silent", (type(part),), {method: getattr(base, method)})
    layer = replace(spec.layers[0], **{axis: silent(**values_of(part))})
    spec = replace(spec, layers=(layer,) * 2)
    for ask in (
        lambda: training_memory(spec, Training(1, 8), RECIPES["mixed-16"]),
        lambda: inference_memory(spec, Inference(1, 8, 8)),
    ):
        with pytest.raises(ConfigError, match=rf"model/{axis}: {part.choice} does not say its {method}, .*Silent"):
            ask()


def test_kv_heads_are_copied_where_devices_outnumber_them() -> None:
    spec = archlab.load("llama-3.1-70b")
    serving = Inference(1, 16, 1024)
    one, many = (inference_memory(spec, serving, Split(tp=tp)).parts["cache"] for tp in (1, 32))
    assert many == one // 8
    assert many == kv_cache(spec, 1, 1024, tp=32).required


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ({"tp": 3}, "tp: 3 does not divide n_heads = 32; valid: 1, 2, 4, 8, 16, 32"),
        ({"pp": 5}, "pp: 5 does not divide n_layers = 32; valid: 1, 2, 4, 8, 16, 32"),
        ({"ep": 2}, "ep: llama-3-8b has no routed experts to share; valid: 1"),
        ({"tp": 2, "sequence": True}, "tp: 2 does not divide context = 7; valid: 1"),
        ({"dp": 0}, "dp: 0 is not a whole number of 1 or more"),
        ({"zero": 4}, "zero: there is no ZeRO stage 4; valid: 0, 1, 2, 3"),
    ],
)
def test_a_degree_that_cannot_split_is_refused(split: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        training_memory(archlab.load("llama-3-8b"), Training(1, 7), RECIPES["adamw"], Split(**split))
    assert str(refused.value) == words


def test_experts_need_ranks_to_lie_on() -> None:
    with pytest.raises(ConfigError, match=r"ep: 4 does not divide dp = 6; valid: 1, 2"):
        training_memory(archlab.load("mixtral-8x7b"), Training(1, 8), RECIPES["adamw"], Split(dp=6, ep=4))


@given(specs(), st.integers(1, 3), st.integers(1, CONTEXT), st.sampled_from(RECOMPUTE))
@settings(max_examples=60)
def test_more_work_needs_more_and_recomputing_less(spec: DecoderSpec, batch: int, length: int, recompute: str) -> None:
    def needs(batch: int, length: int, recompute: str, spec: DecoderSpec = spec) -> Memory:
        return training_memory(spec, Training(batch, length, "bf16", "cpu", recompute), RECIPES["adamw"])

    assert needs(batch + 1, length, recompute).total > needs(batch, length, recompute).total
    explicit = spec.on_backend("math")  # a fused kernel keeps no scores, and less than to work them out again may take
    kept = {what: needs(batch, length, what, explicit).parts["activations"] for what in ("none", "selective")}
    assert kept["none"] >= kept["selective"]
    serving = [inference_memory(spec, Inference(n, length, length)).total for n in (batch, batch + 1)]
    assert serving[0] < serving[1]
