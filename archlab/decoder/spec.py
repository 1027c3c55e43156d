"""A whole model on paper: every layer listed, because layers differ; equal layers share one object."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from archlab.components.attention.base import Attention, CachedTensor, State
from archlab.components.block.spec import Block
from archlab.components.counted.costs import counted_costs
from archlab.components.dropout.spec import Dropout
from archlab.components.ffn.spec import FFN
from archlab.components.head.spec import Head, LanguageHead
from archlab.components.locality import Locality
from archlab.components.norm.spec import Norm
from archlab.components.placed import Placed
from archlab.components.position.spec import Position
from archlab.components.tape import Activation, Tape
from archlab.decoder.sharing import kv_sources, shared_kinds, sharing_groups
from archlab.errors import RequestError, shortened
from archlab.frozen import Frozen, derived, fields_of, replace, values_of
from archlab.options import Spec
from archlab.registry import choice

MAX_LAYERS = 10_000
MANY_KINDS = 16
"""Kinds of layer up to which all are listed."""


def listed_kinds(kinds: int) -> int:
    """How many of so many kinds of layer are told one by one; the others are counted."""
    return kinds if kinds <= MANY_KINDS else MANY_KINDS // 2


class LayerSpec(Frozen):
    """One layer: a residual layout around attention and FFN. placed: the choice at each place, see `archlab.place`."""

    block: Block
    norm: Norm
    position: Position
    attention: Attention
    ffn: FFN
    dropout: Dropout
    placed: tuple[Placed, ...] = ()

    @property
    def position_kind(self) -> tuple[Position, int]:
        """The position choice and what it is made for: the features of a head that it may rotate, 0 for none."""
        return self.made_for(self.position)

    def made_for(self, position: Position) -> tuple[Position, int]:
        """A position choice, and what it would be made for in this layer."""
        width = self.attention.rotary_width
        return position, width if position.rotary_dim(width) else 0

    def axes(self) -> dict[str, Spec]:
        """The layer's choice on each of its axes."""
        own = {axis: part for axis, part in values_of(self).items() if axis != "placed"}
        return own | {part.axis: part for part in self.placed}

    def with_axes(self, axes: Mapping[str, Any]) -> LayerSpec:
        """The same with other choices on some axes."""
        own = {axis: part for axis, part in axes.items() if axis in fields_of(LayerSpec)}
        return replace(self, **own, placed=tuple(axes.get(part.axis, part) for part in self.placed))

    @property
    def beside(self) -> dict[str, Block | Placed]:
        """What has parameters beside norms, attention and FFN, by the part that they count under."""
        return {"other": self.block, **{part.axis: part for part in self.placed}}

    @derived
    def states(self) -> dict[tuple[str, str], State]:
        """What the layer keeps of a sequence however long it is, by axis and name."""
        keeping: tuple[Attention | Placed, ...] = (self.attention, *self.placed)
        return {(part.axis, state.name): state for part in keeping for state in part.states()}

    def on_tape(self, tape: Tape, x: Activation) -> Activation:
        """The layer's output for x, of a pass over all tokens of the sequences."""
        norm = functools.partial(self.norm.on_tape, tape)
        attention, ffn = (functools.partial(part, tape) for part in (self.attention_on_tape, self.ffn_on_tape))
        return self.block.on_tape(tape, x, norm, attention, ffn)

    def attention_on_tape(self, tape: Tape, x: Activation) -> Activation:
        y = self.attention.on_tape(tape, self._placed_on_tape("attention", True, tape, x), self.dropout, self.position)
        return self._placed_on_tape("attention", False, tape, y)

    def ffn_on_tape(self, tape: Tape, x: Activation) -> Activation:
        y = self.ffn.on_tape(tape, self._placed_on_tape("ffn", True, tape, x), self.dropout.ffn)
        return self._placed_on_tape("ffn", False, tape, y)

    def _placed_on_tape(self, part: str, before: bool, tape: Tape, x: Activation) -> Activation:
        """x through what stands before or after a part."""
        for placed in self.placed:
            if (placed.place.part, placed.place.before) == (part, before):
                x = placed.on_tape(tape, x)
        return x

    def share(self, tp: int, ep: int) -> LayerSpec:
        """What one device computes of it: its heads, its share of each matrix and of the routed experts."""
        return replace(
            self,
            attention=self.attention.share(tp),
            ffn=self.ffn.share(tp, ep),
            position=self.position.share(tp),
            placed=tuple(part.share(tp) for part in self.placed),
        )


class DecoderSpec(Frozen):
    """The torch-free description that costs, module and clocks share.

    `block`, `norm`, `position` and `dropout` are the model's own: they place the embedding, the final norm and the
    two dropouts outside the layers. Layers carry their own, which a pattern may change. `family` is the Hugging Face
    model_type of an imported model: it says how the tensors in a file of its weights are named. `tokenizer_vocab` are
    the tokens that there are; `vocab_size` counts the rows of the embedding, which may be padded.
    """

    name: str
    d_model: int
    vocab_size: int
    tokenizer_vocab: int
    context: int
    block: Block
    norm: Norm
    position: Position
    dropout: Dropout
    head: Head
    layers: tuple[LayerSpec, ...]
    family: str | None = None

    def on_backend(self, backend: str) -> DecoderSpec:
        """The same with another backend of attention in every layer that lets it be chosen."""
        made = {
            id(layer): replace(layer, attention=layer.attention.on_backend(backend)) for layer, _ in self.layer_kinds
        }
        return replace(self, layers=tuple(made[id(layer)] for layer in self.layers))

    @property
    def one_of_each(self) -> DecoderSpec:
        """The same with the first layer of each kind alone."""
        return replace(self, layers=tuple(layer for layer, _ in self.layer_kinds))

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @property
    def unused_rows(self) -> int:
        """Rows of the embedding that no token has: the padding of the vocabulary."""
        return self.vocab_size - self.tokenizer_vocab

    @property
    def unused_params(self) -> int:
        """Parameters of these rows, in the embedding and in a head that has rows of its own."""
        head = sum(self.head.params().values()) if isinstance(self.head, LanguageHead) else 0
        return self.unused_rows * (self.d_model + head // self.vocab_size)

    @derived
    def layer_kinds(self) -> tuple[tuple[LayerSpec, tuple[int, ...]], ...]:
        """Each distinct layer with the indices where it stands, in order of first appearance."""
        kinds = dict(zip(map(id, self.layers), self.layers, strict=True))
        if len(kinds) == 1:
            return ((self.layers[0], tuple(range(len(self.layers)))),)
        standing: dict[int, list[int]] = {kind: [] for kind in kinds}
        for index, kind in enumerate(map(id, self.layers)):
            standing[kind].append(index)
        return tuple((layer, tuple(standing[kind])) for kind, layer in kinds.items())

    @derived
    def cache_kinds(self) -> tuple[tuple[tuple[int, ...], Locality, tuple[CachedTensor, ...]], ...]:
        """For each of `layer_kinds`: where it stands, how far back it sees, and what it keeps of a token."""
        return tuple((at, layer.attention.locality, layer.attention.cached_once) for layer, at in self.layer_kinds)

    @derived
    def layer_counts(self) -> tuple[tuple[LayerSpec, int], ...]:
        """Each distinct layer and how many there are of it: what sums over the layers go through."""
        return tuple((layer, len(indices)) for layer, indices in self.layer_kinds)

    @derived
    def kv_sources(self) -> tuple[int, ...]:
        """For each layer, the one whose keys and values it reads: itself, unless it shares. Raises ConfigError."""
        return kv_sources(self.layers)

    @derived
    def shared_kv(self) -> tuple[int | None, ...]:
        """For each layer, the number of the kind of its keys and values; None where no layer shares that kind."""
        return shared_kinds(self.layers)

    @derived
    def sharing_groups(self) -> tuple[tuple[tuple[LayerSpec, ...], int], ...]:
        """As `layer_counts`, but a layer with those that read its keys and values."""
        if any(layer.attention.shares_kv for layer, _ in self.layer_kinds):
            return sharing_groups(self.layers)
        return tuple(((layer,), count) for layer, count in self.layer_counts)

    @derived
    def position_kinds(self) -> tuple[tuple[Position, int], ...]:
        """Each distinct position choice with the width it is made for, the model's own first.

        Layers with the same one share a table, or the trained bias.
        """
        kinds = [self.layers[0].made_for(self.position), *(layer.position_kind for layer, _ in self.layer_kinds)]
        return tuple(dict.fromkeys(kinds))

    @derived
    def max_length(self) -> int | None:
        """The longest run that every position choice can place, None where there is no end."""
        positions = [self.position, *(layer.position for layer, _ in self.layer_kinds)]
        ends = [p.max_length for p in positions if p.max_length is not None]
        return min(ends, default=None)

    @derived
    def remarks(self) -> tuple[str, ...]:
        """What somebody who set the options might not expect of the layers' choices, a line each."""
        said = (f"{axis}: {remark}" for axis, part in self.parts for remark in part.remarks())
        counted = (f"{axis} {name}: {', '.join(costs)} counted on the module" for axis, name, costs in self.counted)
        return tuple(dict.fromkeys((*said, *counted)))

    @derived
    def counted(self) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
        """Choices whose specs do not say all that they cost: axis, name, and what is counted on their modules."""
        kinds = {(axis, part.choice): counted_costs(type(part)) for axis, part in self.parts}
        return tuple((axis, name, costs) for (axis, name), costs in kinds.items() if costs)

    @property
    def parts(self) -> tuple[tuple[str, Spec], ...]:
        """Each distinct choice with its axis."""
        parts = {id(part): (axis, part) for layer, _ in self.layer_kinds for axis, part in layer.axes().items()}
        return (*parts.values(), ("head", self.head))

    @property
    def of_others(self) -> tuple[str, ...]:
        """The choices that are not archlab's own, as `norm/dyt`; what stands idle at a place is none."""
        own = (("block", self.block), ("norm", self.norm), ("position", self.position))
        used = [(axis, part) for axis, part in (*self.parts, *own) if not (isinstance(part, Placed) and part.idle)]
        return tuple(dict.fromkeys(f"{axis}/{part.choice}" for axis, part in used if choice(axis, part.choice).origin))

    @property
    def reach(self) -> int:
        """Tokens that a figure is of where nobody says how many: the context, or as far as the positions go."""
        return min(self.context, self.max_length or self.context)

    def check_length(self, length: int) -> None:
        """Raise RequestError where a run of `length` tokens in all goes past the positions' end."""
        if self.max_length is not None and length > self.max_length:
            raise RequestError(f"positions end at {self.max_length} tokens; {length} were asked for")


def check_spec(spec: Any) -> None:
    """Raise RequestError for what is no spec, which may be the name of one."""
    if not isinstance(spec, DecoderSpec):
        name = spec if isinstance(spec, str) else "gpt2"
        raise RequestError(f"a model is a spec, as archlab.load({name!r}) gives, not {shortened(repr(spec))}")
