"""What one choice costs in a model: its parameters, what it keeps of a token, the FLOPs of one decoded token.

Each figure is a sum over the layers that make the choice, and what there is of it outside them. Over a spec of symbols
it gives its form, as every closed form does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from archlab.cost.flops import decode_parts
from archlab.cost.params import parameters
from archlab.cost.symbols import number
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.frozen import Frozen

TABLE_WIDTH = 4
"""Bytes of an element of a fixed table, which is float32 whatever the model's dtype is."""


class At(Frozen):
    """Where it is costed. tokens: that the decoded token sees, itself among them; width: bytes of a cached element."""

    tokens: int
    width: int


Of = Callable[[DecoderSpec, str, At], int]
"""A figure of what the choice of this name is outside the layers, or of the whole model whatever the name."""


class Cost(Frozen):
    """One figure of a choice. each: of one layer that makes it; of: of the whole model, to be a share of."""

    unit: str
    how: str
    each: Callable[[LayerSpec, At], int] | None = None
    outside: Of | None = None
    of: Of | None = None

    def total(self, model: DecoderSpec, axis: str, name: str, at: At) -> int:
        """The sum over the layers that make the choice, and what is outside them."""
        found = 0 if self.outside is None else self.outside(model, name, at)
        if self.each is not None:
            found += sum(
                count * self.each(layer, at) for layer, count in model.layer_counts if makes(layer, axis, name)
            )
        return found


def makes(layer: LayerSpec, axis: str, name: str) -> bool:
    """Whether a layer makes a choice."""
    made: Any = layer.axes()[axis]
    return bool(made.choice == name)


def at(model: DecoderSpec, tokens: int, width: int) -> At:
    """Where a model is costed; over symbols by their names."""
    return At(number(model, tokens, "context"), number(model, width, "bytes"))


# --- of the whole model -----------------------------------------------------------------------------------------------


def _all_params(model: DecoderSpec, name: str, at: At) -> int:
    return parameters(model).total


def _all_kept(model: DecoderSpec, name: str, at: At) -> int:
    return sum(count * _kept(layer, at) for layer, count in model.layer_counts)


def _all_flops(model: DecoderSpec, name: str, at: At) -> int:
    return sum(decode_parts(model, at.tokens).values())


# --- of a layer -------------------------------------------------------------------------------------------------------


def _attention_params(layer: LayerSpec, at: At) -> int:
    return layer.attention.n_params - layer.attention.n_norm_params


def _kept(layer: LayerSpec, at: At) -> int:
    return sum(tensor.elements_per_token for tensor in layer.attention.cached()) * at.width


def _projections(layer: LayerSpec, at: At) -> int:
    return layer.attention.decode_flops(1, 0)


def _scores(layer: LayerSpec, at: At) -> int:
    seen = layer.attention.locality.seen(at.tokens)
    return layer.attention.decode_flops(1, seen) - layer.attention.decode_flops(1, 0)


def _ffn_params(layer: LayerSpec, at: At) -> int:
    return layer.ffn.n_params


def _ffn_used(layer: LayerSpec, at: At) -> int:
    return layer.ffn.n_params - layer.ffn.idle_params


def _ffn_flops(layer: LayerSpec, at: At) -> int:
    return layer.ffn.flops(1)


def _norms_around(layer: LayerSpec, at: At) -> int:
    return len(layer.block.norm_names)


def _norm_params_around(layer: LayerSpec, at: At) -> int:
    return len(layer.block.norm_names) * sum(layer.norm.params(layer.attention.d_model).values())


def _block_params(layer: LayerSpec, at: At) -> int:
    return _norm_params_around(layer, at) + layer.block.n_params


def _norm_params(layer: LayerSpec, at: At) -> int:
    return _norm_params_around(layer, at) + layer.attention.n_norm_params


# --- outside the layers -----------------------------------------------------------------------------------------------


def _outer_norms(model: DecoderSpec, name: str, at: At) -> int:
    return model.block.final_norm + model.block.embedding_norm


def _outer_norm_params(model: DecoderSpec, name: str, at: At) -> int:
    return _outer_norms(model, name, at) * sum(model.norm.params(model.d_model).values())


def _outer_if_so(model: DecoderSpec, name: str, at: At) -> int:
    return _outer_norm_params(model, name, at) if model.norm.choice == name else 0


def _position_params(model: DecoderSpec, name: str, at: At) -> int:
    return sum(sum(kind.params().values()) for kind, _ in model.position_kinds if kind.choice == name)


def _table_bytes(model: DecoderSpec, name: str, at: At) -> int:
    kinds = [(kind, kind.rotary_dim(head)) for kind, head in model.position_kinds if kind.choice == name]
    rows = sum(kind.table_elements(number(model, turned, "rotary_dim"), model.context) for kind, turned in kinds)
    return rows * TABLE_WIDTH


def _head_params(model: DecoderSpec, name: str, at: At) -> int:
    return sum(model.head.params().values())


def _shared(model: DecoderSpec, name: str, at: At) -> int:
    return model.vocab_size * model.d_model if model.head.tied else 0


def _head_flops(model: DecoderSpec, name: str, at: At) -> int:
    return model.head.flops(1)


PARAMETERS, FLOP = "parameters", "FLOP"
TOKEN = "of one decoded token, matmul FLOPs, 2 a multiply-add"

COSTS: Mapping[str, Mapping[str, Cost]] = {
    "norm": {
        "params": Cost(
            PARAMETERS,
            "every norm of this choice, those of queries, keys and latents among them",
            _norm_params,
            _outer_if_so,
            _all_params,
        )
    },
    "position": {
        "params": Cost(PARAMETERS, "once for all layers that are alike in it", None, _position_params, _all_params),
        "table_bytes": Cost("B", "fixed tables for the model's context, float32", None, _table_bytes),
    },
    "attention": {
        "params": Cost(PARAMETERS, "norms of queries, keys and latents apart", _attention_params, None, _all_params),
        "kv_bytes_per_token": Cost("B", "what is kept of each token of one sequence", _kept, None, _all_kept),
        "flops_projections": Cost(FLOP, f"{TOKEN}: into heads and out of them", _projections, None, _all_flops),
        "flops_scores": Cost(FLOP, f"{TOKEN}: queries with keys, weights with values", _scores, None, _all_flops),
    },
    "ffn": {
        "params": Cost(
            PARAMETERS, "every parameter, of a mixture those of all experts", _ffn_params, None, _all_params
        ),
        "params_active": Cost(PARAMETERS, "those that one token uses", _ffn_used, None, _all_params),
        "flops": Cost(FLOP, TOKEN, _ffn_flops, None, _all_flops),
    },
    "dropout": {},
    "head": {
        "params": Cost(PARAMETERS, "none where the weight is the embedding's", None, _head_params, _all_params),
        "params_shared": Cost(PARAMETERS, "the embedding's, which it uses too", None, _shared, _all_params),
        "flops": Cost(FLOP, TOKEN, None, _head_flops, _all_flops),
    },
    "block": {
        "norms": Cost("norms", "each over the d_model features of the residual stream", _norms_around, _outer_norms),
        "params": Cost(
            PARAMETERS, "those of these norms, and what it has itself", _block_params, _outer_norm_params, _all_params
        ),
    },
}
"""What the choices of each axis cost."""


def costs_on(axis: str) -> Mapping[str, Cost]:
    """What the choices of an axis cost, or those at a place."""
    return COSTS[axis] if axis in COSTS else _at_place(axis)


def _at_place(axis: str) -> Mapping[str, Cost]:
    def placed(layer: LayerSpec) -> Any:
        return layer.axes()[axis]

    def kept(layer: LayerSpec, at: At) -> int:
        return sum(state.elements for state in placed(layer).states()) * at.width

    return {
        "params": Cost(PARAMETERS, "every parameter", lambda layer, at: placed(layer).n_params, None, _all_params),
        "state_bytes": Cost("B", "kept of one sequence, however long it is", kept),
        "flops": Cost(FLOP, TOKEN, lambda layer, at: placed(layer).flops(1), None, _all_flops),
    }
