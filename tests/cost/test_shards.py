"""Weights on one of several devices, and those that a pass reads: against counts by hand and by enumeration."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import specs

import archlab
from archlab.cost.fit import Fit, Serving
from archlab.cost.memory import Inference, inference_memory
from archlab.cost.parallel import Split
from archlab.cost.roofline import Passes, Setting
from archlab.cost.shards import Experts, valid_split, weights
from archlab.cost.storage import WEIGHT_STORAGE, weight_bytes, weight_storage
from archlab.errors import ConfigError
from archlab.hardware import Hardware

BF16 = weight_storage("bf16")


@given(specs(), st.sampled_from(sorted(WEIGHT_STORAGE)))
def test_one_device_holds_all_weights(spec, name):
    assert weights(spec, WEIGHT_STORAGE[name]).total == weight_bytes(spec, WEIGHT_STORAGE[name])


@pytest.mark.parametrize("name", WEIGHT_STORAGE)
@pytest.mark.parametrize("preset", ["gpt2", "gemma-2-2b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b", "falcon-7b"])
def test_one_device_holds_all_weights_of_a_preset(preset, name):
    spec = archlab.load(preset)
    assert weights(spec, WEIGHT_STORAGE[name]).total == weight_bytes(spec, WEIGHT_STORAGE[name])


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_a_llama_is_dealt_out_but_for_its_norms(tp):
    norms = 65 * 4096
    assert weights(archlab.load("llama-3-8b"), BF16, tp).total == 2 * ((8_030_261_248 - norms) // tp + norms)


def test_kv_heads_that_are_fewer_than_the_devices_are_copied():
    """Llama-3-8B has 8 of them; on 16 devices each holds one, as on 8."""
    norms, kv = 65 * 4096, 32 * 2 * 4096 * 1024
    dealt = (8_030_261_248 - norms - kv) // 16 + kv // 8 + norms
    assert weights(archlab.load("llama-3-8b"), BF16, 16).total == 2 * dealt


def test_what_no_head_owns_is_on_every_device():
    """DeepSeek-V3: the projections down to the latents, the routers, the norms."""
    copied = 61 * (7168 * 1536 + 7168 * 576) + 58 * 7168 * 256 + 61 * (2 * 7168 + 1536 + 512) + 7168
    total = 671_026_404_352
    assert weights(archlab.load("deepseek-v3"), BF16, 8).total == 2 * ((total - copied) // 8 + copied)


@given(specs(), st.sampled_from(sorted(WEIGHT_STORAGE)), st.data())
def test_memory_roofline_and_fit_hold_the_same_on_a_device(spec, name, data):
    """The bytes of a device's weights are one fact, wherever they are asked for; so is which split is possible."""
    hold_the_same(spec, name, data.draw(st.sampled_from(valid_split(spec))))


@pytest.mark.parametrize("name", ["bf16", "int8", "int4"])
@pytest.mark.parametrize("preset", ["falcon-7b", "olmo-2-7b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b"])
def test_memory_roofline_and_fit_hold_the_same_of_a_preset(preset, name):
    spec = archlab.load(preset)
    for tp in valid_split(spec):
        hold_the_same(spec, name, tp)


def hold_the_same(spec, name, tp):
    memory = inference_memory(spec, Inference(1, 1, 1, name), Split(tp=tp))
    total = weights(spec, WEIGHT_STORAGE[name], tp).total
    setting = Setting(weights=name, tp=tp)
    assert memory.parts["weights"] == total == Passes(spec, setting).weights.total
    assert Fit(spec, Serving(setting), Hardware("card", memory=1)).need(1, 1).weights == total


@given(specs(), st.integers(2, 8))
def test_memory_roofline_and_fit_refuse_the_same_splits(spec, tp):
    """Heads and FFN widths; the cache alone hangs on heads only."""
    asked = (
        lambda: Split(tp=tp).check(spec, 1),
        lambda: Passes(spec, Setting(tp=tp)),
        lambda: Fit(spec, Serving(Setting(tp=tp)), Hardware("card", memory=1)),
    )
    for ask in asked:
        if tp in valid_split(spec):
            ask()
        else:
            with pytest.raises(ConfigError) as caught:
                ask()
            assert caught.value.valid == valid_split(spec)


def test_no_split_is_offered_that_an_ffn_cannot_take():
    """Qwen2.5-7B: 28 devices would share its 28 heads, but 18,944 = 2^9 x 37."""
    spec = archlab.load("qwen2.5-7b")
    assert valid_split(spec) == [1, 2, 4]
    with pytest.raises(ConfigError, match="28 does not divide d_ff = 18,944; valid: 1, 2, 4"):
        Passes(spec, Setting(tp=28))


def test_scales_go_with_the_rows_that_a_device_has():
    """The down projection in int8: every device has all of its rows, each with a scale, of fewer inputs."""
    spec = archlab.load("llama-3-8b")
    whole = weights(spec, weight_storage("int8"), 8).total - weights(spec, weight_storage("fp8"), 8).total
    ups = 32 * 2 * (2 * 14_336 + (32 + 2 * 8) * 128) // 8
    assert whole == ups + 32 * 2 * (4096 + 4096)  # o and down


@given(specs(), st.data())
def test_devices_together_hold_every_weight(spec, data):
    tp = data.draw(st.sampled_from(valid_split(spec)))
    one, all_ = weights(spec, BF16, tp).total, weights(spec, BF16).total
    assert all_ <= tp * one
    assert one <= all_


@pytest.mark.parametrize(("n", "k", "tokens"), [(4, 1, 3), (4, 2, 2), (5, 2, 3), (3, 3, 2)])
def test_experts_that_some_token_is_sent_to_by_enumeration(n, k, tokens):
    choices = list(itertools.combinations(range(n), k))
    outcomes = list(itertools.product(choices, repeat=tokens))
    mean = sum(len(set(itertools.chain(*outcome))) for outcome in outcomes) / len(outcomes)
    assert Experts(1, n, k).touched(tokens) == pytest.approx(mean)


@pytest.mark.parametrize("preset", ["mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "gpt-oss-20b", "olmoe-1b-7b"])
def test_j01_one_token_reads_the_active_parameters_and_memory_holds_them_all(preset):
    spec = archlab.load(preset)
    held, counts = weights(spec, BF16), archlab.parameters(spec)
    read = held.whole + held.read_experts(1)
    assert read == pytest.approx(2 * (counts.active - counts.by_part["embedding"]), rel=1e-12)
    assert held.total == 2 * counts.total
    assert held.read_experts(10**6) == pytest.approx(held.total - held.whole - held.tables)


@given(specs(), st.integers(0, 200))
def test_more_tokens_read_no_fewer_experts(spec, tokens):
    held = weights(spec, BF16)
    assert held.read_experts(tokens) <= held.read_experts(tokens + 1) * (1 + 1e-12)
    assert held.whole + held.read_experts(tokens) <= held.total * (1 + 1e-12)
