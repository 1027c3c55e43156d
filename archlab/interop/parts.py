"""What many families share: from fields of a config to blocks of an archlab model config."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from archlab.errors import ConfigError
from archlab.interop.reader import Fields, show

Block = dict[str, Any]
Model = dict[str, Any]
MAX_EXPERTS = 65_536

PLAIN = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "relu2": "relu2",
}
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "relu": "reglu"}
GATES = {hub: GATED[ours] for hub, ours in PLAIN.items() if ours in GATED}


def sizes(f: Fields, d_model: int, n_layers: int, vocab_size: int, context: int) -> Model:
    """What belongs to the model itself, with the family's defaults.

    The first Llama files have max_sequence_length alone; later ones have it beside the field that counts.
    """
    context = f.whole("max_sequence_length", context, null=context)
    return {
        "d_model": f.whole("hidden_size", d_model),
        "n_layers": f.layers(n_layers),
        "vocab_size": f.whole("vocab_size", vocab_size),
        "context": f.whole("max_position_embeddings", context),
    }


def heads(f: Fields, size: Model, n_heads: int, n_kv_heads: int | None = None, head_dim: int | None = None) -> Block:
    """The choice of attention, its heads and their size. Without KV heads of their own, queries have one each."""
    count = f.whole("num_attention_heads", n_heads)
    kv_heads = f.whole("num_key_value_heads", n_kv_heads, null=count) or count
    width = f.whole("head_dim", head_dim, null=None) or head_size(size, count)
    return attention(size, count, kv_heads, width)


def head_size(size: Model, n_heads: int) -> int:
    """hidden_size / num_attention_heads. Raises ConfigError where it is no whole number."""
    if size["d_model"] % n_heads:
        problem = f"{n_heads:,} does not divide hidden_size = {size['d_model']:,}"
        raise ConfigError("num_attention_heads", problem, value=n_heads)
    return int(size["d_model"]) // n_heads


def attention(size: Model, n_heads: int, n_kv_heads: int, head_dim: int | None = None) -> Block:
    """mha, mqa or gqa, as the numbers say; without head_dim, heads share the width."""
    width = head_size(size, n_heads) if head_dim is None else head_dim
    if n_heads % n_kv_heads:
        problem = f"{n_kv_heads:,} does not divide num_attention_heads = {n_heads:,}"
        raise ConfigError("num_key_value_heads", problem, value=n_kv_heads)
    kind = "mha" if n_kv_heads == n_heads else "mqa" if n_kv_heads == 1 else "gqa"
    return {
        "choice": kind,
        "n_heads": n_heads,
        **({"n_kv_heads": n_kv_heads} if kind == "gqa" else {}),
        **({} if width * n_heads == size["d_model"] else {"head_dim": width}),
    }


def score_scale(scale: float, head_dim: int) -> Block:
    """The attention's scale, where it is not the usual 1 / sqrt(head_dim)."""
    return {} if scale == head_dim**-0.5 else {"scale": scale}


def head_dim_of(size: Model, attention: Block) -> int:
    return int(attention.get("head_dim") or size["d_model"] // attention["n_heads"])


def biases(qkv: bool, output: bool) -> Block:
    """The attention's biases, where it has some."""
    return {f"{name}_bias": True for name in ("qkv" if qkv else "") + ("o" if output else "")}


def rmsnorm(f: Fields, eps: float, **more: Any) -> Block:
    return {"choice": "rmsnorm", "eps": f.number("rms_norm_eps", eps), **more}


def layernorm(f: Fields, eps: float = 1e-5, **more: Any) -> Block:
    return {"choice": "layernorm", "eps": f.number("layer_norm_eps", eps), **more}


def activation(f: Fields, default: str) -> str:
    """archlab's name of the non-linearity."""
    return PLAIN[f.word("hidden_act", tuple(PLAIN), default)]


def gate(f: Fields, default: str = "silu") -> str:
    """The FFN that has the non-linearity as its gate."""
    return GATES[f.word("hidden_act", tuple(GATES), default)]


def plain_ffn(choice: str, d_ff: int, bias: bool = False) -> Block:
    return {"choice": choice, "d_ff": d_ff, **({"bias": True} if bias else {})}


def ffn(f: Fields, d_ff: int, bias: bool = False) -> Block:
    """A gated FFN of intermediate_size."""
    return plain_ffn(gate(f), f.whole("intermediate_size", d_ff), bias)


def d_ff_or_4x(f: Fields, size: Model) -> int:
    """intermediate_size, four times the width where it is not given."""
    width: int = f.whole("intermediate_size", None, null=None) or 4 * size["d_model"]
    return width


def rate(f: Fields, name: str, default: float = 0.0) -> float:
    """A dropout rate; null drops nothing."""
    value: float = f.number(name, default, null=0.0)
    if not 0 <= value < 1:
        raise f.wrong(f.spelled(name), f"{show(value)} is not a rate from 0 to below 1")
    return value


def dropout(embedding: float = 0.0, attention: float = 0.0, residual: float = 0.0) -> Block:
    """Rates at the classic places; the residual's is the FFN's too."""
    if not (embedding or attention or residual):
        return {"choice": "none"}
    if embedding == attention == residual:
        return {"choice": "classic", "p": residual}
    rates = {"embedding": embedding, "attention": attention, "residual": residual, "ffn": residual}
    return {"choice": "classic", "p": 0.0, **{place: r for place, r in rates.items() if r}}


def classic_dropout(f: Fields, default: float = 0.0) -> Block:
    """A rate for the embedding, for the attention and for the residual."""
    return dropout(*(rate(f, f"{place}_dropout", default) for place in ("embedding", "attention", "residual")))


def attention_dropout(f: Fields) -> Block:
    """The one rate that most newer families have."""
    return dropout(attention=rate(f, "attention_dropout"))


def head(f: Fields, tied: bool, **more: Any) -> Block:
    return {"choice": "tied" if f.flag("tie_word_embeddings", tied) else "untied", **more}


def pre_norm(**more: Any) -> Block:
    return {"choice": "pre_norm", **more}


def exact_fraction(part: int, whole: int) -> float:
    """part / whole, nudged where the product with whole would round down to below part."""
    fraction = part / whole
    return fraction if int(whole * fraction) == part else math.nextafter(fraction, 2)


def layered(model: Model, changes: Sequence[Mapping[str, Block]]) -> Model:
    """The model with what its layers change, one mapping of axes a layer, as a pattern that repeats.

    What all layers change becomes the model's own. Equal neighbours are folded, and the shortest period is kept.
    """
    kinds: dict[str, int] = {}
    order = [kinds.setdefault(repr(change), len(kinds)) for change in changes]
    if len(kinds) == 1:
        return {**model, **{axis: _merged(model[axis], block) for axis, block in changes[0].items()}}
    first = changes[: _period(order)]
    touched = _touched(first)
    explicit = [_explicit(model, change, touched) for change in first]
    return {**model, "layers": [_repeated(entry, list(same)) for entry, same in itertools.groupby(explicit)]}


def _merged(base: Block, block: Block) -> Block:
    return block if block.get("choice", base["choice"]) != base["choice"] else {**base, **block}


def _repeated(entry: Mapping[str, Block], same: Sequence[Any]) -> dict[str, Any]:
    return {**entry, **({"repeat": len(same)} if len(same) > 1 else {})}


def _touched(changes: Sequence[Mapping[str, Block]]) -> dict[str, dict[str, None]]:
    """The options that some layer sets, by axis; those of a choice of its own are that layer's alone."""
    touched: dict[str, dict[str, None]] = {}
    for change in changes:
        for axis, block in change.items():
            if "choice" not in block:
                touched.setdefault(axis, {}).update(dict.fromkeys(block))
    return touched


def _explicit(model: Model, change: Mapping[str, Block], touched: Mapping[str, Mapping[str, None]]) -> dict[str, Block]:
    """A layer's entry that also says which options are as the model's, but not which choice: a swap shall reach it."""
    own = {axis: {key: model[axis].get(key) for key in keys} for axis, keys in touched.items()}
    return {**own, **{axis: dict(block) for axis, block in change.items()}}


def _period(order: Sequence[int]) -> int:
    """The shortest p with order[i] == order[i - p] for every i >= p, by the prefix function of Knuth-Morris-Pratt."""
    border = [0] * len(order)
    for i in range(1, len(order)):
        k = border[i - 1]
        while k and order[i] != order[k]:
            k = border[k - 1]
        border[i] = k + (order[i] == order[k])
    return len(order) - border[-1]
