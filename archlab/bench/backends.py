"""Which attention really runs: torch held to one backend, what it cannot do, and what a profiler saw."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator

import torch
from torch.autograd.profiler import profile
from torch.nn.attention import SDPBackend, sdpa_kernel

from archlab.components.attention.backend import flex_lacks
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.units import DTYPE_BYTES
from archlab.workload import BenchOptions

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
"""What torch's fused attention may be held to, by name."""

ON_CUDA = ("efficient", "cudnn")

EVIDENCE = {
    "cudnn": ("_scaled_dot_product_cudnn", "_cudnn_attention", "cudnn_generated", "sdpa_sm"),
    "efficient": ("_scaled_dot_product_efficient", "_efficient_attention", "fmha_cutlass"),
    "flash": ("_scaled_dot_product_flash", "_flash_attention", "flash_fwd"),
    "math": ("_scaled_dot_product_attention_math",),
    "flex": ("flex_attention", "flex_decoding", "FlexAttention", "ModIndex"),
}
"""Parts of the names of operators and CUDA kernels that each backend runs; cuDNN's kernels have `flash` in theirs.

Unfused flex attention shows how its mask and scores read tensors, by `ModIndex`, as nothing else does.
"""

ATTENTION, SOFTMAX = "aten::scaled_dot_product_attention", "aten::_softmax"
NOTHING_RUNS = ("no available kernel", "no viable backend")
"""What torch says, in lower case, where the backends that it is held to cannot do what is asked."""


class Unable(RuntimeError):
    """A backend that was named cannot do what the composition needs."""


def check(phase: str, spec: DecoderSpec, options: BenchOptions, dtype: str, device: str) -> None:
    """Raise Unable where it is known before a phase runs that a named backend cannot attend as the model does.

    spec: on that backend already, where that is for the model to say.
    """
    backend = options.backend
    if backend in ON_CUDA and not device.startswith("cuda"):
        raise Unable(f"{backend} attention runs on CUDA only, not on {device}")
    for layer, _ in spec.layer_kinds if backend else ():
        used = layer.attention.backend_used
        if backend == "flex":
            _check_flex(phase, layer, options.compile, dtype, device)
        elif used == "flex" or (used == "math" and backend != "math"):
            told = used == layer.attention.options().get("backend")
            because = f"model.attention.backend={used} asks for it" if told else " ".join(layer.attention.remarks())
            instead = {"math": "the explicit softmax", "flex": "flex attention"}[used]
            raise Unable(f"{backend} attention cannot stand in for {instead}: {because}")


def _check_flex(phase: str, layer: LayerSpec, compiled: bool, dtype: str, device: str) -> None:
    attention, trained = layer.attention, phase == "train"
    if attention.backend_used != "flex":
        raise Unable(f"attention {attention.choice} has no option to run on flex attention")
    core = attention.decode_core if phase == "decode" else attention.core
    how = {"trained": trained, "dropped": trained and layer.dropout.attention > 0, "compiled": compiled}
    lacks = flex_lacks(device.partition(":")[0], (core.qk, core.v), DTYPE_BYTES[dtype], **how)
    if lacks is not None:
        raise Unable(f"flex attention cannot do this: {lacks}")


@contextlib.contextmanager
def held_to(backend: str | None) -> Iterator[None]:
    """Let torch's attention run on a named backend alone. Raises Unable, with torch's reasons, where it cannot."""
    if backend not in KERNELS:
        yield
        return
    with warnings.catch_warnings(record=True) as said, sdpa_kernel([KERNELS[backend]]):
        warnings.simplefilter("always")
        try:
            yield
        except RuntimeError as error:
            if not any(words in str(error).lower() for words in NOTHING_RUNS):
                raise
            reasons = dict.fromkeys(str(warning.message).partition("(Triggered")[0].strip() for warning in said)
            raise Unable(f"{backend} attention cannot do this: {' '.join(reasons) or error}") from error


def seen(step: Callable[[], object], layers: int) -> dict[str, str]:
    """The backends that one pass through so many layers ran, each with the operator or kernel that gave it away.

    Softmax without one of torch's attentions is the explicit one. Nothing, where a compiler left no name to tell by.
    """
    counts = Counter(name for name in _operators(step) if "backward" not in name)
    found: dict[str, str] = {}
    for name in counts:
        backend = next((backend for backend, parts in EVIDENCE.items() if any(part in name for part in parts)), None)
        if backend is not None:
            found.setdefault(backend, name)
    if SOFTMAX in counts and (not found or counts.get(ATTENTION, layers) < layers):
        found.setdefault("math", SOFTMAX)
    return found


def _operators(step: Callable[[], object]) -> Iterator[str]:
    """The names of all operators and kernels that a step runs.

    torch.profiler says the same, but imports a compiler first (1 to 2 s) and works out times that are not asked for.
    """
    with profile(use_kineto=True, use_device="cuda" if torch.cuda.is_available() else None) as profiled:
        step()
    return (event.name() for event in profiled.kineto_results.events())
