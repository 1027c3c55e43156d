"""Which layer's keys and values a layer reads that has none of its own. Brandon et al. 2024 (CLA).

It reads those of the nearest layer before it whose keys and values are such as its own would be. So local layers read
a local layer's and global layers a global one's, as in Gemma 3n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from archlab.components.attention.spec import GroupedAttention
from archlab.components.locality import Locality
from archlab.components.position.spec import Position
from archlab.errors import ConfigError
from archlab.frozen import Frozen, values_of

if TYPE_CHECKING:
    from archlab.decoder.spec import LayerSpec


class KVKind(Frozen):
    """What keys and values are like: layers share those of one kind.

    locality: what is kept of them, and what a query may see; a ring lacks what a query that sees further would ask for.
    rotation: they are kept turned, None where they are not.
    """

    n_kv_heads: int
    head_dim: int
    locality: Locality
    rotation: Position | None


def kv_kind(layer: LayerSpec) -> KVKind | None:
    """The kind of a layer's keys and values; None of latent attention, which is not shared."""
    attention = layer.attention
    if not isinstance(attention, GroupedAttention):
        return None
    position, width = layer.position_kind
    return KVKind(attention.n_kv_heads, attention.head_dim, attention.locality, position if width else None)


def kv_sources(layers: Sequence[LayerSpec]) -> tuple[int, ...]:
    """For each layer, the one whose keys and values it reads. Raises ConfigError where there is none of its kind."""
    if not any(layer.attention.shares_kv for layer in layers):
        return tuple(range(len(layers)))
    latest: dict[KVKind | None, int] = {}
    sources = []
    for index, (layer, kind) in enumerate(zip(layers, _kinds(layers), strict=True)):
        if not layer.attention.shares_kv:
            latest[kind] = index
        elif kind not in latest:
            raise ConfigError("shares_kv", _problem(index, kind, latest), value=True)
        sources.append(latest[kind])
    return tuple(sources)


def shared_kinds(layers: Sequence[LayerSpec]) -> tuple[int | None, ...]:
    """For each layer, the number of the kind of its keys and values; None where no layer shares that kind."""
    sharing = [layer for layer in layers if layer.attention.shares_kv]
    shared = {kind: number for number, kind in enumerate(dict.fromkeys(_kinds(sharing)))}
    return tuple(map(shared.get, _kinds(layers))) if shared else (None,) * len(layers)


def sharing_groups(layers: Sequence[LayerSpec]) -> tuple[tuple[tuple[LayerSpec, ...], int], ...]:
    """Each distinct run of a layer and those that read its keys and values, and how many there are of it."""
    groups: dict[int, list[LayerSpec]] = {}
    for layer, source in zip(layers, kv_sources(layers), strict=True):
        groups.setdefault(source, []).append(layer)
    alike: dict[tuple[int, ...], list[tuple[LayerSpec, ...]]] = {}
    for group in groups.values():
        alike.setdefault(tuple(map(id, group)), []).append(tuple(group))
    return tuple((same[0], len(same)) for same in alike.values())


def _kinds(layers: Sequence[LayerSpec]) -> list[KVKind | None]:
    """The kind of each layer, made once of equal layers, which are one object."""
    kinds = {id(layer): kv_kind(layer) for layer in {id(layer): layer for layer in layers}.values()}
    return [kinds[id(layer)] for layer in layers]


def _problem(index: int, kind: KVKind | None, latest: Mapping[KVKind | None, int]) -> str:
    """Why a layer has nothing to read: what it could, and what the nearest layer before it has instead."""
    owners = {at: other for other, at in latest.items() if other is not None}
    if kind is None or not owners:
        return f"layer {index} has no layer before it to read from; set it on later ones, in model.layers"
    nearest = max(owners)
    theirs = values_of(owners[nearest])
    name, mine = next((name, mine) for name, mine in values_of(kind).items() if mine != theirs[name])
    can = f"layer {index} can only read keys and values {_text(name, mine)}"
    return f"{can}; layer {nearest}, the nearest before it, has them {_text(name, theirs[name])}"


def _text(name: str, value: Any) -> str:
    """`with head_dim = 64`, `of a window of 512`, `turned by rope (base 500.0)`."""
    if isinstance(value, Locality):
        kept = f"a window of {value.window}" if value.chunk is None else f"chunks of {value.chunk}"
        return "of all tokens" if value.limit is None else f"of {kept}"
    if isinstance(value, Position):
        options = ", ".join(f"{option} {given}" for option, given in value.options().items())
        return f"turned by {value.choice} ({options})"
    return "that are not turned" if value is None else f"with {name} = {value}"
