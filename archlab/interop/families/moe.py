"""Mixtures of experts: Mixtral, Qwen 2 and 3 MoE, gpt-oss."""

from __future__ import annotations

from typing import Any

from archlab.errors import ConfigError
from archlab.interop.families.llama import qwen_window
from archlab.interop.family import Family
from archlab.interop.layout import experts, llama_layout, moe_layout, stacked
from archlab.interop.parts import (
    MAX_EXPERTS,
    Block,
    Model,
    attention_dropout,
    biases,
    ffn,
    gate,
    head,
    heads,
    layered,
    plain_ffn,
    pre_norm,
    rmsnorm,
    sizes,
)
from archlab.interop.reader import Fields
from archlab.interop.rope import layer_types, one_window, rope, scaling_of, windows


def mixture(f: Fields, expert: Block, n_experts: int, per_token: int, **more: Any) -> Block:
    """A mixture of equal experts; options that are off are left out."""
    return {
        "choice": "moe",
        "n_experts": f.whole("num_experts", n_experts, le=MAX_EXPERTS),
        "experts_per_token": f.whole("num_experts_per_tok", per_token, le=MAX_EXPERTS),
        "expert": expert,
        **{name: value for name, value in more.items() if value or name == "normalise"},
    }


def mixtral(f: Fields) -> Model:
    size = sizes(f, d_model=4096, n_layers=32, vocab_size=32000, context=4096 * 32)
    model = {
        **size,
        "norm": rmsnorm(f, 1e-5),
        "position": rope(f, size, 1e6),
        "attention": heads(f, size, 32, 8),
        "ffn": mixture(f, ffn(f, 14336), 8, 2, normalise=True),
        "dropout": attention_dropout(f),
        "head": head(f, tied=False),
        "block": pre_norm(),
    }
    return layered(model, one_window(f, size))


def qwen2_moe(f: Fields) -> Model:
    size = sizes(f, d_model=2048, n_layers=24, vocab_size=151936, context=32768)
    shared = f.whole("shared_expert_intermediate_size", 5632)
    expert = plain_ffn(gate(f), f.whole("moe_intermediate_size", 1408))
    model = {
        **_qwen(f, size),
        "attention": {**heads(f, size, 16, 16), **biases(f.flag("qkv_bias", True), False)},
        "ffn": mixture(
            f, expert, 60, 4, normalise=f.flag("norm_topk_prob", False), shared_d_ff=shared, shared_gate=True
        ),
    }
    window = qwen_window(f)
    until = f.whole("max_window_layers", 28, ge=0)
    used = f.flag("use_sliding_window", False)
    slides = [used and i % 2 == 0 and i < until for i in range(size["n_layers"])]
    types = layer_types(f, size, ["sliding_attention" if s else "full_attention" for s in slides])
    return _sparse(f, model, windows(types, window), 5632)


def qwen3_moe(f: Fields) -> Model:
    size = sizes(f, d_model=2048, n_layers=24, vocab_size=151936, context=32768)
    bias = f.flag("attention_bias", False)
    expert = plain_ffn(gate(f), f.whole("moe_intermediate_size", 768))
    model = {
        **_qwen(f, size),
        "attention": {**heads(f, size, 32, 4), **biases(bias, bias), "qk_norm": "head"},
        "ffn": mixture(f, expert, 128, 8, normalise=f.flag("norm_topk_prob", False)),
    }
    window = qwen_window(f)
    types = ["full_attention" if window is None else "sliding_attention"] * size["n_layers"]
    if layer_types(f, size, types) != types:
        raise ConfigError("layer_types", "I do not model layers that differ in this family")
    return _sparse(f, model, windows(types, window), 6144)


def _qwen(f: Fields, size: Model) -> Model:
    return {
        **size,
        "norm": rmsnorm(f, 1e-6),
        "position": rope(f, size),
        "dropout": attention_dropout(f),
        "head": head(f, tied=False),
        "block": pre_norm(),
    }


def _sparse(f: Fields, model: Model, changes: list[dict[str, Block]], d_ff: int) -> Model:
    """Layers in mlp_only_layers, and those that decoder_sparse_step leaves out, have a dense FFN."""
    dense = ffn(f, d_ff)
    only = set(f.items("mlp_only_layers", int) or ())
    step = f.whole("decoder_sparse_step", 1)
    for i, change in enumerate(changes):
        if i in only or (i + 1) % step:
            change["ffn"] = dense
    return layered(model, changes)


def gpt_oss(f: Fields) -> Model:
    size = sizes(f, d_model=2880, n_layers=36, vocab_size=201088, context=131072)
    bias = f.flag("attention_bias", True)
    clamp = {"limit": f.positive("swiglu_limit", 7.0), "alpha": f.positive("swiglu_alpha", 1.702)}
    f.only("hidden_act", "silu")
    expert = {"choice": "swiglu_clamped", "d_ff": f.whole("intermediate_size", 2880), "bias": True, **clamp}
    model = {
        **size,
        "norm": rmsnorm(f, 1e-5),
        "position": _gpt_oss_rope(f, size),
        "attention": {**heads(f, size, 64, 8, 64), **biases(bias, bias), "sinks": True},
        "ffn": mixture(f, expert, 128, 4, normalise=True, router_bias=True),
        "dropout": attention_dropout(f),
        "head": head(f, tied=False),
        "block": pre_norm(),
    }
    default = ["full_attention" if i % 2 else "sliding_attention" for i in range(size["n_layers"])]
    types = layer_types(f, size, default)
    return layered(model, windows(types, f.whole("sliding_window", 128, null=None)))


def _gpt_oss_rope(f: Fields, size: Model) -> Block:
    """YaRN by default."""
    if scaling_of(f).raw or f.has("rope_parameters"):
        return rope(f, size, 150000.0)
    yarn = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}
    return rope(f.instead(rope_parameters=yarn), size, 150000.0)


MIXTRAL_EXPERTS = experts("block_sparse_moe", "gate", "w1", "w3", "w2")
SHARED = {
    "mlp.shared_expert.gate_proj": "ffn.shared.gate",
    "mlp.shared_expert.up_proj": "ffn.shared.up",
    "mlp.shared_expert.down_proj": "ffn.shared.down",
    "mlp.shared_expert_gate": "ffn.shared_gate",
}
GPT_OSS = llama_layout(
    {
        "self_attn.sinks": "attention.sinks",
        "mlp.router": "ffn.router",
        "mlp.experts.gate_up_proj": stacked("ffn.experts.gate", "ffn.experts.up", transposed=True, interleaved=True),
        "mlp.experts.down_proj": stacked("ffn.experts.down", transposed=True),
    }
)
FAMILIES = (
    Family(
        "mixtral",
        "MixtralForCausalLM",
        mixtral,
        llama_layout(MIXTRAL_EXPERTS, also=moe_layout().also),
        spelling={"num_experts": "num_local_experts"},
    ),
    Family("qwen2_moe", "Qwen2MoeForCausalLM", qwen2_moe, moe_layout(SHARED)),
    Family(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        qwen3_moe,
        moe_layout(),
        {"max_window_layers": "all layers have the same window in this family"},
    ),
    Family(
        "gpt_oss",
        "GptOssForCausalLM",
        gpt_oss,
        GPT_OSS,
        {"initial_context_length": "what rope_scaling says too"},
        {"num_experts": "num_local_experts"},
    ),
)
