"""The residual stream of a real pass, layer by layer, and the gradients that come back along it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from archlab.bench.phases import loss_of
from archlab.decoder.module import Decoder


@dataclass(frozen=True)
class Passed:
    """A training pass: the streams as `streams` lists them, and norms of the loss's gradient.

    gradients: on each stream; weights: on all weights of each layer.
    """

    streams: list[Tensor]
    gradients: list[float]
    weights: list[float]


def streams(decoder: Decoder, ids: Tensor) -> list[Tensor]:
    """The stream [B, n, d_model] as it enters the first layer, and after each layer."""
    found, _ = _pass(decoder, ids)
    return found


def trained(decoder: Decoder, ids: Tensor, weights: bool = True) -> Passed:
    """A pass with the loss that the head is trained with: of each token from those before it, ids [B, n + 1].

    weights: whether their gradients are asked for too, which takes most of the time.
    """
    found, outputs = _pass(decoder, ids[:, :-1])
    layers = [list(layer.parameters()) for layer in decoder.layers] if weights else []
    loss = loss_of(outputs, ids[:, 1:], decoder)
    gradients = torch.autograd.grad(loss, [*found, *itertools.chain(*layers)], allow_unused=True)
    rest = iter(gradients[len(found) :])
    on_weights = [_norm(itertools.islice(rest, len(layer))) for layer in layers]
    return Passed(found, [_norm([gradient]) for gradient in gradients[: len(found)]], on_weights)


def _pass(decoder: Decoder, ids: Tensor) -> tuple[list[Tensor], Tensor]:
    found: list[Tensor] = []
    first = decoder.layers[0].register_forward_pre_hook(lambda _, given: found.append(given[0]))
    each = [layer.register_forward_hook(lambda _, given, y: found.append(y)) for layer in decoder.layers]
    try:
        outputs = decoder(ids)
    finally:
        for hook in (first, *each):
            hook.remove()
    return found, outputs


def _norm(gradients: Iterable[Tensor | None]) -> float:
    return math.hypot(*(float(gradient.norm()) for gradient in gradients if gradient is not None))


def rms(x: Tensor) -> float:
    """The root of the mean square of all elements."""
    return float(x.detach().double().square().mean().sqrt())


def cosine(x: Tensor, y: Tensor) -> float:
    """The cosine between two streams [B, n, d_model], token by token, on average; 0 where one of them is nothing."""
    return float(torch.nn.functional.cosine_similarity(x.detach().double(), y.detach().double(), dim=-1).mean())
