"""What a device bounds a model's passes by, by name, for answers that show it beside other figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from archlab.cost.roofline import Bound, Passes, Setting, bound
from archlab.document import Explanation
from archlab.hardware import Hardware
from archlab.report.text import digits
from archlab.request import Request


def bounds(asked: Request, device: Hardware, contexts: Sequence[int]) -> dict[str, Bound]:
    """`bound_prefill_tok_s.2048`, ..: of prefill, decoding and training at each context."""
    return dict(_bounds(asked, device, contexts))


def _bounds(asked: Request, device: Hardware, contexts: Sequence[int]) -> Iterator[tuple[str, Bound]]:
    setting, batch = Setting.given(asked.workload, None, None, None), asked.workload.batch
    serving, training = Passes(asked.spec, setting), Passes(asked.spec, setting.trained)
    for context in contexts:
        yield f"bound_prefill_tok_s.{context}", bound(serving.prefill(batch, context), device)
    for context in contexts if not asked.spec.head.last_token_only else ():  # such a head makes no tokens
        yield f"bound_decode_tok_s.{context}", bound(serving.decode(batch, max(1, context - 1)), device)
    for context in contexts:
        yield f"bound_train_tok_s.{context}", bound(training.train(batch, context), device)


def explained(name: str, found: Bound, device: Hardware) -> Explanation:
    """How a bound was got: tokens over the slowest of its ceilings."""
    work = found.work
    sides = {
        "compute": ("flops / peak", f"{work.flops:,} / {device.peak(work.setting.dtype) or 0:,}"),
        "memory": ("moved / bandwidth", f"{work.moved:,.0f} / {device.bandwidth or 0:,}"),
    }
    known = [sides[ceiling] for ceiling in found.ceilings]
    symbols, numbers = (", ".join(side) for side in zip(*known, strict=True)) if known else ("", "")
    slowest = "max" if len(known) > 1 else ""
    result = "no ceiling is known" if found.tok_s is None else digits(found.tok_s)
    worked = f"{work.tokens:,} / {slowest}({numbers}) = {result}" if known else result
    assumed = (f"{device.name}: {device.source}", f"dense {work.setting.dtype} peak; activations stay on the chip")
    return Explanation(name, "bound", f"tokens / {slowest}({symbols})", worked, assumed)
