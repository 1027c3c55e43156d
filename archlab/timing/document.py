"""The answer of `archlab bench`: speeds and their spread, how near they come to the ceilings, memory, ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from archlab.bench.figures import TIMES
from archlab.cost.kv import kv_cache
from archlab.document import Chart, Column, Document, Explanation, Table
from archlab.frozen import Frozen, derived
from archlab.record import Figure, Record
from archlab.report.text import digits
from archlab.timing.points import Point
from archlab.timing.rounds import Ratio
from archlab.timing.run import Timed
from archlab.units import counted
from archlab.workload import PHASES

FORMULAS = (
    "mfu = FLOPs / time / matmul rate; mbu = bytes that must be moved / time / read rate, both rates measured here in "
    "this run, the read rate at this working set; --explain all has the numbers",
    "bound = tokens / max(FLOPs / matmul rate, bytes / read rate), the larger of which binds; reached = tok_s / bound",
)
ROUNDS = "of the rounds, means of as many in a row as there are points"
INTERVAL = "the median's 95 % interval over processes; it takes 6 (bench.processes)"
SPREAD = "10th and 90th percentile of the runs"

RATIO = (
    Column("ratio", "x", "measured", "how many times as fast as the first, median over processes"),
    Column("low", "x", "measured", INTERVAL),
    Column("high", "x", "measured", INTERVAL),
    Column("p10", "x", "measured", ROUNDS),
    Column("p90", "x", "measured", ROUNDS),
    Column("processes", "1", "measured", "new ones of each point, one after another"),
    Column("rounds", "1", "measured", "in each all ran once, in turn"),
)
"""The columns of a ratio."""

MACHINE = ("device_name", "timed_dtype", "torch", "threads", "cpu", "cpu_mhz", "driver", "power_limit_w", "sm_mhz")
"""What is told of the environment, where it is the same for all."""


class Line(Frozen):
    """One phase of one point."""

    point: Point
    record: Record
    phase: str

    def figure(self, name: str) -> Figure | None:
        return self.record.figures.get(name)

    def value(self, ending: str) -> Any:
        """The phase's figure of that ending; its status, where it cannot be."""
        found = self.figure(f"{self.phase}_{ending}")
        return None if found is None else found.status if found.status != "ok" else found.value

    @property
    def rate(self) -> Figure:
        return self.record.figures[f"{self.phase}_tok_s"]

    @derived
    def timed(self) -> bool:
        return self.rate.value is not None


def document(timed: Timed) -> Document:
    """What the records say, whatever became of them."""
    pairs = [(timed.points[number], record) for number, record in sorted(timed.records.items())]
    lines = [Line(point, record, phase) for point, record in pairs for phase in _phases(record)]
    labels = _labels([point for point, _ in pairs])
    made = (build(lines, labels) for build in (_speeds, _reached, _ceilings, _memory, _before))
    tables = [table for table in made if table.rows and len(table.columns) > len(labels) + 1]  # beside what tells rows
    return Document(
        command="bench",
        model=", ".join(dict.fromkeys(point.name for point, _ in pairs)),
        tables=[*tables, *_ratios(timed)],
        verdict=_verdict(lines),
        assumptions=_assumptions(pairs),
        charts=[*_charts(lines, "batch"), *_charts(lines, "context")],
        notes=[*_notes(pairs), *_warnings(pairs), *_without_ratios(timed), *FORMULAS, *_end(timed)],
        explanations=[*_explanations(pairs)],
    )


def _phases(record: Record) -> list[str]:
    return [phase for phase in PHASES if f"{phase}_tok_s" in record.figures]


def _labels(points: Sequence[Point]) -> list[str]:
    """The labels that differ among the points; the model in any case."""
    seen: dict[str, set[Any]] = {}
    for point in points:
        for name, value in point.labels.items():
            seen.setdefault(name, set()).add(value)
    return [name for name, values in seen.items() if name == "model" or len(values) > 1]


def _table(
    name: str, title: str, lines: Sequence[Line], labels: Sequence[str], columns: Mapping[Column, Callable[[Line], Any]]
) -> Table:
    """A row a line: what tells it from the others, the phase, then the columns that hold something."""
    rows = [{column.name: read(line) for column, read in columns.items()} for line in lines]
    held = [column for column in columns if any(row[column.name] is not None for row in rows)]
    named = [{label: line.point.labels[label] for label in labels} | {"phase": line.phase} for line in lines]
    heads = [*(Column(label) for label in labels), Column("phase")]
    return Table(name, title, [*heads, *held], [about | row for about, row in zip(named, rows, strict=True)])


def _speeds(lines: Sequence[Line], labels: Sequence[str]) -> Table:
    columns: dict[Column, Callable[[Line], Any]] = {
        Column("tok_s", "tok/s", "measured", "tokens of all sequences / median time"): lambda line: line.value("tok_s"),
        Column("p10", "tok/s", "measured", SPREAD): lambda line: line.rate.low,
        Column("p90", "tok/s", "measured", SPREAD): lambda line: line.rate.high,
        Column("runs", "1", "measured", "timed runs"): lambda line: line.rate.repeats,
        Column("a_sequence", "tok/s", "measured", "tok_s / batch"): _each,
        Column("time", "ms", "measured", "TTFT of prefill, TPOT of decode, a step of training"): _milliseconds,
        Column("stopped", how="why the runs were enough"): _stopped,
    }
    return _table("throughput", "Throughput", lines, labels, columns)


def _each(line: Line) -> float | None:
    batch = line.point.request.workload.batch
    return line.rate.value / batch if line.rate.value is not None and line.phase == "decode" and batch > 1 else None


def _milliseconds(line: Line) -> float | None:
    found = line.figure(TIMES[line.phase][0])
    return None if found is None or found.value is None else found.value * 1e3


def _stopped(line: Line) -> str | None:
    if not line.timed:
        return f"{line.rate.status}: {line.rate.reason}" if line.rate.status != "ok" else line.rate.reason
    return line.rate.fact("stopped")


def _reached(lines: Sequence[Line], labels: Sequence[str]) -> Table:
    columns: dict[Column, Callable[[Line], Any]] = {
        Column("tok_s", "tok/s", "measured", "as above"): lambda line: line.value("tok_s"),
        Column("bound", "tok/s", "bound", FORMULAS[1]): lambda line: line.value("bound_tok_s"),
        Column("reached", "%", "measured", "tok_s / bound"): _share,
        Column("binds", how="the ceiling that the bound is of"): _binds,
        Column("mfu", "%", "measured", FORMULAS[0]): lambda line: line.value("mfu"),
        Column("mbu", "%", "measured", FORMULAS[0]): lambda line: line.value("mbu"),
        Column("mfu_datasheet", "%", "measured", "the same, of the datasheet"): lambda line: line.value(
            "mfu_datasheet"
        ),
        Column("mbu_datasheet", "%", "measured", "the same, of the datasheet"): lambda line: line.value(
            "mbu_datasheet"
        ),
    }
    bounded = [line for line in lines if line.timed and line.value("bound_tok_s") is not None]
    return _table("roofline", "Measured against the bound", bounded, labels, columns)


def _share(line: Line) -> float | str | None:
    bound = line.figure(f"{line.phase}_bound_tok_s")
    if bound is None or not bound.value or line.rate.value is None:
        return None
    wrong = "invalid" in (line.value("mfu"), line.value("mbu"))
    return "invalid" if wrong else 100 * line.rate.value / bound.value


def _binds(line: Line) -> str | None:
    bound = line.figure(f"{line.phase}_bound_tok_s")
    return None if bound is None else bound.fact("binds")


def _ceilings(lines: Sequence[Line], labels: Sequence[str]) -> Table:
    def rate(name: str) -> Callable[[Line], float | None]:
        def read(line: Line) -> float | None:
            found = line.figure(name.format(line.phase))
            return None if found is None or found.value is None else found.value / 1e9

        return read

    columns: dict[Column, Callable[[Line], Any]] = {
        Column("matmul", "GFLOP/s", "measured", "the fastest square product"): rate("ceiling_matmul"),
        Column("read", "GB/s", "measured", "over the working set of a step"): rate("ceiling_read.{}"),
        Column("copy", "GB/s", "measured", "read and written, in the same working set"): rate("ceiling_copy.{}"),
        Column("read_at", how="what was read, and how"): _read_at,
    }
    return _table("ceilings", "Ceilings of this device", [line for line in lines if line.timed], labels, columns)


def _read_at(line: Line) -> str | None:
    found = line.figure(f"ceiling_read.{line.phase}")
    return None if found is None else found.fact("what")


def _memory(lines: Sequence[Line], labels: Sequence[str]) -> Table:
    columns: dict[Column, Callable[[Line], Any]] = {
        Column("peak", "B", "measured", "highest while the phase ran"): lambda line: line.value("peak_bytes"),
        Column("reserved", "B", "measured", "by torch's allocator"): lambda line: line.value("peak_reserved_bytes"),
        Column("kv_allocated", "B", "exact", "bytes of the cache's tensors"): _allocated,
        Column("kv_predicted", "B", "exact", "closed form"): _predicted,
    }
    return _table("memory", "Memory", [line for line in lines if line.timed], labels, columns)


def _allocated(line: Line) -> float | int | None:
    found = line.figure("kv_allocated_bytes")
    return None if found is None or line.phase == "train" else found.value


def _predicted(line: Line) -> int | None:
    if _allocated(line) is None:
        return None
    workload, dtype = line.point.request.workload, line.record.environment.get("timed_dtype")
    if dtype is None and workload.dtype is None:  # it was interrupted before it said what it chose
        return None
    workload = workload.timed_in(dtype or workload.weight_dtype)
    return kv_cache(line.point.request.spec, workload.batch, workload.length, workload.cache_dtype).allocated


def _before(lines: Sequence[Line], labels: Sequence[str]) -> Table:
    """What went before the clock, and what ran under it."""
    columns: dict[Column, Callable[[Line], Any]] = {
        Column("warm_up", "s", "measured", "untimed runs of the same shape"): lambda line: line.value("warmup_seconds"),
        Column("compile", "s", "measured", "of the warm-up, beyond steady runs"): lambda line: line.value(
            "compile_seconds"
        ),
        Column("recompiles", "1", "measured", "graphs compiled while the clock ran"): lambda line: line.value(
            "recompiles"
        ),
        Column("products", how="the ways to multiply with weights that were quickest"): lambda line: line.rate.fact(
            "products"
        ),
        Column("attention", how="the backend that a profiler saw"): lambda line: line.rate.fact("attention"),
    }
    return _table("clock", "Before and under the clock", [line for line in lines if line.timed], labels, columns)


def _ratios(timed: Timed) -> Iterator[Table]:
    if not timed.ratios:
        return
    labels = _labels(timed.points)
    columns = [*(Column(name) for name in (*labels, "phase")), *RATIO]
    named = [{label: timed.points[ratio.number].labels[label] for label in labels} for ratio in timed.ratios]
    rows = [row | _ratio(ratio) for row, ratio in zip(named, timed.ratios, strict=True)]
    about = "of the first of the same batch and context; above 1 is faster"
    yield Table("ratios", f"Beside {timed.points[0].name}, in turns", columns, rows, about)


def _ratio(ratio: Ratio) -> dict[str, Any]:
    """A ratio's row."""
    low, high = ratio.interval or (None, None)
    made = {"phase": ratio.phase, "ratio": ratio.median, "low": low, "high": high, "p10": ratio.low, "p90": ratio.high}
    return made | {"processes": ratio.processes, "rounds": ratio.rounds}


def _without_ratios(timed: Timed) -> Iterator[str]:
    """Why there is nothing to compare, where points were to take turns."""
    if timed.in_turns and not timed.ratios:
        alone = len({point.cell for point in timed.points}) == len(timed.points)
        why = "nothing else has the work of" if alone else "nothing was timed in turn with"
        yield f"no ratios: {why} {timed.points[0].name}"


def _end(timed: Timed) -> Iterator[str]:
    """What was left undone, and where the records are."""
    if timed.interrupted:
        left = len(timed.points) - len(timed.records)
        yield "interrupted" + (f": {left} of {counted(len(timed.points), 'point')} not timed" if left else "")
    if timed.kept:
        yield f"records: {timed.folder}"


def _verdict(lines: Sequence[Line]) -> str:
    best: dict[str, float] = {}
    for line in lines:
        if line.rate.value is not None:
            best[line.phase] = max(best.get(line.phase, 0.0), line.rate.value)
    up_to = "up to " if len({line.record.created for line in lines}) > 1 else ""
    said = [f"{phase} {up_to}{digits(rate)} tok/s" for phase, rate in best.items()]
    return "; ".join(said) or "nothing could be timed"


def _assumptions(pairs: Sequence[tuple[Point, Record]]) -> dict[str, Any]:
    """What holds for all points, and the machine."""
    if not pairs:
        return {}
    told = [record.environment for _, record in pairs if record.environment]
    values = {name: {environment.get(name) for environment in told} for name in MACHINE}
    same = {name: found.pop() for name, found in values.items() if len(found) == 1 and found != {None}}
    workload = pairs[0][0].request.workload
    varying = _labels([point for point, _ in pairs])
    fixed = {"batch": workload.batch, "context": workload.prompt, "new": workload.new}
    return {name: value for name, value in fixed.items() if name not in varying} | same


def _notes(pairs: Sequence[tuple[Point, Record]]) -> list[str]:
    """Why points are not ok, and what was dropped for them; each once."""
    found = []
    for point, record in pairs:
        said = [*record.notes, *([f"{record.status}: {record.reason}"] if not record.ok else [])]
        found += [f"{point.name}: {note}" for note in said]
    return list(dict.fromkeys(found))


def _warnings(pairs: Sequence[tuple[Point, Record]]) -> Iterator[str]:
    """Why not to trust the clock: each reason once, as it is where it weighs most, and the points that it holds for."""
    found: dict[str, list[tuple[float, str, Point]]] = {}
    for point, record in pairs:
        for reason, (how, amount) in (record.environment.get("warnings") or {}).items():
            found.setdefault(reason, []).append((amount, how, point))
    names = _labels([point for point, _ in pairs])
    for reason, held in found.items():
        _, worst, _ = max(held, key=lambda one: one[0])
        at = "; ".join(point.called(names) for *_, point in held)
        most = "" if len({how for _, how, _ in held}) == 1 else "at most; "
        which = "at every point" if len(held) == len(pairs) else f"at {len(held)} of {len(pairs)} points: {at}"
        yield f"{reason}: {worst}" + (f" ({most}{which})" if len(pairs) > 1 else "")


def _charts(lines: Sequence[Line], over: str) -> Iterator[Chart]:
    """tok/s of each phase over batch or context, with the bound beside it; none, where only one was asked for."""
    for phase in PHASES:
        curves: dict[str, list[tuple[float, float]]] = {}
        for line in lines:
            bound = line.figure(f"{phase}_bound_tok_s")
            if line.phase != phase or line.rate.value is None:
                continue
            labels = {name: value for name, value in line.point.labels.items() if name != over and value is not None}
            fixed = _labels([each.point for each in lines])
            name = ", ".join(str(value) for label, value in labels.items() if label in fixed)
            at = line.point.labels[over]
            curves.setdefault(name, []).append((at, line.rate.value))
            if bound is not None and bound.value:
                curves.setdefault(f"bound of {name}", []).append((at, bound.value))
        if any(len(dict(curve)) > 1 for curve in curves.values()):
            series = {name: sorted(curve) for name, curve in curves.items()}
            yield Chart(f"{phase} over {over}", over, "tok/s", series, log_x=True, log_y=True)


def _explanations(pairs: Sequence[tuple[Point, Record]]) -> Iterator[Explanation]:
    several = len(pairs) > 1
    for point, record in pairs:
        model = " ".join((point.name, *point.overrides)) if several else ""
        for name, figure in record.figures.items():
            if figure.kind in ("measured", "bound"):
                value = (
                    figure.reason or figure.status if figure.value is None else f"{digits(figure.value)} {figure.unit}"
                )
                yield Explanation(name, figure.kind, figure.how, value, model=model)
