"""Records made without Hydra, torch or a clock: exact figures from the spec, measured ones by hand."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from archlab.cost.figures import exact_figures
from archlab.decoder.describe import composition
from archlab.decoder.resolve import resolve
from archlab.record import Figure, Record
from archlab.report.console import PIPED_WIDTH
from archlab.workload import Workload

MINIMIND: dict[str, Any] = {
    "name": "minimind",
    "d_model": 768,
    "n_layers": 8,
    "vocab_size": 6400,
    "context": 32768,
    "norm": {"choice": "rmsnorm"},
    "position": {"choice": "rope", "base": 1e6},
    "attention": {"choice": "gqa", "n_heads": 8, "n_kv_heads": 4, "head_dim": 96, "qk_norm": "head"},
    "ffn": {"choice": "swiglu", "rule": "pi"},
    "dropout": {"choice": "none"},
    "head": {"choice": "tied"},
    "block": {"choice": "pre_norm"},
}


def measured(speed: float) -> dict[str, Figure]:
    """Figures as the clock leaves them, for a device of this speed."""

    def figure(value: float, unit: str, spread: bool = True) -> Figure:
        ends = {"low": value * 0.98, "high": value * 1.03, "repeats": 12} if spread else {}
        return Figure(value, unit, "measured", "median of the runs", **ends)

    return {
        "prefill_tok_s": figure(12345.678 * speed, "tok/s"),
        "prefill_seconds": figure(0.041472 / speed, "s"),
        "prefill_warmup_seconds": figure(0.31, "s", spread=False),
        "prefill_peak_bytes": figure(412_345_678, "B", spread=False),
        "decode_tok_s": figure(87.654321 * speed, "tok/s"),
        "decode_seconds_per_token": figure(0.011408 / speed, "s/token"),
        "decode_peak_bytes": figure(300_345_678, "B", spread=False),
        "train_tok_s": figure(2345.6 * speed, "tok/s"),
        "kv_allocated_bytes": figure(7_077_888, "B", spread=False),
    }


def make_record(overrides: list[str] | None = None, speed: float | None = None, **changes: Any) -> Record:
    """A MiniMind record; `changes` are axes or sizes of the model config."""
    model = copy.deepcopy(MINIMIND)
    for key, value in changes.items():
        model[key] = {**model[key], **value} if isinstance(value, dict) else value
    resolved = resolve(model)
    spec = resolved.spec
    figures = exact_figures(spec, Workload(contexts=(576, 2048, 32768)))
    total = figures["params"].value
    return Record(
        config={"model": model, "workload": {"batch": 1, "prompt": 512, "new": 64, "dtype": "bf16", "kv_dtype": None}},
        overrides=overrides or [],
        notes=resolved.notes,
        composition=composition(spec),
        figures=figures | (measured(speed) if speed else {}),
        checks=[{"name": "closed form = built module", "expected": total, "found": total, "ok": True}],
        environment={"device": "cpu"},
        folder="outputs/2026-01-02/03-04-05-000006",
    )


def failed_record(overrides: list[str], status: str = "oom", reason: str = "needs 14.00 GiB, there are 8.00") -> Record:
    """A point that ended before it had a figure."""
    return Record(config={"model": {"name": "minimind"}}, overrides=overrides, status=status, reason=reason)


@pytest.fixture(scope="session")
def make() -> Callable[..., Record]:
    return make_record


@pytest.fixture(scope="session")
def failed() -> Callable[..., Record]:
    return failed_record


@pytest.fixture(scope="session")
def paper() -> Callable[..., Console]:
    """A console that writes into a string, as wide as told, or as a pipe."""

    def at(width: int | None = None, terminal: bool = False) -> Console:
        return Console(
            file=io.StringIO(),
            width=width or PIPED_WIDTH,
            force_terminal=terminal,
            color_system="standard" if terminal else None,
            highlight=False,
            markup=False,
            emoji=False,
        )

    return at
