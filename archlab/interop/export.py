"""From a spec to a Hugging Face config.json, where a family can express it.

One writer serves all families: it says everything that it knows of a spec under the names that families read, a
family's own reader picks what it asks for, and what was picked is read back. Only a config that gives the same model
again is handed out; otherwise the error names what no family has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError
from archlab.interop.families import HOME, family
from archlab.interop.family import Family
from archlab.interop.fields import DEFAULT, fields_of
from archlab.interop.hub import read_config
from archlab.interop.reader import Fields
from archlab.interop.task import fields_of_task
from archlab.options import Spec
from archlab.registry import choice

INCIDENTAL = frozenset({"backend", "cache", "rule", "multiple", "p", "rope_length"})
"""Options that say how something is run, or how a number was chosen, rather than what the model is."""

NO_TOKENS = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
"""A spec knows no tokenizer; a family's default ids may lie outside a small vocabulary."""

UNREAD = 2
"""As how many differences a config counts that the family refuses: what else is wrong is not known."""


def export(spec: DecoderSpec) -> dict[str, Any]:
    """The config.json of a spec: of the family that it came from, else of the first that can express it.

    Raises ConfigError with the choice or option that cannot be expressed, by its own family or the nearest.
    """
    _refuse_others(spec)
    own = [spec.family] if spec.family in HOME else []
    failed: dict[str, list[str]] = {}
    for name in dict.fromkeys([*own, *HOME]):
        for said in _ways(spec):
            config, wrong = _attempt(spec, family(name), said)
            if not wrong:
                return config
            failed[name] = min(failed.get(name, wrong), wrong, key=len)
    nearest = own[0] if own else min(failed, key=lambda name: len(failed[name]))
    raise ConfigError("", f"no family's config.json says this model: in {nearest}, {failed[nearest][0]}")


def _refuse_others(spec: DecoderSpec) -> None:
    """Raise ConfigError for a choice that is not archlab's own."""
    if spec.of_others:
        raise ConfigError("", f"no family's config.json says this model: {spec.of_others[0]} is of a plugin")


def _ways(spec: DecoderSpec) -> Iterator[dict[str, Any]]:
    """All that can be said of a spec, what most families take for granted or have no words for left out at first."""
    said = fields_of(spec)
    for left_out in (("layer_types", "rope_parameters"), ("rope_parameters",), ()):
        yield {name: value for name, value in said.items() if name not in left_out}
    if said["rope_scaling"] is None:
        yield {**said, "rope_scaling": DEFAULT}


def _attempt(spec: DecoderSpec, known: Family, said: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A config of this family, and what it gets wrong."""
    spelled = {known.spelling.get(name, name): value for name, value in said.items()}
    try:
        fields = Fields(spelled)
        known.read(fields)
        asked = {name: value for name, value in spelled.items() if name in fields.asked}
        task = fields_of_task(spec.head, known.architecture)
        config = {**task, "model_type": known.model_type, **asked, **NO_TOKENS}
        again = resolve(read_config(config)[1]).spec
    except ConfigError as error:
        return {}, [str(error)] * UNREAD
    return config, list(differences(spec, again))


def differences(wanted: DecoderSpec, got: DecoderSpec) -> Iterator[str]:
    """Where two models differ in what they are, a line each: `norm.eps would be 1e-05, not 1e-06`.

    What several layers have otherwise is told of the first.
    """
    for name in ("d_model", "n_layers", "vocab_size", "context"):
        if getattr(wanted, name) != getattr(got, name):
            yield f"{name} would be {getattr(got, name)}, not {getattr(wanted, name)}"
    told = set()
    for where, axis, mine, theirs in _pairs(wanted, got):
        for line in _differ(axis, mine, theirs):
            if line not in told:
                told.add(line)
                yield f"{where}{line}"


def _pairs(wanted: DecoderSpec, got: DecoderSpec) -> Iterator[tuple[str, str, Spec, Spec]]:
    """Choices that must be one: where they stand, their axis, and the two."""
    for axis in ("norm", "block", "head"):
        yield "", axis, getattr(wanted, axis), getattr(got, axis)
    seen = set()
    for index, (mine, theirs) in enumerate(zip(wanted.layers, got.layers, strict=False)):
        if (id(mine), id(theirs)) in seen:
            continue
        seen.add((id(mine), id(theirs)))
        others = theirs.axes()
        for axis, part in mine.axes().items():
            yield f"layer {index}: ", axis, part, others[axis]


def _differ(axis: str, wanted: Spec, got: Spec) -> Iterator[str]:
    mine, theirs = substance(wanted), substance(got)
    wrong = {name: value for name, value in mine.items() if not _equal(value, theirs.get(name))}
    if "is" in wrong or wrong.keys() & choice(wanted.axis, wanted.choice).fixed.keys():
        yield f"{axis} would be {got.choice}, not {wanted.choice}"
        return
    for name, value in wrong.items():
        yield f"{axis}.{name} would be {theirs.get(name)}, not {value}"


def substance(spec: Spec) -> dict[str, Any]:
    """What a choice is, less how it was chosen and how it runs: mha, gqa and mqa are one thing with other numbers."""
    kind = "Dropout" if spec.axis == "dropout" else type(spec).__name__
    plain = {name: substance(v) if isinstance(v, Spec) else v for name, v in spec.options().items()}
    return {"is": kind} | {name: value for name, value in plain.items() if name not in INCIDENTAL}


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-12)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return bool(a == b)
