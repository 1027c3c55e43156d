"""archlab lab extrapolation: which rotary angles of a longer run lie outside of those that were seen in training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from archlab.components.position.spec import FixedLengthRope, Rope
from archlab.document import Chart, Column, Document, Row, Table
from archlab.errors import RequestError
from archlab.lab.catalog import Extrapolation
from archlab.lab.setup import Setup
from archlab.registry import choices
from archlab.report.text import digits

TURN = 2 * math.pi

COLUMNS = (
    Column("position"),
    Column("tokens", "tokens", "", "the model is run at"),
    Column("factor", "1", "", "by which the choice stretches; - where it has none"),
    Column("pairs", "1", "exact"),
    Column("whole_turns", "1", "exact", "pairs that turned once or more in training: no angle is new to them"),
    Column("beyond", "1", "exact", "pairs whose largest angle was never seen"),
    Column("farthest", "1", "exact", "the largest angle over the largest that was seen, of the pair that is worst off"),
)


def run(setup: Setup) -> Document:
    """Each rotation that there is, at each length."""
    asked: Extrapolation = setup.settings
    problems: list[str] = []
    found = [each for name in choices("position") for each in _lengths(setup, name, problems)]
    if not found:
        raise RequestError(f"{setup.spec.name}: {'; '.join(problems) or 'no position choice turns anything'}")
    rows = [row for row, _ in found]
    longest = max(asked.lengths)
    curves = {row["position"]: curve for row, curve in found if row["tokens"] == longest}
    return Document(
        command="lab extrapolation",
        model=setup.spec.name,
        verdict=_seen(rows, asked),
        tables=[Table("angles", "Angles beyond training", COLUMNS, rows, f"trained at {asked.trained:,} tokens")],
        assumptions={
            "trained": f"with plain rotation, base {_base(setup):,.0f}",
            "stretched": "by the length over the training length, or as a choice does it by itself",
        },
        charts=[
            Chart(f"At {longest:,} tokens", "pair", "angle over seen", curves, {"seen in training": 1.0}, log_y=True)
        ],
        notes=problems,
    )


def _base(setup: Setup) -> float:
    """The model's own, or that of plain rotation."""
    own = next((position for position, _ in setup.spec.position_kinds if isinstance(position, Rope)), None)
    if own is not None:
        return own.base
    plain = setup.swapped(position="rope").position
    assert isinstance(plain, Rope)
    return plain.base


def _lengths(
    setup: Setup, name: str, problems: list[str]
) -> Iterator[tuple[dict[str, Any], list[tuple[float, float]]]]:
    """A position choice at each length, and what each pair's largest angle is of those seen; nothing if none turns."""
    asked: Extrapolation = setup.settings
    for tokens in sorted(asked.lengths):
        try:
            spec, width = _stretched(setup, name, tokens)
        except RequestError as error:
            problems.append(f"{name}: {error}")
            return
        if not isinstance(spec, Rope) or not width:
            return
        row, curve = _row(spec, width, tokens, _base(setup), asked.trained)
        yield {"position": name, "tokens": tokens, **row}, curve


def _stretched(setup: Setup, name: str, tokens: int) -> tuple[Any, int]:
    """The choice as it is for a run of so many tokens after training at fewer, and the features that it turns."""
    asked: Extrapolation = setup.settings
    chosen = choices("position")[name]
    grows = issubclass(chosen.spec, FixedLengthRope)  # with the run, without being told by how much
    stretch = 1.0 if grows else max(1.0, tokens / asked.trained)
    wanted = {"base": _base(setup), "original_context": asked.trained, "factor": stretch}
    known = chosen.options
    options = {option: value for option, value in wanted.items() if option in known}
    sizes = {"context": max(tokens, asked.trained)}
    spec = setup.swapped(sizes, position={"choice": name, **options})
    layer = spec.layers[0]
    position = layer.position if layer.position.choice == name else spec.position
    return position, position.rotary_dim(layer.attention.rotary_width)


def _row(
    spec: Rope, width: int, tokens: int, base: float, trained: int
) -> tuple[Mapping[str, Any], list[tuple[float, float]]]:
    plain = [base ** (-2 * pair / width) for pair in range(width // 2)]
    shares = []
    for seen, now in zip(plain, spec.frequencies(width, tokens), strict=True):
        most = trained * seen  # of any place between the first and the last, not of whole tokens alone
        angle = min((tokens - 1) * now, TURN)
        shares.append(1.0 if most >= TURN else angle / most)
    beyond = sum(share > 1 for share in shares)
    whole = sum(trained * seen >= TURN for seen in plain)
    told = {"factor": getattr(spec, "factor", None), "pairs": len(plain), "whole_turns": whole}
    told |= {"beyond": beyond, "farthest": max(shares)}
    return told, [(float(pair), share) for pair, share in enumerate(shares)]


def _seen(rows: Sequence[Row], asked: Extrapolation) -> str:
    """How many pairs leave, by choice and length."""
    told = []
    for name in dict.fromkeys(row["position"] for row in rows):
        own = [row for row in rows if row["position"] == name]
        counts = " and ".join(f"{row['beyond']}" for row in own)
        worst = f" (up to {digits(own[-1]['farthest'])} times)" if own[-1]["beyond"] else ""
        told.append(f"{name} {counts}{worst}")
    lengths = " and ".join(f"{length:,}" for length in sorted(asked.lengths))
    return f"of {rows[0]['pairs']} pairs, beyond the angles of {asked.trained:,} tokens at {lengths}: {', '.join(told)}"
