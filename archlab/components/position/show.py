"""What positions look like: how fast each pair turns, how far it gets, what distance costs a score."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from archlab.components.position.spec import Alibi, Rope, Sinusoidal, T5Bias
from archlab.document import Chart, Column, Drawing, Table
from archlab.meaning import Here, Part

POSITIONS = 32
"""Positions whose angles are drawn, one a column."""
ARROWS = "→↗↑↖←↙↓↘"
"""Eight directions, from 0 on, an eighth of a turn each."""
DISTANCES = (1, 64, 1024)
MOST_HEADS = 8


# --- rotation ---------------------------------------------------------------------------------------------------------


def rotation(here: Here) -> Iterable[Part]:
    """How fast the pairs turn, beside plain rope where they are scaled: a table, angles drawn, wavelengths."""
    spec: Rope = here.spec
    width = spec.rotary_dim(here.axes["attention"].rotary_width)
    turning = spec.frequencies(width, here.context)
    plain = Rope.frequencies(spec, width, here.context)
    yield _pairs(turning, here.context, None if turning == plain else plain)
    yield _angles(turning)
    series = {spec.choice: _wavelengths(turning)} | ({} if turning == plain else {"rope": _wavelengths(plain)})
    ceilings = {"context": float(here.context)}
    original = getattr(spec, "original_context", here.context)
    if original != here.context:
        ceilings["original context"] = float(original)
    yield Chart("Wavelengths", "pair", "tokens a turn", series, ceilings, log_y=True)


def sinusoids(here: Here) -> Iterable[Part]:
    """How fast the columns go round."""
    spec: Sinusoidal = here.spec
    turning = spec.frequencies()
    yield _pairs(turning, here.context)
    yield _angles(turning)


def _pairs(turning: Sequence[float], context: int, plain: Sequence[float] | None = None) -> Table:
    """Some of the pairs, the fastest and the slowest among them."""
    last = len(turning) - 1
    shown = sorted({0, 1, 2, last // 4, last // 2, 3 * last // 4, last} & set(range(last + 1)))
    columns = [
        Column("pair"),
        Column("radians", "1", how="that it turns a token"),
        Column("wavelength", "tokens", how="tokens of a whole turn, 2 pi / radians"),
        Column("turns", "1", how="over the model's context"),
    ]
    rows = [
        {"pair": pair, "radians": turning[pair], "wavelength": wave, "turns": context / wave}
        for pair, wave in ((pair, 2 * math.pi / turning[pair]) for pair in shown)
    ]
    if plain is not None:
        columns.append(Column("slower", "1", how="by how much than plain rope"))
        rows = [row | {"slower": plain[pair] / turning[pair]} for row, pair in zip(rows, shown, strict=True)]
    slow = sum(context * w < 2 * math.pi for w in turning)
    about = f"{len(turning)} pairs, {slow} of them turn less than once in {context:,} tokens; in float64"
    return Table("pairs", "Pairs", columns, rows, about)


def _angles(turning: Sequence[float]) -> Drawing:
    last = len(turning) - 1
    shown = sorted({0, last // 4, last // 2, last})
    margin = len(str(last))
    rows = [f"pair {pair:>{margin}}  {_row(turning[pair])}" for pair in shown]
    return Drawing("Angles", rows, f"of positions 0 to {POSITIONS - 1}, right is 0")


def _row(w: float) -> str:
    eighths = (round(position * w * 4 / math.pi) % 8 for position in range(POSITIONS))
    return " ".join(ARROWS[eighth] for eighth in eighths)


def _wavelengths(turning: Sequence[float]) -> list[tuple[float, float]]:
    return [(float(pair), 2 * math.pi / w) for pair, w in enumerate(turning)]


# --- biases -----------------------------------------------------------------------------------------------------------


def slopes(here: Here) -> Iterable[Part]:
    """What each head takes from a score at some distances."""
    spec: Alibi = here.spec
    found = spec.slopes()
    step = -(-len(found) // MOST_HEADS)
    shown = sorted({*range(0, len(found), step), len(found) - 1})
    columns = [Column("head"), Column("slope", "1", how="a token")]
    columns += [Column(f"at {distance:,}", "1", how="added to a score at this distance") for distance in DISTANCES]
    rows = [
        {"head": head, "slope": found[head]} | {f"at {distance:,}": -found[head] * distance for distance in DISTANCES}
        for head in shown
    ]
    yield Table("slopes", "Slopes", columns, rows, "what a distance adds to a score, by head; in float64")


def buckets(here: Here) -> Iterable[Part]:
    """Which distances share a trained number."""
    spec: T5Bias = here.spec
    exact = spec.n_buckets // 2
    starts = [next(d for d in range(spec.max_distance + 1) if bucket(spec, d) >= b) for b in range(spec.n_buckets)]
    rows = [{"bucket": f"0-{exact - 1}", "distances": "one each, from 0 on"}]
    for index, (start, end) in enumerate(zip(starts[exact:], [*starts[exact + 1 :], None], strict=True), exact):
        rows.append({"bucket": str(index), "distances": _span(start, end)})
    yield Table("buckets", "Buckets", [Column("bucket"), Column("distances")], rows)


def _span(start: int, end: int | None) -> str:
    """`16 to 17`: the distances from a start on, before an end."""
    if end is None:
        return f"{start:,} and more"
    return f"{start:,} to {end - 1:,}" if end > start else "none"


def bucket(spec: T5Bias, distance: int) -> int:
    """The bucket of a distance in tokens."""
    exact = spec.n_buckets // 2
    if distance < exact:
        return distance
    share = math.log(distance / exact) / math.log(spec.max_distance / exact)
    return min(spec.n_buckets - 1, exact + int(share * (spec.n_buckets - exact)))
