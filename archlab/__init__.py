"""Compose a decoder-only language model from swappable parts; see what it costs, build it, time it.

    spec = archlab.load("minimind", "model/attention=mha")
    archlab.parameters(spec).total
    archlab.kv_cache(spec, batch=1, context=2048, dtype="fp16").bytes
    archlab.flops(spec, prompt=512, new=64).prefill
    decoder = archlab.build(spec, device="cpu", dtype="bf16")

Only `build` imports torch, and only `load` with overrides imports Hydra. `component` and `place` are for choices of
one's own, as are the torch classes here, which these build on: docs/own-choice.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archlab.components.attention.module import Attending as Attending
    from archlab.components.attention.module import Step as Step
    from archlab.components.block.module import Block as Block
    from archlab.components.own import component as component
    from archlab.components.own import place as place
    from archlab.components.position.module import NoPosition as NoPosition
    from archlab.components.position.module import Rotation as Rotation
    from archlab.compose import load as load
    from archlab.cost.flops import flops as flops
    from archlab.cost.kv import kv_cache as kv_cache
    from archlab.cost.params import parameters as parameters
    from archlab.inside.contract import check_component as check_component
    from archlab.model import build as build
    from archlab.options import option as option
    from archlab.plugins import load as load_plugin
    from archlab.variants import sweep as sweep

__version__ = "0.1.0"

_HOMES = {
    "load": "archlab.compose:load",
    "parameters": "archlab.cost.params:parameters",
    "kv_cache": "archlab.cost.kv:kv_cache",
    "flops": "archlab.cost.flops:flops",
    "build": "archlab.model:build",
    "sweep": "archlab.variants:sweep",
    "component": "archlab.components.own:component",
    "place": "archlab.components.own:place",
    "option": "archlab.options:option",
    "load_plugin": "archlab.plugins:load",
    "check_component": "archlab.inside.contract:check_component",
    "Attending": "archlab.components.attention.module:Attending",
    "Step": "archlab.components.attention.module:Step",
    "Block": "archlab.components.block.module:Block",
    "NoPosition": "archlab.components.position.module:NoPosition",
    "Rotation": "archlab.components.position.module:Rotation",
}
"""Where each public name is from."""

__all__ = [
    "Attending", "Block", "NoPosition", "Rotation", "Step", "__version__", "build", "check_component", "component",
    "flops", "kv_cache", "load", "load_plugin", "option", "parameters", "place", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'archlab' has no attribute {name!r}")
    home, _, inner = _HOMES[name].partition(":")
    found = globals()[name] = getattr(importlib.import_module(home), inner)
    return found
