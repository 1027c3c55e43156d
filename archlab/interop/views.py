"""A layout as views: which piece of which tensor of a file is which piece of the model.

The two pieces have the same shape and are copied, to load or to save, so one description serves both ways: fused,
transposed, interleaved and stacked tensors are split and joined by the views alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from archlab.interop.components import components
from archlab.interop.layout import Held, Layout
from archlab.interop.task import SCORE

if TYPE_CHECKING:
    from archlab.decoder.module import Decoder

Pick = Callable[[Tensor], Tensor]


@dataclass
class HubTensor:
    """One tensor of a file: its shape, and its pieces, each with the piece of the model that it is."""

    shape: tuple[int, ...]
    pieces: list[tuple[Pick, Tensor]] = field(default_factory=list)

    @property
    def elements(self) -> int:
        return sum(ours.numel() for _, ours in self.pieces)

    def load(self, given: Tensor) -> None:
        for pick, ours in self.pieces:
            ours.copy_(pick(given))

    def save(self) -> Tensor:
        """The tensor as the file has it, on the CPU."""
        ours = self.pieces[0][1]
        given = torch.empty(self.shape, dtype=ours.dtype)
        for pick, ours in self.pieces:
            pick(given).copy_(ours)
        return given


def own_tensors(decoder: Decoder) -> dict[str, HubTensor]:
    """All tensors under archlab's own names."""
    return {name: _one(tensor) for name, tensor in decoder.state_dict(keep_vars=True).items()}


def hub_tensors(decoder: Decoder, layout: Layout) -> dict[str, HubTensor]:
    """All tensors under a family's names, as far as its layout knows the parts of this decoder."""
    parts = components(decoder)
    outside: dict[str, str | Held] = {f"{layout.prefix}{hub}": ours for hub, ours in layout.outside.items()}
    head = SCORE if decoder.spec.head.last_token_only else layout.head
    found = dict(_placed(parts, {**outside, head: "head"}, "", None))
    for index, layer in enumerate(decoder.spec.layers):
        where = f"{layout.prefix}{layout.layers}.{index}."
        inside = {f"{where}{hub}": ours for hub, ours in layout.inside.items()}
        found |= dict(_placed(parts, inside, f"layers.{index}.", layer.attention))
    return found


def _placed(
    parts: Mapping[str, Tensor], names: Mapping[str, str | Held], where: str, attention: object
) -> Iterator[tuple[str, HubTensor]]:
    """The tensors that a table of names gives."""
    for hub, ours in names.items():
        held = Held((ours,)) if isinstance(ours, str) else ours
        if "{e}" in hub:
            yield from _experts(parts, hub, f"{where}{held.parts[0]}")
            continue
        for suffix in ("", ".weight", ".bias"):
            found = [parts[name] for part in held.parts if (name := f"{where}{part}{suffix}") in parts]
            if len(found) == len(held.parts):
                ending = {".weight": "", ".bias": "_bias"}.get(suffix, suffix) if held.stacked else suffix
                yield f"{hub}{ending}", _by_head(found, attention) if held.by_head else _join(held, found)


def _experts(parts: Mapping[str, Tensor], hub: str, ours: str) -> Iterator[tuple[str, HubTensor]]:
    """The tensors of each expert, or head, by itself."""
    for suffix in (".weight", ".bias"):
        for index, one in enumerate(parts.get(f"{ours}{suffix}", ())):
            yield f"{hub.format(e=index)}{suffix}", _one(one)


def _one(tensor: Tensor) -> HubTensor:
    return HubTensor(tuple(tensor.shape), [(lambda whole: whole, tensor)])


def _join(held: Held, tensors: Sequence[Tensor]) -> HubTensor:
    """Tensors one below the other along their rows, or row by row in turn; then perhaps transposed."""
    axis = 1 if held.stacked else 0
    flip = held.transposed and tensors[0].dim() == axis + 2
    shape, rows = list(tensors[0].shape), [tensor.shape[axis] for tensor in tensors]
    shape[axis] = sum(rows)
    joined = HubTensor((*shape[:axis], *reversed(shape[axis:])) if flip else tuple(shape))
    for index, tensor in enumerate(tensors):
        start = sum(rows[:index])
        taken = slice(index, None, len(tensors)) if held.interleaved else slice(start, start + rows[index])
        joined.pieces.append((_picker(axis, taken, flip), tensor))
    return joined


def _picker(axis: int, rows: slice, flip: bool) -> Pick:
    def pick(whole: Tensor) -> Tensor:
        turned = whole.transpose(-1, -2) if flip else whole
        return turned[(slice(None),) * axis + (rows,)]

    return pick


def _by_head(tensors: Sequence[Tensor], attention: object) -> HubTensor:
    """Rows by KV head: the queries that read it, its key, its value."""
    heads, kv, width = (int(getattr(attention, name)) for name in ("n_heads", "n_kv_heads", "head_dim"))
    group = heads // kv
    joined = HubTensor(((heads + 2 * kv) * width, *tensors[0].shape[1:]))
    for tensor, rows in zip(tensors, (slice(0, group), slice(group, group + 1), slice(group + 1, None)), strict=True):
        joined.pieces.append((_head_picker((kv, group + 2, width), rows), tensor.unflatten(0, (kv, -1, width))))
    return joined


def _head_picker(shape: tuple[int, int, int], rows: slice) -> Pick:
    return lambda whole: whole.unflatten(0, shape)[:, rows]
