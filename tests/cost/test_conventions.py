"""What a token costs by named conventions, against the numbers that their papers and the public cases give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from strategies import CONTEXT, specs
from worked import BARE

import archlab
from archlab.cost.conventions import CONVENTIONS, chinchilla, full, n_in_layers, n_without_lookup, scores
from archlab.cost.flops import decode_parts, flops, prefill_parts
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec


def gpt(n_layers: int, d_model: int, n_heads: int, vocab_size: int, **changed: Any) -> DecoderSpec:
    """A plain GPT, four times as wide in the middle."""
    model = {
        "n_layers": n_layers,
        "d_model": d_model,
        "vocab_size": vocab_size,
        "context": 2048,
        "norm": {"choice": "layernorm"},
        "position": {"choice": "learned"},
        "attention": {"choice": "mha", "n_heads": n_heads},
        "ffn": {"choice": "gelu"},
        "dropout": {"choice": "none"},
        "head": {"choice": "tied"},
        "block": {"choice": "pre_norm"},
    }
    return resolve(model | changed).spec


GPT_3 = gpt(96, 12288, 96, 50257)
"""Brown et al. 2020, table 2.1."""
PALM = gpt(
    118,
    18432,
    48,
    256_000,
    norm={"choice": "layernorm", "bias": False},
    position={"choice": "rope"},
    attention={"choice": "mqa", "n_heads": 48, "head_dim": 256},
    ffn={"choice": "swiglu", "rule": "4x"},
    block={"choice": "parallel"},
)
"""Chowdhery et al. 2022, table 1 and section 2."""
MT_NLG = gpt(105, 20480, 128, 51_200)
"""Smith et al. 2022, section 3.2."""


def per_trained_token(name: str, spec: DecoderSpec, tokens: int) -> float:
    return CONVENTIONS[name].cost(spec, tokens).trained_per_token


def test_h01_the_reference_table() -> None:
    """nanoGPT's transformer_sizing.ipynb: GPT-2 without biases, 1,024 tokens."""
    gpt2 = archlab.load("gpt2", *BARE)
    exact, palm = (CONVENTIONS[name].cost(gpt2, 1024) for name in ("full", "palm"))
    assert exact.forward == 291_648_307_200
    assert exact.trained == 874_944_921_600
    assert palm.trained == 879_894_724_608
    assert palm.trained / exact.trained == pytest.approx(1.0057, abs=5e-5)
    rate = 100 / 0.755 / 312e12  # 100 sequences in 0.755 s on an A100
    assert exact.trained * rate == pytest.approx(0.3714, abs=5e-5)
    assert CONVENTIONS["causal"].cost(gpt2, 1024).trained * rate == pytest.approx(0.347, abs=5e-4)


def test_h02_a_lookup_costs_nothing_and_a_head_the_same_tied_or_not() -> None:
    for head in ("tied", "untied"):
        parts = prefill_parts(archlab.load("gpt2", f"model/head={head}"), 1, "full")
        assert parts["embedding"] == 0
        assert parts["lm_head"] == 77_194_752


def test_h06_six_seven_or_twelve() -> None:
    """The factor of L H Q T in a trained token: the rest is the same in all three."""
    tokens, one = 100_000, 100_000 * 12 * 12 * 64
    linear = per_trained_token("full", archlab.load("gpt2"), 1) - 12 * 12 * 12 * 64
    model = archlab.load("gpt2", "model/position=rope")
    factors = {
        name: (per_trained_token(name, model, tokens) - linear) / one for name in ("full", "causal", "recomputed")
    }
    assert factors["full"] == 12
    assert factors["causal"] == pytest.approx(6, rel=2e-5)  # a token sees itself too: (T + 1) / 2 keys
    assert factors["recomputed"] == pytest.approx(7, rel=2e-5)
    said = {name: CONVENTIONS[name].says for name in factors}
    assert "factor is 6" in said["causal"]
    assert "factor is 7" in said["recomputed"]


@pytest.mark.parametrize(("tokens", "percent"), [(2048, 7.2), (8192, 28.6), (32768, 114), (131072, 458)])
def test_h07_six_n_fails_at_long_context(tokens: int, percent: float) -> None:
    spec = archlab.load("llama-3.1-8b")
    assert n_without_lookup(spec) == 8_030_261_248 - 128_256 * 4096
    share = 100 * 3 * scores(spec, tokens) / CONVENTIONS["6n_no_lookup"].cost(spec, tokens).trained
    assert float(f"{share:.3g}" if share > 100 else f"{share:.1f}") == percent


def test_a10_all_experts_or_those_that_a_token_is_sent_to() -> None:
    routed, every = (archlab.load("mixtral-8x7b", f"model.ffn.experts_per_token={count}") for count in (2, 8))
    assert archlab.parameters(routed).active - 2 * 32_000 * 4096 == 12_617_781_248
    trained = [full(model, 1024).trained for model in (routed, every)]
    assert [round(flop / 1e12, 1) for flop in trained] == [80.0, 287.8]
    assert 3.55 <= trained[1] / trained[0] <= 3.6


def test_palm_reports_its_own_utilisation() -> None:
    """Section 4.2: 540.35 B, 238.3K tokens/s, 6,144 chips of 275 TFLOP/s: 46.2 %, 45.7 without attention."""
    assert archlab.parameters(PALM).total == pytest.approx(540.35e9, abs=0.01e9)
    rate = 238.3e3 / (6144 * 275e12)
    assert round(100 * per_trained_token("palm", PALM, 2048) * rate, 1) == 46.2
    assert round(100 * per_trained_token("6n", PALM, 2048) * rate, 1) == 45.7
    assert PALM.head.tied


def test_palm_reports_that_of_megatron_turing() -> None:
    """Section 4.2 cuts 30.27 and 29.8 to 30.2 and 29.7 %: 65.43K tokens/s, 2,240 A100 of 312 TFLOP/s, N = 530e9."""
    rate = 65.43e3 / (2240 * 312e12)
    attention = 3 * scores(MT_NLG, 2048) / 2048
    assert attention == 12 * 105 * 128 * 160 * 2048
    assert int(1000 * (6 * 530e9 + attention) * rate) == 302
    assert int(1000 * 6 * 530e9 * rate) == 297


def test_gpt_3_by_six_n() -> None:
    """Brown et al. 2020, table D.1: 174,600 M parameters, 300 B tokens, 3.14e23 FLOPs."""
    assert round(archlab.parameters(GPT_3).total / 1e8) == 1746
    assert f"{per_trained_token('6n', GPT_3, 2048) * 300e9:.2e}" == "3.14e+23"


def test_kaplan_leaves_the_embeddings_out() -> None:
    """Kaplan et al. 2020, table 1: N = 2 d_model n_layer (2 d_attn + d_ff), 2 N + 2 n_layer n_ctx d_attn forward."""
    matrices = 2 * 12288 * 96 * (2 * 12288 + 4 * 12288)
    assert n_in_layers(GPT_3) == matrices == 12 * 96 * 12288**2
    cost = CONVENTIONS["kaplan"].cost(GPT_3, 2048)
    assert cost.forward == 2048 * (2 * matrices + 2 * 96 * 2048 * 12288)
    assert cost.trained == 3 * cost.forward
    head_free = CONVENTIONS["kaplan"].cost(gpt(96, 12288, 96, 11), 2048)
    assert head_free.forward == cost.forward


CHINCHILLA = [(10, 640, 10, 1.03), (20, 1024, 16, 1.10), (24, 1280, 10, 1.08)]
CHINCHILLA += [(26, 1792, 14, 1.04), (28, 2048, 16, 1.03), (40, 3584, 28, 0.99)]


@pytest.mark.parametrize(("n_layers", "d_model", "n_heads", "ratio"), CHINCHILLA)
def test_h15_chinchilla_counts_the_embedding(n_layers: int, d_model: int, n_heads: int, ratio: float) -> None:
    """Hoffmann et al. 2022, appendix F line by line; table A4, whose ratios come out without embedding and logits.

    That they do is what nanoGPT's scaling_laws.ipynb reports of its authors. N has the relative positions' keys and two
    biases a layer, which the paper's models have.
    """
    s, vocab = 2048, 32_000
    spec = gpt(n_layers, d_model, n_heads, vocab, position={"choice": "none"})
    lookup = 2 * s * vocab * d_model
    qkv, logits, softmax, reduction, linear = (
        2 * 3 * s * d_model * d_model,
        2 * s * s * d_model,
        3 * n_heads * s * s,
        2 * s * s * d_model,
        2 * s * d_model * d_model,
    )
    layer = qkv + logits + softmax + reduction + linear + 2 * s * (d_model * 4 * d_model + d_model * 4 * d_model)
    assert chinchilla(spec, s).forward == lookup + n_layers * layer + lookup
    assert chinchilla(spec, s).trained == 3 * chinchilla(spec, s).forward
    n = archlab.parameters(spec).total + n_layers * (d_model**2 + 2 * d_model)
    assert round((chinchilla(spec, s).trained - 3 * 2 * lookup) / (6 * n * s), 2) == ratio


@settings(max_examples=150)
@given(specs())
def test_conventions_of_any_composition(spec: DecoderSpec) -> None:
    """What must hold whatever is composed: parts add up, and each convention is built on what its name says."""
    for tokens in (1, 5, CONTEXT):
        costs = {name: convention.cost(spec, tokens) for name, convention in CONVENTIONS.items()}
        for name in ("full", "causal"):
            assert costs[name].forward == flops(spec, 1, tokens, 0, name).prefill
            assert sum(prefill_parts(spec, tokens, name).values()) == costs[name].forward
        assert costs["causal"].trained <= costs["recomputed"].trained <= 1.25 * costs["causal"].trained
        assert costs["6n"].trained == 6 * tokens * archlab.parameters(spec).active
        assert costs["palm"].trained - costs["6n"].trained == 3 * scores(spec, tokens)
        assert costs["chinchilla"].forward > costs["full"].forward
        assert all(cost.trained == 3 * cost.forward for name, cost in costs.items() if name != "recomputed")


@settings(max_examples=150)
@given(specs(task_heads=False))
def test_a_decoded_token_is_the_last_of_its_context(spec: DecoderSpec) -> None:
    for context in range(2, CONTEXT + 1):
        assert sum(decode_parts(spec, context).values()) == flops(spec, 1, context - 1, 1).decode
