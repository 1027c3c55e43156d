"""archlab lab rope: what rotation does to a vector at each position, and to scores at each distance, by base."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from archlab.components.position.module import make_position
from archlab.components.position.spec import Rope
from archlab.components.span import Span
from archlab.document import Chart, Column, Document, Row, Table
from archlab.errors import RequestError
from archlab.frozen import Frozen, replace
from archlab.lab import catalog
from archlab.lab.setup import Setup
from archlab.units import show_bytes
from archlab.workload import few_contexts

BASES = (1e4, 1e6)
"""Compared with the model's own where no others are named: the paper's, and that of long contexts."""
TURN = 2 * math.pi

PAIRS = (
    Column("rotation"),
    Column("pair", "1", "", "of two features that turn together, the fastest first"),
    Column("frequency", "rad/token", "exact", "base^(-2 pair / rotated features), scaled as the choice has it"),
    Column("wavelength", "tokens", "exact", "2 pi / frequency: after so many tokens it has turned once"),
)
TURNED = (
    Column("rotation"),
    Column("position", "1"),
    Column("pair", "1"),
    Column("angle", "rad", "exact", "position x frequency"),
    Column("rest", "rad", "exact", "the angle less whole turns"),
    Column("cos", "1", "measured", "from the module's table"),
    Column("sin", "1", "measured", "from the module's table"),
)
CONTEXTS = (
    Column("rotation"),
    Column("context", "tokens"),
    Column("wrapped", "1", "exact", "pairs that have turned once or more by then"),
    Column("pairs", "1", "exact"),
    Column("slowest_turns", "1", "exact", "turns of the slowest pair by then"),
)
SCORES = (
    Column("rotation"),
    Column("distance", "tokens"),
    Column("score", "1", "measured", "q k of one vector, the first feature of each pair 1, rotated so far apart"),
    Column("per_pair", "1", "measured", "over the number of pairs: 1 where nothing is lost"),
)


class Rotated(Frozen):
    """A rotation that is looked at: its name in the tables, its spec, and what it is made for."""

    name: str
    spec: Rope
    head_dim: int
    context: int

    @property
    def frequencies(self) -> list[float]:
        return self.spec.frequencies(self.spec.rotary_dim(self.head_dim), self.context)

    @property
    def slowest(self) -> float:
        """Tokens in which the slowest pair turns once."""
        return TURN / min(self.frequencies)

    def turn(self, positions: Sequence[int]) -> Tensor:
        """The vector with a 1 at the first feature of each pair, turned to each position by the module: [n, width]."""
        whole = {"rope_length": self.context} if self.spec.depends_on_length else {}
        module = make_position(replace(self.spec, **whole), self.head_dim, 1)
        module.reach(max(positions) + 1)
        width = self.spec.rotary_dim(self.head_dim)
        vector = torch.zeros(1, width)
        vector[:, slice(0, None, 2) if self.spec.layout == "interleaved" else slice(0, width // 2)] = 1.0
        turned = []
        for position in positions:
            rotation = module.rotation(Span(position, 1))
            assert rotation is not None
            turned.append(rotation(vector) / self.spec.amplitude())
        return torch.cat(turned)


def run(setup: Setup) -> Document:
    """Pairs, angles, contexts and scores of each rotation."""
    asked: catalog.Rope = setup.settings
    rotations = _rotations(setup, asked.bases)
    contexts = sorted(asked.contexts or {*few_contexts(setup.spec), 2**11, 2**15, 2**17})
    distances = sorted({*(asked.distances or (0, *(2**power for power in range(18))))})
    scores = [row for each in rotations for row in _scores(each, distances)]
    wrapped = [row for each in rotations for row in _wrapped(each, contexts)]
    turned = [row for each in rotations for row in _turned(each, asked.positions)]
    return Document(
        command="lab rope",
        model=setup.spec.name,
        verdict=_seen(rotations, setup.spec.context),
        tables=[
            Table("contexts", "Pairs that have turned", CONTEXTS, wrapped),
            Table("pairs", "Pairs", PAIRS, [row for each in rotations for row in _pairs(each)]),
            Table("turned", "A vector at positions", TURNED, turned),
            Table("scores", "Scores", SCORES, scores),
        ],
        assumptions=_assumed(rotations),
        charts=[_turns(rotations, distances), _decay(scores)],
    )


def _rotations(setup: Setup, bases: Sequence[float] | None) -> list[Rotated]:
    """The model's own, each once, and the first of them with other bases. Raises RequestError where nothing turns."""
    spec = setup.spec
    own = [(position, width) for position, width in spec.position_kinds if isinstance(position, Rope) and width]
    if not own:
        problem = f"{spec.name} turns nothing: its positions are {spec.position.choice}"
        raise RequestError(f"{problem}; model/position=rope shows what rotation would do")
    first, width = own[0]
    wanted = [(replace(first, base=base), width) for base in BASES if bases is None]
    wanted = [*own, *wanted] if bases is None else [(replace(first, base=base), width) for base in bases]
    kinds = dict.fromkeys(wanted)
    return [Rotated(f"{made.choice}, base {made.base:,.0f}", made, size, spec.context) for made, size in kinds]


def _shown(frequencies: Sequence[float]) -> list[int]:
    """Pairs to tell of: the three fastest, the middle one and the slowest."""
    last = len(frequencies) - 1
    return sorted({0, min(1, last), min(2, last), len(frequencies) // 2, last})


def _pairs(each: Rotated) -> Iterator[Row]:
    for pair in _shown(each.frequencies):
        frequency = each.frequencies[pair]
        yield {"rotation": each.name, "pair": pair, "frequency": frequency, "wavelength": TURN / frequency}


def _turned(each: Rotated, positions: Sequence[int]) -> Iterator[Row]:
    turned, half = each.turn(positions), len(each.frequencies)
    for position, vector in zip(positions, turned, strict=True):
        for pair in sorted({0, half // 2, half - 1}):
            angle = position * each.frequencies[pair]
            places = (2 * pair, 2 * pair + 1) if each.spec.layout == "interleaved" else (pair, pair + half)
            cos, sin = (float(vector[place]) for place in places)
            row: dict[str, Any] = {"rotation": each.name, "position": position, "pair": pair}
            yield {**row, "angle": angle, "rest": angle % TURN, "cos": cos, "sin": sin}


def _wrapped(each: Rotated, contexts: Sequence[int]) -> Iterator[Row]:
    for context in contexts:
        frequencies = each.spec.frequencies(each.spec.rotary_dim(each.head_dim), context)
        wrapped = sum(context * frequency >= TURN for frequency in frequencies)
        row: dict[str, Any] = {"rotation": each.name, "context": context, "wrapped": wrapped}
        yield {**row, "pairs": len(frequencies), "slowest_turns": context * min(frequencies) / TURN}


def _scores(each: Rotated, distances: Sequence[int]) -> Iterator[Row]:
    """The key stays at position 0, the query stands `distance` after it."""
    key, *queries = each.turn([0, *distances])
    for distance, query in zip(distances, queries, strict=True):
        score = float(query @ key)
        share = score / len(each.frequencies)
        yield {"rotation": each.name, "distance": distance, "score": score, "per_pair": share}


def _seen(rotations: Sequence[Rotated], context: int) -> str:
    """From which context on the slowest pair of each has turned, and how far it is at the model's own."""
    return "; ".join(_told(each, context) for each in rotations)


def _told(each: Rotated, context: int) -> str:
    wrapped = sum(context * frequency >= TURN for frequency in each.frequencies)
    turns = f"{context / each.slowest:.3g} of a turn" if context < each.slowest else "has wrapped too"
    slowest = f"all {len(each.frequencies)} from {math.ceil(each.slowest):,} on"
    at = f"{wrapped} pairs have wrapped at {context:,} tokens, {slowest}"
    return f"{each.name}: {at}" + ("" if context >= each.slowest else f" (the slowest: {turns})")


def _assumed(rotations: Sequence[Rotated]) -> dict[str, Any]:
    first = rotations[0]
    width, rows = first.spec.rotary_dim(first.head_dim), first.context
    table = 4 * first.spec.table_elements(width, rows)
    return {
        "rotated": f"{width} of {first.head_dim} features of a head, {first.spec.layout}",
        "tables": f"{show_bytes(table)} for {rows:,} positions in float32, one angle a pair; "
        f"{show_bytes(2 * table)} where each is written twice",
    }


def _turns(rotations: Sequence[Rotated], distances: Sequence[int]) -> Chart:
    """Turns of the fastest and the slowest pair of each."""
    far = [distance for distance in distances if distance]
    series: dict[str, list[tuple[float, float]]] = {}
    for each in rotations:
        for which, frequency in (("fastest", max(each.frequencies)), ("slowest", min(each.frequencies))):
            name = f"{which}, {each.name}"
            series[name] = [(float(distance), distance * frequency / TURN) for distance in far]
    return Chart("Turns", "distance", "turns", series, {"one turn": 1.0}, log_x=True, log_y=True)


def _decay(scores: Sequence[Row]) -> Chart:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in scores:
        if row["distance"]:
            series.setdefault(row["rotation"], []).append((float(row["distance"]), row["per_pair"]))
    return Chart("Score", "distance", "score over pairs", series, log_x=True)
