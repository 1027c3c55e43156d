"""One run: read the request, cost it on paper, check it against the module, time it, make the record."""

from __future__ import annotations

import datetime
import platform
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import archlab
from archlab.cost.figures import exact_figures
from archlab.cost.kv import kv_cache
from archlab.decoder.describe import composition
from archlab.errors import RequestError
from archlab.record import Figure, Record
from archlab.request import Request, read_request
from archlab.warmup import import_torch

Progress = Callable[[str, float], None]


def run_point(
    config: Mapping[str, Any],
    overrides: Sequence[str],
    typed: Collection[str],
    on_progress: Progress | None = None,
    debug: bool = False,
) -> Record:
    """The record of one composed config. Only a refused request and Ctrl-C are raised; all else is a status.

    debug: what failed unexpectedly leaves its traceback in the notes.
    """
    request = read_request(config, typed)
    request.check_runs()
    record = _blank(config, overrides)
    record.notes = list(request.notes)
    record.composition = composition(request.spec)
    record.figures = exact_figures(request.spec, request.workload)
    try:
        _import_torch(request)
        _check(record, request)
        _time(record, request, on_progress)
    except RequestError:
        raise
    except Exception as error:
        record.status, record.reason = "failed", " ".join(f"{type(error).__name__}: {error}".split())
        record.notes += [traceback.format_exc()] if debug else []
    return record


def invalid_point(config: Mapping[str, Any], overrides: Sequence[str], error: RequestError) -> Record:
    """The record of a point of a sweep that cannot be composed."""
    record = _blank(config, overrides)
    record.status, record.reason = "invalid", str(error)
    return record


def _blank(config: Mapping[str, Any], overrides: Sequence[str]) -> Record:
    environment = {"archlab": archlab.__version__, "python": platform.python_version(), "platform": sys.platform}
    plain = {key: value for key, value in config.items() if key != "hydra"}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    return Record(config=plain, overrides=list(overrides), environment=environment, created=now)


def _import_torch(request: Request) -> None:
    """What the run needs of torch, if anything. An optimizer imports the compiler, at its first use."""
    if request.bench.phases or request.run.verify or request.run.weights is not None:
        import_torch(*(["torch._dynamo"] if "train" in request.bench.phases else []))


def _check(record: Record, request: Request) -> None:
    if request.run.weights is not None:
        from archlab.model import build

        build(request.spec, device="meta", weights=request.run.weights)  # refuses those that do not fit
    if not request.run.verify:
        return
    from archlab.verify import verify

    record.checks = verify(request.spec, request.workload.cache_dtype)
    _take_checks(record)


def _time(record: Record, request: Request, on_progress: Progress | None) -> None:
    if not request.bench.phases:
        return
    from archlab.bench import run as bench

    run = request.run
    measured, environment = bench.run(
        request.spec, request.workload, request.bench, run.device, run.seed, on_progress, run.weights
    )
    record.figures |= measured
    record.environment |= environment
    if "kv_allocated_bytes" in measured:
        _check_cache(record, request, environment["timed_dtype"])
    _take_status(record, measured)


def _check_cache(record: Record, request: Request, dtype: str) -> None:
    """The cache that the clock ran with against its closed form, in the dtype that was timed."""
    from archlab.verify import check

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
    """A phase that could not be timed makes the run not ok; the first such phase says why."""
    for name, figure in measured.items():
        if figure.status != "ok" and record.ok:
            phase = name.split("_")[0]
            record.status, record.reason = figure.status, f"{phase}: {figure.reason}"
