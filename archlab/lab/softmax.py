"""archlab lab softmax: temperature, large logits in each dtype, and what scaling does to the size of scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from archlab.decoder.build import build
from archlab.decoder.dtype import TORCH_DTYPES
from archlab.document import Chart, Column, Document, Row, Table
from archlab.lab.catalog import Softmax
from archlab.lab.heard import hear
from archlab.lab.setup import Setup, cut
from archlab.lab.words import listed
from archlab.report.text import digits

STABLE, NAIVE = "stable", "naive"
CURVE = tuple(2 ** (power / 4) for power in range(-12, 13))
"""Temperatures of the chart."""

LARGE = (
    Column("way", "", "", "stable: the maximum is subtracted first; naive: e^z as it is"),
    Column("dtype"),
)
SCORES = (
    Column("scores"),
    Column("std", "1", "measured", "of the scores of unit normal queries and keys"),
    Column("expected", "1", "exact", "sqrt(head size), times the scale"),
    Column("largest", "1", "measured", "mean of the largest weight of a row"),
    Column("perplexity", "1", "measured", "keys that a row looks at: e^entropy of its weights, on average"),
)


def run(setup: Setup) -> Document:
    """Probabilities by temperature; of large logits, both ways; scores of the model's heads, raw and scaled."""
    asked: Softmax = setup.settings
    at = [Column(f"{logit:g}", "1", "measured", "its probability") for logit in asked.logits]
    warm = [_temperature(asked.logits, t) for t in asked.temperatures]
    large = list(_large(asked.large))
    scores = _scores(setup)
    over = [Column(f"{logit:g}", "1", "measured", "its probability; - where it is no number") for logit in asked.large]
    spread = (Column("temperature"), *at, Column("perplexity", "1", "measured", "e^entropy"))
    return Document(
        command="lab softmax",
        model=setup.spec.name,
        verdict=f"{_seen_temperature(warm)}; {_seen_large(large)}; {_seen_scores(scores)}",
        tables=[
            Table("temperature", "Temperature", spread, warm, "float64"),
            Table("large", "Large logits", (*LARGE, *over), large),
            Table("scores", "Scores", SCORES, scores, f"{asked.samples:,} queries and keys of a head, float32"),
        ],
        assumptions={"seed": setup.seed},
        charts=[_chart(asked.logits)],
    )


def _softmax(logits: Sequence[float], temperature: float) -> Tensor:
    return (torch.tensor(logits, dtype=torch.float64) / temperature).softmax(-1)


def _temperature(logits: Sequence[float], temperature: float) -> Row:
    weights = _softmax(logits, temperature)
    told = {f"{logit:g}": float(weight) for logit, weight in zip(logits, weights, strict=True)}
    return {"temperature": temperature, **told, "perplexity": float(_perplexity(weights))}


def _perplexity(weights: Tensor) -> Tensor:
    """e^entropy of the last dimension: how many equal weights would be as undecided."""
    return torch.special.entr(weights).sum(-1).exp()


def _large(logits: Sequence[float]) -> Iterator[Row]:
    for name in ("fp32", "bf16", "fp16"):
        z = torch.tensor(logits, dtype=torch.float64).to(TORCH_DTYPES[name])
        ways = {STABLE: (z - z.max()).exp(), NAIVE: z.exp()}
        for way, powers in ways.items():
            weights = powers / powers.sum()
            told = {f"{one:g}": _number(weight) for one, weight in zip(logits, weights, strict=True)}
            yield {"way": way, "dtype": name, **told}


def _number(value: Tensor) -> float | None:
    return float(value) if bool(torch.isfinite(value)) else None


def _scores(setup: Setup) -> list[Row]:
    """Of head size and scale as the first layer's attention has them."""
    asked: Softmax = setup.settings
    tried = cut(setup.spec, 1)
    heard = hear(build(tried.spec, seed=setup.seed), setup.ids(tried.spec, 1, 2))
    width, random = heard.q.shape[-1], setup.random()
    q, k = (torch.randn(asked.samples, width, generator=random) for _ in range(2))
    rows: list[Row] = []
    for name, scale in (("as they are", 1.0), ("scaled", heard.scale)):
        scores = q @ k.T * scale
        weights = scores.softmax(-1)
        row: dict[str, Any] = {"scores": name, "std": float(scores.std()), "expected": math.sqrt(width) * scale}
        rows.append(
            {**row, "largest": float(weights.amax(-1).mean()), "perplexity": float(_perplexity(weights).mean())}
        )
    return rows


def _seen_temperature(rows: Sequence[Row]) -> str:
    told = [f"{digits(row['perplexity'])} at temperature {row['temperature']:g}" for row in rows]
    return f"perplexity {', '.join(told)}"


def _seen_large(rows: Sequence[Row]) -> str:
    """In which dtypes the naive way has no answer, the stable one none, or one that tells nothing apart."""
    shown = {(row["way"], row["dtype"]): [row[name] for name in list(row)[2:]] for row in rows}
    lost = [name for (way, name), told in shown.items() if way == NAIVE and None in told]
    kept = [name for (way, name), told in shown.items() if way == STABLE and None not in told]
    blurred = [name for name in kept if len(set(shown[STABLE, name])) == 1 and len(shown[STABLE, name]) > 1]
    naive = f"e^z overflows in {listed(lost)}" if lost else "e^z overflows in no dtype"
    stable = f"with the maximum subtracted {'all are' if len(kept) * 2 == len(rows) else 'not all are'} numbers"
    return f"{naive}, {stable}" + (f", but {listed(blurred)} cannot tell the logits apart" if blurred else "")


def _seen_scores(rows: Sequence[Row]) -> str:
    raw, scaled = rows
    return f"scores have a standard deviation of {raw['std']:.1f}, {scaled['std']:.1f} once scaled"


def _chart(logits: Sequence[float]) -> Chart:
    weights = [_softmax(logits, temperature) for temperature in CURVE]
    series = {
        f"{logit:g}": [(temperature, float(each[place])) for temperature, each in zip(CURVE, weights, strict=True)]
        for place, logit in enumerate(logits)
    }
    return Chart("Probability", "temperature", "probability", series, log_x=True)
