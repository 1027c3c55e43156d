"""A figure in words, with its formula and its value in a model, and what stands beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from archlab.bench.meanings import FIGURES as MEASURED
from archlab.cost.explain import explain
from archlab.document import Document, Explanation
from archlab.errors import ConfigError, nearest
from archlab.frozen import replace
from archlab.paper.explain.asked import Asked, Model
from archlab.paper.explain.beside import tables
from archlab.paper.explain.passes import explained as in_passes
from archlab.paper.explain.words import texts
from archlab.subjects import FIGURES, meant


def document(name: str, asked: Asked) -> Document:
    """What the figure means, and what it comes to in the model. Raises ConfigError for one that the model has not."""
    key = meant(name) or name
    context = name.removeprefix("kv_bytes.")
    model = (replace(asked, tokens=int(context)) if context.isdecimal() else asked).own()
    said = FIGURES[key]
    exact = list(_exact(name, key, model))
    return Document(
        command="explain",
        subject=name,
        model=model.name,
        verdict=_verdict(exact, key, model),
        texts=texts(said, formula=said.formula_of(None)),
        tables=list(tables(key, model)),
        explanations=[*exact, *in_passes(name, key, model)],
        worked=True,
        notes=model.asked.notes,
    )


def _verdict(exact: Sequence[Explanation], key: str, model: Model) -> str:
    """The figure's value where it is one and known on paper."""
    if len(exact) == 1:
        return f"{exact[0].worked.rpartition('= ')[2]} in {model.name}"
    return "measured; what is known of it before is below" if key in MEASURED else ""


def _exact(name: str, key: str, model: Model) -> Iterator[Explanation]:
    """How the figure is got, or all that its name stands for; nothing of one that must be measured."""
    made = explain(model.spec, model.asked.workload)
    whole = key.rstrip("._")
    family = [figure for figure in made if figure != whole and figure.startswith(key) and key != whole]
    if name not in made and family and name != whole:
        raise ConfigError(
            "explain", f"{model.name} has no {name}", value=name, valid=family, nearest=nearest(name, family)
        )
    yield from (made[figure] for figure in ([name] if name in made else family))
