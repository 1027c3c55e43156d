"""What a training pass keeps, against what torch's own saved-tensor hooks count on the CPU, to the byte."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import CONTEXT, specs

from archlab.components.attention.backend import BACKENDS
from archlab.components.tape import RECOMPUTE
from archlab.cost.activations import Training, kept
from archlab.decoder.build import build
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.inside.kept import kept_by_autograd

MODEL: dict[str, Any] = {
    "d_model": 48,
    "n_layers": 3,
    "vocab_size": 211,
    "context": 64,
    "norm": {"choice": "rmsnorm"},
    "position": {"choice": "rope"},
    "attention": {"choice": "gqa", "n_heads": 6, "n_kv_heads": 2},
    "ffn": {"choice": "swiglu"},
    "dropout": {"choice": "none"},
    "head": {"choice": "tied"},
    "block": {"choice": "pre_norm"},
}
GPT2 = {
    "norm": {"choice": "layernorm"},
    "position": {"choice": "learned"},
    "attention": {"choice": "mha", "n_heads": 6, "q_bias": True, "k_bias": True, "v_bias": True, "o_bias": True},
    "ffn": {"choice": "gelu_tanh", "bias": True},
    "dropout": {"choice": "classic"},
}
WINDOWS = [{"attention": {"window": 16}, "repeat": 2}, {}]
COMPOSITIONS: dict[str, dict[str, Any]] = {
    "gpt2-like": GPT2,
    "gpt2-like without dropout": GPT2 | {"dropout": {"choice": "none"}},
    "llama-like": {},
    "windows in turn": {"layers": WINDOWS},
    "sandwich with capped scores": {
        "block": {"choice": "sandwich"},
        "attention": {"choice": "gqa", "n_heads": 6, "n_kv_heads": 2, "logit_cap": 50.0},
        "head": {"choice": "tied", "logit_cap": 30.0},
        "ffn": {"choice": "geglu_tanh"},
        "layers": WINDOWS,
    },
    "parallel": {"block": {"choice": "parallel"}, "attention": {"choice": "mqa", "n_heads": 6}, "norm": GPT2["norm"]},
    "mixture": {"ffn": {"choice": "moe", "n_experts": 8, "n_shared": 1, "expert": {"choice": "swiglu", "d_ff": 32}}},
    "mla": {"attention": {"choice": "mla", "n_heads": 6, "q_rank": 24, "kv_rank": 16, "nope_dim": 8, "rope_dim": 4}},
    "alibi": {"position": {"choice": "alibi"}, "attention": {"choice": "mha", "n_heads": 6}},
    "sinks": {"attention": {"choice": "gqa", "n_heads": 6, "sinks": True}, "ffn": {"choice": "swiglu_clamped"}},
    "shared keys and values": {"layers": [{}, {"attention": {"shares_kv": True}}]},
    "read from sinks": {"layers": [{"attention": {"sinks": True}}, {"attention": {"shares_kv": True}}]},
    "shared in windows and out": {
        "n_layers": 6,
        "layers": [
            {"attention": {"window": 16, "qk_norm": "head"}},
            {"attention": {"q_bias": True}},
            {"attention": {"window": 16, "shares_kv": True}},
            {"attention": {"shares_kv": True, "n_heads": 4, "qkv_clip": 3.0, "head_dim": 8}},
        ],
    },
    "classes": {"head": {"choice": "classification"}},
}


def on_paper(spec: DecoderSpec, training: Training) -> int:
    """As counted: masks that layers are run again with are held by no saved tensor."""
    return sum(size for purpose, size in kept(spec, training).items() if purpose != "held")


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_what_is_kept_is_what_torch_keeps(name: str, backend: str, dtype: str) -> None:
    model = MODEL | COMPOSITIONS[name]
    spec = resolve(model | {"attention": {**model["attention"], "backend": backend}}).spec
    decoder = build(spec, dtype=dtype)
    for batch, decoder.recompute in itertools.product((1, 2), RECOMPUTE):
        training = Training(batch, 40, dtype, recompute=decoder.recompute)
        assert on_paper(spec, training) == kept_by_autograd(decoder, batch, 40)


@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize("options", [{}, {"window": 16}, {"chunk": 16}, {"logit_cap": 5.0}, {"sinks": True}])
def test_flex_attention_keeps_on_cuda_what_flash_keeps_without_a_mask(options: dict[str, Any], recompute: str) -> None:
    """And with sinks what they leave of each row, a number in float32, and of each head."""
    training, wide = Training(2, 40, "bf16", "cuda", recompute), MODEL | {"d_model": 96}
    attention, rows = MODEL["attention"] | {"backend": "flex"} | options, 3 * 2 * 40
    found, wanted = kept(resolve(wide | {"attention": attention}).spec, training), kept(resolve(wide).spec, training)
    more = {"attention": rows * 6 * 4, "inputs": rows * 96 * 2} if "sinks" in options and recompute == "none" else {}
    assert found == wanted | {purpose: wanted[purpose] + size for purpose, size in more.items()}


def test_a_cut_mask_is_held_where_flex_attention_is_not_what_runs() -> None:
    """Beside cosines and sines, float32 for each position and feature of a head."""
    attention = {"attention": MODEL["attention"] | {"backend": "flex", "window": 16}}
    training, wide = Training(2, 40, "bf16", "cuda", "full"), MODEL | {"d_model": 96}
    held = {width: 2 * 40 * width * 4 for width in (8, 16)}
    assert kept(resolve(wide | attention).spec, training)["held"] == held[16]
    narrow, dropped = MODEL | attention, wide | attention | {"dropout": GPT2["dropout"]}
    assert kept(resolve(narrow).spec, training)["held"] == held[8] + 40 * 40
    assert kept(resolve(dropped).spec, training)["held"] == held[16] + 40 * 40


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize(("dtype", "size"), [("bf16", 2), ("fp32", 4)])
@pytest.mark.parametrize("window", [None, 16])
def test_shared_heads_are_copied_where_cuda_has_no_kernel_for_them(
    kv_heads: int, dtype: str, size: int, window: int | None
) -> None:
    """Six heads of 16: turned queries and keys, values that are a view of all three, the result and its log-sums."""
    attention = {"choice": "gqa", "n_heads": 6, "n_kv_heads": kv_heads, "window": window}
    spec = resolve(MODEL | {"d_model": 96, "attention": attention}).spec
    held = kept(spec, Training(2, 40, dtype, "cuda"))
    apart, copied = 96 + 16 * kv_heads + (96 + 32 * kv_heads) + 96, 4 * 96
    numbers = copied if kv_heads < 6 and (window or dtype == "fp32") else apart
    assert "scores" not in held
    assert held["attention"] == 3 * 2 * 40 * (numbers * size + 6 * 4)


@pytest.mark.parametrize("kv_heads", [2, 6])
def test_a_sink_is_one_key_more_where_it_is_trained_on_cuda(kv_heads: int) -> None:
    """Six heads of 16 and 40 tokens: keys and values of 41, copied by head, and a mask by head of 40 x 41."""
    attention = {"choice": "gqa", "n_heads": 6, "n_kv_heads": kv_heads, "sinks": True}
    held = kept(resolve(MODEL | {"d_model": 96, "attention": attention}).spec, Training(2, 40, "bf16", "cuda"))
    assert "scores" not in held
    assert held["attention"] == 3 * 2 * (40 * (96 + 96) * 2 + 41 * (96 + 96) * 2 + 40 * 6 * 4)
    assert held["masks"] == 3 * 6 * 40 * 41 * 2


@pytest.mark.gpu
def test_what_flex_attention_keeps_on_cuda() -> None:
    options = MODEL["attention"] | {"backend": "flex", "window": 16}
    spec = resolve(MODEL | {"d_model": 192, "attention": options}).spec
    found = kept_by_autograd(build(spec, "cuda", "bf16"), 2, 256)
    assert on_paper(spec, Training(2, 256, "bf16", "cuda")) == pytest.approx(found, rel=0.05)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gpt2-like", "llama-like", "windows in turn", "sinks", "parallel", "mixture"])
def test_what_is_kept_on_cuda_is_what_torch_keeps_there(name: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    spec = resolve(MODEL | COMPOSITIONS[name]).spec
    found = kept_by_autograd(build(spec, "cuda", "bf16"), 2, 40)
    assert on_paper(spec, Training(2, 40, "bf16", "cuda")) == pytest.approx(found, rel=0.05)


@pytest.mark.parametrize("widths", [(4, 2, 6), (4, 2, 3), (4, 2, 8), (4, 2, 1)])
@pytest.mark.parametrize("position", ["none", "rope", "alibi", "t5"])
@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_latent_attention_of_any_widths_keeps_what_torch_keeps(
    widths: tuple[int, int, int], position: str, length: int, recompute: str
) -> None:
    """Features a head without rotation and with it, and of the values: as many, more, fewer or one."""
    names = dict(zip(("nope_dim", "rope_dim", "v_dim"), widths, strict=True))
    for heads, batch, dtype in ((1, 2, "fp32"), (3, 1, "bf16"), (2, 2, "fp32"), (2, 2, "fp64")):
        attention = {"choice": "mla", "n_heads": heads, "kv_rank": 4, **names}
        spec = resolve(MODEL | {"attention": attention, "position": {"choice": position}}).spec
        decoder = build(spec, dtype=dtype)
        decoder.recompute = recompute
        found = kept_by_autograd(decoder, batch, length)
        assert on_paper(spec, Training(batch, length, dtype, recompute=recompute)) == found


@given(
    spec=specs(),
    batch=st.integers(1, 4),
    length=st.integers(2, CONTEXT),
    dtype=st.sampled_from(["fp32", "bf16", "fp16", "fp64"]),
    recompute=st.sampled_from(RECOMPUTE),
)
@settings(max_examples=80)
def test_every_composition_keeps_what_torch_keeps(
    spec: DecoderSpec, batch: int, length: int, dtype: str, recompute: str
) -> None:
    decoder = build(spec, dtype=dtype)
    decoder.recompute = recompute
    assert on_paper(spec, Training(batch, length, dtype, recompute=recompute)) == kept_by_autograd(
        decoder, batch, length
    )
