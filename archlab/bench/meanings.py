"""What the measured figures mean, in words. A name without its phase stands for that of each phase. No torch."""

from __future__ import annotations

from collections.abc import Mapping

from archlab.meaning import Meaning
from archlab.papers import PALM, ROOFLINE, SCALING_INFERENCE

FIGURES: Mapping[str, Meaning] = {
    "tok_s": Meaning(
        "Tokens a second of a phase, all sequences together: the median of the timed runs. Prefill counts the tokens "
        "of the prompts, decode new tokens after the first, training the tokens of a step.",
        "The three are bound by different things and are never added up.",
        "tokens of a run / seconds of a run",
    ),
    "seconds": Meaning(
        "Seconds of one prefill, to the first token (TTFT).",
        "It is what a reader waits for before anything appears.",
        "seconds of a run",
    ),
    "seconds_per_token": Meaning(
        "Seconds between two tokens of a sequence while it decodes (TPOT).",
        "A larger batch makes more tokens a second, and each sequence wait longer for its own.",
        "seconds of a run / new",
    ),
    "seconds_per_step": Meaning(
        "Seconds of one training step: forward, loss, backward, a fused AdamW step.", "", "seconds of a run"
    ),
    "warmup_seconds": Meaning(
        "Seconds of the untimed runs of the same shape before the clock starts.",
        "First runs pay for allocation, for compiling and for caches that are cold.",
    ),
    "compile_seconds": Meaning(
        "What torch.compile took: the warm-up's seconds beyond as many runs at the median.", "It is paid once a shape."
    ),
    "recompiles": Meaning(
        "Graphs that were compiled while the clock ran.", "Anything above 0 makes the times invalid: they hold it too."
    ),
    "peak_bytes": Meaning(
        "The most memory at any one time of a phase: allocated by torch on CUDA, resident in the process on a CPU.",
        "It says what fits, weights and cache among it.",
    ),
    "peak_reserved_bytes": Meaning(
        "The most memory that torch's allocator had taken from the driver.",
        "It is more than what is allocated, by what lies between tensors.",
    ),
    "kv_allocated_bytes": Meaning(
        "The bytes of the KV cache's own tensors in the timed run.",
        "A record has them checked against the closed form.",
    ),
    "bound_tok_s": Meaning(
        "The most tokens a second that the ceilings measured on this very device allow: by arithmetic, or by what must "
        "be read, whichever is slower.",
        "It says which of the two to work on, and how much there is to gain.",
        "tokens / max(FLOPs / matmul rate, bytes / read rate)",
        (ROOFLINE,),
    ),
    "mfu": Meaning(
        "Model FLOPs utilisation: the share of the device's matmul rate that the model's own FLOPs reach, the rate as "
        "measured beside it.",
        "It compares runs of different models and devices. Causal FLOPs count, and none for what is recomputed. A "
        "share above 100 % is invalid. Decoding reads for most of its time, so that its MFU is low by nature: see mbu.",
        "FLOPs of a run / seconds / matmul rate",
        (PALM.at("appendix B"),),
    ),
    "mfu_datasheet": Meaning(
        "MFU against the dense peak of the device's datasheet.",
        "It is what papers report; no device reaches its peak, so that it is lower than mfu.",
        "FLOPs of a run / seconds / peak",
        (PALM.at("appendix B"),),
    ),
    "mbu": Meaning(
        "Memory bandwidth utilisation: the share of the device's rate of reading that the bytes reach which a run must "
        "move: weights, cache, in training gradients and moments.",
        "It is to decoding what MFU is to prefill.",
        "bytes of a run / seconds / read rate",
        (SCALING_INFERENCE, ROOFLINE),
    ),
    "mbu_datasheet": Meaning(
        "MBU against the bandwidth of the device's datasheet.",
        "Caches are not in a datasheet: a small model may be above 100 % and is then invalid.",
        "bytes of a run / seconds / bandwidth",
        (SCALING_INFERENCE,),
    ),
    "ceiling_matmul": Meaning(
        "FLOP/s of a square matrix product in the dtype, the best of many runs at the size at which it is fastest.",
        "What arithmetic is bound by on this very device.",
        "2 n^3 / seconds",
        (ROOFLINE,),
    ),
    "ceiling_read.": Meaning(
        "B/s at which the device reads a working set as large as the phase's.",
        "What reading is bound by; a small model lives in a cache, which is quicker than memory.",
        "bytes / seconds",
        (ROOFLINE,),
    ),
    "ceiling_copy.": Meaning(
        "B/s at which the device copies a working set as large as the phase's, read and written together.",
        "Where a phase writes much of what it reads, this bounds it rather than reading.",
        "bytes / seconds",
        (ROOFLINE,),
    ),
}
"""By the name of the figure without its phase."""
