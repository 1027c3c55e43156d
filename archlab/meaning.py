"""What an axis or a choice means: what it does and why, its formula, where it was published, what it looks like.

The words stand beside what they are about, in `components/<axis>/explain.py`, and are read only where they are asked
for. A choice of somebody else's is explained by calling `explain` too; one that is not says what its class says.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from archlab.document import Chart, Drawing, Table
from archlab.frozen import Frozen
from archlab.papers import Paper
from archlab.registry import AXES, choice, places


class Here(Frozen):
    """A choice where it stands: its spec, the choices of its layer by axis, the model's sizes and the workload's.

    params: of the whole model. tokens: that the last token of a sequence sees, itself among them. width: bytes of an
    element.
    """

    spec: Any
    axes: Mapping[str, Any]
    d_model: int
    n_layers: int
    vocab_size: int
    context: int
    params: int
    batch: int
    tokens: int
    width: int


Part = Table | Chart | Drawing
Shows = Callable[[Here], Iterable[Part]]
Formula = str | Callable[[Any], str]
"""In words of the options' names; or what gives it for a spec, where its options change it."""


def nothing(here: Here) -> Iterable[Part]:
    """No tables, charts or drawings of its own."""
    return ()


class Meaning(Frozen):
    """What something is, why it is used, its formula, its sources, and what to show of it in a model."""

    what: str
    why: str = ""
    formula: Formula = ""
    sources: tuple[Paper | str, ...] = ()
    shows: Shows = nothing

    def formula_of(self, spec: Any) -> str:
        return self.formula if isinstance(self.formula, str) else self.formula(spec)


AXIS = ""
"""In the place of a choice's name: the axis itself."""

_meanings: dict[tuple[str, str], Meaning] = {}


def explain(
    axis: str,
    name: str,
    *,
    what: str,
    why: str = "",
    formula: Formula = "",
    sources: Iterable[Paper] = (),
    shows: Shows = nothing,
) -> None:
    """Say what a choice means, or an axis (name: `AXIS`); what is said last holds."""
    _meanings[axis, name] = Meaning(what, why, formula, tuple(sources), shows)


def meaning(axis: str, name: str) -> Meaning:
    """What a choice means, or an axis; of a choice that nobody explained what its class says and its axis shows."""
    if axis in AXES:
        importlib.import_module(f"archlab.components.{axis}.explain")
    found = _meanings.get((axis, name))
    if found is None and name == AXIS:
        return Meaning(f"A place of others: its choice stands {places()[axis].words} in every layer.")
    return found or _unexplained(axis, name)


def _unexplained(axis: str, name: str) -> Meaning:
    """What a choice itself says that nobody explained; what its axis shows is shown of it too."""
    source, shown = choice(axis, name).source, _meanings.get((axis, AXIS))
    sources = (source,) if source else ()
    return Meaning(_own_words(axis, name), sources=sources, shows=shown.shows if shown else nothing)


def _own_words(axis: str, name: str) -> str:
    """The first paragraph of the docstring of a choice's class, else its summary."""
    chosen = choice(axis, name)
    return " ".join((chosen.spec.__doc__ or "").split("\n\n")[0].split()) or chosen.summary
