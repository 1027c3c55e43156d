"""The words of an explanation: formulas with numbers put in, sources, presets, where a model makes a choice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from archlab.compose import preset_users
from archlab.cost.symbols import short_indices
from archlab.decoder.describe import describe
from archlab.frozen import values_of
from archlab.meaning import Here, Meaning
from archlab.options import Spec
from archlab.paper.explain.asked import Model
from archlab.registry import choice
from archlab.report.text import options_text, value_text


def texts(said: Meaning, **more: str) -> dict[str, str]:
    """What there is to read, by its title; more: what there is beside the meaning's own words."""
    found = {"what": said.what, "why": said.why, **more, "source": "; ".join(map(str, said.sources))}
    return {title.replace("_", " "): text for title, text in found.items() if text}


def formula_texts(said: Meaning, here: Here) -> dict[str, str]:
    """The formula, and the same with the values of the options and sizes that it names, where it names any."""
    formula = said.formula_of(here.spec)
    numbered = with_numbers(formula, _values(here))
    return {"formula": formula} | ({"with_numbers": numbered} if numbered != formula else {})


def with_numbers(formula: str, values: Mapping[str, Any]) -> str:
    """The formula with a value in the place of each name that has one."""
    return re.sub(r"[A-Za-z_]\w*", lambda found: value_text(values.get(found[0], found[0])), formula)


def _values(here: Here) -> dict[str, Any]:
    """Numbers by the names that formulas give them."""
    attention, ffn = here.axes["attention"], here.axes["ffn"]
    own = values_of(attention) | values_of(ffn) | values_of(here.spec) | {"d_model": here.d_model}
    own |= {"n_layers": here.n_layers, "vocab_size": here.vocab_size, "bytes": here.width, "batch": here.batch}
    if here.spec.axis == "position":
        own["rotary_dim"] = here.spec.rotary_dim(attention.rotary_width)
    return {name: value for name, value in own.items() if type(value) in (int, float)}


def users(axis: str, name: str) -> str:
    """The presets that make a choice, in any of their layers or experts."""
    return ", ".join(preset_users().get((axis, name), ())) or "no preset"


def standing(model: Model, own: Model | None, axis: str, name: str) -> str:
    """Where the model makes the choice, with which options. own: the model that chooses otherwise, if it does."""
    kinds = model.kinds(axis, name)
    where = "its own choice" if own is None else f"in the place of {own.here(own.spec.layers[0], axis).spec.choice}"
    if axis == "head" or len(kinds) == 1 == len(model.spec.layer_kinds):
        return _joined(where, _options(model.here(kinds[0][0], axis).spec))
    placed: dict[str, list[int]] = {}
    for layer, indices in kinds:
        placed.setdefault(_options(model.here(layer, axis).spec), []).extend(indices)
    if len(placed) == 1 and sum(map(len, placed.values())) == model.spec.n_layers:
        return _joined(where, *placed)
    told = [f"layers {short_indices(sorted(at))}: {options or 'as by default'}" for options, at in placed.items()]
    return _joined(where, *told[:MOST_KINDS], f"{len(told) - MOST_KINDS} more" if len(told) > MOST_KINDS else "")


MOST_KINDS = 3
"""Kinds of layer whose options, tables and drawings are shown."""


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def _options(spec: Spec) -> str:
    """The options that are not as by default."""
    known = choice(spec.axis, spec.choice).options
    described = {key: value for key, value in describe(spec).items() if key in known}
    return options_text({key: value for key, value in described.items() if value != known[key].default})
