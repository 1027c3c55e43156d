"""Which costs of a choice are counted on its module, because its spec does not say them. No torch."""

from __future__ import annotations

from typing import Any

from archlab.options import Spec

HOME = __name__.rpartition(".")[0]

COSTS = {
    "params": "parameters",
    "flops": "FLOPs",
    "decode_flops": "FLOPs",
    "cached": "KV cache",
    "states": "KV cache",
    "on_tape": "what training keeps",
}
"""The costs of a spec in words, by the method that says them."""


def counted_costs(kind: type[Spec]) -> tuple[str, ...]:
    """The costs that are counted, in words; none of archlab's own choices."""
    found = (words for method, words in COSTS.items() if _home(getattr(kind, method, None)).startswith(HOME))
    return tuple(dict.fromkeys(found))


def _home(method: Any) -> str:
    """The module whose code a method is."""
    return str(getattr(method, "__module__", ""))
