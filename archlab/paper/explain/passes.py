"""What a prefill, a decode step and a training step do, which rates and shares of a device are made of."""

from __future__ import annotations

from collections.abc import Iterator

from archlab.cost.roofline import Passes, Setting, Work, bound
from archlab.document import Column, Explanation, Table
from archlab.hardware import Hardware
from archlab.paper.bounds import explained as of_bound
from archlab.paper.explain.asked import Model
from archlab.report.text import seconds
from archlab.workload import PHASES

BEGIN = ("tok_s", "seconds", "mfu", "mbu", "bound", "ceiling")
"""What names of figures begin with, their phase aside, that are made of a pass."""

SHARES = {"mfu": ("flops", "peak", "FLOP/s"), "mbu": ("moved", "bandwidth", "B/s")}
"""What a share is of: what the pass does, and which rate of the device."""


def works(model: Model) -> dict[str, Work]:
    """The work of each pass, by its phase: the prompt, the last token of it decoded, a step on it."""
    workload, tokens = model.asked.workload, model.tokens
    setting = Setting(workload.weight_dtype, workload.weight_dtype, workload.cache_dtype)
    passes = Passes(model.spec, setting)
    found = {"prefill": passes.prefill(workload.batch, tokens, logits=workload.logits)}
    if not model.spec.head.last_token_only:  # such a head makes no tokens
        found["decode"] = passes.decode(workload.batch, max(1, tokens - 1))
    return found | {"train": passes.train(workload.batch, tokens)}


def table(model: Model) -> Table:
    """What each pass does; on a device also the least time, and the MFU that it can reach at most."""
    device = model.asked.hardware
    columns = [Column("pass"), Column("tokens", "1", "exact"), Column("flops", "FLOP", "exact", "causal")]
    columns.append(Column("moved", "B", "exact", "weights, cache, in training gradients and moments"))
    if device is not None:
        columns += [Column("binds"), Column("tok_s", "tok/s", "bound"), Column("mfu", "%", "bound", "at that rate")]
    rows = [_row(phase, work, device) for phase, work in works(model).items()]
    workload = model.asked.workload
    about = f"{workload.batch:,} x {model.tokens:,} tokens, {workload.weight_dtype}"
    return Table("passes", "Passes", columns, rows, about if device is None else f"{about}, {device.name}")


def _row(phase: str, work: Work, device: Hardware | None) -> dict[str, object]:
    row = {"pass": phase, "tokens": work.tokens, "flops": work.flops, "moved": round(work.moved)}
    if device is None:
        return row
    found = bound(work, device)
    share = 100 * found.compute / found.seconds if found.compute and found.seconds else None
    return row | {"binds": found.binds, "tok_s": found.tok_s, "mfu": share}


def explained(name: str, key: str, model: Model) -> Iterator[Explanation]:
    """How a rate or a share of a device is made of each pass, as far as that is known before anything is timed."""
    if not key.startswith(BEGIN):
        return
    device, phases = model.asked.hardware, [phase for phase in PHASES if name.startswith(f"{phase}_")] or PHASES
    for phase, work in works(model).items():
        if phase not in phases:
            continue
        if key[:3] in SHARES:
            yield _share(f"{phase}_{key}", key[:3], work, device)
        elif device is not None and not key.startswith("ceiling"):
            found = bound(work, device)
            yield of_bound(f"bound_{phase}_tok_s", found, device)


def _share(name: str, share: str, work: Work, device: Hardware | None) -> Explanation:
    """`100 flops / (seconds peak)`, with the numbers that are known."""
    what, rate, unit = SHARES[share]
    amount = work.flops if share == "mfu" else work.moved
    known = None if device is None else device.peak(work.setting.dtype) if share == "mfu" else device.bandwidth
    worked = f"100 x {amount:,.0f} / (seconds x {f'{known:,}' if known else rate})"
    least = f", 100 at {seconds(amount / known)}" if known else ""
    assumed = ["seconds are measured", f"{rate} in {unit}" + (f" of {device.name}" if device and known else "")]
    return Explanation(name, "measured", f"100 {what} / (seconds {rate})", worked + least, assumed)
