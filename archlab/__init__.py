"""Compose a decoder-only language model from swappable parts; see what it costs, build it, time it.

    spec = archlab.load("minimind", "model/attention=mha")
    archlab.parameters(spec).total
    archlab.kv_cache(spec, batch=1, context=2048, dtype="fp16").bytes
    archlab.flops(spec, prompt=512, new=64).prefill
    decoder = archlab.build(spec, device="cpu", dtype="bf16")

Only `build` imports torch, and only `load` with overrides imports Hydra.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archlab.compose import load as load
    from archlab.cost.flops import flops as flops
    from archlab.cost.kv import kv_cache as kv_cache
    from archlab.cost.params import parameters as parameters
    from archlab.model import build as build
    from archlab.variants import sweep as sweep

__version__ = "0.1.0"

_HOMES = {
    "load": "archlab.compose",
    "parameters": "archlab.cost.params",
    "kv_cache": "archlab.cost.kv",
    "flops": "archlab.cost.flops",
    "build": "archlab.model",
    "sweep": "archlab.variants",
}

__all__ = ["__version__", "build", "flops", "kv_cache", "load", "parameters", "sweep"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'archlab' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return found
