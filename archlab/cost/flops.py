"""Matmul FLOPs, exact: 2 a multiply-add, embedding lookup 0, head counted tied or not, elementwise work not counted.

Two conventions. `full` counts every (query, key) pair of the score matrix that a kernel without a shortcut computes,
and equals torch's counter on the meta device or with the math backend (torch does not count its fused CPU kernel);
`causal` counts only the pairs that see each other: at or below the diagonal, and in the
window or the chunk of a layer that has one. In decoding they agree: no key out of sight is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from archlab.decoder.spec import DecoderSpec, LayerSpec, check_spec
from archlab.errors import ConfigError, check_whole
from archlab.frozen import Frozen

CONVENTIONS = ("full", "causal")


class Flops(Frozen):
    """FLOPs of a run: `prefill` of the prompt with logits of all positions (classes: of the last), then `decode`.

    `by_part` splits prefill + decode. `decode` is of `new` single tokens, steps prompt + 1 to prompt + new.
    """

    convention: str
    batch: int
    prompt: int
    new: int
    prefill: int
    decode: int
    by_part: dict[str, int]

    @property
    def total(self) -> int:
        return self.prefill + self.decode

    @property
    def prefill_per_token(self) -> float:
        return self.prefill / (self.batch * self.prompt)

    @property
    def decode_per_token(self) -> float:
        return self.decode / (self.batch * self.new) if self.new else 0.0


def flops(
    spec: DecoderSpec, batch: int = 1, prompt: int | None = None, new: int = 1, convention: str = "full"
) -> Flops:
    """Forward FLOPs of a prompt and `new` decoded tokens, for `batch` sequences.

    prompt: by default `spec.reach`, less what is decoded where its positions end. Raises ConfigError, and
    RequestError for a run that goes past their end.
    """
    check_spec(spec)
    if prompt is None:
        check_whole("new", new, 0)
        prompt = max(1, spec.reach - (0 if spec.max_length is None else new))
    made = flops_of_run(spec, batch, prompt, new, convention)
    spec.check_length(prompt + new)
    return made


def flops_of_run(spec: DecoderSpec, batch: int, prompt: int, new: int, convention: str) -> Flops:
    """`flops` of a run that the positions may not reach: a workload is checked where it runs. Raises ConfigError."""
    if convention not in CONVENTIONS:
        raise ConfigError("convention", f"{convention!r} is no convention", value=convention, valid=CONVENTIONS)
    for name, value, least in (("batch", batch, 1), ("prompt", prompt, 1), ("new", new, 0)):
        check_whole(name, value, least)
    prefill = _by_part(spec, prompt, lambda layer: layer.attention.flops(prompt, _pairs(layer, prompt, convention)))
    decode = decode_by_part(spec, prompt, new)
    by_part = {part: batch * (prefill[part] + decode[part]) for part in prefill}
    return Flops(convention, batch, prompt, new, batch * sum(prefill.values()), batch * sum(decode.values()), by_part)


def decode_by_part(spec: DecoderSpec, prompt: int, new: int) -> dict[str, int]:
    """FLOPs by part of `new` tokens of one sequence, one by one after `prompt` cached ones."""
    return _by_part(spec, new, lambda layer: layer.attention.decode_flops(new, _decode_pairs(layer, prompt, new)))


def _pairs(layer: LayerSpec, prompt: int, convention: str) -> int:
    return prompt * prompt if convention == "full" else layer.attention.locality.pairs(prompt)


def _decode_pairs(layer: LayerSpec, prompt: int, new: int) -> int:
    locality = layer.attention.locality
    return locality.pairs(prompt + new) - locality.pairs(prompt)


def _by_part(spec: DecoderSpec, tokens: int, attention: Callable[[LayerSpec], int]) -> dict[str, int]:
    """FLOPs by part of `tokens` positions of one sequence; attention gives those of one layer's attention."""
    parts = {"attention": 0, "ffn": 0}
    for layer, count in spec.layer_counts:
        parts["attention"] += count * attention(layer)
        parts["ffn"] += count * layer.ffn.flops(tokens)
        _add_placed(parts, layer, count, tokens)
    return parts | {"lm_head": spec.head.flops(_rows(spec, tokens))}


def _add_placed(parts: dict[str, int], layer: LayerSpec, count: int, tokens: int) -> None:
    """Add what stands at the places of so many layers."""
    for placed in layer.placed:
        if not placed.idle:
            parts[placed.axis] = parts.get(placed.axis, 0) + count * placed.flops(tokens)


def _rows(spec: DecoderSpec, tokens: int) -> int:
    """Positions that the head reads."""
    return min(tokens, 1) if spec.head.last_token_only else tokens


def prefill_parts(spec: DecoderSpec, tokens: int, convention: str) -> dict[str, int]:
    """FLOPs of a prompt of so many tokens, one sequence, by finer parts.

    `embedding` (a lookup, 0), `attention.projections`, `attention.scores` (queries with keys, weights with values),
    `ffn` or its roles (`ffn.router`, `ffn.routed_experts`, ..), places by their names, and `lm_head`.
    """

    def attention(layer: LayerSpec) -> tuple[int, int]:
        cost = layer.attention.flops
        return cost(tokens, 0), cost(tokens, _pairs(layer, tokens, convention))

    return _finer(spec, tokens, attention)


def decode_parts(spec: DecoderSpec, context: int) -> dict[str, int]:
    """The same of one decoded token, the last of `context`: it sees those before it, which are cached, and itself."""

    def attention(layer: LayerSpec) -> tuple[int, int]:
        cost = layer.attention.decode_flops
        return cost(1, 0), cost(1, layer.attention.locality.seen(context))

    return _finer(spec, 1, attention)


def _finer(spec: DecoderSpec, tokens: int, attention: Callable[[LayerSpec], tuple[int, int]]) -> dict[str, int]:
    """attention: FLOPs of one layer's projections, and of these with its scores."""
    parts = {"embedding": 0, "attention.projections": 0, "attention.scores": 0}
    plain = all(layer.ffn.detail().keys() == {"dense"} for layer, _ in spec.layer_counts)
    for layer, count in spec.layer_counts:
        projections, whole = attention(layer)
        parts["attention.projections"] += count * projections
        parts["attention.scores"] += count * (whole - projections)
        for role, cost in layer.ffn.flops_detail(tokens).items():
            name = "ffn" if plain else f"ffn.{role}"
            parts[name] = parts.get(name, 0) + count * cost
        _add_placed(parts, layer, count, tokens)
    return parts | {"lm_head": spec.head.flops(_rows(spec, tokens))}
