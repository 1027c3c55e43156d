"""How a family names its tensors, as data: hub module names and the components of an archlab layer that they hold.

A component is `attention.q`, `ffn.gate` or `ffn.experts.down`: what one projection, norm or router is, whichever
way either side fuses it. `views.py` turns a layout into views of tensors, which `weights.py` copies.
"""

from __future__ import annotations

from collections.abc import Mapping

from archlab.decoder.spec import DecoderSpec
from archlab.frozen import Frozen


class Held(Frozen):
    """What one hub tensor holds: components one below the other, along its rows.

    transposed: [in, out], as GPT-2's Conv1D has it. by_head: rows go head by head, each KV head's queries, key and
    value together (GPT-NeoX, BLOOM, Falcon). stacked: one tensor for all experts, [experts, ..]. interleaved: rows take
    turns, gate and up (gpt-oss).
    """

    parts: tuple[str, ...]
    transposed: bool = False
    by_head: bool = False
    stacked: bool = False
    interleaved: bool = False


def rows(*parts: str, transposed: bool = False) -> Held:
    return Held(parts, transposed)


def by_head(*parts: str) -> Held:
    return Held(parts, by_head=True)


def stacked(*parts: str, transposed: bool = False, interleaved: bool = False) -> Held:
    return Held(parts, transposed, stacked=True, interleaved=interleaved)


class Layout(Frozen):
    """The names of one family's tensors.

    prefix: of the trunk; files without it are read too. outside: hub module to component, below the prefix. inside:
    the same within a layer, `layers` says where; `{e}` numbers experts, or heads. head: the module of an
    untied head. ignored: patterns of names that hold nothing of the model: masks, tables, layers past the last ({n}).
    also: another way in which the family names its tensors. n_norms: only for parallel blocks of so many norms.
    """

    prefix: str
    layers: str
    outside: Mapping[str, str]
    inside: Mapping[str, str | Held]
    head: str = "lm_head"
    ignored: tuple[str, ...] = ()
    also: Layout | None = None
    n_norms: int | None = None

    def fits(self, spec: DecoderSpec) -> bool:
        """Whether these names are meant for this model's parallel block."""
        return self.n_norms is None or self.n_norms == getattr(spec.block, "n_norms", 0)


QKV = ("attention.q", "attention.k", "attention.v")
GATE_UP = ("ffn.gate", "ffn.up")

LLAMA_ATTENTION = {
    "self_attn.q_proj": "attention.q",
    "self_attn.k_proj": "attention.k",
    "self_attn.v_proj": "attention.v",
    "self_attn.o_proj": "attention.o",
    "self_attn.q_norm": "attention.q_norm",
    "self_attn.k_norm": "attention.k_norm",
}
LLAMA_FFN = {"mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down"}
LLAMA_NORMS = {"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}
LLAMA_OUTSIDE = {"embed_tokens": "embedding", "norm": "final_norm"}
TABLES = ("*rotary_emb.inv_freq",)
MASKS = ("*.attn.bias", "*.attn.masked_bias", "*.attention.bias", "*.attention.masked_bias", *TABLES)


def llama_layout(
    *inside: Mapping[str, str | Held], ignored: tuple[str, ...] = TABLES, also: Layout | None = None
) -> Layout:
    """Llama's names, with what else a layer has; a part that is named anew loses Llama's name."""
    merged: dict[str, str | Held] = {**LLAMA_ATTENTION, **LLAMA_FFN, **LLAMA_NORMS}
    for table in inside:
        anew = {part for held in table.values() for part in _parts(held)}
        merged = {hub: held for hub, held in merged.items() if anew.isdisjoint(_parts(held))} | dict(table)
    return Layout("model.", "layers", LLAMA_OUTSIDE, merged, ignored=ignored, also=also)


def _parts(held: str | Held) -> tuple[str, ...]:
    return (held,) if isinstance(held, str) else held.parts


def experts(where: str, router: str, gate: str, up: str, down: str) -> dict[str, str | Held]:
    """A mixture of gated experts, each with matrices of its own."""
    one = {gate: "ffn.experts.gate", up: "ffn.experts.up", down: "ffn.experts.down"}
    return {f"{where}.{router}": "ffn.router", **{f"{where}.experts.{{e}}.{hub}": ours for hub, ours in one.items()}}


STACKED_EXPERTS: dict[str, str | Held] = {
    "mlp.gate": "ffn.router",
    "mlp.experts.gate_up_proj": stacked("ffn.experts.gate", "ffn.experts.up"),
    "mlp.experts.down_proj": stacked("ffn.experts.down"),
}
"""The experts as transformers 5 holds them in memory."""

QWEN_EXPERTS = experts("mlp", "gate", "gate_proj", "up_proj", "down_proj")


def moe_layout(*inside: Mapping[str, str | Held], ignored: tuple[str, ...] = TABLES) -> Layout:
    """Llama's names with experts, one by one as the hub has them, or stacked."""
    return llama_layout(
        QWEN_EXPERTS, *inside, ignored=ignored, also=llama_layout(STACKED_EXPERTS, *inside, ignored=ignored)
    )
