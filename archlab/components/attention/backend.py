"""Which way attention goes: the backends that may be asked for, and what stands in where one cannot. No torch."""

from __future__ import annotations

BACKENDS = ("sdpa", "math", "flex")
"""torch's fused attention, the explicit softmax, torch's flex attention."""

FLASH_WIDTH = 256
"""Features of a head that CUDA's flash attention takes at most (torch: native/transformers/cuda/sdp_utils.cpp)."""

FLEX_WIDTHS = (16, 256)
"""Features of a head that flex attention's CUDA kernels take, the least and the most: torch refuses fewer
(torch/_inductor/kernel/flex/flex_attention.py), and wider ones run out of shared memory."""


def backend_used(backend: str, logit_cap: float | None) -> str:
    """The one that runs where another is asked for: torch's fused attention cannot cap scores, `math` can."""
    return "math" if backend == "sdpa" and logit_cap is not None else backend


def remarks(backend: str, logit_cap: float | None) -> tuple[str, ...]:
    """What somebody who asked for a backend might not expect."""
    if backend == "flex":
        return (
            "flex attention is a kernel on cuda, unfused and slow elsewhere; math does what it cannot, as training",
        )
    if backend_used(backend, logit_cap) == backend:
        return ()
    return (f"logit_cap {logit_cap:g} runs the explicit softmax (math): torch's fused attention cannot cap",)


def flex_lacks(
    device: str,
    widths: tuple[int, int],
    bytes_each: int,
    *,
    trained: bool = False,
    dropped: bool = False,
    compiled: bool = False,
) -> str | None:
    """Why flex attention cannot do it, None where it can; `math` then stands in for it.

    device: its kind. widths: features of a head's queries and of its values. bytes_each: of an element. trained: a
    gradient is asked for. dropped: weights are dropped. compiled: all of the pass is.
    """
    cuda, (least, most) = device == "cuda", FLEX_WIDTHS
    reasons = {
        "it drops no weights": dropped,
        "it needs storage": device == "meta",
        f"it has no backward pass on {device}": trained and not cuda,
        f"torch.compile of it is for cuda, not for {device}": compiled and not cuda,
        f"its kernels take heads of {least} to {most} features, not of {widths[0]} and {widths[1]}": (
            cuda and not least <= min(widths) <= max(widths) <= most
        ),
        "its kernels take no float64": cuda and bytes_each > 4,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
