"""What stands beside a figure: the parts that it is made of, and what other choices would make of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from archlab.cost.flops import decode_parts
from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.document import Column, Table
from archlab.errors import ArchlabError
from archlab.paper.explain.asked import Model
from archlab.paper.explain.passes import BEGIN as OF_A_PASS
from archlab.paper.explain.passes import table as passes
from archlab.registry import choices
from archlab.units import show_bytes

EXAMPLE = 1000
"""Tokens for which the work that a cache saves is shown, beside those that were asked for."""


def tables(key: str, model: Model) -> Iterator[Table]:
    """The tables of a figure, by the name that it is explained under."""
    if key.startswith(("params", "weight_bytes")):
        counts = {part: count for part, count in parameters(model.spec).by_part.items() if count}
        yield _shares("parts", "Parts", counts, "parameters")
    elif key.startswith("flops"):
        parts = {part: count for part, count in decode_parts(model.spec, model.tokens).items() if count}
        yield _shares("parts", "One decoded token", parts, "FLOP", f"that sees {model.tokens:,}")
    elif key.startswith("kv_bytes"):
        yield _by_attention(model)
        yield _saved((EXAMPLE, model.tokens))
    elif key.startswith(OF_A_PASS):
        yield passes(model)


def _shares(name: str, title: str, parts: Mapping[str, int], unit: str, about: str = "") -> Table:
    whole = sum(parts.values())
    rows = [{"part": part, "count": count, "share": 100 * count / whole} for part, count in parts.items()]
    columns = [Column("part"), Column("count", unit, "exact"), Column("share", "%", "exact")]
    return Table(name, title, columns, [*rows, {"part": "total", "count": whole, "share": 100.0}], about)


def _by_attention(model: Model) -> Table:
    """The cache with each attention in the place of the model's own."""
    rows = [row for name in choices("attention") for row in _cached(name, model)]
    columns = [Column("attention"), Column("per_token", "B", "exact"), Column("cache", "B", "exact"), Column("as")]
    workload = model.asked.workload
    about = f"{workload.batch:,} x {model.tokens:,} tokens, {workload.cache_dtype}, required"
    return Table("attentions", "By attention", columns, rows, about)


def _cached(name: str, model: Model) -> Iterable[dict[str, Any]]:
    """The row of one attention; none where the model cannot have it."""
    try:
        other = model if model.kinds("attention", name) else model.with_choice("attention", name)
        workload = model.asked.workload
        cost = kv_cache(other.spec, workload.batch, model.tokens, workload.cache_dtype)
    except ArchlabError:
        return
    kept = {"per_token": cost.bytes_per_token, "cache": cost.required}
    yield {"attention": name, **kept, "as": show_bytes(cost.required)}


def _saved(lengths: Iterable[int]) -> Table:
    """Keys and values that are made once with a cache, and anew for each token without one."""
    rows = [
        {"tokens": f"{n:,}", "with": n, "without": n * (n + 1) // 2, "saved": n * (n - 1) // 2}
        for n in sorted({*lengths})
    ]
    columns = [Column("tokens"), *(Column(name, "rows", "exact") for name in ("with", "without", "saved"))]
    about = "rows of keys and values that a layer makes while tokens are decoded one by one"
    return Table("saved", "What a cache saves", columns, rows, about)
