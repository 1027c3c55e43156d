"""The path of a token as a table, for `archlab shapes`: sizes by the names that papers give them, and as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from archlab.components.attention.base import Attention
from archlab.components.attention.latent import LatentAttention
from archlab.components.attention.spec import GroupedAttention
from archlab.components.ffn.spec import FFN, FeedForward, MixtureOfExperts
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.document import Column, Document, Table
from archlab.errors import RequestError
from archlab.inside.trace import Shape, Step, trace

COLUMNS = (
    Column("layer"),
    Column("step"),
    Column("input"),
    Column("output"),
    Column("sizes", how="of the output, as numbers"),
    Column("parameters", "parameters", "exact", "of the built module's own tensors"),
    Column(
        "flops", "FLOP", "exact", "torch's counter on the forward pass: two a multiply-add, all scores of the square"
    ),
    Column("kept", "B", "exact", "what autograd keeps of this step, with the explicit softmax"),
)
FUSED = "the fused softmax keeps no scores: `archlab memory --train` has what training keeps with it"
EXPERTS = "what experts keep hangs on who is routed where: `archlab memory --train` has it"


def document(spec: DecoderSpec, batch: int, context: int, layer: int | None = None, dtype: str = "fp32") -> Document:
    """The steps of the layer, None for the first of each kind, and of what is around the layers.

    batch x context token ids. Raises RequestError for a layer that there is not, or more tokens than positions reach.
    """
    shown, steps = _shown(spec, layer), trace(spec, batch, context, dtype)
    rows = [_row(step, spec, batch, context) for step in steps if step.layer is None or step.layer in shown]
    left = spec.n_layers - len(shown)
    more = [f"{left:,} more layers are not shown; --layer shows another"] if left else []
    lost = [EXPERTS] if any(step.kept is None for step in steps) else []
    first = spec.layers[shown[0]]
    own = {"B": batch, "n": context, "d": spec.d_model, "V": spec.vocab_size}
    names = own | _attention_sizes(first.attention) | _ffn_sizes(first.ffn)
    sizes = ", ".join(f"{name} = {size:,}" for name, size in names.items() if name.replace("_", "").isalpha())
    about = f"batch {batch:,} x {context:,} tokens, {dtype}"
    return Document(
        command="shapes",
        model=spec.name,
        tables=[Table("shapes", "The path of a token", COLUMNS, rows, about), _totals(steps)],
        assumptions={"sizes": sizes, "taken from": "the module on the meta device, by hooks"},
        notes=[*more, FUSED, *lost],
    )


def _shown(spec: DecoderSpec, layer: int | None) -> list[int]:
    if layer is None:
        return [indices[0] for _, indices in spec.layer_kinds]
    if not 0 <= layer < spec.n_layers:
        raise RequestError(f"layer {layer}: {spec.name} has layers 0 to {spec.n_layers - 1}")
    return [layer]


def _totals(steps: Iterable[Step]) -> Table:
    """What all steps come to, those of layers that are not shown among them."""
    steps = list(steps)
    row: dict[str, Any] = {"steps": len(steps), "parameters": sum(step.parameters for step in steps)}
    row["flops"] = sum(step.flops for step in steps)
    return Table("totals", "All layers", (Column("steps", "steps"), *COLUMNS[5:7]), [row])


def _row(step: Step, spec: DecoderSpec, batch: int, context: int) -> dict[str, Any]:
    inside = _sizes(spec, spec.layers[step.layer or 0], step.path)
    leaf = step.what or step.path.rpartition(".")[2]
    first, last = ({"d": spec.d_model} | inside, inside | {"d": spec.d_model})
    outputs = {"n": context} | inside if leaf == "scores" else last if leaf in INTO else first
    return {
        "layer": step.layer,
        "step": f"{step.path.removeprefix(f'layers.{step.layer}').lstrip('.')} {step.what}".strip(),
        "input": _named(step.inputs, last if leaf in FROM_INSIDE else first, batch, context),
        "output": _named(step.output, outputs, batch, context),
        "sizes": _bracket(f"{size:,}" for size in step.output),
        "parameters": step.parameters,
        "flops": step.flops,
        "kept": step.kept,
    }


HEADS = ("queries", "keys", "values", "scores", "softmax(scores) values")
FROM_INSIDE = (*HEADS, "between", "o", "down", "q_up", "kv_up", "q_norm", "k_norm", "kv_norm")
"""Steps whose input is as wide as something inside of attention or FFN, where that may be d too."""
INTO = (
    *HEADS,
    "between",
    "qkv",
    "q",
    "k",
    "v",
    "q_down",
    "kv_down",
    "q_up",
    "kv_up",
    "gate_up",
    "up",
    "head",
    "router",
)
"""Steps whose output is."""


def _sizes(spec: DecoderSpec, layer: LayerSpec, path: str) -> dict[str, int]:
    """The widths that there are in a part of the model, by the name of each."""
    if ".attention" in path:
        return _attention_sizes(layer.attention)
    if ".ffn" in path:
        return _ffn_sizes(layer.ffn)
    if path.startswith("positions"):
        return {"h": layer.attention.n_heads}
    if path == "head":
        return {"V": spec.vocab_size} | ({"C": spec.head.width} if spec.head.width > 1 else {})
    return {}


def _attention_sizes(attention: Attention) -> dict[str, int]:
    heads = attention.n_heads
    if isinstance(attention, LatentAttention):
        latent = {"q_rank": attention.q_rank or 0, "kv_rank": attention.kv_rank}
        latent |= {"kv_rank + rope_dim": attention.kv_rank + attention.rope_dim, "qk_dim": attention.qk_dim}
        wide = {"h qk_dim": heads * attention.qk_dim, "h v_dim": heads * attention.v_dim, "v_dim": attention.v_dim}
        return {**latent, **wide, "h (nope_dim + v_dim)": heads * (attention.nope_dim + attention.v_dim), "h": heads}
    if isinstance(attention, GroupedAttention):
        kv, width = attention.n_kv_heads, attention.head_dim
        wide = {"h hd": heads * width, "kv hd": kv * width, "(h + 2 kv) hd": (heads + 2 * kv) * width, "hd": width}
        return {**wide, "h": heads, "kv": kv}
    return {"h": heads}


def _ffn_sizes(ffn: FFN) -> dict[str, int]:
    if isinstance(ffn, MixtureOfExperts):
        shared = {} if ffn.shared is None else {"f_shared": ffn.shared.d_ff, "2 f_shared": 2 * ffn.shared.d_ff}
        return {"k": ffn.experts_per_token, **shared}
    return {"f": ffn.d_ff, "2 f": 2 * ffn.d_ff} if isinstance(ffn, FeedForward) else {}


def _named(shape: Shape, names: Mapping[str, int], batch: int, context: int) -> str:
    """`[B, n, d]`: a size by its place where that says what it is, else by the names of its part of the model."""
    if shape[:2] == (batch, context):
        placed = ["B", "n"]
    elif shape[-2:] == (context, context) and len(shape) < 4:  # what positions add to the scores of all sequences
        return _bracket([*(_name(size, names) for size in shape[:-2]), "n", "n"])
    elif len(shape) == 4 and shape[2] == context:
        heads = {name: size for name, size in names.items() if name in ("h", "kv")}
        placed = ["B", _name(shape[1], heads), "n"]
    elif shape[0] == batch * context:
        placed = ["B n"]
    else:
        placed = ["B"]
    return _bracket([*placed, *(_name(size, names) for size in shape[len(placed) :])])


def _name(size: int, names: Mapping[str, int]) -> str:
    return next((name for name, value in names.items() if value == size), f"{size:,}")


def _bracket(parts: Iterable[str]) -> str:
    return f"[{', '.join(parts)}]"
