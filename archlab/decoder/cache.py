"""The KV cache: static, preallocated, one set of tensors a layer as its attention's spec says.

A layer that sees only so far has room for so many tokens: a ring, whose oldest place is written next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from archlab.components.attention.base import Attention
from archlab.components.locality import Locality
from archlab.components.span import Span, TensorSpan
from archlab.decoder.dtype import torch_dtype
from archlab.decoder.spec import DecoderSpec
from archlab.errors import RequestError


def _fixed(tensor: Tensor) -> Tensor:
    """A tensor that stays where it is: torch.compile makes no CUDA graph that writes to one which might move.

    As torch._dynamo.mark_static_address(tensor, guard=False) does, which would import a compiler, 1 s.
    """
    tensor._dynamo_static_input_type = "unguarded"  # type: ignore[attr-defined]
    return tensor


@dataclass(frozen=True)
class LayerCache:
    """One layer's tensors, [B, heads, length, width] each, and where the tokens of this pass go."""

    tensors: Mapping[str, Tensor]
    span: Span | TensorSpan
    locality: Locality
    states: Mapping[tuple[str, str], Tensor]

    def store(self, **new: Tensor) -> list[Tensor]:
        """Write each [B, heads, n, width]; what this pass reads under the same names, in the same order.

        Gradients stop here: a cache is for running a model, not for training it.
        """
        return [self.span.write(self.tensors[name], tensor.detach(), self.locality) for name, tensor in new.items()]

    def recall(self, owner: str, name: str, start: Tensor) -> Tensor:
        """What an axis keeps of each sequence under a name, a copy, [B, ..]; `start` before the first token."""
        held = self.states[owner, name].to(start.dtype, copy=True)
        if isinstance(self.span, Span):
            return held if self.span.start else start
        return torch.where(self.span.at[0] > 0, held, start)

    def carry(self, owner: str, name: str, state: Tensor) -> None:
        """Keep this in its place; gradients stop here."""
        self.states[owner, name].copy_(state.detach())


class KVCache:
    """Room for `length` tokens of `batch` sequences; a layer with a window or chunks has slots for one of them.

    position: int64 scalar tensor, the tokens held. In eager mode a number beside it lets reads stop at the last live
    token; where torch.compile traces, or with `static` (CUDA graphs), only the tensor is used and reads are masked, but
    for a prompt that torch.compile sees go into an empty cache.
    `layers[i]` maps a tensor's name to the tensor, `states[i]` an axis and a name to what the layer keeps of a sequence
    however long it is. `nbytes` is exactly the bytes of all.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        batch: int,
        length: int,
        dtype: str | torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        *,
        static: bool = False,
    ) -> None:
        if batch < 1 or length < 1:
            raise RequestError(f"a KV cache needs a batch and a length of 1 or more, not {batch} and {length}")
        self.batch, self.length, self.static = batch, length, static
        self.dtype, self.device = torch_dtype(dtype), torch.device(device)
        self.localities = [layer.attention.locality for layer in spec.layers]
        self.layers = [self._tensors(layer.attention) for layer in spec.layers]
        self.states = [
            {key: self._zeros(batch, *state.shape) for key, state in layer.states.items()} for layer in spec.layers
        ]
        self.position = _fixed(torch.zeros((), dtype=torch.int64, device=self.device))
        self._held: int | None = None if static else 0

    def _tensors(self, attention: Attention) -> dict[str, Tensor]:
        slots = attention.locality.kept(self.length)
        shapes = {kept.name: (self.batch, kept.heads, slots, kept.width) for kept in attention.cached()}
        return {name: self._zeros(*shape) for name, shape in shapes.items()}

    def _zeros(self, *shape: int) -> Tensor:
        return _fixed(torch.zeros(shape, dtype=self.dtype, device=self.device))

    @property
    def nbytes(self) -> int:
        held = (tensor for layer in self.layers for tensor in layer.values())
        return sum(tensor.nbytes for tensor in (*held, *(state for layer in self.states for state in layer.values())))

    @property
    def held(self) -> int:
        """Tokens held, as a number; asks the device where only it knows."""
        if self._held is not None:
            return self._held
        held = int(self.position.item())
        self._held = None if self.static else held  # a CUDA graph moves the position and tells nobody
        return held

    @property
    def by_tensor(self) -> bool:
        """Whether the position is known only as a tensor."""
        return self.static or torch.compiler.is_compiling()

    def check_room(self, count: int) -> None:
        """Raise RequestError where `count` more tokens do not fit."""
        if self.held + count > self.length:
            raise RequestError(
                f"the KV cache has room for {self.length} tokens and holds {self.held}; {count} more do not fit"
            )

    def span(self, count: int) -> Span | TensorSpan:
        """Where the next `count` tokens stand. Raises RequestError where a number shows that they do not fit."""
        empty = count > 1 and self._held == 0  # one token is not to ask: a number would be a graph of its own
        if self.by_tensor and not empty:
            return TensorSpan(self.position + torch.arange(count, device=self.device), self.length)
        self.check_room(count)
        return Span(self.held, count)

    def layer(self, index: int, span: Span | TensorSpan) -> LayerCache:
        """One layer's tensors, to be written at `span`."""
        return LayerCache(self.layers[index], span, self.localities[index], self.states[index])

    def advance(self, count: int) -> None:
        """Count tokens that every layer has stored."""
        self._held = None if self.by_tensor else self.held + count
        self.position.add_(count)

    def reset(self) -> None:
        """Hold nothing; the tensors stay where they are."""
        self.position.zero_()
        self._held = None if self.static else 0
