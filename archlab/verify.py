"""The self-check: the closed forms against the module, built on the meta device so that any size can be checked."""

from __future__ import annotations

from typing import Any

from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.decoder.spec import DecoderSpec


def verify(spec: DecoderSpec, dtype: str = "bf16") -> list[dict[str, Any]]:
    """What was checked, a mapping a line: name, expected (closed form), found (built), ok. Imports torch.

    Parts are checked one by one, and shown where they differ.
    """
    from archlab.decoder.build import build, parameters_by_part
    from archlab.decoder.cache import KVCache

    decoder = build(spec, device="meta", dtype=dtype)
    counts, built = parameters(spec), parameters_by_part(decoder)
    parts = [check(f"{part} parameters", count, built[part]) for part, count in counts.by_part.items()]
    total = sum(parameter.numel() for parameter in decoder.parameters())
    cache = KVCache(spec, batch=1, length=spec.context, dtype=dtype, device="meta")
    cost = kv_cache(spec, 1, spec.context, dtype)
    return [
        check("parameters: closed form = built module", counts.total, total),
        *(part for part in parts if not part["ok"]),
        check(
            f"KV cache bytes at {spec.context:,} tokens: closed form = allocated tensors", cost.allocated, cache.nbytes
        ),
    ]


def check(name: str, expected: int, found: int) -> dict[str, Any]:
    """One line of the self-check."""
    return {"name": name, "expected": expected, "found": found, "ok": expected == found}
