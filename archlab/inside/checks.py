"""The self-check in full, for `archlab verify`: what the built module must do, tried on it with real numbers.

In float64 on the CPU, so that a difference is a fault and not rounding. A model that does not fit there is tried with
the first layer of each kind alone; where that does not fit either, only the closed forms are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from archlab.bench.phases import loss_of
from archlab.components.attention.module import Attending
from archlab.cost.params import parameters
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.document import Column, Document, Table
from archlab.errors import ArchlabError, in_short, told
from archlab.verify import check, verify

LENGTH = 24
"""Tokens of a sequence: more than a chunk of any of the ways through the cache that are tried."""
TOLERANCE = 1e-9
ROUNDED = 1e-6
"""Of a table in float32: cosines of angles that were worked out in it, as far as they are looked at."""
BYTES = 8 * 4
"""A parameter in float64 with its gradient and what is beside both while they are made."""

Check = Mapping[str, Any]
"""See `archlab.verify.check`."""

COLUMNS = (Column("check"), Column("expected"), Column("found"), Column("ok"))


def document(spec: DecoderSpec, room: int) -> Document:
    """Every check of a model, its first difference the verdict. room: bytes that the tried module may take.

    Raises RequestError for what cannot be built at all.
    """
    tried = fitting(spec, room)
    with told(f"{spec.name} cannot be built on the meta device"):
        paper = verify(spec)
    found = [*paper.checks, *(() if tried is None else running(lambda: behaviour(tried)))]
    return checked(spec.name, found, _tried(spec, tried, room), paper.notes)


def checked(name: str, found: Sequence[Check], tried: Mapping[str, str], notes: Sequence[str] = ()) -> Document:
    """The answer of `archlab verify`: what was checked, the first difference its verdict."""
    rows = [{"check": one["name"], **{key: _text(one[key]) for key in ("expected", "found", "ok")}} for one in found]
    bad = [one for one in found if not one["ok"]]
    verdict = difference(bad[0]) if bad else f"all {len(found)} checks hold"
    table = Table("checks", "Checks", COLUMNS, rows)
    return Document("verify", name, [table], verdict=verdict, assumptions=tried, notes=notes)


def difference(check: Check) -> str:
    """What a check that does not hold found, and what it should have."""
    return f"{check['name']}: {_text(check['found'])}, not {_text(check['expected'])}"


def _text(value: Any) -> str:
    return (
        {True: "yes", False: "no"}[value]
        if isinstance(value, bool)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def _tried(spec: DecoderSpec, tried: DecoderSpec | None, room: int) -> dict[str, str]:
    if tried is None:
        return {"not tried": f"the module is too large for {room:,} B; closed forms only, on the meta device"}
    layers = (
        f"{tried.n_layers} of {spec.n_layers} layers, the first of each kind" if tried is not spec else "all layers"
    )
    return {"tried": f"{layers}, float64 on the CPU, 2 x {_length(tried)} random tokens"}


def fitting(spec: DecoderSpec, room: int) -> DecoderSpec | None:
    """The model itself, or with the first layer of each kind alone, or None: what `room` bytes hold."""
    return next((one for one in (spec, spec.one_of_each) if BYTES * parameters(one).total <= room), None)


def running(checks: Callable[[], Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Checks that run the module; what it raises is one that does not hold."""
    try:
        yield from checks()
    except ArchlabError:
        raise
    except Exception as error:
        yield {"name": "a pass through the module", "expected": "an output", "found": in_short(error), "ok": False}


def behaviour(spec: DecoderSpec) -> Iterator[dict[str, Any]]:
    """What the module does, a line a check: see `archlab.verify.check`."""
    return behaviour_of(build(spec, dtype="fp64"))


def behaviour_of(decoder: Decoder) -> Iterator[dict[str, Any]]:
    """What a module in float64 does, with the weights that it has."""
    spec, decoder = decoder.spec, decoder.eval()
    ids = torch.randint(spec.vocab_size, (2, _length(spec)), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = decoder(ids)
        yield _equal("eval gives the same twice, bit for bit", logits, decoder(ids), 0.0)
        yield _equal("cached one token at a time = uncached", logits, _cached(decoder, ids, 1), TOLERANCE)
        yield _equal("cached in chunks of 5 = uncached", logits, _cached(decoder, ids, 5), TOLERANCE)
        if not spec.head.last_token_only:
            yield _causal(decoder, ids, logits)
        yield from _backends(decoder, ids)
        yield from _tables(decoder)
        yield _tie(decoder)
    yield _gradients(decoder, ids)


def _length(spec: DecoderSpec) -> int:
    return min(LENGTH, spec.reach)


def _equal(name: str, wanted: Tensor, got: Tensor, tolerance: float) -> dict[str, Any]:
    gap = float((wanted - got).abs().max())
    limit = f"within {tolerance:g}" if tolerance else "no difference"
    return {"name": name, "expected": limit, "found": f"{gap:.2g}" if gap else "0", "ok": gap <= tolerance}


def _cached(decoder: Decoder, ids: Tensor, chunk: int) -> Tensor:
    cache = KVCache(decoder.spec, ids.shape[0], ids.shape[1], torch.float64)
    parts = [decoder(part, cache) for part in ids.split(chunk, 1)]
    return parts[-1] if decoder.spec.head.last_token_only else torch.cat(parts, 1)


def _causal(decoder: Decoder, ids: Tensor, logits: Tensor) -> dict[str, Any]:
    """Another last token must leave every earlier row as it was."""
    other = ids.clone()
    other[:, -1] = (other[:, -1] + 1) % decoder.spec.vocab_size
    changed = decoder(other)
    return _equal("a later token changes no earlier logit", logits[:, :-1], changed[:, :-1], TOLERANCE)


def _backends(decoder: Decoder, ids: Tensor) -> Iterator[dict[str, Any]]:
    """torch's fused attention against the explicit softmax, and flex attention where a layer is on it."""
    attentions = [module for module in decoder.modules() if isinstance(module, Attending)]
    flex = any(module.backend == "flex" for module in attentions)
    explicit = _on_backend(decoder, attentions, "math", ids)
    for backend, name in (("sdpa", "fused"), ("flex", "flex")):
        if backend == "sdpa" or flex:
            given = _on_backend(decoder, attentions, backend, ids)
            yield _equal(f"{name} attention = explicit softmax", given, explicit, TOLERANCE)


def _on_backend(decoder: Decoder, attentions: Sequence[Attending], backend: str, ids: Tensor) -> Tensor:
    found = [module.backend for module in attentions]
    for module in attentions:
        module.backend = backend
    logits: Tensor = decoder(ids)
    for module, usual in zip(attentions, found, strict=True):
        module.backend = usual
    return logits


def _tables(decoder: Decoder) -> Iterator[dict[str, Any]]:
    """Rotary tables of a float32 model against those of this one."""
    single = build(decoder.spec, dtype="fp32", seed=None)
    for index, (wide, narrow) in enumerate(zip(decoder.positions, single.positions, strict=True)):
        for position in (wide, narrow):
            position.reach(_length(decoder.spec))
        pairs = list(zip(getattr(wide, "tables", ()), getattr(narrow, "tables", ()), strict=True))
        for name, (exact, rounded) in zip(("cosines", "sines"), pairs, strict=False):
            yield _equal(f"rotary {name} {index} in float32 = in float64", exact, rounded.double(), ROUNDED)


def _tie(decoder: Decoder) -> dict[str, Any]:
    """A tied head has no weight of its own, on the meta device and after leaving it."""
    own = sum(parameter.numel() for parameter in decoder.head.parameters())
    return check("parameters of the head, built on meta and filled", parameters(decoder.spec).by_part["lm_head"], own)


def _gradients(decoder: Decoder, ids: Tensor) -> dict[str, Any]:
    """Every parameter is on a way back from the loss; what comes that way may be 0, as of an expert without tokens."""
    decoder.train()
    loss_of(decoder(ids[:, :-1]), ids[:, 1:], decoder).backward()
    reached = [parameter.grad is not None for parameter in decoder.parameters()]
    return check("tensors that the gradient reaches", len(reached), sum(reached))
