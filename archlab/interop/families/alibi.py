"""Families with linear biases on the scores: BLOOM, MPT and, as one of its switches, Falcon."""

from __future__ import annotations

from archlab.interop.family import Family
from archlab.interop.layout import MASKS, QKV, Held, Layout, by_head, rows
from archlab.interop.parts import (
    Block,
    Model,
    activation,
    attention,
    biases,
    d_ff_or_4x,
    dropout,
    head,
    head_size,
    layernorm,
    plain_ffn,
    pre_norm,
    rate,
    score_scale,
    sizes,
)
from archlab.interop.reader import Fields
from archlab.interop.rope import rope


def bloom(f: Fields) -> Model:
    size = sizes(f, d_model=64, n_layers=2, vocab_size=250880, context=2048)
    count = f.whole("num_attention_heads", 8)
    f.only("apply_residual_connection_post_layernorm", False)
    f.only("intermediate_size", None, 4 * size["d_model"])
    return {
        **size,
        "norm": layernorm(f),
        "position": {"choice": "alibi"},
        "attention": {**attention(size, count, count), **biases(True, True)},
        "ffn": plain_ffn("gelu_bloom", 4 * size["d_model"], True),
        "dropout": dropout(0.0, rate(f, "attention_dropout"), rate(f, "residual_dropout")),
        "head": head(f, tied=True),
        "block": pre_norm(embedding_norm=True),
    }


def mpt(f: Fields) -> Model:
    """MPT as transformers builds it: no biases, no learned positions, a middle of four times the width.

    transformers goes by these values whatever the config says; what says otherwise is refused.
    """
    size = sizes(f, d_model=2048, n_layers=24, vocab_size=50368, context=2048)
    count = f.whole("num_attention_heads", 16)
    width = head_size(size, count)
    f.only("expansion_ratio", 4)
    f.only("no_bias", True)
    f.only("logit_scale", None, 1, 1.0)
    f.only("norm_type", "low_precision_layernorm", "layernorm")
    own, residual = _mpt_attention(f.block("attn_config") or Fields({}, "attn_config"), width)
    return {
        **size,
        "norm": layernorm(f, bias=False),
        "position": {"choice": "alibi"},
        "attention": {**attention(size, count, count), **own},
        "ffn": plain_ffn("gelu", 4 * size["d_model"], False),
        "dropout": dropout(rate(f, "embedding_dropout"), residual, residual),
        "head": head(f, tied=True),
        "block": pre_norm(),
    }


def _mpt_attention(f: Fields, width: int) -> tuple[Block, float]:
    """Options of the attention, and the dropout rate, which is the residual's too."""
    f.only("attn_type", "multihead_attention")
    f.only("alibi", True)
    for name in ("prefix_lm", "qk_ln", "attn_uses_sequence_id"):
        f.only(name, False)
    scale = score_scale(f.positive("softmax_scale", None) or width**-0.5, width)
    clip = f.positive("clip_qkv", None)
    f.only("alibi_bias_max", 8, 8.0)
    dropped = rate(f, "attn_pdrop")
    f.finish({"attn_impl": "which kernel runs", "model_type": "empty"})
    return {**scale, **({} if clip is None else {"qkv_clip": clip})}, dropped


def falcon(f: Fields) -> Model:
    size = sizes(f, d_model=4544, n_layers=32, vocab_size=65024, context=2048)
    count = f.whole("num_attention_heads", 71)
    width = head_size(size, count)
    bias = f.flag("bias", False, null=False)
    new = f.flag("new_decoder_architecture", False, null=False)
    position = rope(f, size)
    if f.flag("alibi", False, null=False):
        position = {"choice": "alibi", "scale": width**-0.5}
    return {
        **size,
        "norm": layernorm(f),
        "position": position,
        "attention": {**attention(size, count, _falcon_kv_heads(f, count, new)), **biases(bias, bias)},
        "ffn": plain_ffn(activation(f, "gelu"), d_ff_or_4x(f, size), bias),
        "dropout": dropout(0.0, rate(f, "attention_dropout"), rate(f, "residual_dropout")),
        "head": head(f, tied=True),
        "block": _falcon_block(f, new),
    }


def _falcon_kv_heads(f: Fields, n_heads: int, new: bool) -> int:
    """num_kv_heads counts in the new architecture only; before it, there was one KV head, or one a query head."""
    given: int = f.whole("num_key_value_heads", n_heads, null=n_heads)
    if new:
        f.flag("multi_query", True, null=True)
        return given
    if f.flag("multi_query", True, null=False):
        return 1
    if given != n_heads:
        raise f.unmodelled(f.spelled("num_key_value_heads"), given, (n_heads,))
    return n_heads


def _falcon_block(f: Fields, new: bool) -> Block:
    norms = f.whole("num_ln_in_parallel_attn", None, null=None, le=2) or (2 if new else 1)
    if not f.flag("parallel_attn", True, null=False):
        if new:
            raise f.unmodelled("parallel_attn", False, (True,))
        return pre_norm()
    if not new and norms != 1:
        raise f.unmodelled("num_ln_in_parallel_attn", norms, (1,))
    return {"choice": "parallel", "n_norms": norms}


BLOOM_INSIDE: dict[str, str | Held] = {
    "self_attention.query_key_value": by_head(*QKV),
    "self_attention.dense": "attention.o",
    "mlp.dense_h_to_4h": "ffn.up",
    "mlp.dense_4h_to_h": "ffn.down",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}
BLOOM_OUTSIDE = {
    "word_embeddings": "embedding",
    "word_embeddings_layernorm": "embedding_norm",
    "ln_f": "final_norm",
}
BLOOM = Layout("transformer.", "h", BLOOM_OUTSIDE, BLOOM_INSIDE, ignored=MASKS)
MPT = Layout(
    "transformer.",
    "blocks",
    {"wte": "embedding", "norm_f": "final_norm"},
    {
        "attn.Wqkv": rows(*QKV),
        "attn.out_proj": "attention.o",
        "ffn.up_proj": "ffn.up",
        "ffn.down_proj": "ffn.down",
        "norm_1": "attention_norm",
        "norm_2": "ffn_norm",
    },
)
_TWO_NORMS: dict[str, str | Held] = {**BLOOM_INSIDE, "ln_attn": "attention_norm", "ln_mlp": "ffn_norm"}
del _TWO_NORMS["input_layernorm"], _TWO_NORMS["post_attention_layernorm"]
FALCON = Layout(
    "transformer.",
    "h",
    BLOOM_OUTSIDE,
    _TWO_NORMS,
    ignored=MASKS,
    n_norms=2,
    also=Layout("transformer.", "h", BLOOM_OUTSIDE, BLOOM_INSIDE, ignored=MASKS),
)
_MEGATRON = {
    "offset_alibi": "for padding",
    "masked_softmax_fusion": "which kernel runs",
    "bias_dropout_fusion": "which kernel runs",
    "skip_bias_add": "which kernel adds the bias",
    "skip_bias_add_qkv": "which kernel adds the bias",
    "attention_softmax_in_fp32": "a precision",
}
_SPELLING = {"layer_norm_eps": "layer_norm_epsilon", "residual_dropout": "hidden_dropout"}
FAMILIES = (
    Family(
        "bloom",
        "BloomForCausalLM",
        bloom,
        BLOOM,
        _MEGATRON,
        {
            **_SPELLING,
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "max_position_embeddings": "seq_length",
        },
    ),
    Family(
        "mpt",
        "MptForCausalLM",
        mpt,
        MPT,
        {
            "learned_pos_emb": "ALiBi takes its place",
            "resid_pdrop": "attn_pdrop is what is read",
            "tokenizer_name": "the tokenizer",
            "verbose": "what is printed",
        },
        {
            "hidden_size": "d_model",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "max_position_embeddings": "max_seq_len",
            "layer_norm_eps": "layer_norm_epsilon",
            "embedding_dropout": "emb_pdrop",
        },
    ),
    Family(
        "falcon",
        "FalconForCausalLM",
        falcon,
        FALCON,
        spelling={
            **_SPELLING,
            "num_key_value_heads": "num_kv_heads",
            "intermediate_size": "ffn_hidden_size",
            "hidden_act": "activation",
        },
    ),
)
