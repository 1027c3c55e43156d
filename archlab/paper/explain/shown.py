"""The tables, drawings and charts that a meaning shows of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from archlab.cost.symbols import short_indices
from archlab.document import Chart, Drawing, Table
from archlab.frozen import replace
from archlab.meaning import Meaning, Part
from archlab.paper.explain.asked import Model
from archlab.paper.explain.words import MOST_KINDS


def by_kind(parts: Iterable[Part]) -> dict[str, Any]:
    """Parts by the fields of a Document that hold them."""
    found = list(parts)
    kinds = {"tables": Table, "drawings": Drawing, "charts": Chart}
    return {field: [part for part in found if isinstance(part, kind)] for field, kind in kinds.items()}


def shown(said: Meaning, model: Model, axis: str, name: str) -> Iterator[Part]:
    """The tables, drawings and charts of the choice; what differs from layer to layer once for each kind of them."""
    kinds = model.kinds(axis, name)[:MOST_KINDS]
    found: list[tuple[Part, list[int]]] = []
    for layer, indices in kinds:
        for part in said.shows(model.here(layer, axis)):
            having = next((layers for other, layers in found if other == part), None)
            if having is None:
                found.append((part, having := []))
            having += indices
    everywhere = sum(len(indices) for _, indices in kinds)
    yield from (part if len(at) == everywhere else _placed(part, at) for part, at in found)


def _placed(part: Part, layers: Sequence[int]) -> Part:
    titled = replace(part, title=f"{part.title}, layers {short_indices(layers)}")
    return replace(titled, name=f"{titled.name}.{layers[0]}") if isinstance(titled, Table) else titled
