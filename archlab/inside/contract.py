"""The contract of a choice: what its spec says is what its module has, and what every model must do it does.

`archlab verify --component` runs it, and so do the tests, over every choice that archlab has itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from archlab.components.counted.costs import counted_costs
from archlab.cost.activations import Training, kept
from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.decoder.build import build, parameters_by_part
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.document import Document
from archlab.errors import ArchlabError, ConfigError
from archlab.inside.checks import behaviour_of, checked, difference, running
from archlab.inside.kept import kept_by_autograd
from archlab.registry import AXES, choice, choices
from archlab.verify import BATCH, PROMPT, check, verify_flops

BASE: dict[str, Any] = {
    "d_model": 12,
    "n_layers": 2,
    "vocab_size": 11,
    "context": 8,
    "norm": {"choice": "rmsnorm"},
    "position": {"choice": "rope"},
    "attention": {"choice": "gqa", "n_heads": 4, "n_kv_heads": 2, "head_dim": 6, "rope_dim": 6, "qk_norm": "head"},
    "ffn": {"choice": "swiglu", "d_ff": 20},
    "dropout": {"choice": "classic"},
    "head": {"choice": "tied"},
    "block": {"choice": "pre_norm"},
}
"""What a choice is tried in: small, with as little that divides as there may be."""

ROUND = {"d_model": 64, "attention": {"choice": "gqa", "n_heads": 4, "n_kv_heads": 2, "head_dim": 16}}
UNTURNED = {"position": {"choice": "none"}}

Model = dict[str, Any]
Checks = Iterator[dict[str, Any]]


def check_component(axis: str, name: str) -> None:
    """Raise ArchlabError with the first part of its contract that a choice breaks, and both numbers."""
    for found in contract(axis, name):
        if not found["ok"]:
            raise ArchlabError(f"{axis}/{name}: {difference(found)}")


def document(axis: str, name: str) -> Document:
    """The contract of one choice, a line a part of it."""
    chosen = choice(axis, name)
    tried = {"tried": "small models, with each choice of the other axes; float64 on the CPU, and the meta device"}
    if counted := counted_costs(chosen.spec):
        tried["counted on the module"] = ", ".join(counted)
    return checked(f"{axis}/{chosen.name}", list(contract(axis, name)), tried)


def contract(axis: str, name: str) -> Checks:
    """Every part of a choice's contract: see `archlab.verify.check`. Raises ConfigError where it cannot be built."""
    base = base_of(axis, name)
    yield from _in_every_pair(base, axis)
    yield from of_module(resolve(base).spec)


def of_module(spec: DecoderSpec) -> Checks:
    """What is tried on the module of one model."""
    yield from running(lambda: iter(verify_flops(spec)))
    yield from running(lambda: _as_autograd_keeps(spec))
    yield from running(lambda: behaviour_of(spread_weights(build(spec, dtype="fp64"))))


def base_of(axis: str, name: str) -> Model:
    """The first model that the choice can be tried in. Raises ConfigError where there is none."""
    refused: list[ConfigError] = []
    for more in ({}, UNTURNED, ROUND, ROUND | UNTURNED):
        base = {**BASE, **more}
        model = {**base, axis: {**base.get(axis, {}), "choice": choice(axis, name).name}}
        try:
            parameters(resolve(model).spec)
        except ConfigError as error:
            refused.append(error)
        else:
            return model
    raise refused[0]


# --- on paper = built -------------------------------------------------------------------------------------------------


def as_built(spec: DecoderSpec) -> Checks:
    """Parameters by part and the bytes of the cache: closed form, and the module's."""
    built, cache = parameters_by_part(build(spec, device="meta")), KVCache(spec, BATCH, spec.reach, "bf16", "meta")
    for part, count in parameters(spec).by_part.items():
        yield check(f"parameters, {part}", count, built[part])
    yield check("KV cache bytes", kv_cache(spec, BATCH, spec.reach, "bf16").bytes, cache.nbytes)


def _in_every_pair(base: Model, axis: str) -> Checks:
    """`as_built` of the choice with each that archlab has on every other axis; the first difference of each part.

    Choices of others stand aside: what is wrong with them is no fault of this one.
    """
    named = [(other, known) for other in AXES if other != axis for known in choices(other).values()]
    others = [(other, known.name) for other, known in named if not known.origin]
    wrong: dict[str, dict[str, Any]] = {}
    tried = 0
    for other, name in others:
        try:
            spec = resolve({**base, other: {**base[other], "choice": name}}).spec
        except ConfigError:  # two that do not go together, and say so
            continue
        tried += 1
        for found in as_built(spec):
            if not found["ok"]:
                told = f"{found['name']}, with {other} {name}"
                wrong.setdefault(found["name"], check(told, found["expected"], found["found"]))
    yield from wrong.values()
    if not wrong:
        yield check(f"parameters and cache, spec = module, in compositions of {len(others)}", tried, tried)


def _as_autograd_keeps(spec: DecoderSpec) -> Checks:
    """Bytes that training keeps: closed form, and what torch's hooks see."""
    paper = sum(size for purpose, size in kept(spec, Training(BATCH, PROMPT, "fp32")).items() if purpose != "held")
    found = kept_by_autograd(build(spec, dtype="fp32"), BATCH, PROMPT)
    yield check("bytes that training keeps, spec = autograd's", paper, found)


@torch.no_grad()
def spread_weights(decoder: Decoder, seed: int = 0) -> Decoder:
    """Random weights of about unit gain everywhere, norms and biases too, so that no part's effect is tiny."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in decoder.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.copy_(noise / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else parameter + 0.3 * noise)
    for buffer in decoder.buffers():
        if buffer.is_floating_point():
            buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator, dtype=buffer.dtype))
    return decoder
