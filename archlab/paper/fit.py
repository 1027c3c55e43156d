"""archlab fit: does it fit, how far does it go, and which device holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from archlab.cost.fit import Fit, Serving
from archlab.cost.kv import ENGINES, kv_cache
from archlab.cost.roofline import ARITHMETIC, Passes, Work, bound
from archlab.cost.shards import valid_split
from archlab.cost.storage import STAYS, kv_storage, weight_storage
from archlab.cost.working import engine_elements
from archlab.decoder.spec import DecoderSpec
from archlab.document import Chart, Column, Document, Explanation, Row, Table
from archlab.frozen import Frozen, values_of
from archlab.hardware import Hardware, hardware, names
from archlab.request import Request
from archlab.units import show_bytes

STEPS = 12
"""Points of a curve."""


class Point(Frozen):
    """What was asked, and what of it fits: a context, a batch and the devices that share a layer."""

    name: str
    fit: Fit
    context: int
    batch: int

    @property
    def left(self) -> int:
        return self.fit.left(self.context, self.batch)


def document(asked: Request, device: Hardware | None, serving: Serving, context: int | None = None) -> Document:
    """What fits on a device, or, without one, which device holds it. Raises ConfigError.

    context: tokens of each sequence; without, `spec.reach`. The batch is the workload's.
    """
    spec = asked.spec
    context = spec.reach if context is None else context
    spec.check_length(context)
    if device is None:
        return _survey(asked, serving, context)
    fit = Fit(spec, serving, device)
    points = [*_points(fit, context, asked.workload.batch)]
    return Document(
        command="fit",
        model=spec.name,
        verdict=_verdict(points),
        tables=[_parts(points[0]), _table(points)],
        assumptions=_assumptions(serving, device),
        charts=[_over_context(points[0]), _batches(points[0])],
        notes=[*asked.notes, *_notes(points)],
        explanations=[*_explanations(points)],
    )


def _points(fit: Fit, context: int, batch: int) -> Iterator[Point]:
    """The question, the largest context and batch beside it, and the fewest devices that hold it."""
    yield Point("asked", fit, context, batch)
    most, many = fit.largest_context(batch), fit.largest_batch(context)
    if most:
        yield Point("largest context", fit, most, batch)
    if many:
        yield Point("largest batch", fit, context, many)
    fewest = fit.smallest_tp(context, batch)
    if fewest is not None:
        yield Point("smallest tp", fit.at(fewest), context, batch)


def _verdict(points: Sequence[Point]) -> str:
    asked = points[0]
    where = f"{asked.batch:,} x {asked.context:,} tokens on {_many(asked.fit.tp, asked.fit.device.name)}"
    if asked.left >= 0:
        return f"fits: {where}, {show_bytes(asked.left)} left"
    return f"does not fit: {where}, short by {show_bytes(-asked.left)}"


def _many(tp: int, name: str) -> str:
    return f"{tp} x {name}" if tp > 1 else name


KINDS = {
    "weights": ("exact", "all parameters of one device, experts that a token does not use among them"),
    "cache": ("estimated", "what the engine sets aside, by whole blocks"),
    "activations": ("estimated", "of one prefill step: 3 d_model + the wider of attention's and FFN's middle, a token"),
    "logits": ("exact", "of a decode step: a row a sequence, and its copy in float32"),
}


def _parts(point: Point) -> Table:
    need, budget = point.fit.need(point.context, point.batch), point.fit.budget
    columns = [
        Column("part"),
        Column("bytes", "B", "estimated", "of one device; activations are the estimate among them"),
        Column("how"),
    ]
    rows: list[dict[str, Any]] = [
        {"part": name, "bytes": size, "how": KINDS[name][1]} for name, size in values_of(need).items()
    ]
    left = {"part": "left" if point.left >= 0 else "short by", "bytes": abs(point.left), "how": None}
    rows += [{"part": "budget", "bytes": budget, "how": "utilisation x memory - reserve"}, left]
    return Table("memory", "Memory", columns, rows, f"{point.batch:,} x {point.context:,} tokens, one device")


COLUMNS = (
    Column("point"),
    Column("context", "tokens", "exact", "of each sequence, prompt and new"),
    Column("batch", "sequences", "exact", "at once"),
    Column("tp", "devices", "exact", "that share each layer"),
    Column("needed", "B", "estimated", "of one device: weights, cache, activations, logits"),
    Column("left", "B", "estimated", "of the budget; below zero: short by"),
    Column("prefill", "tok/s", "bound", "archlab roofline; causal, logits of the last position"),
    Column("decode", "tok/s", "bound", "archlab roofline; the last token of each sequence"),
)


def _table(points: Sequence[Point]) -> Table:
    about = "the most and the fewest by search; rates are bounds, no prediction"
    return Table("points", "What fits", COLUMNS, [_row(point) for point in points], about)


def _row(point: Point) -> dict[str, Any]:
    return {
        "point": point.name,
        "context": point.context,
        "batch": point.batch,
        "tp": point.fit.tp,
        "needed": point.fit.need(point.context, point.batch).total,
        "left": point.left,
        **_rates(_works(point), point.fit.device),
    }


def _works(point: Point) -> dict[str, Work]:
    """The passes whose rates are shown; the decoded token is the context's last."""
    passes = Passes(point.fit.spec, point.fit.serving.setting)
    works = {"prefill": passes.prefill(point.batch, point.context)}
    if not point.fit.spec.head.last_token_only:
        works["decode"] = passes.decode(point.batch, max(1, point.context - 1))
    return works


def _rates(works: Mapping[str, Work], device: Hardware) -> dict[str, float | None]:
    """The most tokens a second. Without a compute ceiling a prefill's bound would say next to nothing."""
    found = {name: bound(work, device) for name, work in works.items()}
    rates = {name: found[name].tok_s if name in found else None for name in ("prefill", "decode")}
    return rates if found["prefill"].compute is not None else {**rates, "prefill": None}


def _survey(asked: Request, serving: Serving, context: int) -> Document:
    """Every device whose memory is known, with as many of it as hold the question; the smallest first."""
    batch = asked.workload.batch
    known = {name: device for name, device in ((name, hardware(name)) for name in names()) if device.memory}
    rows = sorted(_held(asked.spec, serving, known, context, batch), key=lambda row: (row["memory"], row["tp"]))
    short = sorted(known.keys() - {row["hardware"] for row in rows})
    columns = [Column("hardware"), *COLUMNS[3:], Column("memory", "B", "", "of all these devices together")]
    about = f"{batch:,} x {context:,} tokens, the fewest devices that hold it"
    return Document(
        command="fit",
        model=asked.spec.name,
        verdict=f"{batch:,} x {context:,} tokens; {_smallest(rows, known)}",
        tables=[Table("devices", "Devices", columns, rows, about)],
        assumptions=_assumptions(serving, None),
        notes=[*asked.notes, *([f"too small, as many as can share a layer: {', '.join(short)}"] if short else [])],
    )


def _held(
    spec: DecoderSpec, serving: Serving, known: Mapping[str, Hardware], context: int, batch: int
) -> Iterator[dict[str, Any]]:
    """A row for each device that holds the question, with the fewest of it that do."""
    waiting = dict(known)
    for tp in valid_split(spec):
        if not waiting:
            return
        point = Point("", Fit(spec, serving, next(iter(waiting.values()))).at(tp), context, batch)
        needed, works = point.fit.need(context, batch).total, _works(point)
        for name, device in [*waiting.items()]:
            left = serving.budget(device) - needed
            if left >= 0:
                del waiting[name]
                whole = {"tp": tp, "needed": needed, "left": left, "memory": tp * (device.memory or 0)}
                yield {"hardware": name, **whole, **_rates(works, device)}


def _smallest(rows: Sequence[Row], known: Mapping[str, Hardware]) -> str:
    if not rows:
        return "none holds it"
    row = rows[0]
    name = known[row["hardware"]].name
    return f"smallest: {_many(row['tp'], name)}, {show_bytes(row['left'])} left on each"


def _assumptions(serving: Serving, device: Hardware | None) -> dict[str, Any]:
    setting, engine = serving.setting, serving.engine
    return {
        **({"hardware": device.name, "memory": show_bytes(device.memory or 0)} if device else {}),
        "utilisation": serving.utilisation,
        "reserve": show_bytes(serving.reserve),
        "weights": _kept(setting.weights, weight_storage(setting.weights).about),
        "cache": _kept(setting.cache, kv_storage(setting.cache).about),
        "engine": f"{engine.kind}: {ENGINES[engine.kind]}",
        **engine.sizes,
        "prefill step": "whole prompts" if serving.chunk is None else f"{serving.chunk:,} tokens at most",
        "arithmetic": setting.dtype,
        "tp": setting.tp,
    }


def _kept(name: str, about: str) -> str:
    return f"{name} ({about})" if about else name


def _notes(points: Sequence[Point]) -> Iterator[str]:
    asked = points[0]
    fit, spec = asked.fit, asked.fit.spec
    found = {point.name: point for point in points}
    if asked.context > spec.context:
        yield f"{asked.context:,} tokens are beyond the model's context of {spec.context:,}"
    if fit.largest_context(asked.batch) is None:
        yield "memory sets no end to the context: no layer keeps more than its window"
    elif "largest context" in found and found["largest context"].context > spec.context:
        yield f"the model was made for {spec.context:,} tokens; memory would hold more"
    elif "largest context" not in found:
        yield f"at batch {asked.batch:,} not even one token a sequence fits"
    if "largest batch" not in found:
        yield f"not even one sequence of {asked.context:,} tokens fits"
    if "smallest tp" not in found:
        shared = ", ".join(map(str, valid_split(spec)))
        yield f"no number of these devices that can share a layer ({shared}) holds it"
    joined = fit.device.devices_per_node
    if "smallest tp" in found and joined is not None and found["smallest tp"].fit.tp > joined:
        yield f"the interconnect joins {joined} of these devices"


def _over_context(point: Point) -> Chart:
    fit, batch = point.fit, point.batch
    end = max(point.context, min(fit.largest_context(batch) or point.context, fit.spec.max_length or 2**62))
    contexts = sorted({max(1, round(end * step / STEPS)) for step in range(STEPS + 1)})
    curve = [(context, fit.need(context, batch).total) for context in contexts]
    ceilings = {"budget": fit.budget} if fit.budget > 0 else {}
    return Chart(
        f"Needed over context, batch {batch:,}", "context", "bytes a device", {"needed": curve}, ceilings, unit="B"
    )


def _batches(point: Point) -> Chart:
    fit = point.fit
    contexts = [2**power for power in range(9, 31) if 2**power <= (fit.spec.max_length or fit.spec.context)]
    curve = [(context, fit.largest_batch(context)) for context in contexts]
    held = [(context, batch) for context, batch in curve if batch]
    return Chart("Largest batch over context", "context", "sequences", {"batch": held}, log_x=True, log_y=True)


def _explanations(points: Sequence[Point]) -> Iterator[Explanation]:
    asked = points[0]
    fit, serving = asked.fit, asked.fit.serving
    setting, need = serving.setting, fit.need(asked.context, asked.batch)
    worked = f"{serving.utilisation} x {fit.device.memory:,} B - {serving.reserve:,} B = {fit.budget:,} B"
    yield Explanation("budget", "exact", "utilisation x memory - reserve", worked, [f"memory of {fit.device.name}"])
    kept = weight_storage(setting.weights)
    shared = f"; those of one of {fit.tp} devices" if fit.tp > 1 else ""
    yield Explanation(
        "weights",
        "exact",
        "sum over tensors of parameters x bytes, scales with them",
        f"{need.weights:,} B",
        [f"{kept.name}{shared}", KINDS["weights"][1], *([] if kept.plain else [STAYS])],
    )
    yield _cache_explanation(asked)
    tokens = asked.batch * asked.context if serving.chunk is None else min(asked.batch * asked.context, serving.chunk)
    live = engine_elements(fit.spec, fit.tp)
    width = ARITHMETIC[setting.dtype]
    yield Explanation(
        "activations",
        "estimated",
        "min(batch x context, prefill step) x elements a token x bytes",
        f"{tokens:,} x {live:,} x {width} = {need.activations:,} B",
        [
            KINDS["activations"][1],
            "a fused attention, which builds no scores",
            "what an engine's own buffers take is in the reserve",
        ],
    )
    yield Explanation(
        "logits",
        "exact",
        "batch x outputs x (bytes + 4)",
        f"{asked.batch:,} x {fit.spec.head.width:,} x ({width} + 4) = {need.logits:,} B",
    )
    terms = " + ".join(f"{size:,}" for size in values_of(need).values())
    yield Explanation("needed", "estimated", " + ".join(values_of(need)), f"{terms} = {need.total:,} B")
    yield Explanation("left", "estimated", "budget - needed", f"{fit.budget:,} - {need.total:,} = {asked.left:,} B")
    for point in points[1:]:
        yield _search_explanation(point)


def _cache_explanation(point: Point) -> Explanation:
    fit = point.fit
    setting, engine = fit.serving.setting, fit.serving.engine
    kept = kv_cache(fit.spec, point.batch, point.context, setting.cache, tp=setting.tp, engine=engine)
    terms = " + ".join(
        f"{len(kind.layers)} x {kind.bytes_per_token:,} B x {kind.slots:,} x {kind.sequences:,}"
        for kind in kept.by_layer
    )
    sizes = (f"{name} {size:,}" for name, size in engine.sizes.items())
    assumptions = [f"{engine.kind}: {ENGINES[engine.kind]}", *sizes]
    formula = "sum over kinds of layer of layers x bytes a token x slots x sequences"
    return Explanation("cache", "estimated", formula, f"{terms} = {kept.engine:,} B", assumptions)


def _search_explanation(point: Point) -> Explanation:
    """The answer of a search, and the next one that does not hold."""
    fit, context, batch = point.fit, point.context, point.batch
    name = point.name.replace(" ", "_")
    if point.name == "smallest tp":
        worked = f"{fit.tp}: {show_bytes(point.left)} left on each device"
        return Explanation(name, "estimated", "the first number that can share a layer and fits", worked)
    answer, more = batch, (context, batch + 1)
    if point.name == "largest context":
        answer, more = context, (context + 1, batch)
    then = "the positions' end" if more[0] == (fit.spec.max_length or 0) + 1 else f"short by {-fit.left(*more):,} B"
    worked = f"{answer:,}: {point.left:,} B left; {answer + 1:,}: {then}"
    return Explanation(name, "estimated", "bisection on needed <= budget", worked)
