"""How each figure of a record was got: the exact ones by their closed forms, the others as they were taken."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from archlab.cost.explain import explain
from archlab.cost.figures import exact_figures
from archlab.document import Explanation
from archlab.errors import RequestError
from archlab.overrides import typed_keys
from archlab.record import Figure, Record
from archlab.report.text import digits, number, options_text
from archlab.request import read_request


def explanations(record: Record) -> dict[str, Explanation]:
    """An explanation of each figure, by name. What code of others prints meanwhile goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        closed = _closed_forms(record)
    return {name: closed.get(name) or _taken(name, figure, record) for name, figure in record.figures.items()}


def _closed_forms(record: Record) -> dict[str, Explanation]:
    """Those of the figures that come to what the record holds; another version may have counted otherwise."""
    try:
        asked = read_request(record.config, typed_keys(record.overrides))
    except RequestError:  # a choice of a package that is not installed here
        return {}
    exact, made = exact_figures(asked.spec, asked.workload), explain(asked.spec, asked.workload)
    return {name: made[name] for name, figure in exact.items() if figure.value == record.value(name)}


def _taken(name: str, figure: Figure, record: Record) -> Explanation:
    """What the figure itself says: how it was taken, its spread, and where."""
    assumed = [] if figure.kind == "exact" else list(filter(None, _where(record)))
    outcome = _outcome(figure, "best" if name.startswith("ceiling_") else "median")
    return Explanation(name, figure.kind, figure.how, outcome, assumed)


def _where(record: Record) -> Iterator[str]:
    """The device, and the workload that it ran."""
    environment, workload = record.environment, record.config.get("workload") or {}
    yield ", ".join(str(environment[key]) for key in ("device", "device_name", "timed_dtype") if environment.get(key))
    yield options_text({key: workload[key] for key in ("batch", "prompt", "new") if key in workload})


def _outcome(figure: Figure, which: str) -> str:
    """`median of 5 runs = 1,810 tok/s, a tenth of them below 1,718, ..`, or why there is none. which: of the runs."""
    if figure.value is None:
        return f"no value: {figure.reason or figure.status}"
    value = number(figure.value, figure)
    value += "" if value.endswith("B") or not figure.unit else f" {figure.unit}"
    if figure.repeats is None or figure.low is None or figure.high is None:
        return value
    low, high = digits(figure.low), digits(figure.high)
    above = f", a tenth above {high}" if which == "median" else ""
    return f"{which} of {figure.repeats} runs = {value}, a tenth of them below {low}{above}"
