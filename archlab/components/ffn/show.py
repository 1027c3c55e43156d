"""What FFNs look like: the curve of an activation, what a gate lets through, widths by rule, experts by use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from archlab.components.ffn.spec import (
    RULES,
    ClampedFeedForward,
    FeedForward,
    MixtureOfExperts,
    width_by_rule,
)
from archlab.document import Chart, Column, Table
from archlab.meaning import Here, Part

Curve = Callable[[float], float]


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _tanh_gelu(root: float) -> Curve:
    return lambda x: 0.5 * x * (1 + math.tanh(root * (x + 0.044715 * x**3)))


CURVES: dict[str, Curve] = {
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": _tanh_gelu(math.sqrt(2 / math.pi)),
    "gelu_bloom": _tanh_gelu(0.79788456),
    "silu": lambda x: x * _sigmoid(x),
    "relu2": lambda x: max(0.0, x) ** 2,
}
"""The activations of `activation.py`, of one number and without torch."""

EXACT = {"gelu_tanh": "gelu", "gelu_bloom": "gelu"}
"""What an activation comes near to."""

POINTS = (-3.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0)
UPS = (3.0, -3.0)
DRAWN = [step / 8 for step in range(-32, 33)]
SEARCHED = [step / 1000 for step in range(-8000, 8001)]
"""Where the largest gap between two curves is looked for: beyond, they agree to the last digit."""


# --- activations and gates --------------------------------------------------------------------------------------------


def curve(here: Here) -> Iterable[Part]:
    """The activation at some points and as a curve; how near it comes to another."""
    ffn: FeedForward = here.spec
    act = CURVES.get(ffn.activation)
    if act is None:
        return
    columns = [Column("u", "1"), Column("act(u)", "1"), Column("slope", "1", how="central difference")]
    rows = [{"u": u, "act(u)": act(u), "slope": _slope(act, u)} for u in POINTS]
    yield Table("activation", "Activation", columns, rows, "in float64")
    if ffn.activation in EXACT:
        yield _gap(ffn.activation, EXACT[ffn.activation])
    yield Chart("Curve", "u", "act(u)", {ffn.activation: [(u, act(u)) for u in DRAWN]})


def _gap(name: str, exact: str) -> Table:
    """How far an activation is from the one that it comes near to."""
    gap, at = largest_gap(CURVES[name], CURVES[exact])
    columns = [Column("exact"), Column("largest gap", "1", how="of the two curves"), Column("at u", "1")]
    return Table(
        "gap", "Against the exact one", columns, [{"exact": exact, "largest gap": gap, "at u": at}], "in float64"
    )


def _slope(act: Curve, u: float, step: float = 1e-5) -> float:
    return (act(u + step) - act(u - step)) / (2 * step)


def largest_gap(one: Curve, other: Curve) -> tuple[float, float]:
    """The largest difference of two curves, and where it is."""
    at = max(SEARCHED, key=lambda x: abs(one(x) - other(x)))
    return abs(one(at) - other(at)), at


def gate(here: Here) -> Iterable[Part]:
    """What a gate makes of itself and of two values on the other side; its curve."""
    ffn: FeedForward = here.spec
    between = middle(ffn)
    if between is None:
        return
    columns = [Column("gate", "1"), *(Column(f"up {up:g}", "1") for up in UPS)]
    rows = [{"gate": g} | {f"up {up:g}": between(g, up) for up in UPS} for g in POINTS]
    yield Table("gate", "Gate", columns, rows, "what the down projection reads; in float64")
    yield Chart("Curve", "gate", "at up = 1", {ffn.choice: [(g, between(g, 1.0)) for g in DRAWN]})


def middle(ffn: FeedForward) -> Callable[[float, float], float] | None:
    """From gate and up to what the down projection reads; None where the activation is none of these."""
    if isinstance(ffn, ClampedFeedForward):
        limit, alpha = ffn.limit, ffn.alpha
        return lambda g, u: (max(-limit, min(limit, u)) + 1) * min(g, limit) * _sigmoid(alpha * min(g, limit))
    act = CURVES.get(ffn.activation)
    return None if act is None else lambda g, u: act(g) * u


# --- widths and experts -----------------------------------------------------------------------------------------------


def widths(here: Here) -> Iterable[Part]:
    """d_ff by each rule, and what a plain and a gated FFN of that width take; nothing of one that has no rule."""
    ffn = here.axes["ffn"]
    if not isinstance(ffn, FeedForward | MixtureOfExperts):
        return
    d, multiple = here.d_model, getattr(ffn, "multiple", 64)
    said = {"4x": "4 d_model", "8/3": f"8/3 d_model, up to {multiple}", "pi": f"pi d_model, up to {multiple}"}
    columns = [Column("rule"), Column("as"), Column("d_ff", "features", "exact")]
    columns += [Column(kind, "parameters", "exact", f"{n} d_model d_ff") for kind, n in (("plain", 2), ("gated", 3))]
    rows = []
    for rule in RULES:
        width = width_by_rule(rule, d, multiple)
        rows.append({"rule": rule, "as": said[rule], "d_ff": width, "plain": 2 * d * width, "gated": 3 * d * width})
    yield Table("widths", "Width by rule", columns, rows, f"d_model {d:,}, a layer, without biases")


def experts(here: Here) -> Iterable[Part]:
    """What all experts hold, and what one token uses of it."""
    ffn: MixtureOfExperts = here.spec
    columns = [Column("part"), Column("held", "parameters", "exact"), Column("used", "parameters", "exact")]
    held = ffn.detail()
    used = held | {"routed_experts": held["routed_experts"] - ffn.idle_params}
    rows = [{"part": part, "held": count, "used": used[part]} for part, count in held.items()]
    about = f"a layer: {ffn.n_experts} experts, {ffn.experts_per_token} a token"
    yield Table("experts", "Experts", columns, rows, f"{about}, each {ffn.expert.choice} of {ffn.expert.d_ff:,}")
