"""A choice in words, with what it is and costs in a model; where that model chooses otherwise, put in its place."""

from __future__ import annotations

from archlab.document import Document, Table
from archlab.errors import ConfigError
from archlab.meaning import meaning
from archlab.paper.diff import document as difference
from archlab.paper.explain.asked import Asked, Model
from archlab.paper.explain.costs import costs, explained, table
from archlab.paper.explain.shown import by_kind, shown
from archlab.paper.explain.words import formula_texts, standing, texts, users
from archlab.registry import choice


def document(axis: str, name: str, asked: Asked) -> Document:
    """What the choice means and what it comes to in the model. Raises ConfigError where the model cannot have it."""
    model, own = _models(axis, name, asked)
    said, here = meaning(axis, name), model.here(model.kinds(axis, name)[0][0], axis)
    found, unsaid = costs(model, axis, name)
    changed = None if own is None else difference(own.asked, model.asked, [own.name, model.name])
    told = {"here": standing(model, own, axis, name), "used_by": users(axis, name)}
    parts = by_kind(shown(said, model, axis, name))
    cost = [table(found, model, axis, name)] if found else []
    changes = list(filter(_tells, changed.tables)) if changed else []
    return Document(
        command="explain",
        subject=f"{axis}/{name}",
        model=model.name,
        verdict=choice(axis, name).summary,
        texts=texts(said, **formula_texts(said, here), **told, changes=changed.verdict if changed else ""),
        **parts | {"tables": [*cost, *parts["tables"], *changes]},
        explanations=list(explained(found, model, axis, name)),
        worked=True,
        notes=[*unsaid, *model.asked.notes],
    )


def _models(axis: str, name: str, asked: Asked) -> tuple[Model, Model | None]:
    """The model that makes the choice; where it took the place of another, the model as it is too."""
    own = asked.own(axis)
    if own.kinds(axis, name):
        return asked.own(), None
    model = asked.with_choice(axis, name)
    if not model.kinds(axis, name):
        problem = f"no layer would have {name}: each entry of model.layers says otherwise"
        raise ConfigError(f"model/{axis}", problem, value=name)
    return model, own


def _tells(table: Table) -> bool:
    """Whether anything in a table of changes changes."""
    return any(row.get("change", 1) for row in table.rows)
