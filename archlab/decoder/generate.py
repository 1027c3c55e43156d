"""Generation, greedy or sampled, with a KV cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from archlab.decoder.cache import KVCache
from archlab.decoder.spec import DecoderSpec
from archlab.errors import RequestError


class Generative(nn.Module):
    """A model that generates: ids int64 [B, n], a cache and `last_only` in, logits [B, 1, V] out."""

    spec: DecoderSpec
    embedding: nn.Embedding

    def generate(self, ids: Tensor, new: int, **options: Any) -> Tensor:
        """`archlab.decoder.generate.generate` of this model."""
        return generate(self, ids, new, **options)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode without gradients; every submodule gets back the mode it was found in, also after an error."""
    found = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for part, training in found.items():
            part.training = training


def generate(
    decoder: Generative,
    ids: Tensor,
    new: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    cache: KVCache | None = None,
) -> Tensor:
    """ids int64 [B, n] followed by `new` tokens of the model: [B, n + new].

    temperature: 0 takes the likeliest token. top_k: only the k likeliest. top_p: only the likeliest that together
    reach this probability (Holtzman et al. 2020). seed or generator: for sampling; neither means torch's own state.
    cache: continue after the tokens that it holds; default one of the run's length. Raises RequestError before
    anything runs where the run is too long or a setting cannot be.
    """
    _check(new, temperature, top_k, top_p)
    _check_run(decoder.spec, ids.shape[1], new, cache)
    if seed is not None:
        generator = torch.Generator(ids.device).manual_seed(seed)
    with evaluating(decoder):
        if cache is None:
            weight = decoder.embedding.weight
            cache = KVCache(decoder.spec, ids.shape[0], ids.shape[1] + new, weight.dtype, weight.device)
        tokens = [ids]
        for _ in range(new):
            logits = decoder(tokens[-1], cache, last_only=True)[:, -1]
            tokens.append(pick(logits, temperature, top_k, top_p, generator))
    return torch.cat(tokens, 1)


def pick(
    logits: Tensor,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The next token of each sequence: logits [B, V] -> int64 [B, 1]."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial(probabilities(logits, temperature, top_k, top_p), 1, generator=generator)


def probabilities(logits: Tensor, temperature: float, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """What is sampled from, [.., V] in float32 or wider: softmax(logits / temperature) of the tokens let through."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    wide = (wide - wide.amax(-1, keepdim=True)) / temperature  # at most 0: a small temperature overflows to -inf only
    if top_k is not None and top_k < wide.shape[-1]:
        least = wide.topk(top_k, -1).values[..., -1:]
        wide = wide.masked_fill(wide < least, -torch.inf)
    if top_p is not None and top_p < 1:
        ordered, order = wide.softmax(-1).sort(-1, descending=True)
        dropped = ordered.cumsum(-1) - ordered >= top_p  # the likeliest before it reach top_p already
        wide = wide.masked_fill(dropped.scatter(-1, order, dropped), -torch.inf)
    return wide.softmax(-1)


def _check_run(spec: DecoderSpec, length: int, new: int, cache: KVCache | None) -> None:
    """Refuse a head that makes no tokens, and a run that is longer than the positions or the cache."""
    if spec.head.last_token_only:
        raise RequestError(f"head {spec.head.choice} gives no tokens; use tied or untied to generate")
    spec.check_length((cache.held if cache is not None else 0) + length + new)
    if cache is not None:
        cache.check_room(length + max(new - 1, 0))  # the last token is never fed back


def _check(new: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    least = torch.finfo(torch.float32).tiny  # below it a division by it has no digits left
    for name, value, holds, wanted in (
        ("new", new, new >= 0, "0 or more"),
        ("temperature", temperature, temperature == 0 or least <= temperature < math.inf, f"0, or {least:g} or more"),
        ("top_k", top_k, top_k is None or top_k >= 1, "1 or more"),
        ("top_p", top_p, top_p is None or 0 < top_p <= 1, "above 0 and at most 1"),
    ):
        if not holds:
            raise RequestError(f"{name} = {value} must be {wanted}")
