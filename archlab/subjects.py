"""What there is to explain, by name: axes, choices and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from archlab.bench.meanings import FIGURES as MEASURED
from archlab.cost.meanings import FIGURES as EXACT
from archlab.errors import ConfigError, nearest
from archlab.frozen import Frozen
from archlab.meaning import Meaning
from archlab.record import SHORT, full_name
from archlab.registry import axes, choice, choices, is_axis
from archlab.workload import PHASES

AXIS, CHOICE, FIGURE = "axis", "choice", "figure"
FIGURES: Mapping[str, Meaning] = {**EXACT, **MEASURED}
"""The figures that records hold, by name; see `EXACT` and `MEASURED` for what stands for several."""


class Subject(Frozen):
    """One thing to explain. name: of a choice of the axis, or of a figure."""

    kind: str
    axis: str = ""
    name: str = ""


def subject(what: str) -> Subject:
    """The one thing of that name. Raises ConfigError for none, and for several: `none` is a choice of three axes."""
    axis, slash, name = what.removeprefix("model/").partition("/")
    if slash:
        return Subject(CHOICE, axis, choice(axis, name).name)
    if is_axis(what):
        return Subject(AXIS, what)
    having = [axis for axis in axes() if what in choices(axis)]
    if len(having) > 1:
        valid = [f"{axis}/{what}" for axis in having]
        raise ConfigError("explain", f"{what!r} is a choice of {len(having)} axes", value=what, valid=valid)
    if having:
        return Subject(CHOICE, having[0], what)
    if meant(what) is not None:
        return Subject(FIGURE, name=full_name(what))
    known = list(names())
    raise ConfigError("explain", f"nothing is called {what!r}", value=what, valid=known, nearest=nearest(what, known))


def names() -> Iterator[str]:
    """All that may be asked for: axes, choices (with their axis where two have the name), figures."""
    yield from axes()
    every = [(axis, name) for axis in axes() for name in choices(axis)]
    once = {name for _, name in every if sum(other == name for _, other in every) == 1}
    yield from (name if name in once else f"{axis}/{name}" for axis, name in every)
    yield from dict.fromkeys((*SHORT, *(name.rstrip("._") for name in FIGURES)))


def meant(figure: str) -> str | None:
    """The key of FIGURES that a figure is explained under; None where none is.

    `decode_mfu` under `mfu`, `kv_bytes.2048` under `kv_bytes.`.
    """
    full = full_name(figure)
    bare = next((full.removeprefix(f"{phase}_") for phase in PHASES if full.startswith(f"{phase}_")), full)
    for name in dict.fromkeys((full, bare)):
        for key in (name, f"{name}.", f"{name}_"):
            if key in FIGURES:
                return key
        whole = [key for key in FIGURES if key[-1] in "._" and name.startswith(key)]
        if whole:
            return max(whole, key=len)
    return None
