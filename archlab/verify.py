"""The self-check: the closed forms against the module, built on the meta device so that any size can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from archlab.cost.flops import flops
from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.decoder.spec import DecoderSpec
from archlab.errors import in_short

if TYPE_CHECKING:
    from torch import Tensor

    from archlab.decoder.cache import KVCache
    from archlab.decoder.module import Decoder

BATCH, PROMPT = 2, 7
"""Sequences, and tokens of each at most, that FLOPs are counted of."""

Check = dict[str, Any]
"""See `check`."""


class Verified(NamedTuple):
    """What was checked, a `Check` a line, and notes on what could not be."""

    checks: list[Check]
    notes: list[str]


def verify(spec: DecoderSpec, dtype: str = "bf16") -> Verified:
    """Parameters and cache; where choices are not archlab's own, whose FLOPs the tests hold, FLOPs too. Imports torch.

    Parts are checked one by one, and shown where they differ.
    """
    from archlab.decoder.build import build, parameters_by_part
    from archlab.decoder.cache import KVCache

    decoder = build(spec, device="meta", dtype=dtype)
    counts, built = parameters(spec), parameters_by_part(decoder)
    parts = [check(f"{part} parameters", count, built[part]) for part, count in counts.by_part.items()]
    total = sum(parameter.numel() for parameter in decoder.parameters())
    cache = KVCache(spec, batch=1, length=spec.reach, dtype=dtype, device="meta")
    cost = kv_cache(spec, 1, spec.reach, dtype)
    checks = [
        check("parameters: closed form = built module", counts.total, total),
        *(part for part in parts if not part["ok"]),
        check(
            f"KV cache bytes at {spec.reach:,} tokens: closed form = allocated tensors", cost.allocated, cache.nbytes
        ),
    ]
    counted, notes = _flops_of_others(spec)
    return Verified([*checks, *counted], notes)


def check(name: str, expected: int, found: int) -> Check:
    """One line of the self-check: name, expected (closed form), found (built), ok."""
    return {"name": name, "expected": expected, "found": found, "ok": expected == found}


# --- FLOPs ------------------------------------------------------------------------------------------------------------


def _flops_of_others(spec: DecoderSpec) -> Verified:
    """FLOPs of a model with choices of others. What cannot run without values is not wrong for that: a note."""
    if not spec.of_others:
        return Verified([], [])
    named = ", ".join(spec.of_others)
    try:
        return Verified(verify_flops(spec.one_of_each, f" ({named}; a layer of each kind)"), [])
    except Exception as error:
        return Verified([], [f"FLOPs with {named} are not checked: no pass on the meta device: {in_short(error)}"])


def verify_flops(spec: DecoderSpec, of: str = "") -> list[Check]:
    """FLOPs of a prompt and of a token after it: closed form, and torch's counter, with the explicit softmax.

    of: what is counted, in the checks' names.
    """
    import torch

    from archlab.decoder.build import build
    from archlab.decoder.cache import KVCache

    decoder = build(spec, device="meta").eval()
    for layer in decoder.layers:
        layer.attention.backend = "math"  # type: ignore[union-attr]
    end = min(PROMPT + 1, spec.max_length or PROMPT + 1)
    prompt = max(1, end - 1)
    ids = torch.zeros(BATCH, end, dtype=torch.int64, device="meta")
    paper = flops(spec, BATCH, prompt, end - prompt, "full")
    how = f"{of}: closed form = torch's counter"
    checks = [check(f"FLOPs of {prompt} tokens{how}", paper.prefill, _counted(decoder, ids[:, :prompt]))]
    if end > prompt and not spec.head.last_token_only:
        cache = KVCache(spec, BATCH, end, torch.float32, "meta")
        _counted(decoder, ids[:, :prompt], cache)
        step = _counted(decoder, ids[:, prompt:], cache)
        checks.append(check(f"FLOPs of a token after them{how}", paper.decode, step))
    return checks


def _counted(decoder: Decoder, ids: Tensor, cache: KVCache | None = None) -> int:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        decoder(ids, cache)
    total: int = counter.get_total_flops()
    return total
