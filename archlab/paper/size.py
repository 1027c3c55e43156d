"""archlab size: the d_ff, n_layers or d_model at which a model meets a budget."""

from __future__ import annotations

from typing import Any

from archlab.budget import MEASURES, Candidate, Solution, measure, plain, show
from archlab.document import Column, Document, Explanation, Row, Table
from archlab.errors import ConfigError
from archlab.request import Request
from archlab.sizes import WIDTHS


def document(asked: Request) -> Document:
    """The size that was found, its neighbour on the other side of the budget, and the model as it was."""
    found = asked.budget
    if found is None:
        problem = "is what a size is solved for, and there is none: params=124M, kv=32KiB, flops=250M or base=PRESET"
        raise ConfigError("budget", problem)
    return Document(
        command="size",
        model=asked.spec.name,
        tables=[Table("sizes", "Sizes", _columns(found), _rows(asked, found), _about(found))],
        verdict=_verdict(found),
        assumptions=_assumptions(asked, found),
        notes=[*asked.dropped, *_notes(found)],
        explanations=[*_explanations(found), *_figures(asked, found)],
    )


def _verdict(found: Solution) -> str:
    met = f"{found.size.name} = {found.answer.value:,} has {show(found.answer.figure)} {MEASURES[found.name].unit}"
    if not found.residual:
        return f"{met}, the budget exactly"
    side = "below" if found.residual > 0 else "above"
    share = abs(float(found.residual / found.asked))
    return f"{met}, {show(abs(found.residual))} {side} the budget of {show(found.asked)} ({share:.2%})"


def _about(found: Solution) -> str:
    of = f", what {found.budget.base} has" if found.budget.base else ""
    return f"{found.name}: {MEASURES[found.name].how}{of}"


def _columns(found: Solution) -> list[Column]:
    """The size, what is left of the budget, and every figure that may have one."""
    step = f"{found.size.key}, a multiple of {found.size.step:,}; what moves along: {found.size.moves}"
    left = Column("residual", MEASURES[found.name].unit, "exact", f"budget less {found.name}")
    figures = [Column(name, measured.unit, "exact", measured.how) for name, measured in MEASURES.items()]
    return [Column("size"), Column(found.size.name, "1", "exact", step), left, *figures]


def _rows(asked: Request, found: Solution) -> list[Row]:
    tried = {"answer": found.answer}
    if found.answer is found.below and found.above is not None:
        tried["next step up"] = found.above
    elif found.answer is found.above:
        tried["next step down"] = found.below
    tried["as it was"] = found.start
    return [_row(name, candidate, asked, found) for name, candidate in tried.items()]


def _row(name: str, tried: Candidate, asked: Request, found: Solution) -> dict[str, Any]:
    figures = {key: plain(measure(key, tried.resolved.spec, asked.workload)) for key in MEASURES}
    return {"size": name, found.size.name: tried.value, "residual": plain(found.asked - tried.figure), **figures}


def _assumptions(asked: Request, found: Solution) -> dict[str, Any]:
    return {
        "budget": f"{found.name} {show(found.asked)}",
        "solve": found.size.key,
        "multiple": found.size.step,
        "round": found.budget.round,
        "moves_along": found.size.moves,
        "kv_dtype": asked.workload.cache_dtype,
        "prompt": asked.workload.prompt,
    }


def _notes(found: Solution) -> list[str]:
    """That heads make the steps of d_model coarse, and what to do about it."""
    size, asked = found.size, found.budget.multiple or WIDTHS
    if size.name != "d_model" or size.step == asked:
        return []
    coarse = f"d_model moves in steps of {size.step:,}, not {asked:,}, so that heads stay whole"
    return [f"{coarse}; heads that you set yourself (model.attention.n_heads=..) stay and leave it freer"]


def _explanations(found: Solution) -> list[Explanation]:
    """How the size was found, and what is left."""
    name, size, measured = found.name, found.size, MEASURES[found.name]
    rule = {
        "down": f"the largest multiple of {size.step:,} at which {name} is within the budget",
        "up": f"the smallest multiple of {size.step:,} at which {name} reaches the budget",
        "nearest": f"the multiple of {size.step:,} at which {name} is nearest to the budget",
    }[found.budget.round]
    below = f"{name} of {size.name} {found.below.value:,} = {show(found.below.figure)} <= {show(found.asked)}"
    above = f" < {show(found.above.figure)} = {name} of {size.name} {found.above.value:,}" if found.above else ""
    worked = f"{show(found.asked)} - {show(found.answer.figure)} = {show(found.residual)}"
    assumed = (f"{name}: {measured.how}", f"what moves along: {size.moves}")
    formula = f"{size.name} = {rule}, by bisection on the closed form"
    return [
        Explanation(size.name, "exact", formula, below + above, assumed),
        Explanation("residual", "exact", f"residual = budget - {name}", worked, assumed[:1]),
    ]


def _figures(asked: Request, found: Solution) -> list[Explanation]:
    """What each column counts, and how much of it the answer has."""
    at = f"at {found.size.name} = {found.answer.value:,}"
    return [
        Explanation(
            name, "exact", f"{name} = {measured.how}", f"{show(measure(name, asked.spec, asked.workload))} {at}"
        )
        for name, measured in MEASURES.items()
    ]
