"""A decoder's tensors taken apart: one view for each projection, whichever way the module fuses them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from archlab.decoder.module import Decoder

_EXPERTS = re.compile(r"(?P<where>.*\.experts)\.(?P<name>gate_up|up|down)(?P<bias>_bias)?$")


def components(decoder: Decoder) -> dict[str, Tensor]:
    """Views of every saved tensor by component: `layers.0.attention.q.weight`, `layers.3.ffn.experts.gate.weight`.

    qkv and gate_up are split along their rows. The experts' stacks keep their first dimension, the experts.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in decoder.state_dict(keep_vars=True).items():
        found.update(_split(name, tensor, decoder))
    return found


def _split(name: str, tensor: Tensor, decoder: Decoder) -> Iterator[tuple[str, Tensor]]:
    experts = _EXPERTS.match(name)
    owner, _, kind = name.rpartition(".")
    if experts:
        suffix = "bias" if experts["bias"] else "weight"
        yield from _halves(experts["where"], experts["name"], suffix, tensor, 1)
    elif owner.endswith(".attention.qkv"):
        attention = decoder.spec.layers[int(owner.split(".")[1])].attention
        widths = [attention.q_width, attention.kv_width, attention.kv_width]
        for part, view in zip("qkv", tensor.split(widths), strict=True):
            yield f"{owner.removesuffix('qkv')}{part}.{kind}", view
    elif owner.endswith(".gate_up"):
        yield from _halves(owner.removesuffix(".gate_up"), "gate_up", kind, tensor, 0)
    else:
        yield re.sub(r"^positions\.0\.", "position.", name), tensor


def _halves(where: str, name: str, suffix: str, tensor: Tensor, axis: int) -> Iterator[tuple[str, Tensor]]:
    """gate_up as its two halves, gate first; anything else as it is."""
    names = ("gate", "up") if name == "gate_up" else (name,)
    for part, view in zip(names, tensor.chunk(len(names), axis), strict=True):
        yield f"{where}.{part}.{suffix}", view
