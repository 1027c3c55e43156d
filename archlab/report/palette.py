"""Which colour and mark a value has: the same in every picture of a report, and in its page when that is light."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from archlab.frozen import Frozen

SERIES = ("#0072b2", "#d55e00", "#009e73", "#b8689a", "#c98a00", "#4aa8dc", "#6b5b95", "#7c8086")
SCALE = ("#9dbdd8", "#4f93c4", "#0a2f57")
"""Of numbers, from the least to the greatest."""
MARKS = "oDs^Pv*X"
NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)

Look = tuple[str, str]
"""A colour and a mark."""


class Key(Frozen):
    """What the looks stand for: the values of a column `by`."""

    by: str
    looks: Mapping[str, Look]

    def colour(self, value: str) -> str:
        return self.looks[value][0]


def key_of(by: str, values: Sequence[str]) -> Key:
    """Numbers have shades by their size, other texts the series' colours in the order in which they come."""
    texts = list(dict.fromkeys(values))
    if any(texts) and all(NUMBER.fullmatch(text) for text in texts if text):
        sizes = sorted({_number(text) for text in texts})
        colours: Sequence[str] = shades(len(sizes))
        place = {text: sizes.index(_number(text)) for text in texts}
    else:
        colours, place = SERIES, {text: index for index, text in enumerate(texts)}
    return Key(by, {text: (colours[at % len(colours)], MARKS[at % len(MARKS)]) for text, at in place.items()})


def _number(text: str) -> float:
    return float(text or 0)


def shades(count: int) -> list[str]:
    """So many colours of the scale, from its low end to its high one; a single one is its middle."""
    return [_shade(2 * index / (count - 1) if count > 1 else 1.0) for index in range(count)]


def _shade(at: float) -> str:
    """The colour at a place of the scale, 0 to 2."""
    low = min(1, int(at))
    pairs = zip(_channels(SCALE[low]), _channels(SCALE[low + 1]), strict=True)
    return "#" + "".join(f"{math.floor(a + (b - a) * (at - low) + 0.5):02x}" for a, b in pairs)


def _channels(colour: str) -> list[int]:
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
