"""Limits that the points of a sweep are to keep, such as `params<=1B`: which a record breaks, and how far it goes."""

from __future__ import annotations

import math
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
    """How far a record's figures go beyond each constraint, by its text; infinitely beyond one that cannot be read.

    A request's own are refused before it runs; those of a record may be of another version, or come to harm since.
    """
    return {text: _excess(text, figures) for text in texts}


def _excess(text: str, figures: Mapping[str, Figure]) -> float | None:
    try:
        constraint = read(text)
        return constraint.excess(figures.get(constraint.figure))
    except ConfigError:
        return math.inf


def broken(record: Record) -> list[str]:
    """The constraints of its sweep that a record is known to break; of one that is not ok nothing is."""
    if not record.ok:
        return []
    found = excesses(record.config.get("constraints") or [], record.figures)
    wrong = {text: excess for text, excess in found.items() if excess is not None and excess > 0}
    return [text if excess < math.inf else f"{text!r}, which cannot be read" for text, excess in wrong.items()]
