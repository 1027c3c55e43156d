"""torch.compile under the clock: the module compiled in place, and how often the compiler has run."""

from __future__ import annotations

import torch

from archlab.bench.device import Device
from archlab.components.ffn.experts import Experts
from archlab.decoder.module import Decoder


def compile_in_place(decoder: Decoder, device: Device, backend: str | None = None) -> None:
    """Have calls of the decoder compiled, for each shape anew; with CUDA graphs where there is CUDA.

    backend: the attention that torch is held to, None for any. Whole, but for experts that are sorted by how many
    tokens each has, which no compiler knows.
    """
    torch.compiler.config.cache_key_tag = backend or ""  # which attention torch is held to is not in its caches' keys
    mode = "reduce-overhead" if device.kind == "cuda" else "default"
    dtype = decoder.embedding.weight.dtype
    whole = all(module.groups(dtype) for module in decoder.modules() if isinstance(module, Experts))
    decoder.compile(fullgraph=whole, dynamic=False, mode=mode)


def compilations() -> int:
    """Graphs that torch.compile has made in this process so far."""
    from torch._dynamo.utils import counters  # a second to import, where nothing is compiled

    return int(counters["stats"]["unique_graphs"])
