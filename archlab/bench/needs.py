"""The memory that a phase needs, estimated from the spec; whether an error says that memory was lacking. No torch."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from archlab.cost.activations import Training
from archlab.cost.memory import Inference, inference_memory, training_memory
from archlab.cost.optimizers import RECIPES
from archlab.decoder.spec import DecoderSpec
from archlab.errors import Unsaid
from archlab.host import address_limit
from archlab.units import DTYPE_BYTES
from archlab.workload import Workload

LACKING = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "failed to map segment",  # the dynamic loader, at a library
    "cublas_status_alloc_failed",
)
"""What an error says, in lower case, when an allocation failed: torch has no class of its own for it on the CPU."""

LACKING_ADDRESSES = "could not create a primitive"
"""What oneDNN says also of other faults; under `ulimit -v` it is that it could not have memory for code."""


def lacks_memory(error: BaseException) -> bool:
    """Whether an error says that an allocation failed."""
    words = LACKING if address_limit() is None else (*LACKING, LACKING_ADDRESSES)
    return isinstance(error, MemoryError) or any(said in str(error).lower() for said in words)


def phase_memory(phase: str, spec: DecoderSpec, workload: Workload, kind: str) -> int:
    """Bytes that a phase needs, without copies of weights. kind: of device, `cpu` or `cuda`.

    Training is timed with AdamW, all in the dtype of the weights. Raises Unsaid where a choice does not say.
    """
    dtype = workload.weight_dtype
    if phase == "train":
        training = Training(workload.batch, workload.prompt, dtype, kind, workload.recompute)
        return training_memory(spec, training, RECIPES["adamw"]).total
    work = Inference(workload.batch, workload.prompt, workload.length, dtype, workload.cache_dtype, kind)
    more = workload.batch * (workload.prompt - 1) * spec.head.width * DTYPE_BYTES[dtype] if phase == "prefill" else 0
    return inference_memory(spec, work).total + (more if workload.logits == "all" else 0)


def at_least(phases: Collection[str], spec: DecoderSpec, workload: Workload, device: str) -> dict[str, int]:
    """Bytes by phase, before torch says which device `auto` is, and which dtype it computes in: the least of them."""
    kinds = ("cpu", "cuda") if device == "auto" else (device.partition(":")[0],)
    found = {}
    for phase in phases:
        with suppress(Unsaid):
            found[phase] = min(phase_memory(phase, spec, workload, kind) for kind in kinds)
    return found
