"""An axis in words, with each of its choices in the place of the model's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from archlab.compose import preset_users
from archlab.cost.parts import costs_on
from archlab.document import Column, Document, Table
from archlab.errors import ArchlabError
from archlab.meaning import AXIS, meaning
from archlab.paper.explain.asked import Asked, Model
from archlab.paper.explain.costs import costs
from archlab.paper.explain.shown import by_kind
from archlab.paper.explain.words import formula_texts, texts
from archlab.registry import choices


def document(axis: str, asked: Asked) -> Document:
    """What the axis is for, and what each of its choices comes to in the model."""
    own = asked.own()
    said, here = meaning(axis, AXIS), own.here(own.spec.layers[0], axis)
    rows, notes = _choices(axis, own)
    parts = by_kind(said.shows(here))
    about = f"each in the place of its own, {own.tokens:,} tokens"
    return Document(
        command="explain",
        subject=axis,
        model=own.name,
        verdict=f"{len(choices(axis))} choices; {own.name} has {', '.join(_made(own, axis))}",
        texts=texts(said, **formula_texts(said, here)),
        **parts | {"tables": [Table("choices", "Choices", _columns(axis), rows, about), *parts["tables"]]},
        notes=[*notes, *own.asked.notes, f"archlab explain {axis}/CHOICE says more of one"],
    )


def _made(model: Model, axis: str) -> list[str]:
    """The choices that the model makes, in the order of its layers."""
    if axis == "head":
        return [model.spec.head.choice]
    return list(dict.fromkeys(layer.axes()[axis].choice for layer, _ in model.spec.layer_kinds))


def _columns(axis: str) -> list[Column]:
    figures = [Column(figure, cost.unit, "exact", cost.how) for figure, cost in costs_on(axis).items()]
    return [Column("choice"), *figures, Column("presets", "1"), Column("what")]


def _choices(axis: str, own: Model) -> tuple[list[dict[str, Any]], list[str]]:
    """A row a choice, and why some cannot be in the model."""
    rows, notes, users = [], [], preset_users()
    for name, chosen in choices(axis).items():
        row: dict[str, Any] = {"choice": name, "presets": len(users.get((axis, name), ())), "what": chosen.summary}
        try:
            row |= dict(_figures(own if own.kinds(axis, name) else own.with_choice(axis, name), axis, name))
        except ArchlabError as error:
            notes.append(f"{name} cannot be here: {error}")
        rows.append(row)
    return rows, notes


def _figures(model: Model, axis: str, name: str) -> Iterator[tuple[str, int]]:
    """Each figure of the choice, 0 where it has none."""
    found = {one.name: one.total for one in costs(model, axis, name)[0]}
    found.setdefault("params_active", found.get("params", 0))
    yield from ((figure, found.get(figure, 0)) for figure in costs_on(axis))
