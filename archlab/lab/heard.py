"""What one layer's attention is given: the heads as they come out of its projections, and how it weighs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from archlab.components.attention.module import Attending, Step
from archlab.decoder.generate import evaluating
from archlab.decoder.module import Decoder
from archlab.errors import RequestError


@dataclass(frozen=True)
class Heard:
    """q [B, h, n, hd]; k [B, kv, n, hd]; v [B, kv, n, hv]; the step's mask, the scale and the sinks [h]."""

    module: Attending
    q: Tensor
    k: Tensor
    v: Tensor
    step: Step
    scale: float
    sinks: Tensor | None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, step: Step | None = None) -> Tensor:
        """The attention of other heads, as this layer does it: [B, h, n, hv]."""
        return self.module.attend(q, k, v, step or self.step, self.scale, self.sinks)

    def weights(self) -> Tensor:
        """The attention weights [B, h, n, n]: what comes out where the values are the unit vectors, one a key."""
        keys = self.k.shape[2]
        unit = torch.eye(keys, dtype=self.q.dtype, device=self.q.device)
        return self.attend(self.q, self.k, unit.expand(*self.k.shape[:2], keys, keys))


def hear(decoder: Decoder, ids: Tensor, layer: int = 0) -> Heard:
    """What a layer is given in an eval pass over ids [B, n]. Raises RequestError where it cannot be listened to."""
    module = decoder.layers[layer].attention
    if not isinstance(module, Attending):
        choice = decoder.spec.layers[layer].attention.choice
        raise RequestError(f"attention {choice} does not go through archlab's own scores; there is nothing to look at")
    found: list[Heard] = []
    attend = module.attend

    def listening(
        q: Tensor, k: Tensor, v: Tensor, step: Step, scale: float, sinks: Tensor | None = None, **more: Any
    ) -> Tensor:
        found.append(Heard(module, q, k, v, step, scale, sinks))
        return attend(q, k, v, step, scale, sinks, **more)

    module.attend = listening  # type: ignore[method-assign]
    try:
        with evaluating(decoder):
            decoder(ids)
    finally:
        del module.attend
    return found[0]
