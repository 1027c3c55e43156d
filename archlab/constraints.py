"""Limits that the points of a sweep are to keep, such as `params<=1B`: which a record breaks, and how far it goes."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence

from archlab.errors import ConfigError
from archlab.frozen import Frozen
from archlab.record import Figure, Record, full_name
from archlab.where import number

_LIMIT = re.compile(r"\s*(?P<name>[\w.]+)\s*(?P<sign><=|>=|<|>)\s*(?P<limit>[^<>=\s][^<>=]*?)\s*")


class Constraint(Frozen):
    """A figure by its full name, one of `<= >= < >`, and the limit as it was written."""

    text: str
    figure: str
    sign: str
    limit: str

    def excess(self, figure: Figure | None) -> float | None:
        """How far a figure goes beyond the limit, as a share of it: zero or less where it is kept, null without one.

        Raises ConfigError for a limit that the figure's unit does not have.
        """
        if figure is None or figure.value is None:
            return None
        limit = self.amount(figure.unit)
        beyond = figure.value - limit if self.sign in ("<", "<=") else limit - figure.value
        if beyond == 0 and self.sign in ("<", ">"):
            return sys.float_info.epsilon
        return beyond / (abs(limit) or 1)

    def amount(self, unit: str) -> float | int:
        """The limit as a number. Raises ConfigError for one that cannot be read in this unit."""
        try:
            return number(self.limit, unit)
        except ConfigError as error:
            raise ConfigError("constraints", f"{self.text}: {error.problem}", value=self.text) from None


def read(text: str) -> Constraint:
    """A constraint from its text. Raises ConfigError."""
    found = _LIMIT.fullmatch(str(text))
    if found is None:
        problem = f"{text!r} is no limit of a figure, such as params<=1B or decode_tok_s>=20"
        raise ConfigError("constraints", problem, value=text)
    return Constraint(str(text), full_name(found["name"]), found["sign"], found["limit"])


def excesses(texts: Sequence[str], figures: Mapping[str, Figure]) -> dict[str, float | None]:
    """How far the figures go beyond each constraint, by its text."""
    return {text: one.excess(figures.get(one.figure)) for text, one in zip(texts, map(read, texts), strict=True)}


def broken(record: Record) -> list[str]:
    """The constraints of its sweep that a record is known to break; of one that is not ok nothing is."""
    if not record.ok:
        return []
    found = excesses(record.config.get("constraints") or [], record.figures)
    return [text for text, excess in found.items() if excess is not None and excess > 0]
