"""archlab lab width: an FFN at several widths, timed in turn: what a d_ff that is not rounded costs or saves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from archlab.bench.clock import Call
from archlab.components.ffn.spec import RULES, FeedForward, MixtureOfExperts, width_by_rule
from archlab.decoder.dtype import torch_dtype
from archlab.document import Chart, Column, Document, Row, Table
from archlab.errors import RequestError
from archlab.frozen import replace
from archlab.lab.catalog import Width
from archlab.lab.race import Race, race
from archlab.lab.setup import Setup
from archlab.registry import module_class
from archlab.report.text import digits

COLUMNS = (
    Column("work", "", "", "decode: one token; prefill: forward; train: forward and backward"),
    Column("d_ff", "1"),
    Column("even", "1", "exact", "the largest power of two that divides it"),
    Column("params", "parameters", "exact", "of one FFN"),
    Column("flops", "FLOP", "exact", "forward"),
    Column("time", "ms", "measured", "median"),
    Column("p10", "ms", "measured", "10th percentile"),
    Column("p90", "ms", "measured", "90th percentile"),
    Column("times", "1", "measured", "as long as the first width, median of the rounds"),
    Column("interval", "%", "measured", "half of its 95 % interval"),
)


def run(setup: Setup) -> Document:
    """One FFN of each width at each kind of work, in turn."""
    asked: Width = setup.settings
    ffn, dtype = _ffn(setup), setup.device.native_dtype
    widths = list(dict.fromkeys(asked.widths or _widths(ffn)))
    modules = {width: _module(setup, replace(ffn, d_ff=width, rule=None), dtype) for width in widths}
    rows = []
    for work, tokens in (("decode", 1), ("prefill", asked.tokens), ("train", asked.tokens)):
        x = torch.randn(1, tokens, ffn.d_model, generator=setup.random()).to(setup.device.name, torch_dtype(dtype))
        calls = {str(width): _call(module, x, work == "train") for width, module in modules.items()}
        clock = race(calls, setup.device, asked.seconds)
        rows += [_row(work, tokens, replace(ffn, d_ff=width, rule=None), clock, widths[0]) for width in widths]
    return Document(
        command="lab width",
        model=setup.spec.name,
        verdict=_seen(rows, widths),
        tables=[Table("width", "Widths of the FFN", COLUMNS, rows, f"{asked.tokens:,} tokens, {dtype}, in turn")],
        assumptions={
            "ffn": f"{ffn.choice}, d_model {ffn.d_model:,}, one layer's",
            "device": setup.device.describe()["device_name"],
            "seed": setup.seed,
        },
        charts=[_chart(rows)] if len(widths) > 1 else [],
    )


def _ffn(setup: Setup) -> FeedForward:
    """The model's FFN, or what each of its experts is. Raises RequestError where it has no such width."""
    for layer in setup.spec.layers:
        ffn = layer.ffn.expert if isinstance(layer.ffn, MixtureOfExperts) else layer.ffn
        if isinstance(ffn, FeedForward):
            return ffn
    raise RequestError(f"{setup.spec.layers[0].ffn.choice} has no d_ff; model/ffn=swiglu has one")


def _widths(ffn: FeedForward) -> tuple[int, ...]:
    """What a rule gives before it is rounded up, and after; of a width that no rule gives, one less, and itself."""
    for rule in RULES:
        exact = width_by_rule(rule, ffn.d_model, 1)
        if ffn.d_ff == width_by_rule(rule, ffn.d_model, ffn.multiple) and exact != ffn.d_ff:
            return exact, ffn.d_ff
    return max(1, ffn.d_ff - 1), ffn.d_ff


def _module(setup: Setup, ffn: FeedForward, dtype: str) -> nn.Module:
    """The FFN with random weights of the size that keeps its input's."""
    with torch.device("meta"):
        module: nn.Module = module_class("ffn", ffn)(ffn, setup.spec.dropout.off)
    module.to(torch_dtype(dtype)).to_empty(device=setup.device.name)
    random = torch.Generator(setup.device.name).manual_seed(setup.seed)
    for parameter in module.parameters():
        with torch.no_grad():
            parameter.normal_(0.0, parameter.shape[-1] ** -0.5, generator=random)
    return module


def _call(module: nn.Module, x: Tensor, train: bool) -> Call:
    def forward() -> None:
        with torch.inference_mode():
            module(x)

    def both() -> None:
        inputs = x.detach().requires_grad_()
        module(inputs).sum().backward()
        module.zero_grad(set_to_none=True)

    return both if train else forward


def _row(work: str, tokens: int, ffn: FeedForward, clock: Race, first: int) -> Row:
    timing, ratio = clock.timing(str(ffn.d_ff)), clock.ratio(str(ffn.d_ff), str(first))
    row: dict[str, Any] = {"work": work, "d_ff": ffn.d_ff, "even": ffn.d_ff & -ffn.d_ff}
    row |= {"params": ffn.n_params, "flops": ffn.flops(tokens), "time": 1e3 * timing.median}
    row |= {"p10": 1e3 * timing.low, "p90": 1e3 * timing.high}
    compared = ffn.d_ff != first
    width = ratio.half_width
    row["times"] = ratio.median if compared else None
    row["interval"] = 100 * width if compared and width is not None else None
    return row


def _seen(rows: Sequence[Row], widths: Sequence[int]) -> str:
    """What each width has more of than the first, and how its times compare."""
    if len(widths) == 1:
        return f"d_ff {widths[0]:,} alone: widths= takes several to compare"
    base = rows[0]
    told = []
    for width in widths[1:]:
        own = [row for row in rows if row["d_ff"] == width]
        more = 100 * (own[0]["flops"] / base["flops"] - 1)
        times = ", ".join(_time(row) for row in own)
        told.append(f"{width:,} has {more:+.2f} % FLOPs and parameters of {widths[0]:,}, and takes {times}")
    return "; ".join(told)


def _time(row: Row) -> str:
    """`1.031 times as long to prefill`; `as long to decode, as far as the clock tells`."""
    within = row["interval"] is None or abs(row["times"] - 1) <= row["interval"] / 100 * row["times"]
    return f"as long to {row['work']} as the clock can tell" if within else f"{digits(row['times'])} x to {row['work']}"


def _chart(rows: Sequence[Row]) -> Chart:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=lambda row: row["d_ff"]):
        series.setdefault(row["work"], []).append((float(row["d_ff"]), row["time"]))
    return Chart("Time", "d_ff", "ms", series, log_x=True, log_y=True)
