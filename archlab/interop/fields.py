"""All that a spec says, under the names by which families read it: the writing side of `families/`."""

from __future__ import annotations

import math
from typing import Any

from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.interop.parts import GATED, PLAIN
from archlab.options import Spec

ROPE_TYPES = {"linear": "linear", "ntk": "dynamic", "yarn": "yarn", "llama3": "llama3", "longrope": "longrope"}
ROPE_OPTIONS = (
    "factor",
    "beta_fast",
    "beta_slow",
    "attention_factor",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "low_freq_factor",
    "high_freq_factor",
    "short_factor",
    "long_factor",
)
DEFAULT = {"rope_type": "default"}
"""The block of a rotation that is not scaled, for families that scale unless told."""

_ACTIVATION = {"gelu_tanh": "gelu_pytorch_tanh"} | {ours: hub for hub, ours in PLAIN.items() if hub == ours}
_GATES = {choice: act for act, choice in GATED.items()}

Values = dict[str, Any]


def fields_of(spec: DecoderSpec) -> Values:
    """Every field that some family reads, as far as this spec gives it a value."""
    values = {
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.context,
        **_norm(spec),
        **_attention(spec),
        **_position(spec),
        **_ffn(spec),
        **_around(spec),
    }
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items() if v is not _ABSENT}


_ABSENT: Any = object()


def _get(spec: Spec, name: str, default: Any = _ABSENT) -> Any:
    return getattr(spec, name, default)


def _base(spec: DecoderSpec) -> LayerSpec:
    """The layer that a pattern's exceptions differ from: the first that sees everything, else the first."""
    open_layers = (layer for layer in spec.layers if _window(layer) is None)
    return next(open_layers, spec.layers[0])


def _rotated(spec: DecoderSpec) -> LayerSpec:
    """The layer whose positions the file tells: the base, or the first that has some."""
    base = _base(spec)
    return next((layer for layer in (base, *spec.layers) if layer.position.choice != "none"), base)


def _window(layer: LayerSpec) -> int | None:
    window: int | None = _get(layer.attention, "window", None)
    return window


def _norm(spec: DecoderSpec) -> Values:
    eps = _get(spec.norm, "eps")
    weight = _get(spec.norm, "weight", True)
    return {"rms_norm_eps": eps, "layer_norm_eps": eps, "layer_norm_elementwise_affine": weight}


def _attention(spec: DecoderSpec) -> Values:
    attention: Any = _base(spec).attention
    kv_heads = _get(attention, "n_kv_heads", attention.n_heads)
    bias = _get(attention, "q_bias", _get(attention, "bias", False))
    normed = _get(attention, "qk_norm", "none") != "none"
    return {
        "num_attention_heads": attention.n_heads,
        "num_key_value_heads": kv_heads,
        "multi_query": kv_heads == 1,
        "head_dim": _get(attention, "head_dim"),
        **dict.fromkeys(("attention_bias", "use_qkv_bias", "qkv_bias", "enable_bias", "use_bias", "bias"), bias),
        **dict.fromkeys(("use_qk_norm", "qk_layernorm"), normed),
        **_windows(spec),
        **_scores(spec, attention),
        **_latent(attention),
    }


def _windows(spec: DecoderSpec) -> Values:
    windows = [_window(layer) for layer in spec.layers]
    slides = [window is not None for window in windows]
    return {
        "sliding_window": next((w for w in windows if w is not None), None),
        "use_sliding_window": any(slides),
        "max_window_layers": slides.index(True) if any(slides) else spec.n_layers,
        "layer_types": ["sliding_attention" if s else "full_attention" for s in slides],
    }


def _scores(spec: DecoderSpec, attention: Any) -> Values:
    """What is done to scores, and to what they are made of."""
    scale, clip = _get(attention, "scale"), _get(attention, "qkv_clip", None)
    return {
        "clip_qkv": clip,
        "attn_logit_softcapping": _get(attention, "logit_cap", None),
        "attention_multiplier": scale,
        "query_pre_attn_scalar": _whole(scale**-2),
        "scale_attn_weights": _scales(spec)[0] != 1,
        "scale_attn_by_inverse_layer_idx": spec.n_layers > 1 and _shrinks(spec),
        "attn_config": {
            "alibi": True,
            "alibi_bias_max": _whole(_get(_base(spec).position, "max_bias", 8.0)),
            "attn_type": "multihead_attention",
            "clip_qkv": clip,
            "softmax_scale": scale,
            "attn_pdrop": spec.dropout.residual or 0,
        },
    }


def _latent(attention: Any) -> Values:
    return {
        "q_lora_rank": _get(attention, "q_rank"),
        "kv_lora_rank": _get(attention, "kv_rank"),
        "qk_nope_head_dim": _get(attention, "nope_dim"),
        "qk_rope_head_dim": _get(attention, "rope_dim"),
        "v_head_dim": _get(attention, "v_dim"),
    }


def _scales(spec: DecoderSpec) -> list[float]:
    return [float(_get(layer.attention, "scale", 1.0)) for layer in spec.layers]


def _shrinks(spec: DecoderSpec) -> bool:
    """Whether each layer's scores are divided by its number, counted from 1."""
    first, *others = _scales(spec)
    return all(math.isclose(scale * number, first) for number, scale in enumerate(others, 2))


def _whole(value: float) -> float | int:
    """The whole number that a float stands for."""
    near = round(value)
    return near if near and abs(value - near) < 1e-9 * near else value


def _position(spec: DecoderSpec) -> Values:
    layer = _rotated(spec)
    position, head_dim = layer.position, _get(layer.attention, "head_dim", 0)
    fraction = _get(position, "fraction", 1.0)
    others = (one.position for one in spec.layers if one.position not in (position, _base(spec).position))
    local = next(others, position)
    return {
        "rope_theta": _get(position, "base"),
        "rope_scaling": _scaling(position) or None,
        "rope_parameters": _two_ropes(position, local) if _scaling(local) else _ABSENT,
        "inference_rope_scaling": position.choice == "yarn",
        "partial_rotary_factor": fraction,
        "rotary_dim": int(head_dim * fraction) or _ABSENT,
        "rope_interleave": _get(position, "layout", "half") == "interleaved",
        "rope_local_base_freq": _get(local, "base"),
        "original_max_position_embeddings": _get(position, "original_context"),
        "no_rope_layers": [int(one.position.choice != "none") for one in spec.layers],
        "alibi": position.choice == "alibi",
    }


def _scaling(position: Spec) -> Values:
    """The block of a scaled rotation, empty for others."""
    if position.choice not in ROPE_TYPES:
        return {}
    said = {name: value for name in ROPE_OPTIONS if (value := _get(position, name, None)) is not None}
    said["original_max_position_embeddings"] = _get(position, "original_context", None)
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in said.items() if v is not None}
    return {"rope_type": ROPE_TYPES[position.choice], **plain}


def _two_ropes(full: Spec, sliding: Spec) -> Values:
    """transformers 5's block, where the sliding layers are scaled too: the hub's has no words for that."""
    kinds = {"full_attention": full, "sliding_attention": sliding}
    return {name: {"rope_theta": _get(one, "base"), **(_scaling(one) or DEFAULT)} for name, one in kinds.items()}


def _ffn(spec: DecoderSpec) -> Values:
    mixed: list[Any] = [layer.ffn for layer in spec.layers if layer.ffn.choice == "moe"]
    dense: list[Any] = [layer.ffn for layer in spec.layers if layer.ffn.choice != "moe"]
    plain = dense[0] if dense else mixed[0].expert
    name = _GATES.get(plain.choice, plain.choice)
    act = "silu" if plain.choice == "swiglu_clamped" else _ACTIVATION.get(name, name)
    values = {
        **dict.fromkeys(("hidden_act", "hidden_activation"), act),
        "intermediate_size": _get(plain, "d_ff"),
        "mlp_bias": _get(plain, "bias", False),
        "use_moe": bool(mixed),
        **_sparse(spec),
    }
    return values | (_mixture(mixed[0]) if mixed else {"num_experts_per_tok": 1})


def _sparse(spec: DecoderSpec) -> Values:
    """Which layers are mixtures of experts."""
    sparse = [index for index, layer in enumerate(spec.layers) if layer.ffn.choice == "moe"]
    return {
        "first_k_dense_replace": sparse[0] if sparse else spec.n_layers,
        "moe_layer_freq": _step(sparse, spec.n_layers) if sparse else 1,
        "mlp_only_layers": sorted(set(range(spec.n_layers)) - set(sparse)),
        "decoder_sparse_step": 1,
    }


def _mixture(moe: Any) -> Values:
    return {
        "moe_intermediate_size": moe.expert.d_ff,
        "num_experts": moe.n_experts,
        "num_experts_per_tok": moe.experts_per_token,
        "norm_topk_prob": moe.normalise,
        "n_shared_experts": moe.shared_d_ff // moe.expert.d_ff,
        "shared_expert_intermediate_size": moe.shared_d_ff or _ABSENT,
        "n_group": moe.n_groups,
        "topk_group": moe.groups_per_token,
        "topk_method": "noaux_tc" if moe.balance_bias else "group_limited_greedy" if moe.n_groups > 1 else "greedy",
        "scoring_func": moe.scoring,
        "routed_scaling_factor": moe.scaling,
        "swiglu_limit": _get(moe.expert, "limit"),
        "swiglu_alpha": _get(moe.expert, "alpha"),
    }


def _step(sparse: list[int], n_layers: int) -> int:
    """A number that, from the first of these layers on, divides theirs and no other's, if there is one."""
    if len(sparse) > 1:
        return sparse[1] - sparse[0]
    return 1 if sparse[0] == n_layers - 1 else sparse[0] or n_layers


def _around(spec: DecoderSpec) -> Values:
    """Head, residual layout, dropout."""
    block, head, dropout = spec.block, spec.head, spec.dropout
    parallel = block.choice == "parallel"
    grouped = _get(spec.layers[0].attention, "n_kv_heads", 1) not in (1, spec.layers[0].attention.n_heads)
    norms = _get(block, "n_norms", 1)
    logit_scale = _get(head, "logit_scale", 1.0)
    return {
        "tie_word_embeddings": head.tied,
        "logit_scale": logit_scale,
        "logits_scaling": 1 / logit_scale,
        "final_logit_softcapping": _get(head, "logit_cap", None),
        "residual_multiplier": block.branch_scale,
        "embedding_multiplier": block.embedding_scale,
        "use_parallel_residual": parallel,
        "parallel_attn": parallel,
        "new_decoder_architecture": parallel and (grouped or norms == 2),
        "num_ln_in_parallel_attn": norms if parallel else None,
        "do_layer_norm_before": block.choice != "post_norm",
        "_remove_final_layer_norm": block.choice != "post_norm" and not block.final_norm,
        "attention_dropout": dropout.attention,
        "residual_dropout": dropout.residual,
        "embedding_dropout": dropout.embedding,
    }
