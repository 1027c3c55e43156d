"""torch.compile under the clock: the module compiled in place, and how often the compiler has run."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from archlab.bench.device import Device
from archlab.components.ffn.experts import Experts
from archlab.decoder.module import Decoder
from archlab.errors import ConfigError, nearest


def compile_in_place(
    decoder: Decoder, device: Device, backend: str | None = None, switches: Sequence[str] = ()
) -> None:
    """Have calls of the decoder compiled, for each shape anew; with CUDA graphs where there is CUDA.

    backend: the attention that torch is held to, None for any. switches: of inductor, to turn on. Whole, but for
    experts that are sorted by how many tokens each has, which no compiler knows.
    """
    torch.compiler.config.cache_key_tag = backend or ""  # which attention torch is held to is not in its caches' keys
    options = dict.fromkeys((*switches, *(["triton.cudagraphs"] if device.kind == "cuda" else [])), True)
    dtype = decoder.embedding.weight.dtype
    whole = all(module.groups(dtype) for module in decoder.modules() if isinstance(module, Experts))
    decoder.compile(fullgraph=whole, dynamic=False, options=options)


def check_switches(switches: Sequence[str]) -> None:
    """Raise ConfigError for what is no switch of inductor's."""
    if not switches:
        return
    from torch._inductor import config

    known = [name for name, value in config.get_config_copy().items() if isinstance(value, bool)]
    for name in switches:
        if name not in known:
            problem = f"{name!r} is no switch of torch._inductor.config in torch {torch.__version__}"
            raise ConfigError("bench.inductor", problem, value=name, nearest=nearest(name, known))


def compilations() -> int:
    """Graphs that torch.compile has made in this process so far."""
    from torch._dynamo.utils import counters  # a second to import, where nothing is compiled

    return int(counters["stats"]["unique_graphs"])
