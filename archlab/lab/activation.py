"""archlab lab activation: curves and slopes of what stands between an FFN's projections, and units that die."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from archlab.components.ffn.module import FeedForward as Module
from archlab.components.ffn.spec import FeedForward
from archlab.decoder.spec import LayerSpec
from archlab.document import Chart, Column, Document, Row, Table
from archlab.errors import RequestError
from archlab.frozen import Frozen
from archlab.lab.catalog import Activation
from archlab.lab.setup import Setup
from archlab.lab.words import listed, others
from archlab.registry import choices, module_class

REACH, STEP = 6.0, 0.05
"""Curves are drawn and compared from -REACH to REACH."""
ALIKE, CLOSE = 1e-12, 1e-3
"""Gaps up to which two curves are one, and up to which they are hard to tell apart."""
TOKENS = 64
NOISE = 0.5
"""What inputs differ by from the direction that they share, whose size is 1."""

NEAREST = (
    Column("nearest", "", "", "the other curve that is closest"),
    Column("gap", "1", "measured", f"largest difference to it from {-REACH:g} to {REACH:g}"),
)
GATED = (
    Column("ffn"),
    Column("gate", "1"),
    Column("up", "1"),
    Column("output", "1", "measured"),
)
DEAD = (
    Column("ffn"),
    Column("before", "%", "measured", "units whose slope is 0 for every token, of untrained weights"),
    Column("after", "%", "measured", "the same after training"),
    Column("loss", "1", "measured", "after training; - where it diverged"),
)


class Curve(Frozen):
    """A choice of FFN and what it does to a gate value, its other projection held at `up` where it is gated."""

    name: str
    spec: FeedForward
    middle: Callable[[Tensor], Tensor]

    @property
    def gated(self) -> bool:
        return self.spec.n_up == 2

    def at(self, x: Tensor, up: float = 1.0) -> Tensor:
        """The curve at x [n], float64."""
        pair = torch.stack((x, torch.full_like(x, up)), -1) if self.gated else x[:, None]
        return self.middle(pair)[:, 0]

    def slope(self, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(self.at(x).sum(), x)[0]


def run(setup: Setup) -> Document:
    """Every FFN that there is, at some points; the gated ones; and each trained for a few steps."""
    asked: Activation = setup.settings
    problems: list[str] = []
    found = list(_curves(setup, problems))
    distinct = _distinct(found)
    points = torch.tensor(asked.points, dtype=torch.float64)
    gated = [row for curve in found if curve.gated for row in _gated(curve, asked)]
    dead = [_dead(setup, curve) for curve in found]
    heads = [Column(f"{point:g}", "1", "measured") for point in asked.points]
    values = [_values(name, curve.at(points), asked) | _closest(name, distinct) for name, curve in distinct.items()]
    slopes = [_values(name, curve.slope(points), asked) for name, curve in distinct.items()]
    return Document(
        command="lab activation",
        model=setup.spec.name,
        verdict=f"{_seen_dead(dead, asked)}; {_seen_closest(values)}",
        tables=[
            Table("values", "Values", [Column("ffn"), *heads, *NEAREST], values, "gated ones with 1 beside the gate"),
            Table("slopes", "Slopes", [Column("ffn"), *heads], slopes),
            Table("gated", "Gated", GATED, gated),
            Table("dead", "Dead units", DEAD, dead, f"{asked.steps} steps of SGD at a rate of {asked.rate:g}, fp32"),
        ],
        assumptions={
            "inputs": f"{2 * TOKENS} tokens, half of them trained on: a direction that all share, noise of {NOISE:g}",
            "seed": setup.seed,
        },
        charts=[_chart("Curves", distinct, Curve.at), _chart("Slopes", distinct, Curve.slope)],
        notes=problems,
    )


def _curves(setup: Setup, problems: list[str]) -> Iterator[Curve]:
    for name in choices("ffn"):
        try:
            layers = setup.swapped(ffn=name).layers
            own = next((layer for layer in layers if layer.ffn.choice == name), layers[0])
            yield Curve(name, *_plain(own))
        except RequestError as error:
            problems.append(f"{name}: {error}")


def _plain(layer: LayerSpec) -> tuple[FeedForward, Callable[[Tensor], Tensor]]:
    """The layer's FFN and its middle. Raises RequestError where it has none."""
    spec = layer.ffn
    with torch.device("meta"):
        module = module_class("ffn", spec)(spec, layer.dropout.off)
    if not isinstance(spec, FeedForward) or not isinstance(module, Module):
        raise RequestError("has no single curve between two projections")
    return spec, module.middle


def _grid() -> Tensor:
    return torch.arange(-REACH, REACH + STEP / 2, STEP, dtype=torch.float64)


def _distinct(found: Sequence[Curve]) -> dict[str, Curve]:
    """One of those with the same curve, under all their names."""
    kinds: list[list[Curve]] = []
    for curve in found:
        same = next((kind for kind in kinds if _gap(kind[0], curve) <= ALIKE), None)
        if same is None:
            kinds.append([curve])
        else:
            same.append(curve)
    return {", ".join(curve.name for curve in kind): kind[0] for kind in kinds}


def _gap(one: Curve, other: Curve) -> float:
    return float((one.at(_grid()) - other.at(_grid())).abs().max())


def _values(name: str, values: Tensor, asked: Activation) -> dict[str, Any]:
    return {"ffn": name} | {f"{x:g}": float(y) for x, y in zip(asked.points, values, strict=True)}


def _closest(name: str, distinct: dict[str, Curve]) -> dict[str, Any]:
    gaps = {other: _gap(distinct[name], curve) for other, curve in distinct.items() if other != name}
    if not gaps:
        return {"nearest": None, "gap": None}
    other = min(gaps, key=gaps.__getitem__)
    return {"nearest": other, "gap": gaps[other]}


def _gated(curve: Curve, asked: Activation) -> Iterator[Row]:
    outputs = curve.at(torch.tensor(asked.gates, dtype=torch.float64), asked.up)
    for gate, output in zip(asked.gates, outputs, strict=True):
        yield {"ffn": curve.name, "gate": gate, "up": asked.up, "output": float(output)}


def _dead(setup: Setup, curve: Curve) -> Row:
    """Train up and down projection of the model's sizes on random targets; count units that no token gets through."""
    asked: Activation = setup.settings
    random, width, middle = setup.random(), curve.spec.d_model, curve.spec.d_ff
    up = torch.randn(curve.spec.n_up * middle, width, generator=random) * width**-0.5
    down = torch.randn(width, middle, generator=random) * middle**-0.5
    x = torch.randn(1, width, generator=random) + NOISE * torch.randn(2 * TOKENS, width, generator=random)
    y = torch.randn(TOKENS, width, generator=random)
    before, loss = _silent(curve, x, up), math.nan
    for _ in range(asked.steps):
        up.requires_grad_()
        down.requires_grad_()
        error = (curve.middle(x[:TOKENS] @ up.T) @ down.T - y).square().mean()
        slopes = torch.autograd.grad(error, (up, down))
        up, down = (weight.detach() - asked.rate * slope for weight, slope in zip((up, down), slopes, strict=True))
        loss = float(error.detach())
    held = bool(torch.isfinite(up).all())
    after = _silent(curve, x, up) if held else None
    return {"ffn": curve.name, "before": before, "after": after, "loss": loss if math.isfinite(loss) else None}


def _silent(curve: Curve, x: Tensor, up: Tensor) -> float:
    """The share of units, in per cent, whose activation is flat at every token: no gradient gets through its gate."""
    projected = (x @ up.T).requires_grad_()
    slope = torch.autograd.grad(curve.middle(projected).sum(), projected)[0][:, : curve.spec.d_ff]
    return 100 * float((slope == 0).all(0).float().mean())


def _seen_dead(rows: Sequence[Row], asked: Activation) -> str:
    dying = [f"{row['ffn']} {row['after']:.1f} %" for row in rows if row["after"]]
    lost = [row["ffn"] for row in rows if row["after"] is None]
    told = f"dead units after {asked.steps} steps: {listed(dying) or 'none'}"
    spared = sum(row["after"] == 0 for row in rows)
    told += f", and none with {others(spared)}" if dying and spared else ""
    return f"{told} ({listed(lost)} diverged)" if lost else told


def _seen_closest(rows: Sequence[Row]) -> str:
    """Which curves are hard to tell apart, each two once."""
    close = [row for row in rows if row["gap"] is not None and row["gap"] < CLOSE]
    pairs = {frozenset((row["ffn"], row["nearest"])): row for row in close}
    told = [f"{row['ffn']} and {row['nearest']} lie within {row['gap']:.1e}" for row in pairs.values()]
    return "; ".join(told) if told else f"no two curves lie within {CLOSE:g} of each other"


def _chart(title: str, distinct: dict[str, Curve], of: Callable[[Curve, Tensor], Tensor]) -> Chart:
    grid = _grid()[:: round(0.2 / STEP)]
    near = grid[grid.abs() <= 3.001]
    series = {name: list(zip(near.tolist(), of(curve, near).tolist(), strict=True)) for name, curve in distinct.items()}
    return Chart(title, "x", title.lower(), series)
