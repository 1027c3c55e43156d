"""archlab roofline: what bounds a model's passes on a device, and by how much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from archlab.cost.explain import explanation
from archlab.cost.kv import kv_cache
from archlab.cost.roofline import Bound, Passes, Setting, Work, bound, ridge
from archlab.cost.symbols import Form, symbolic
from archlab.document import Chart, Column, Document, Explanation, Later, Row, Table
from archlab.frozen import Frozen, replace
from archlab.hardware import Hardware
from archlab.report.text import digits
from archlab.request import Request
from archlab.units import show_bytes
from archlab.written import symbol

COUNTED = {
    "prefill": "causal, logits of the last position",
    "prefill_full": "full, logits of all positions",
    "decode": "one token a sequence",
    "train": "causal, 3 x forward",
    "train_full": "full, 3 x forward",
}
"""Passes, and whose FLOPs they count. A kernel that skips what no query sees does the causal work, another the full."""

BATCHES = [2**power for power in range(11)]
CURVE = 24
"""Contexts at which the curve is drawn."""


class Asked(Frozen):
    """Which passes, and where. cached: tokens before the one that is decoded."""

    passes: Passes
    device: Hardware
    batch: int
    context: int
    cached: int

    def decode(self, batch: int, cached: int) -> Bound:
        return bound(self.passes.decode(batch, cached), self.device)

    def holds(self, batch: int) -> bool:
        """Whether weights and cache are within the device's memory, as far as that is known."""
        setting, memory = self.passes.setting, self.device.memory
        kept = kv_cache(self.passes.spec, batch, self.cached, setting.cache, tp=setting.tp).required
        return memory is None or self.passes.weights.total + kept <= memory


def document(asked: Request, device: Hardware, setting: Setting) -> Document:
    """The bounds of prefill, decode and a training step of the workload. Raises ConfigError."""
    spec, workload = asked.spec, asked.workload
    spec.check_length(workload.prompt)
    cached = workload.prompt if spec.max_length is None else min(workload.prompt, spec.max_length - 1)
    place = Asked(Passes(spec, setting), device, workload.batch, workload.prompt, max(1, cached))
    bounds = {name: bound(work, device) for name, work in _works(place)}
    return Document(
        command="roofline",
        model=spec.name,
        verdict=_verdict(bounds),
        tables=[_bounds(bounds), _moved(bounds), _ceilings(place)],
        assumptions=_assumptions(place),
        charts=[chart for chart in (_over_batch(place), _over_context(place)) if "decode" in bounds],
        notes=[*asked.notes, *_notes(place)],
        explanations=Later(lambda: _explanations(place, bounds)),
    )


def _works(place: Asked) -> Iterator[tuple[str, Work]]:
    passes, batch, context = place.passes, place.batch, place.context
    yield "prefill", passes.prefill(batch, context)
    yield "prefill_full", passes.prefill(batch, context, "full", "all")
    if not passes.spec.head.last_token_only:
        yield "decode", passes.decode(batch, place.cached)
    trained = Passes(passes.spec, passes.setting.trained)
    yield "train", trained.train(batch, context)
    yield "train_full", trained.train(batch, context, "full")


def _verdict(bounds: Mapping[str, Bound]) -> str:
    said = [
        f"{name} at most {digits(found.tok_s)} tok/s ({found.binds} binds)"
        for name, found in bounds.items()
        if found.tok_s is not None and "full" not in name
    ]
    return "; ".join(said) if said else "no ceiling of this device is known"


def _bounds(bounds: Mapping[str, Bound]) -> Table:
    kind = "estimated" if any("experts" in found.work.bytes for found in bounds.values()) else "exact"
    link = any(found.work.link for found in bounds.values())
    columns = [
        Column("pass"),
        Column("flops", "FLOP", "exact", "matmul FLOPs, 2 a multiply-add, of all devices together"),
        Column("moved", "B", kind, "what one device must read and write: see the table of it"),
        Column("intensity", "FLOP/B", kind, "flops / moved, of one device"),
        Column("compute", "ms", "bound", "flops / peak"),
        Column("memory", "ms", "bound", "moved / bandwidth"),
        *([Column("link", "ms", "bound", "sums that pass between devices / interconnect, one way")] if link else []),
        Column("binds"),
        Column("bound", "ms", "bound", "the slowest of them: nothing on this device is faster"),
        Column("rate", "tok/s", "bound", "tokens / bound"),
        Column("counted"),
    ]
    return Table(
        "bounds", "Bound", columns, [_bound_row(name, found) for name, found in bounds.items()], "no prediction"
    )


def _bound_row(name: str, found: Bound) -> Row:
    times = {"compute": found.compute, "memory": found.memory, "bound": found.seconds}
    times |= {"link": found.link} if found.work.link else {}
    return {
        "pass": name,
        "counted": COUNTED[name],
        "flops": found.work.flops,
        "moved": found.work.moved,
        "intensity": found.work.intensity,
        **{column: None if seconds is None else seconds * 1e3 for column, seconds in times.items()},
        "binds": found.binds,
        "rate": found.tok_s,
    }


def _moved(bounds: Mapping[str, Bound]) -> Table:
    shown = {name: found.work for name, found in bounds.items() if "full" not in name}
    parts = dict.fromkeys(part for work in shown.values() for part in work.bytes)
    rows: list[dict[str, Any]] = [
        {"part": part, **{name: work.bytes.get(part) for name, work in shown.items()}} for part in parts
    ]
    rows.append({"part": "total", **{name: work.moved for name, work in shown.items()}})
    kinds = {name: "estimated" if "experts" in work.bytes else "exact" for name, work in shown.items()}
    columns = [Column("part"), *(Column(name, "B", kind, PARTS) for name, kind in kinds.items())]
    return Table("moved", "Bytes moved", columns, rows, "of one device")


PARTS = (
    "weights once a pass (in training twice, and read and written by the step), routed experts as far as tokens are "
    "expected to be sent to them, one row of the embedding a token, the cache as far as it is seen"
)


def _ceilings(place: Asked) -> Table:
    device, setting, held = place.device, place.passes.setting, place.passes.weights.total
    peak, way = device.peak(setting.dtype), device.interconnect
    columns = [
        Column("hardware"),
        Column("ridge", "FLOP/B", "bound", "peak / bandwidth: below it memory binds, above it arithmetic"),
        Column("peak", "TFLOP/s", "", f"dense, {setting.dtype}"),
        Column("bandwidth", "GB/s", "", "of its memory"),
        Column("link", "GB/s", "", "to the other devices, one way"),
        Column("memory", "B", "", "of one device"),
        Column("weights", "B", "exact", f"of one device, {setting.weights}"),
    ]
    row = {
        "hardware": device.name,
        "peak": None if peak is None else peak / 1e12,
        "bandwidth": None if device.bandwidth is None else device.bandwidth / 1e9,
        "link": None if way is None else way / 2e9,
        "ridge": ridge(device, setting.dtype),
        "memory": device.memory,
        "weights": held,
    }
    return Table("ceilings", "Ceilings", columns, [row], device.source)


def _assumptions(place: Asked) -> dict[str, Any]:
    setting = place.passes.setting
    return {
        "batch": place.batch,
        "context": place.context,
        "decoded after": f"{place.cached:,} cached tokens",
        "arithmetic": setting.dtype,
        "weights": setting.weights,
        "cache": setting.cache,
        "tp": setting.tp,
        "activations": "not counted: what a layer hands on may stay on the chip",
        "training": f"AdamW; weights, gradients and moments in {setting.trained.weights}",
    }


def _notes(place: Asked) -> Iterator[str]:
    device, setting = place.device, place.passes.setting
    if device.peak(setting.dtype) is None:
        yield f"no compute ceiling: no dense {setting.dtype} peak of {device.name} is known"
    if device.bandwidth is None:
        yield f"no memory ceiling: the bandwidth of {device.name} is not known"
    if setting.tp > 1 and device.interconnect is None:
        yield f"no link ceiling: the interconnect of {device.name} is not known"
    if device.memory is not None and place.passes.weights.total > device.memory:
        held = show_bytes(place.passes.weights.total)
        yield f"{held} of weights do not fit in the {show_bytes(device.memory)} of {device.name}: see archlab fit"
    if place.passes.weights.experts:
        yield "bytes of routed experts are an estimate: each token is taken to choose its own, all experts alike"
    if setting.weights not in (setting.dtype, "fp32"):
        yield f"weights kept in {setting.weights} are multiplied in {setting.dtype}; --dtype sets the arithmetic"
    yield "a fused attention computes its scores again in the backward pass (7 where causal counts 6); not counted"


def _over_batch(place: Asked) -> Chart:
    curve = [(batch, place.decode(batch, place.cached)) for batch in BATCHES if batch == 1 or place.holds(batch)]
    device, ceilings = place.device, {}
    if curve[0][1].compute:
        ceilings["compute"] = 1 / curve[0][1].compute
    grown = place.passes.decode(1, place.cached).bytes
    if device.bandwidth:
        ceilings["cache alone"] = device.bandwidth / (grown["cache read"] + grown["cache written"])
    return _chart(
        f"Decode over batch as far as it fits, {place.cached:,} tokens cached", "batch", curve, ceilings, log_y=True
    )


def _over_context(place: Asked) -> Chart:
    end = place.passes.spec.max_length or place.passes.spec.context
    longest = max(2, min(place.passes.spec.context, end - 1))
    contexts = sorted({max(1, round(longest * step / CURVE)) for step in range(CURVE + 1)})
    curve = [(context, place.decode(place.batch, context)) for context in contexts]
    empty = place.passes.decode(place.batch, 1)
    moved = empty.moved - empty.bytes["cache read"] - empty.bytes["cache written"]
    ceilings = {"weights alone": place.batch * place.device.bandwidth / moved} if place.device.bandwidth else {}
    return _chart(f"Decode over context, batch {place.batch:,}", "tokens cached", curve, ceilings)


def _chart(
    title: str, x: str, curve: list[tuple[int, Bound]], ceilings: Mapping[str, float], log_y: bool = False
) -> Chart:
    points = [(at, found.tok_s) for at, found in curve if found.tok_s is not None]
    return Chart(title, x, "tok/s, bound", {"bound": points}, ceilings, log_x=log_y, log_y=log_y)


def _explanations(place: Asked, bounds: Mapping[str, Bound]) -> Iterator[Explanation]:
    device, dtype = place.device, place.passes.setting.dtype
    found = ridge(device, dtype)
    if found is not None:
        worked = f"{device.peak(dtype):,} FLOP/s / {device.bandwidth:,} B/s = {digits(found)} FLOP/B"
        yield Explanation("ridge", "bound", "peak / bandwidth", worked, [f"dense peak in {dtype}", device.source])
    forms = _flop_forms(place)
    for name, made in bounds.items():
        yield explanation(f"{name}.flops", forms[name], "exact", COUNTED[name], HOW_FLOPS)
        yield from _explained(name, made, device)


def _flop_forms(place: Asked) -> dict[str, Form]:
    """The FLOPs of each pass as closed forms, run over a model of symbols."""
    model = symbolic(place.passes.spec)
    sizes = {name: symbol(getattr(place, name), name) for name in ("batch", "context", "cached")}
    symbols = replace(place, passes=Passes(model, place.passes.setting), **sizes)
    return {name: model.whole(work.flops) for name, work in _works(symbols)}


def _explained(name: str, made: Bound, device: Hardware) -> Iterator[Explanation]:
    work = made.work
    setting = work.setting
    kind = "estimated" if "experts" in work.bytes else "exact"
    terms = " + ".join(f"{size:,.0f}" for size in work.bytes.values())
    moved = f"{terms} = {work.moved:,.0f} B"
    yield Explanation(f"{name}.moved", kind, " + ".join(work.bytes), moved, [PARTS, "activations stay on the chip"])
    shared = f" / {setting.tp} devices" if setting.tp > 1 else ""
    worked = f"{work.flops:,}{shared} / {work.moved:,.0f} B = {digits(work.intensity)} FLOP/B"
    yield Explanation(f"{name}.intensity", kind, f"flops{shared} / moved", worked)
    formulas = {
        "compute": (
            "flops / (tp peak)",
            f"{work.flops:,} / ({setting.tp} x {device.peak(setting.dtype) or 0:,} FLOP/s)",
        ),
        "memory": ("moved / bandwidth", f"{work.moved:,.0f} B / {device.bandwidth or 0:,} B/s"),
        "link": ("sums / (interconnect / 2)", f"{work.link:,} B / ({device.interconnect or 0:,} B/s / 2)"),
    }
    for ceiling, seconds in made.ceilings.items():
        formula, numbers = formulas[ceiling]
        yield Explanation(
            f"{name}.{ceiling}", "bound", formula, f"{numbers} = {digits(seconds * 1e3)} ms", [device.source]
        )
    if made.seconds is not None and made.tok_s is not None:
        times = ", ".join(f"{digits(seconds * 1e3)} ms" for seconds in made.ceilings.values())
        at = f"max({times}) = {digits(made.seconds * 1e3)} ms"
        yield Explanation(f"{name}.bound", "bound", f"max({', '.join(made.ceilings)})", at, ["a bound, no prediction"])
        rate = f"{work.tokens:,} / {digits(made.seconds * 1e3)} ms = {digits(made.tok_s)} tok/s"
        yield Explanation(f"{name}.rate", "bound", "tokens / bound", rate, ["a bound, no prediction"])


HOW_FLOPS = "matmul FLOPs, 2 a multiply-add, embedding lookup 0; the parts are those of archlab flops"
