"""One run: read the request, cost it on paper, check it against the module, time it, make the record."""

from __future__ import annotations

import datetime
import math
import os
import platform
import sys
import traceback
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import archlab
from archlab.bench.child import Job, Turn, alone
from archlab.bench.child import turns as take_turns
from archlab.bench.figures import Figures
from archlab.bench.needs import lacks_memory
from archlab.cost.kv import kv_cache
from archlab.decoder.describe import composition
from archlab.errors import RequestError, in_short
from archlab.overrides import typed_keys
from archlab.plugins import described, named
from archlab.record import Figure, Record, full_name, write_atomically
from archlab.request import Request, read_request
from archlab.verify import check
from archlab.warmup import import_torch
from archlab.worker import check_weights, self_check
from archlab.yaml_text import yaml_text

DEBUG = "ARCHLAB_DEBUG"
"""The variable by which a point knows of --debug, in whichever process it runs: a failure keeps its traceback."""

Progress = Callable[[str, float], None]


def run_point(
    config: Mapping[str, Any],
    overrides: Sequence[str],
    typed: Collection[str],
    on_progress: Progress | None = None,
    on_figures: Callable[[Figures], None] | None = None,
) -> Record:
    """The record of one composed config. Only a refused request and Ctrl-C are raised; all else is a status."""
    return alone(point_in_turns(config, overrides, typed, on_progress, on_figures))


def point_in_turns(
    config: Mapping[str, Any],
    overrides: Sequence[str],
    typed: Collection[str],
    on_progress: Progress | None = None,
    on_figures: Callable[[Figures], None] | None = None,
    turns: bool = False,
) -> Generator[Turn, bool, Record]:
    """`run_point`, that with `turns` asks before each timed run. on_figures: is told of a phase once it is timed."""
    request = read_request(config, typed)
    request.check_runs()
    record = _on_paper(request, overrides)
    try:
        if request.bench.phases:
            timed = {key: held for key, held in record.config.items() if key != "budget"}
            own = [key for key in typed if not key.startswith("budget.")]
            limit, phases = request.bench.timeout, request.bench.phases
            yield from _time(record, request, Job(timed, phases, limit, on_progress, own, turns, on_figures, named()))
        else:
            _check(record, request)
    except RequestError:
        raise
    except Exception as error:
        record.status = "oom" if lacks_memory(error) else "failed"
        record.reason = in_short(error, most=1000)
        record.notes += [traceback.format_exc()] if DEBUG in os.environ else []
    return record


def invalid_point(config: Mapping[str, Any], overrides: Sequence[str], error: RequestError) -> Record:
    """The record of a point of a sweep that cannot be composed."""
    record = _blank(config, overrides)
    record.status, record.reason = "invalid", str(error)
    return record


def interrupted_point(
    config: Mapping[str, Any], overrides: Sequence[str], typed: Collection[str], figures: Figures
) -> Record:
    """The record of a point that Ctrl-C ended after these figures were measured."""
    record = _on_paper(read_request(config, typed), overrides)
    record.figures |= figures
    record.status, record.reason = "failed", "interrupted before all was timed"
    return record


def measures(config: Mapping[str, Any]) -> bool:
    """Whether a composed config has the clock run; where that cannot be told, it is taken to."""
    bench = config.get("bench")
    return not isinstance(bench, Mapping) or bench.get("phases") != []


def of_sweep(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a sweep's point: what measures nothing is not verified either, unless that was asked for."""
    verify = config.get("verify")
    return {**config, "verify": measures(config)} if "verify" in config and verify is None else dict(config)


def leave_record(
    config: Mapping[str, Any],
    overrides: Sequence[str],
    folder: Path,
    flush: bool = True,
    on_lost: Callable[[Record], None] = lambda record: None,
) -> Record:
    """Run a point of a sweep and leave its record, whatever comes of it. Only Ctrl-C and OSError are raised.

    on_lost: as of `kept_point`.
    """
    config = of_sweep(config)
    try:
        return kept_point(config, overrides, folder, flush, on_lost=on_lost)
    except RequestError as error:
        record = invalid_point(config, overrides, error)
    save(record, folder, flush)
    return record


def kept_point(
    config: Mapping[str, Any],
    overrides: Sequence[str],
    folder: Path,
    flush: bool = True,
    on_progress: Progress | None = None,
    on_lost: Callable[[Record], None] = lambda record: None,
) -> Record:
    """Run a point and leave its record; at Ctrl-C one of the phases that were finished, if any were.

    on_lost: is told of a record with measured figures that cannot be written.

    Raises RequestError where it is refused, which leaves no record, OSError and KeyboardInterrupt.
    """
    figures: Figures = {}
    typed = typed_keys(overrides)
    try:
        record = run_point(config, overrides, typed, on_progress, figures.update)
    except KeyboardInterrupt:
        if figures:
            save(interrupted_point(config, overrides, typed, figures), folder, flush)
        raise
    try:
        save(record, folder, flush)
    except OSError:
        if figures:
            on_lost(record)
        raise
    return record


def save(record: Record, folder: Path, flush: bool = True) -> None:
    """Write a record, and beside it the composed config as YAML; the record last, for it says that all is there."""
    write_atomically(folder / "config.yaml", yaml_text(record.config), flush)
    record.save(folder, flush)


def objective(record: Record) -> float | tuple[float, ...]:
    """The figures that `objective` names; not a number where the record has none."""
    found = [record.value(full_name(name)) for name in record.config.get("objective") or ["params"]]
    values = tuple(math.nan if value is None else float(value) for value in found)
    return values[0] if len(values) == 1 else values


def _blank(config: Mapping[str, Any], overrides: Sequence[str]) -> Record:
    environment = {"archlab": archlab.__version__, "python": platform.python_version(), "platform": sys.platform}
    plain = {key: value for key, value in config.items() if key != "hydra"}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    brought = described()
    return Record(plain, list(overrides), environment=environment, created=now, plugins=brought)


def _on_paper(request: Request, overrides: Sequence[str]) -> Record:
    """A record with what needs no module; what a budget led to is what is run."""
    record = _blank(request.config, overrides)
    record.notes = [*request.dropped, *request.bench.timed(request.spec).remarks]
    record.composition = composition(request.spec)
    record.figures = request.figures()
    return record


def _check(record: Record, request: Request) -> None:
    """The self-check of a point that is not timed, in this process: nothing of it is left behind."""
    if request.run.verify or request.run.weights is not None:
        import_torch()
        record.notes += check_weights(request)
        found = self_check(request)
        record.checks = found.checks
        record.notes += found.notes
        _take_checks(record)


def _time(record: Record, request: Request, job: Job) -> Generator[Turn, bool, None]:
    """Check and time the point in a process of its own."""
    measured = yield from take_turns(job)
    record.notes += measured.notes
    record.checks = measured.checks
    record.figures |= measured.figures
    record.environment |= measured.environment
    if "kv_allocated_bytes" in measured.figures and measured.environment:
        _check_cache(record, request, measured.environment["timed_dtype"])
    _take_checks(record)
    _take_status(record, measured.figures)


def _check_cache(record: Record, request: Request, dtype: str) -> None:
    """The cache that the clock ran with against its closed form, in the dtype that was timed."""
    timed = request.workload.timed_in(dtype)
    expected = kv_cache(request.spec, timed.batch, timed.length, timed.cache_dtype).allocated
    found = record.figures["kv_allocated_bytes"].value
    name = (
        f"KV cache bytes while timed, {timed.length:,} tokens in {timed.cache_dtype}: closed form = allocated tensors"
    )
    record.checks.append(check(name, expected, int(found or 0)))
    _take_checks(record)


def _take_checks(record: Record) -> None:
    wrong = [check["name"] for check in record.checks if not check["ok"]]
    if wrong:
        record.status, record.reason = "failed", f"the built module differs from the closed form: {', '.join(wrong)}"


def _take_status(record: Record, measured: Mapping[str, Figure]) -> None:
    """A phase that could not be timed makes the run not ok; the first such phase says why.

    A figure that cannot be beside a time that can leaves the run ok, and a note.
    """
    for name, figure in measured.items():
        if figure.status == "ok":
            continue
        phase, _, what = name.partition("_")
        if what == "tok_s" and record.ok:
            record.status, record.reason = figure.status, f"{phase}: {figure.reason}"
        elif figure.status == "invalid" and f"{phase}_tok_s" in measured and measured[f"{phase}_tok_s"].status == "ok":
            record.notes.append(f"{name}: {figure.reason}")
