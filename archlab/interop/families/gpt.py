"""The GPT line: GPT-2, GPT-J, GPT-NeoX (Pythia), OPT."""

from __future__ import annotations

from archlab.interop.family import Family
from archlab.interop.layout import MASKS, QKV, Layout, by_head, rows
from archlab.interop.parts import (
    Block,
    Model,
    activation,
    attention,
    biases,
    classic_dropout,
    d_ff_or_4x,
    dropout,
    exact_fraction,
    head,
    head_size,
    layered,
    layernorm,
    plain_ffn,
    pre_norm,
    rate,
    score_scale,
    sizes,
)
from archlab.interop.reader import Fields
from archlab.interop.rope import rope


def gpt2(f: Fields) -> Model:
    size = sizes(f, d_model=768, n_layers=12, vocab_size=50257, context=1024)
    count = f.whole("num_attention_heads", 12)
    width = head_size(size, count)
    scale = width**-0.5 if f.flag("scale_attn_weights", True) else 1.0
    model = {
        **size,
        "norm": layernorm(f),
        "position": {"choice": "learned"},
        "attention": {**attention(size, count, count), **biases(True, True), **score_scale(scale, width)},
        "ffn": plain_ffn(activation(f, "gelu_new"), d_ff_or_4x(f, size), True),
        "dropout": classic_dropout(f, 0.1),
        "head": head(f, tied=True),
        "block": pre_norm(),
    }
    if not f.flag("scale_attn_by_inverse_layer_idx", False):
        return model
    return layered(model, [{"attention": {"scale": scale / (i + 1)}} for i in range(size["n_layers"])])


def gptj(f: Fields) -> Model:
    size = sizes(f, d_model=4096, n_layers=28, vocab_size=50400, context=2048)
    count = f.whole("num_attention_heads", 16)
    width = head_size(size, count)
    rotated = f.whole("rotary_dim", 64, le=width)
    return {
        **size,
        "norm": layernorm(f),
        "position": {"choice": "rope", "layout": "interleaved", "fraction": exact_fraction(rotated, width)},
        "attention": attention(size, count, count),
        "ffn": plain_ffn(activation(f, "gelu_new"), d_ff_or_4x(f, size), True),
        "dropout": classic_dropout(f),
        "head": head(f, tied=False, bias=True),
        "block": {"choice": "parallel", "n_norms": 1},
    }


def gpt_neox(f: Fields) -> Model:
    size = sizes(f, d_model=6144, n_layers=44, vocab_size=50432, context=2048)
    count = f.whole("num_attention_heads", 64)
    bias = f.flag("attention_bias", True)
    parallel = f.flag("use_parallel_residual", True)
    residual = rate(f, "residual_dropout")
    return {
        **size,
        "norm": layernorm(f),
        "position": _neox_rope(f, size),
        "attention": {**attention(size, count, count), **biases(bias, bias)},
        "ffn": plain_ffn(activation(f, "gelu"), f.whole("intermediate_size", 24576), True),
        "dropout": dropout(residual, rate(f, "attention_dropout"), residual),
        "head": head(f, tied=False),
        "block": {"choice": "parallel", "n_norms": 2} if parallel else pre_norm(),
    }


def _neox_rope(f: Fields, size: Model) -> Block:
    """The family has names of its own beside the block of the scaling; the usual ones must not say otherwise."""
    base, share = f.number("rotary_emb_base", 10000.0), f.number("rotary_pct", 0.25)
    block = rope(f.instead(rope_theta=base, partial_rotary_factor=share), size, fraction=share)
    for name, used in {"rope_theta": block["base"], "partial_rotary_factor": block.get("fraction", 1.0)}.items():
        if f.number(name, used, null=used) != used:
            raise f.unmodelled(name, f.raw[name], (used,))
    return block


def opt(f: Fields) -> Model:
    size = sizes(f, d_model=768, n_layers=12, vocab_size=50272, context=2048)
    count = f.whole("num_attention_heads", 12)
    f.only("word_embed_proj_dim", size["d_model"], None)
    bias = f.flag("enable_bias", True)
    affine = f.flag("layer_norm_elementwise_affine", True)
    before = f.flag("do_layer_norm_before", True)
    removed = f.flag("_remove_final_layer_norm", False)
    act = activation(f, "relu")
    return {
        **size,
        "norm": {"choice": "layernorm", "eps": 1e-5, **({} if affine else {"weight": False, "bias": False})},
        "position": {"choice": "learned", "offset": 2},
        "attention": {**attention(size, count, count), **biases(bias, bias)},
        "ffn": plain_ffn(act, f.whole("intermediate_size", 3072), bias),
        "dropout": dropout(0.0, rate(f, "attention_dropout"), rate(f, "residual_dropout", 0.1)),
        "head": head(f, tied=True),
        "block": {"choice": "pre_norm" if before else "post_norm", "final_norm": before and not removed},
    }


GPT2 = Layout(
    "transformer.",
    "h",
    {"wte": "embedding", "wpe": "position", "ln_f": "final_norm"},
    {
        "attn.c_attn": rows(*QKV, transposed=True),
        "attn.c_proj": rows("attention.o", transposed=True),
        "mlp.c_fc": rows("ffn.up", transposed=True),
        "mlp.c_proj": rows("ffn.down", transposed=True),
        "ln_1": "attention_norm",
        "ln_2": "ffn_norm",
    },
    ignored=MASKS,
)
GPTJ = Layout(
    "transformer.",
    "h",
    {"wte": "embedding", "ln_f": "final_norm"},
    {
        "attn.q_proj": "attention.q",
        "attn.k_proj": "attention.k",
        "attn.v_proj": "attention.v",
        "attn.out_proj": "attention.o",
        "mlp.fc_in": "ffn.up",
        "mlp.fc_out": "ffn.down",
        "ln_1": "attention_norm",
    },
    ignored=MASKS,
)
NEOX = Layout(
    "gpt_neox.",
    "layers",
    {"embed_in": "embedding", "final_layer_norm": "final_norm"},
    {
        "attention.query_key_value": by_head(*QKV),
        "attention.dense": "attention.o",
        "mlp.dense_h_to_4h": "ffn.up",
        "mlp.dense_4h_to_h": "ffn.down",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
    },
    head="embed_out",
    ignored=MASKS,
)
OPT = Layout(
    "model.decoder.",
    "layers",
    {"embed_tokens": "embedding", "embed_positions": "position", "final_layer_norm": "final_norm"},
    {
        "self_attn.q_proj": "attention.q",
        "self_attn.k_proj": "attention.k",
        "self_attn.v_proj": "attention.v",
        "self_attn.out_proj": "attention.o",
        "fc1": "ffn.up",
        "fc2": "ffn.down",
        "self_attn_layer_norm": "attention_norm",
        "final_layer_norm": "ffn_norm",
    },
)
_N = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
    "hidden_act": "activation_function",
    "layer_norm_eps": "layer_norm_epsilon",
    "attention_dropout": "attn_pdrop",
    "residual_dropout": "resid_pdrop",
    "embedding_dropout": "embd_pdrop",
}
_MASK = {"n_ctx": "the size of an old mask; n_positions is what counts", "rotary": "GPT-J rotates, whatever it says"}
FAMILIES = (
    Family("gpt2", "GPT2LMHeadModel", gpt2, GPT2, _MASK, _N),
    Family("gptj", "GPTJForCausalLM", gptj, GPTJ, _MASK, _N),
    Family(
        "gpt_neox",
        "GPTNeoXForCausalLM",
        gpt_neox,
        NEOX,
        spelling={
            "rope_theta": "rotary_emb_base",
            "partial_rotary_factor": "rotary_pct",
            "residual_dropout": "hidden_dropout",
        },
    ),
    Family(
        "opt",
        "OPTForCausalLM",
        opt,
        OPT,
        spelling={"intermediate_size": "ffn_dim", "hidden_act": "activation_function", "residual_dropout": "dropout"},
    ),
)
