"""How near a phase comes to what its device can do: the bound, MFU and MBU, each with its formula. No torch.

    MFU   FLOPs that the pass needs / time / rate of a matrix product
    MBU   bytes that the pass must move / time / rate of reading

The larger of the two names the ceiling that binds, and is the share of the bound that was reached.
"""

from __future__ import annotations

from archlab.bench.clock import Sample
from archlab.bench.figures import Figures, told
from archlab.cost.roofline import Passes, Setting, Work
from archlab.decoder.spec import DecoderSpec
from archlab.frozen import Frozen
from archlab.hardware import Hardware
from archlab.record import Figure
from archlab.units import show_bytes, show_flops, show_in
from archlab.workload import Workload

COUNTED = {
    "prefill": "causal FLOPs, of the logits that it gives",
    "decode": "FLOPs of one token a sequence and step",
    "train": "causal FLOPs, 3 x forward, none for what is recomputed",
}
"""Whose FLOPs a phase's MFU counts."""


class Ceiling(Frozen):
    """A rate, in FLOP/s or B/s, and where it is from. tag: what the names of its fractions end in."""

    rate: float
    source: str
    tag: str = ""


def work_of(phase: str, spec: DecoderSpec, workload: Workload) -> Work:
    """What one timed run of a phase must do."""
    dtype, batch, prompt = workload.weight_dtype, workload.batch, workload.prompt
    passes = Passes(spec, Setting(dtype, dtype, workload.cache_dtype))
    if phase == "prefill":
        return passes.prefill(batch, prompt, logits=workload.logits)
    if phase == "train":
        return passes.train(batch, prompt)
    steps = [passes.decode(batch, prompt + step) for step in range(workload.new)]
    moved = {name: sum(step.bytes[name] for step in steps) for name in steps[0].bytes}
    return Work("decode", batch * len(steps), sum(step.flops for step in steps), moved, 0, passes.setting)


def working_set(work: Work, steps: int) -> int:
    """Bytes that one step of a phase goes through."""
    return int(work.bytes["optimizer"] if work.phase == "train" else work.moved / steps)


def fractions(work: Work, sample: Sample, matmul: Figure, read: Figure, device: Hardware | None) -> Figures:
    """The phase's bound, MFU and MBU by what was measured, and by the datasheet of a device that has one."""
    phase, dtype = work.phase, work.setting.dtype
    compute = [Ceiling(matmul.value or 0, f"measured, {matmul.how}")]
    memory = [Ceiling(read.value or 0, f"measured, {read.how}")]
    if device is not None and device.peak(dtype):
        compute.append(Ceiling(device.peak(dtype) or 0, f"{device.name}, dense {dtype}, datasheet", "_datasheet"))
    if device is not None and device.bandwidth:
        memory.append(Ceiling(device.bandwidth, f"{device.name}, datasheet", "_datasheet"))
    figures = {f"{phase}_bound_tok_s": _bound(work, compute[0], memory[0])}
    for ceiling in compute:
        amount = f"{show_flops(work.flops)} ({COUNTED[phase]})"
        figures[f"{phase}_mfu{ceiling.tag}"] = _fraction(work.flops, amount, sample, ceiling, "FLOP/s")
    for ceiling in memory:
        amount = f"{show_bytes(work.moved)} ({', '.join(work.bytes)})"
        figures[f"{phase}_mbu{ceiling.tag}"] = _fraction(work.moved, amount, sample, ceiling, "B/s")
    return figures


def _bound(work: Work, compute: Ceiling, memory: Ceiling) -> Figure:
    times = {"compute": work.flops / compute.rate, "memory": work.moved / memory.rate}
    binds = max(times, key=times.__getitem__)
    facts = {"binds": binds}
    how = told("tokens / max(FLOPs / matmul rate, bytes / read rate), rates as measured here", facts)
    return Figure(work.tokens / times[binds], "tok/s", "bound", how, facts=facts)


def _fraction(amount: float, said: str, sample: Sample, ceiling: Ceiling, unit: str) -> Figure:
    """A share in per cent; one that is above 100 even of the slow runs is no measurement of anything."""
    value, low, high = (100 * amount / seconds / ceiling.rate for seconds in (sample.median, sample.p90, sample.p10))
    rate = f"{show_in(ceiling.rate, unit)} ({ceiling.source})"
    how = f"{said} / time / {rate}"
    if low <= 100:
        return Figure(value, "%", "measured", how, low=low, high=high, repeats=sample.repeats)
    reason = f"{value:.1f} % of {rate} cannot be: "
    reason += "the ceiling is too low, or of another device, or not all that is counted was done"
    return Figure(None, "%", "measured", how, status="invalid", reason=reason)
