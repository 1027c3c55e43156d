"""GLM-4 as transformers has it, in its first form and in that with norms after each branch."""

from __future__ import annotations

from archlab.interop.family import Family
from archlab.interop.layout import GATE_UP, llama_layout, rows
from archlab.interop.parts import Model, attention_dropout, biases, ffn, head, heads, pre_norm, rmsnorm, sizes
from archlab.interop.reader import Fields
from archlab.interop.rope import rope


def glm(f: Fields) -> Model:
    size = sizes(f, d_model=4096, n_layers=40, vocab_size=151552, context=131072)
    return {
        **size,
        "norm": rmsnorm(f, 1.5625e-07),
        "position": rope(f, size, fraction=0.5, layout="interleaved"),
        "attention": {**heads(f, size, 32, 2, 128), **biases(f.flag("attention_bias", True), False)},
        "ffn": ffn(f, 13696),
        "dropout": attention_dropout(f),
        "head": head(f, tied=False),
        "block": pre_norm(),
    }


def glm4(f: Fields) -> Model:
    return {**glm(f), "block": {"choice": "sandwich"}}


GLM = llama_layout({"mlp.gate_up_proj": rows(*GATE_UP)})
GLM4 = llama_layout(
    {
        "mlp.gate_up_proj": rows(*GATE_UP),
        "post_self_attn_layernorm": "attention_post_norm",
        "post_mlp_layernorm": "ffn_post_norm",
    }
)
FAMILIES = (Family("glm", "GlmForCausalLM", glm, GLM), Family("glm4", "Glm4ForCausalLM", glm4, GLM4))
