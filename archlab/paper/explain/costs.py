"""What a choice costs in a model, as a table and as formulas with the numbers put in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from archlab.cost.explain import explanation
from archlab.cost.parts import Cost, at, costs_on
from archlab.cost.symbols import symbolic, whole
from archlab.document import Column, Explanation, Table
from archlab.errors import Unsaid
from archlab.frozen import Frozen
from archlab.paper.explain.asked import Model

EACH, WHOLE, SHARE = "a layer", "in all", "share"


class Found(Frozen):
    """One figure of a choice in a model."""

    name: str
    cost: Cost
    total: int


def costs(model: Model, axis: str, name: str) -> tuple[list[Found], list[str]]:
    """The figures that there are, and why others are not: what a choice's spec does not say."""
    found: list[Found] = []
    unsaid: list[str] = []
    for figure, cost in costs_on(axis).items():
        try:
            total = cost.total(model.spec, axis, name, at(model.spec, model.tokens, model.width))
        except Unsaid as error:
            unsaid.append(str(error))
            continue
        repeats = figure == "params_active" and total == found[-1].total  # nothing of it is idle
        if figure == "params" or (total and not repeats):
            found.append(Found(figure, cost, total))
    return found, unsaid


def table(found: Sequence[Found], model: Model, axis: str, name: str) -> Table:
    """Each figure of one layer, of all, and as a share of the model's."""
    columns = [Column("figure"), Column("unit"), Column(EACH, "1", "exact"), Column(WHOLE, "1", "exact")]
    columns.append(Column(SHARE, "%", "exact", "of the same figure of the whole model"))
    about = f"a decoded token sees {model.tokens:,}, itself among them; {model.asked.workload.cache_dtype}"
    return Table("cost", "Cost here", columns, [_row(one, model, axis, name) for one in found], about)


def _row(one: Found, model: Model, axis: str, name: str) -> dict[str, Any]:
    where = at(model.spec, model.tokens, model.width)
    whole_model = 0 if one.cost.of is None else one.cost.of(model.spec, name, where)
    share = 100 * one.total / whole_model if whole_model else None
    return {"figure": one.name, "unit": one.cost.unit, EACH: _each(one.cost, model, axis, name), WHOLE: one.total} | {
        SHARE: share
    }


def _each(cost: Cost, model: Model, axis: str, name: str) -> int | None:
    """What one layer has; None where there is nothing in layers, or layers differ."""
    if cost.each is None:
        return None
    where = at(model.spec, model.tokens, model.width)
    sizes = {cost.each(layer, where) for layer, _ in model.kinds(axis, name)}
    return sizes.pop() if len(sizes) == 1 else None


def explained(found: Sequence[Found], model: Model, axis: str, name: str) -> Iterator[Explanation]:
    """Each figure's closed form run over symbols: its formula, and the same with numbers."""
    spec = symbolic(model.spec)
    where = at(spec, model.tokens, model.width)
    for one in found:
        if one.total:
            form = whole(spec, one.cost.total(spec, axis, name, where))
            yield explanation(one.name, form, "exact", one.cost.how)
