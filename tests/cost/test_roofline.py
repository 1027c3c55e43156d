"""Bounds of passes: by hand from datasheets, by counting keys, and what may never happen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import CONTEXT, specs

import archlab
from archlab.cost.flops import flops
from archlab.cost.kv import kv_cache
from archlab.cost.roofline import Passes, Setting, bound, ridge
from archlab.cost.shards import valid_split
from archlab.errors import ConfigError
from archlab.frozen import replace
from archlab.hardware import Hardware, hardware
from archlab.workload import Workload

H100 = hardware("h100-sxm")


@pytest.fixture(scope="module")
def llama():
    return Passes(archlab.load("llama-3-8b"))


def test_decode_of_llama_3_8b_on_an_h100_by_hand(llama):
    """15.01 GB of weights without the input embedding and 0.27 GB of cache at 3.35 TB/s: 4.56 ms a token."""
    made = bound(llama.decode(1, 2048), H100)
    weights = 2 * (8_030_261_248 - 128_256 * 4096)
    assert made.work.bytes["weights"] == weights
    assert made.work.bytes["cache read"] == 2048 * 131_072
    assert made.seconds * 1e3 == pytest.approx(4.56, abs=5e-3)
    assert made.binds == "memory"
    assert made.tok_s == pytest.approx(1 / ((weights + 2049 * 131_072 + 8192) / 3.35e12))


def test_prefill_of_llama_3_8b_on_an_h100_by_hand(llama):
    """32.94 TFLOP at 989 TFLOP/s: 33.3 ms."""
    made = bound(llama.prefill(1, 2048, "full", "all"), H100)
    assert made.work.flops == pytest.approx(32.9381e12, rel=1e-6)
    assert made.seconds * 1e3 == pytest.approx(33.3, abs=0.02)
    assert made.binds == "compute"
    assert made.tok_s == pytest.approx(2048 / made.seconds)


def test_logits_of_the_last_position_are_one_row(llama):
    all_, last = llama.prefill(3, 100, "causal", "all").flops, llama.prefill(3, 100).flops
    assert all_ - last == 3 * 99 * 2 * 4096 * 128_256


def test_no_more_rows_of_the_embedding_are_read_than_there_are(llama):
    assert llama.prefill(64, 8192).bytes["embedding rows"] == 2 * 128_256 * 4096


def test_the_ridge_of_an_h100():
    assert ridge(H100, "bf16") == pytest.approx(989.4e12 / 3.35e12)
    assert ridge(hardware("m3-max"), "bf16") is None


@pytest.mark.parametrize("batch", [1, 8, 64, 512, 4096])
def test_the_ceiling_that_binds_is_the_side_of_the_ridge(llama, batch):
    made = bound(llama.decode(batch, 16), H100)
    assert (made.binds == "compute") == (made.work.intensity > ridge(H100, "bf16"))


def test_h06_twelve_or_six_a_trained_token_and_which():
    """k L h hd T a token: 12 with every pair, 6 with those that see each other."""
    spec = archlab.load("llama-3-8b")
    counts, tokens, width = archlab.parameters(spec), 2048, 32 * 128
    matrices = counts.non_embedding - counts.by_part["norms"]
    full = Passes(spec).train(1, tokens, "full").flops / tokens - 6 * matrices
    causal = Passes(spec).train(1, tokens, "causal").flops / tokens - 6 * matrices
    assert full == 12 * 32 * width * tokens
    assert causal == 6 * 32 * width * (tokens + 1)


@pytest.mark.parametrize(("context", "percent"), [(2048, 7.2), (8192, 28.6), (32768, 114), (131072, 458)])
def test_h07_attention_beside_6nd(context, percent):
    spec = archlab.load("llama-3.1-8b")
    matrices = archlab.parameters(spec).non_embedding - archlab.parameters(spec).by_part["norms"]
    trained = Passes(spec).train(1, context, "full").flops / context
    assert 100 * (trained / (6 * matrices) - 1) == pytest.approx(percent, rel=7e-3)


def test_g04_104_percent_of_another_devices_peak():
    reached = 1.04 * hardware("a100-sxm-80gb").peak("bf16")
    assert reached / H100.peak("bf16") == pytest.approx(0.328, abs=5e-4)


def test_g04_an_unknown_device_bounds_nothing(llama):
    made = bound(llama.decode(1, 2048), Hardware("unknown", memory=2**40))
    assert (made.ceilings, made.binds, made.seconds, made.tok_s) == ({}, None, None, None)


def test_a_dtype_without_a_peak_has_no_compute_ceiling():
    made = bound(Passes(archlab.load("llama-3-8b"), Setting("fp8", "fp8", "bf16")).prefill(1, 2048), hardware("a10"))
    assert made.compute is None
    assert made.binds == "memory"


@pytest.mark.parametrize("preset", ["gemma-3-1b", "mistral-7b-v0.1", "gpt-oss-20b", "gemma-2-2b", "deepseek-v3"])
@pytest.mark.parametrize("context", [1, 100, 512, 513, 5000])
def test_the_cache_is_read_as_far_as_the_new_token_sees(preset, context):
    spec = archlab.load(preset)
    expected = 0
    for layer in spec.layers:
        window = layer.attention.locality.window
        seen = sum(window is None or context - key < window for key in range(context))
        expected += 2 * seen * sum(tensor.elements_per_token for tensor in layer.attention.cached())
    work = Passes(spec).decode(3, context)
    assert work.bytes["cache read"] == 3 * expected
    assert work.bytes["cache written"] == 3 * kv_cache(spec, 1, 1).required


def test_shared_keys_and_values_are_written_once_and_read_by_each_layer(llama):
    """Cross-layer attention shrinks the cache and not what attention reads of it (Brandon et al. 2024)."""
    half = Passes(archlab.load("llama-3-8b", "model.layers=[{},{attention:{shares_kv:true}}]"))
    one, other = (passes.decode(4, 100).bytes for passes in (llama, half))
    assert other["cache read"] == one["cache read"] == 4 * 100 * 131_072
    assert other["cache written"] == one["cache written"] / 2 == 4 * 65_536
    assert half.prefill(4, 100).bytes["cache written"] == 4 * 100 * 65_536


def test_a_cache_in_fp8_is_half_and_int4_weights_are_their_own_dtype():
    spec = archlab.load("llama-3-8b")
    wide, narrow = Passes(spec).decode(1, 2048), Passes(spec, Setting("bf16", "int4", "fp8")).decode(1, 2048)
    assert narrow.bytes["cache read"] == wide.bytes["cache read"] / 2
    layers = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    saved = 2 * layers - layers * (4 + 20 / 128) / 8
    assert wide.bytes["weights"] - narrow.bytes["weights"] == pytest.approx(saved)


def test_training_moves_weights_gradients_and_two_moments():
    """A tied model of one dtype: weights read twice and once by the step, written; gradients and moments both ways."""
    spec = archlab.load("gpt2")
    work, size = Passes(spec).train(1, 1024), 2 * archlab.parameters(spec).total
    assert work.bytes["optimizer"] == 4 * size
    assert work.bytes["gradients"] == work.bytes["weights updated"] == 2 * size
    assert work.bytes["weights"] == 2 * (size - 2 * 1024 * 768)  # of the position table, rows alone
    assert work.flops == 3 * flops(spec, 1, 1024, 0, "causal").prefill


def test_devices_that_share_a_layer_divide_its_work_and_pass_its_sums(llama):
    four = Passes(llama.spec, Setting(tp=4))
    one, shared = bound(llama.prefill(1, 2048), H100), bound(four.prefill(1, 2048), H100)
    assert shared.compute == pytest.approx(one.compute / 4)
    assert one.link is None
    # two sums a layer of [2048, 4096] in bf16, each sent once, at 450 GB/s one way
    assert shared.link == pytest.approx(2 * 32 * 2048 * 4096 * 2 / 450e9)


def test_a_parallel_block_passes_one_sum_a_layer():
    spec = archlab.load("gpt-j-6b")
    assert Passes(spec, Setting(tp=2)).decode(1, 8).link == 28 * 4096 * 2


@pytest.mark.parametrize("tp", [3, 0, -1, 64])
def test_i10_devices_that_cannot_share_the_heads_are_refused_with_those_that_can(tp):
    with pytest.raises(ConfigError) as caught:
        Passes(archlab.load("llama-3-8b"), Setting(tp=tp))
    assert str(tp) in str(caught.value)
    if tp > 0:
        assert caught.value.valid == valid_split(archlab.load("llama-3-8b")) == [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize(
    ("dtype", "weights", "cache", "setting"),
    [
        (None, None, None, Setting("bf16", "bf16", "bf16")),
        (None, "int4", None, Setting("bf16", "int4", "bf16")),
        ("fp8", None, None, Setting("fp8", "fp8", "bf16")),
        ("tf32", None, None, Setting("tf32", "fp32", "fp32")),
        ("fp16", "int8", "int4", Setting("fp16", "int8", "int4")),
    ],
)
def test_what_is_not_said_of_a_setting(dtype, weights, cache, setting):
    assert Setting.given(Workload(), dtype, weights, cache) == setting


def test_training_keeps_no_weights_narrower_than_16_bits():
    assert Setting("bf16", "int4", "fp8").trained.weights == "bf16"
    assert Setting("fp8", "fp8", "fp8").trained.weights == "bf16"
    assert Setting("tf32", "fp32", "fp32").trained.weights == "fp32"


@pytest.mark.parametrize("dtype", ["int4", "bf61", "", "BF16"])
def test_arithmetic_that_is_none_is_refused(dtype):
    with pytest.raises(ConfigError, match="multiplied in"):
        Setting(dtype)


def without_sharing(spec):
    def own(layer):
        shares = layer.attention.shares_kv
        return replace(layer, attention=replace(layer.attention, shares_kv=False)) if shares else layer

    return replace(spec, layers=tuple(map(own, spec.layers)))


@given(specs(task_heads=False), st.integers(1, 4), st.integers(1, CONTEXT - 1))
def test_whatever_is_composed_its_bounds_hold_together(spec, batch, context):
    passes = Passes(spec)
    decode, prefill, full = (
        passes.decode(batch, context),
        passes.prefill(batch, context),
        passes.prefill(batch, context, "full", "all"),
    )
    assert decode.flops == flops(spec, batch, context, 1).decode
    assert full.flops == flops(spec, batch, context, 0, "full").prefill
    assert prefill.flops <= full.flops
    kept = kv_cache(without_sharing(spec), batch, context + 1).required  # what is shared is read by each layer
    assert decode.bytes["cache read"] + decode.bytes["cache written"] <= kept + batch * kv_cache(spec, 1, 1).required
    assert prefill.bytes["cache written"] == kv_cache(spec, batch, context).required
    for work in (decode, prefill, full, passes.train(batch, context)):
        made = bound(work, H100)
        assert made.seconds == max(made.compute, made.memory)
        assert made.tok_s * made.seconds == pytest.approx(work.tokens)
        assert made.binds == ("compute" if work.intensity > ridge(H100, "bf16") else "memory")
