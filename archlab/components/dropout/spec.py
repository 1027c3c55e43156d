"""Dropout: a rate at each of five places. It has no parameters, and no module of its own."""

from __future__ import annotations

from typing import Any, Self

from archlab.frozen import replace
from archlab.options import Spec, option
from archlab.registry import register

PLACES = ("embedding", "attention", "residual", "ffn", "output")
CLASSIC = PLACES[:4]


def rate(place: str) -> Any:
    return option(help=place, auto="p where the placement drops, else 0", ge=0, lt=1)


class Dropout(Spec):
    """Zero with the rate and scale by 1 / (1 - rate), in training only. Srivastava et al. 2014."""

    p: float = option(0.1, "the rate at every place of the placement", ge=0, lt=1)
    embedding: float = rate("once, on token + position")
    attention: float = rate("on the attention weights, before the value product")
    residual: float = rate("after the attention's output projection")
    ffn: float = rate("after the down projection")
    output: float = rate("before the head")

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        for place in PLACES:
            values.setdefault(place, values["p"] if place in cls.places() else 0.0)

    @classmethod
    def places(cls) -> tuple[str, ...]:
        """Where this placement drops."""
        return PLACES

    @property
    def off(self) -> Self:
        """As it is outside training."""
        return replace(self, **dict.fromkeys(PLACES, 0.0))


class ClassicDropout(Dropout):
    """The first four places, as GPT-2 and MiniMind drop."""

    @classmethod
    def places(cls) -> tuple[str, ...]:
        return CLASSIC


register(
    "dropout",
    "none",
    Dropout,
    summary="nothing is dropped",
    formula="0",
    fixed={"p": 0.0} | dict.fromkeys(PLACES, 0.0),
)
register(
    "dropout",
    "classic",
    ClassicDropout,
    summary="embedding, attention weights, residual and ffn",
    formula="0",
)
register("dropout", "all", Dropout, summary="the classic four and the output, before the head", formula="0")
