"""What `archlab build` prints of the clock: speeds, what they are against the ceilings of the device, reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from archlab.record import Figure, Record
from archlab.report.grid import Cell, Column, Grid, heading, least_width, line, show, transposed
from archlab.report.text import clean, digits, seconds
from archlab.units import show_bytes

if TYPE_CHECKING:
    from rich.console import Console

PHASES = ("prefill", "decode", "train")
TIMES = {"prefill_seconds": "TTFT", "decode_seconds_per_token": "TPOT", "train_seconds_per_step": "step"}
ENDINGS = ("tok_s", "warmup_seconds", "peak_bytes", "peak_reserved_bytes", "compile_seconds", "recompiles")
SHARES = ("bound_tok_s", "mfu", "mbu", "mfu_datasheet", "mbu_datasheet")
"""What the names of a phase's figures end in, beside its time."""


def show_throughput(record: Record, console: Console) -> set[str]:
    """Print the speeds and what they are worth; the names of the figures that are told of."""
    found = {name: figure for name, figure in record.figures.items() if name.startswith((*PHASES, "ceiling_"))}
    timed = [phase for phase in PHASES if f"{phase}_tok_s" in found]
    if not timed:
        return set()
    heading(console, "Throughput", "measured", *_where(record))
    _show(_speeds(timed, found), console)
    for phase in timed:
        reason = why_none(found[f"{phase}_tok_s"])
        line(console, Cell(f"{phase}: {reason}" if reason else "", "red"), indent=2)
    line(console, Cell(clean(record.environment.get("warning") or ""), "yellow"), indent=2)
    bounded = [phase for phase in timed if f"{phase}_bound_tok_s" in found]
    if bounded:
        _against(record, bounded, found, console)
    return {name for phase in timed for name in _names(phase, bool(bounded))} & set(found)


def _names(phase: str, bounded: bool) -> list[str]:
    endings = [*ENDINGS, *(SHARES if bounded else ())]
    ceilings = ["ceiling_matmul", f"ceiling_read.{phase}", f"ceiling_copy.{phase}"] if bounded else []
    return [
        *(f"{phase}_{ending}" for ending in endings),
        *(name for name in TIMES if name.startswith(phase)),
        *ceilings,
    ]


def _show(grid: Grid, console: Console) -> None:
    grid = grid.filled()
    show(grid if least_width(grid) <= console.width - 2 else transposed(grid), console)


def _speeds(timed: list[str], found: Mapping[str, Figure]) -> Grid:
    heads = ("", "tok/s", "p10", "p90", "runs", "time", "warm-up", "compile", "recompiles", "peak memory", "reserved")
    grid = Grid([Column(head, number=index > 0) for index, head in enumerate(heads)])
    for phase in timed:
        rate = found[f"{phase}_tok_s"]
        time = next((name for name in TIMES if name.startswith(phase) and name in found), "")
        took = _shown(found.get(time), seconds)
        grid.add(
            Cell(phase),
            Cell("-") if rate.value is None else Cell(digits(rate.value), "bold"),
            Cell("" if rate.low is None else digits(rate.low)),
            Cell("" if rate.high is None else digits(rate.high)),
            Cell("" if rate.repeats is None else str(rate.repeats)),
            Cell(f"{TIMES[time]} {took}" if took else ""),
            *(Cell(_shown(found.get(f"{phase}_{name}"), seconds)) for name in ("warmup_seconds", "compile_seconds")),
            Cell(_shown(found.get(f"{phase}_recompiles"), str), "red" if _is_bad(found, f"{phase}_recompiles") else ""),
            *(Cell(_shown(found.get(f"{phase}_{name}"), show_bytes)) for name in ("peak_bytes", "peak_reserved_bytes")),
        )
    return grid


def _against(record: Record, phases: list[str], found: Mapping[str, Figure], console: Console) -> None:
    """Each phase's bound, what of it was reached, by which ceiling, and on which attention."""
    matmul = found["ceiling_matmul"]
    product = f"matmul {digits((matmul.value or 0) / 1e9)} GFLOP/s"
    heading(console, "Against this device's ceilings", "measured, bound", product)
    heads = ("", "bound tok/s", "binds", "MFU", "MBU", "MFU datasheet", "MBU datasheet", "read GB/s", "attention")
    grid = Grid([Column(head, number=index > 0) for index, head in enumerate(heads)])
    attention = record.environment.get("attention") or {}
    for phase in phases:
        bound = found[f"{phase}_bound_tok_s"]
        grid.add(
            Cell(phase),
            Cell(_shown(bound, digits)),
            Cell(clean(bound.fact("binds") or "")),
            *(_share(found.get(f"{phase}_{name}")) for name in SHARES[1:]),
            Cell(_shown(found.get(f"ceiling_read.{phase}"), lambda rate: digits(rate / 1e9))),
            Cell(clean(attention.get(phase, ""))),
        )
    _show(grid, console)


def _share(figure: Figure | None) -> Cell:
    """A share in per cent; of one that cannot be, its status."""
    if figure is None:
        return Cell()
    return Cell(clean(figure.status), "red") if figure.value is None else Cell(f"{figure.value:.1f} %")


def _is_bad(found: Mapping[str, Figure], name: str) -> bool:
    return name in found and found[name].status != "ok"


def _shown(figure: Figure | None, show_value: Any) -> str:
    return "" if figure is None or figure.value is None else str(show_value(figure.value))


def why_none(figure: Figure) -> str:
    """Why a figure has no value, or what is wrong with it."""
    if figure.status == "ok":
        return "" if figure.value is not None else clean(figure.reason or "no value")
    return clean(f"{figure.status}: {figure.reason}" if figure.reason else figure.status)


def _where(record: Record) -> list[str]:
    """The device and the workload that were timed."""
    workload = record.config.get("workload") or {}
    sizes = [f"{name} {workload[name]}" for name in ("batch", "prompt", "new") if name in workload]
    device = (record.environment.get(name) for name in ("device", "device_name"))
    switches = record.environment.get("inductor") or ()
    compiled = " ".join(("compiled", *switches)) if record.environment.get("compiled") else ""
    return [clean(text) for text in (*device, record.environment.get("timed_dtype"), compiled, *sizes) if text]
