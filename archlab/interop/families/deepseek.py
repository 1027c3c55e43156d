"""DeepSeek: the first MoE, and V2 and V3 with latent attention."""

from __future__ import annotations

from typing import Any

from archlab.interop.families.moe import mixture
from archlab.interop.family import Family
from archlab.interop.layout import TABLES, moe_layout
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
from archlab.interop.reader import REQUIRED, Fields
from archlab.interop.rope import rope, yarn_score_scale

LATENT_EPS = 1e-6
"""The eps of the norms over the latents, whatever rms_norm_eps says."""


def deepseek(f: Fields) -> Model:
    size = sizes(f, d_model=4096, n_layers=30, vocab_size=102400, context=2048)
    bias = f.flag("attention_bias", False)
    f.only("scoring_func", "softmax")
    model = {
        **_around(f, size),
        "position": rope(f, size),
        "attention": {**heads(f, size, 32, 32), **biases(bias, bias)},
    }
    dense = ffn(f, 11008)
    step = f.whole("moe_layer_freq", 1)
    normalise = f.flag("norm_topk_prob", False) and f.whole("num_experts_per_tok", None) != 1  # one stays as it is
    if not f.has("num_experts"):
        f.whole("first_k_dense_replace", 0, ge=0)
        return {**model, "ffn": dense}
    model["ffn"] = _mixture(f, REQUIRED, None, REQUIRED, 1407, normalise=normalise)
    return _leading_dense(f, model, dense, 0, step)


def _around(f: Fields, size: Model) -> Model:
    return {
        **size,
        "norm": rmsnorm(f, 1e-6),
        "dropout": attention_dropout(f),
        "head": head(f, tied=False),
        "block": pre_norm(),
    }


def _mixture(f: Fields, n_experts: Any, n_shared: Any, per_token: Any, d_ff: int, **more: Any) -> Block:
    expert = plain_ffn(gate(f), f.whole("moe_intermediate_size", d_ff))
    shared = f.whole("n_shared_experts", n_shared, null=None, ge=0, le=MAX_EXPERTS)
    return mixture(f, expert, n_experts, per_token, n_shared=shared, **more)


def _leading_dense(f: Fields, model: Model, dense: Block, default: int, step: int = 1) -> Model:
    """The first layers have a dense FFN, and of the others all but each step-th."""
    first = f.whole("first_k_dense_replace", default, null=0, ge=0)
    sparse = [i >= first and i % step == 0 for i in range(model["n_layers"])]
    return layered(model, [{} if s else {"ffn": dense} for s in sparse])


def _latent(f: Fields, n_heads: int, position: Block) -> Block:
    """Multi-head latent attention; a null q_lora_rank means that queries are not compressed."""
    count = f.whole("num_attention_heads", n_heads)
    nope, rotated = f.whole("qk_nope_head_dim", 128), f.whole("qk_rope_head_dim", 64)
    for name, only in {"num_key_value_heads": count, "head_dim": rotated, "qk_head_dim": nope + rotated}.items():
        f.only(name, only, None)
    more = yarn_score_scale(position)
    bias = f.flag("attention_bias", False)
    return {
        "choice": "mla",
        "n_heads": count,
        "q_rank": f.whole("q_lora_rank", 1536, null=None),
        "kv_rank": f.whole("kv_lora_rank", 512),
        "nope_dim": nope,
        "rope_dim": rotated,
        "v_dim": f.whole("v_head_dim", 128),
        **({} if more == 1 else {"scale": (nope + rotated) ** -0.5 * more}),
        **({"bias": True, "o_bias": True} if bias else {}),
        **({} if f.number("rms_norm_eps", LATENT_EPS) == LATENT_EPS else {"latent_eps": LATENT_EPS}),
    }


def _groups(f: Fields, n_groups: int | None, per_token: int | None) -> Block:
    """The limit to groups, where there is one."""
    groups = f.whole("n_group", n_groups, null=None, le=MAX_EXPERTS) or 1
    chosen = f.whole("topk_group", per_token, null=None, le=MAX_EXPERTS) or groups
    return {} if groups == 1 else {"n_groups": groups, "groups_per_token": chosen}


def deepseek_v2(f: Fields) -> Model:
    size = sizes(f, d_model=4096, n_layers=32, vocab_size=102400, context=2048)
    for name, only in {"scoring_func": "softmax", "norm_topk_prob": False, "moe_layer_freq": 1}.items():
        f.only(name, only)
    f.only("mlp_bias", False)
    greedy = f.word("topk_method", ("greedy", "group_limited_greedy"), "greedy") == "greedy"
    groups = _groups(f, None, None)
    position = rope(f, size, layout="interleaved")
    dense = ffn(f, 11008)
    scaling = f.positive("routed_scaling_factor", 1.0)
    model = {
        **_around(f, size),
        "position": position,
        "attention": _latent(f, 32, position),
        "ffn": _mixture(f, 64, 2, REQUIRED, 1407, normalise=False, scaling=scaling, **({} if greedy else groups)),
    }
    return _leading_dense(f, model, dense, 0)


def deepseek_v3(f: Fields) -> Model:
    size = sizes(f, d_model=7168, n_layers=61, vocab_size=129280, context=4096)
    for name, only in {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1}.items():
        f.only(name, only)
    position = rope(f, size, layout="interleaved" if f.flag("rope_interleave", True) else "half")
    groups = _groups(f, 8, 4)
    routing = {
        "scoring": "sigmoid",
        "normalise": f.flag("norm_topk_prob", True),
        "scaling": f.positive("routed_scaling_factor", 2.5),
        "balance_bias": True,
        **({**groups, "group_score": "top2"} if groups else {}),
    }
    dense = ffn(f, 18432)
    model = {
        **_around(f, size),
        "position": position,
        "attention": _latent(f, 128, position),
        "ffn": _mixture(f, 256, 1, 8, 2048, **routing),
    }
    return _leading_dense(f, model, dense, 3)


LATENT = {
    "self_attn.q_a_proj": "attention.q_down",
    "self_attn.q_a_layernorm": "attention.q_norm",
    "self_attn.q_b_proj": "attention.q_up",
    "self_attn.kv_a_proj_with_mqa": "attention.kv_down",
    "self_attn.kv_a_layernorm": "attention.kv_norm",
    "self_attn.kv_b_proj": "attention.kv_up",
}
SHARED = {
    "mlp.shared_experts.gate_proj": "ffn.shared.gate",
    "mlp.shared_experts.up_proj": "ffn.shared.up",
    "mlp.shared_experts.down_proj": "ffn.shared.down",
    "mlp.gate.e_score_correction_bias": "ffn.router.balance_bias",
}
_MTP = "layers that predict further tokens stand beside the decoder"
_SPELLING = {"num_experts": "n_routed_experts"}
FAMILIES = (
    Family("deepseek", "DeepseekForCausalLM", deepseek, moe_layout(SHARED), spelling=_SPELLING),
    Family(
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        deepseek_v2,
        moe_layout(LATENT, SHARED),
        spelling=_SPELLING,
    ),
    Family(
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        deepseek_v3,
        moe_layout(LATENT, SHARED, ignored=(*TABLES, "model.layers.{n}.*")),
        {"num_nextn_predict_layers": _MTP, "num_mtp_layers": _MTP},
        _SPELLING,
    ),
)
