"""Weights on one device, where `tp` devices share each layer: tensor parallelism, Shoeybi et al. 2019 (Megatron-LM).

Heads are dealt out, and with them the columns of q, k and v and the rows of o; the middle of an FFN is, and with it up
and down, in each expert; rows of the vocabulary are, padded where they do not divide, and with them embedding and head.
KV heads that are fewer than the devices are copied. What no head and no middle owns is on every device: norms, biases
of o and down, routers, gates, the projections to MLA's latents, tables of positions. Each choice's `share` says so.
"""

from __future__ import annotations

from archlab.components.attention.base import Attention
from archlab.components.ffn.spec import FFN, MixtureOfExperts
from archlab.cost.kv import check_tp, valid_tp
from archlab.cost.storage import KEPT, Storage, tensor_bytes
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.errors import ConfigError
from archlab.frozen import Frozen, remembered


class Experts(Frozen):
    """Layers with routed experts, of one kind. size: bytes of all experts on one device, in all of these layers."""

    size: int
    n_experts: int
    per_token: int

    def touched(self, tokens: int) -> float:
        """Experts of a layer that so many tokens are expected to be sent to, each to its own choice of them, evenly."""
        return self.n_experts * (1 - (1 - self.per_token / self.n_experts) ** tokens)


class Weights(Frozen):
    """Bytes of the weights on one device, by how a pass reads them.

    whole: all of it. tables: one row a token (an embedding that is not the head too; learned positions). row: of the
    embedding. experts: those that some token is sent to.
    """

    whole: int
    tables: int
    row: int
    experts: tuple[Experts, ...]

    @property
    def total(self) -> int:
        return self.whole + self.tables + sum(kind.size for kind in self.experts)

    def read_experts(self, tokens: int) -> float:
        """Expected bytes of routed experts that a pass of so many tokens reads."""
        return sum(kind.size * kind.touched(tokens) / kind.n_experts for kind in self.experts)


def check_split(spec: DecoderSpec, tp: int) -> None:
    """Raise ConfigError where `tp` devices cannot share the heads and the FFN widths of every layer evenly."""
    check_tp(spec, tp, valid_split)
    for what, width in _widths(spec).items():
        if width % tp:
            raise ConfigError("tp", f"{tp} does not divide {what}", value=tp, valid=valid_split(spec))


def valid_split(spec: DecoderSpec) -> list[int]:
    """The numbers of devices that can, in rising order."""
    widths = _widths(spec).values()
    return [tp for tp in valid_tp(spec) if not any(width % tp for width in widths)]


def _widths(spec: DecoderSpec) -> dict[str, int]:
    """`d_ff = 18,944` and its value, of every kind of layer."""
    kinds = [layer.ffn.widths for layer, _ in spec.layer_kinds]
    return {f"{name} = {width:,}": width for widths in kinds for name, width in widths.items()}


def weights(spec: DecoderSpec, storage: Storage, tp: int = 1) -> Weights:
    """What one of `tp` devices holds, quantised as `storage.weight_bytes_by_part` says."""
    outer = storage if storage.plain else KEPT
    row = outer.bytes(spec.d_model, 1)
    embedding = up(spec.vocab_size, tp) * row
    placed, biases = 0, 0
    for position, _ in spec.position_kinds:
        size = sum(position.share(tp).params().values())
        placed, biases = (placed + size, biases) if position.embeds else (placed, biases + size)
    experts, layers = [], 0
    for layer, indices in spec.layer_kinds:
        each, routed = _layer_bytes(layer, storage, tp)
        layers += len(indices) * each
        if isinstance(layer.ffn, MixtureOfExperts):
            experts.append(Experts(len(indices) * routed, layer.ffn.n_experts, layer.ffn.experts_per_token))
    norms = (spec.block.final_norm + spec.block.embedding_norm) * sum(spec.norm.params(spec.d_model).values())
    around = norms + biases + sum(spec.head.share(tp).params().values())
    whole = layers + outer.bytes(around, 1) + (embedding if spec.head.tied else 0)
    tables = outer.bytes(placed, 1) + (0 if spec.head.tied else embedding)
    return Weights(whole, tables, row, tuple(experts))


def up(count: int, parts: int) -> int:
    """The largest of so many parts as even as they can be."""
    return -(-count // parts)


@remembered
def _layer_bytes(layer: LayerSpec, storage: Storage, tp: int) -> tuple[int, int]:
    """Bytes of one layer on one device: of what every token passes, and of routed experts."""
    here = layer.share(tp, 1) if tp > 1 else layer
    (attention, _), (ffn, routed) = _bytes(here.attention, storage), _bytes(here.ffn, storage)
    beside = sum(choice.n_params for choice in here.beside.values())
    return _kept_bytes(_norm_params(layer) + beside, storage) + attention + ffn, routed


def _bytes(choice: Attention | FFN, storage: Storage) -> tuple[int, int]:
    """Bytes of an attention or an FFN: of what every token passes, and of routed experts."""
    sizes = tensor_bytes(choice, storage)
    routed = sum(size for name, size in sizes.items() if name.startswith("experts."))
    return sum(sizes.values()) - routed, routed


def _norm_params(layer: LayerSpec) -> int:
    return len(layer.block.norm_names) * sum(layer.norm.params(layer.attention.d_model).values())


def _kept_bytes(params: int, storage: Storage) -> int:
    """Bytes of parameters that no quantisation touches."""
    return (storage if storage.plain else KEPT).bytes(params, 1)
