"""The exact figures of a spec at a workload, by name, each with its definition."""

from __future__ import annotations

from collections.abc import Sequence

from archlab.cost.flops import CONVENTIONS, flops_of_run
from archlab.cost.kv import kv_cache
from archlab.cost.params import DEFINITIONS, Parameters, parameters
from archlab.decoder.spec import DecoderSpec, listed_kinds
from archlab.record import Figure
from archlab.units import dtype_bytes
from archlab.workload import Workload

PAIRS = {"full": "every query-key pair", "causal": "pairs that see each other"}
"""What each convention counts."""


def exact_figures(spec: DecoderSpec, workload: Workload) -> dict[str, Figure]:
    """Parameters, weight bytes, KV cache and FLOPs; all exact, none needs torch."""
    counts = parameters(spec)
    width = dtype_bytes(workload.weight_dtype)
    marked = _marks(spec)
    return {
        **{
            name: _exact(count, "parameters", how + marked.get(name, ""))
            for name, (count, how) in parameter_counts(counts).items()
        },
        "weight_bytes": _exact(counts.total * width, "B", f"parameters x {width} B ({workload.weight_dtype})"),
        **_cache_figures(spec, workload),
        **_flop_figures(spec, workload),
    }


def mark(spec: DecoderSpec, cost: str) -> str:
    """`, norm dyt counted on the module`, where choices of others do not say this cost themselves."""
    choices = [f"{axis} {choice}" for axis, choice, costs in spec.counted if cost in costs]
    return f", {' and '.join(choices)} counted on the module" if choices else ""


PART_OF = {"norm": "norms", "position": "positions", "head": "lm_head", "block": "other"}
"""What a choice's parameters count under, where that is not called as its axis is."""


def _marks(spec: DecoderSpec) -> dict[str, str]:
    """What to say of figures of parameters that are counted on modules, by their names."""
    if not (whole := mark(spec, "parameters")):
        return {}
    parts = {
        f"params.{PART_OF.get(axis, axis)}": f", {axis} {choice} counted on the module"
        for axis, choice, costs in spec.counted
        if "parameters" in costs
    }
    return dict.fromkeys(("params", "params_active", "params_non_embedding"), whole) | parts


def _exact(value: float | int, unit: str, how: str) -> Figure:
    return Figure(value, unit, "exact", how)


def parameter_counts(counts: Parameters) -> dict[str, tuple[int, str]]:
    """Each count by the name of its figure, with what it counts."""
    named = {
        "params": (counts.total, DEFINITIONS["total"]),
        "params_active": (counts.active, DEFINITIONS["active"]),
        "params_non_embedding": (counts.non_embedding, DEFINITIONS["non_embedding"]),
    }
    for part, count in counts.by_part.items():
        tied = "tied: the weight is the embedding's" if part == "lm_head" and counts.tied else "sum over the layers"
        named[f"params.{part}"] = (count, tied)
    if counts.ffn_detail.keys() - {"dense"}:
        named |= {f"params.ffn.{role}": (count, "of ffn") for role, count in counts.ffn_detail.items()}
    return named | _layer_counts(counts)


def _layer_counts(counts: Parameters) -> dict[str, tuple[int, str]]:
    """The parameters of each kind of layer; of many kinds the first, and the others together."""
    listed = listed_kinds(len(counts.by_layer))
    named = {}
    for kind in counts.by_layer[:listed]:
        how = f"{len(kind.layers)} layers of {kind.each:,} each"
        named[f"params.layers.{show_indices(kind.layers)}"] = (kind.total, how)
    others = counts.by_layer[listed:]
    if others:
        how = f"{sum(len(kind.layers) for kind in others):,} layers of {len(others):,} more kinds"
        named["params.layers.others"] = (sum(kind.total for kind in others), how)
    return named


MANY_RUNS = 32


def show_indices(indices: Sequence[int]) -> str:
    """`0-7`, `0,2,4`: layer indices, runs folded; of very many runs the first and the last, `0,2,4,..,9998`."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return ",".join(shown if len(shown) <= MANY_RUNS else [*shown[:3], "..", shown[-1]])


def _cache_figures(spec: DecoderSpec, workload: Workload) -> dict[str, Figure]:
    dtype = workload.cache_dtype
    one = kv_cache(spec, 1, 1, dtype)
    limited = any(layer.attention.locality.limit is not None for layer, _ in spec.layer_kinds)
    growth = ", while it is shorter than every window" if limited else ""
    capped = ", a layer's window or chunk at most, the current token included" if limited else ""
    got = mark(spec, "KV cache")
    how = f"all layers, one sequence{got}, {dtype}{growth}"
    figures = {"kv_bytes_per_token": _exact(one.bytes_per_token, "B/token", how)}
    for context in workload.kv_contexts(spec):
        whole = kv_cache(spec, workload.batch, context, dtype)
        how = f"batch {workload.batch}, {context:,} tokens, {dtype}: what the architecture needs{capped}{got}"
        figures[f"kv_bytes.{context}"] = _exact(whole.bytes, "B", how)
    return figures


def _flop_figures(spec: DecoderSpec, workload: Workload) -> dict[str, Figure]:
    figures = {}
    once = spec.head.last_token_only
    head = "one row of outputs, of the last position" if once else "logits of all positions"
    got = mark(spec, "FLOPs")
    for convention in CONVENTIONS:
        cost = flops_of_run(spec, 1, workload.prompt, 1, convention)
        how = f"matmul FLOPs, 2 a multiply-add, {PAIRS[convention]}, {head}, prompt {workload.prompt:,}{got}"
        figures[f"flops_prefill_per_token.{convention}"] = _exact(cost.prefill_per_token, "FLOP/token", how)
    if once:
        return figures  # this head makes no tokens to decode
    cost = flops_of_run(spec, 1, workload.prompt, 1, "full")
    how = f"matmul FLOPs, 2 a multiply-add, one token after {workload.prompt:,} cached; full and causal agree{got}"
    figures["flops_decode_per_token"] = _exact(cost.decode_per_token, "FLOP/token", how)
    return figures
