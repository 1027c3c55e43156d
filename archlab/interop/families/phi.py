"""Phi 1 to 3, StableLM, StarCoder 2 and Cohere's Command R: Llama's relatives with layouts of their own."""

from __future__ import annotations

from archlab.interop.family import Family
from archlab.interop.layout import GATE_UP, QKV, TABLES, Layout, llama_layout, rows
from archlab.interop.parts import (
    Model,
    activation,
    attention,
    attention_dropout,
    biases,
    classic_dropout,
    dropout,
    ffn,
    head,
    head_size,
    heads,
    layered,
    layernorm,
    plain_ffn,
    pre_norm,
    rate,
    rmsnorm,
    sizes,
)
from archlab.interop.reader import Fields
from archlab.interop.rope import one_window, rope, scaling_of


def phi(f: Fields) -> Model:
    size = sizes(f, d_model=2048, n_layers=24, vocab_size=51200, context=2048)
    normed = {"qk_norm": "head"} if f.flag("qk_layernorm", False) else {}
    own = heads(f, size, 32)
    if normed:  # the width of these norms goes by hidden_size
        f.only("head_dim", head_size(size, own["n_heads"]), None)
    return {
        **size,
        "norm": layernorm(f),
        "position": rope(f, size, fraction=0.5),
        "attention": {**own, **biases(True, True), **normed},
        "ffn": plain_ffn(activation(f, "gelu_new"), f.whole("intermediate_size", 8192), True),
        "dropout": classic_dropout(f),
        "head": head(f, tied=False, bias=True),
        "block": {"choice": "parallel", "n_norms": 1},
    }


def phi3(f: Fields) -> Model:
    size = sizes(f, d_model=3072, n_layers=32, vocab_size=32064, context=4096)
    f.only("attention_bias", False)
    model = {
        **size,
        "norm": rmsnorm(f, 1e-5),
        "position": rope(_phi3_dialect(f), size, fraction=1.0),
        "attention": heads(f, size, 32),
        "ffn": ffn(f, 8192),
        "dropout": classic_dropout(f),
        "head": head(f, tied=False),
        "block": pre_norm(),
    }
    return layered(model, one_window(f, size))


def _phi3_dialect(f: Fields) -> Fields:
    """The fields, with the context before the stretch beside the scaling, and what Phi-3 called `yarn` by its name."""
    original = f.whole("original_max_position_embeddings", 4096)
    scaling = scaling_of(f)
    name = "rope_type" if scaling.has("rope_type") else "type"
    kind = scaling.word(name, ("default", "longrope", "su", "yarn"), "default")
    block = {**scaling.raw, "rope_type": "longrope" if kind == "yarn" else kind}
    blocks = {"rope_scaling": None, scaling.where or "rope_scaling": block}
    return f.instead(original_max_position_embeddings=original, **blocks)


def stablelm(f: Fields) -> Model:
    size = sizes(f, d_model=2560, n_layers=32, vocab_size=50304, context=4096)
    count = f.whole("num_attention_heads", 32)
    kv_heads = f.whole("num_key_value_heads", 32, null=count)
    # each head has weights of its own, and no bias, though the family's other norms have one
    normed = {"qk_norm": "per_head", "qk_norm_bias": False} if f.flag("qk_layernorm", False) else {}
    bias = f.flag("use_qkv_bias", False)
    residual = rate(f, "residual_dropout")
    return {
        **size,
        "norm": layernorm(f),
        "position": rope(f, size, fraction=0.25),
        "attention": {**attention(size, count, kv_heads), **biases(bias, False), **normed},
        "ffn": ffn(f, 6912),
        "dropout": dropout(0.0, rate(f, "attention_dropout"), residual),
        "head": head(f, tied=False),
        "block": {"choice": "parallel", "n_norms": 1} if f.flag("use_parallel_residual", False) else pre_norm(),
    }


def starcoder2(f: Fields) -> Model:
    """Its files have the plain GELU as activation_function beside the tanh form as hidden_act, which is what runs."""
    size = sizes(f, d_model=3072, n_layers=30, vocab_size=49152, context=4096)
    f.only("mlp_type", "default")
    f.only("norm_type", "layer_norm")
    own = f.without("activation_function")
    bias = f.flag("use_bias", True)
    model = {
        **size,
        "norm": layernorm(f),
        "position": rope(f, size),
        "attention": {**heads(f, size, 24, 2), **biases(bias, bias)},
        "ffn": plain_ffn(activation(own, "gelu_pytorch_tanh"), f.whole("intermediate_size", 12288), bias),
        "dropout": classic_dropout(f),
        "head": head(f, tied=True),
        "block": pre_norm(),
    }
    return layered(model, one_window(f, size))


def cohere(f: Fields) -> Model:
    size = sizes(f, d_model=8192, n_layers=40, vocab_size=256000, context=8192)
    bias = f.flag("attention_bias", False)
    normed = {"qk_norm": "per_head"} if f.flag("use_qk_norm", False, null=False) else {}
    return {
        **size,
        "norm": layernorm(f, bias=False),
        "position": rope(f, size, 5e5, layout="interleaved"),
        "attention": {**heads(f, size, 64), **biases(bias, bias), **normed},
        "ffn": ffn(f, 22528),
        "dropout": attention_dropout(f),
        "head": head(f, tied=True, logit_scale=f.positive("logit_scale", 0.0625)),
        "block": {"choice": "parallel", "n_norms": 1},
    }


PHI = Layout(
    "model.",
    "layers",
    {"embed_tokens": "embedding", "final_layernorm": "final_norm"},
    {
        "self_attn.q_proj": "attention.q",
        "self_attn.k_proj": "attention.k",
        "self_attn.v_proj": "attention.v",
        "self_attn.dense": "attention.o",
        "self_attn.q_layernorm": "attention.q_norm",
        "self_attn.k_layernorm": "attention.k_norm",
        "mlp.fc1": "ffn.up",
        "mlp.fc2": "ffn.down",
        "input_layernorm": "attention_norm",
    },
    ignored=TABLES,
)
PHI3 = llama_layout({"self_attn.qkv_proj": rows(*QKV), "mlp.gate_up_proj": rows(*GATE_UP)})
STABLELM = llama_layout(
    {
        "self_attn.q_layernorm.norms.{e}": "attention.q_norm",
        "self_attn.k_layernorm.norms.{e}": "attention.k_norm",
    }
)
STARCODER2 = llama_layout({"mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"})
FAMILIES = (
    Family("phi", "PhiForCausalLM", phi, PHI, spelling={"residual_dropout": "resid_pdrop"}),
    Family("phi3", "Phi3ForCausalLM", phi3, PHI3, spelling={"residual_dropout": "resid_pdrop"}),
    Family("stablelm", "StableLmForCausalLM", stablelm, STABLELM, spelling={"residual_dropout": "hidden_dropout"}),
    Family("starcoder2", "Starcoder2ForCausalLM", starcoder2, STARCODER2, spelling={"layer_norm_eps": "norm_epsilon"}),
    Family("cohere", "CohereForCausalLM", cohere, llama_layout()),
)
