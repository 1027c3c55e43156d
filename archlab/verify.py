"""The self-check: the closed forms against the module, built on the meta device so that any size can be checked."""

from __future__ import annotations

from typing import Any

from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.decoder.spec import DecoderSpec


def verify(spec: DecoderSpec, dtype: str = "bf16") -> list[dict[str, Any]]:
    """What was checked, a mapping a line: name, expected (closed form), found (built), ok. Imports torch."""
    from archlab.decoder.build import build
    from archlab.decoder.cache import KVCache

    decoder = build(spec, device="meta", dtype=dtype)
    built = sum(parameter.numel() for parameter in decoder.parameters())
    cache = KVCache(spec, batch=1, length=spec.context, dtype=dtype, device="meta")
    cost = kv_cache(spec, 1, spec.context, dtype)
    return [
        _check("parameters: closed form = built module", parameters(spec).total, built),
        _check(
            f"KV cache bytes at {spec.context:,} tokens: closed form = allocated tensors", cost.allocated, cache.nbytes
        ),
    ]


def _check(name: str, expected: int, found: int) -> dict[str, Any]:
    return {"name": name, "expected": expected, "found": found, "ok": expected == found}
