"""A model config as the YAML of config groups that people edit: choices first, then options with what they mean.

Written by hand rather than through a YAML library, which would be slow to import and would lose the comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from archlab.decoder.pattern import LAYER_AXES, pattern_text
from archlab.decoder.resolve import ModelOptions
from archlab.options import Option, options_of
from archlab.registry import AXES, choice

_PLAIN = re.compile(r"[A-Za-z][\w./-]*")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
MAX_LINE = 118


def to_yaml(model: Mapping[str, Any], header: str) -> str:
    """The text of a preset: composing it gives this model again. header: comment lines, without their #."""
    lines = [f"# {line}".rstrip() for line in header.splitlines()]
    lines += ["defaults:", "  - _self_", *(f"  - {axis}: {model[axis]['choice']}" for axis in AXES), ""]
    own = options_of(ModelOptions)
    first = ("name", "about", "family")
    order = [*first, *(name for name in own if name not in first)]
    lines += [_line(name, model[name], own[name]) for name in order if model.get(name) not in (None, "")]
    for axis in AXES:
        options = {name: value for name, value in model[axis].items() if name != "choice"}
        if options:
            known = choice(axis, model[axis]["choice"]).options
            lines += [f"{axis}:", *(f"  {_line(name, value, known.get(name))}" for name, value in options.items())]
    return "\n".join([*lines, *_layers(model.get("layers"))]) + "\n"


def _line(name: str, value: Any, known: Option | None) -> str:
    text = f"{name}: {flow(value)}"
    if known is None or not known.help or len(text) + len(known.help) > MAX_LINE:
        return text
    return f"{text} # {known.help}"


def _layers(pattern: Any) -> Iterator[str]:
    """A line for each entry of the pattern; one for all, where there are very many."""
    if not pattern:
        return
    if isinstance(pattern_text(pattern), str):
        yield f"layers: '{pattern_text(pattern)}' # repeated until there are n_layers"
        return
    yield "layers: # repeated until there are n_layers"
    for entry in pattern:
        ordered = {axis: entry[axis] for axis in LAYER_AXES if axis in entry}
        yield f"  - {flow(ordered | ({'repeat': entry['repeat']} if 'repeat' in entry else {}))}"


def flow(value: Any) -> str:
    """A value on one line, as YAML 1.1 reads it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)


def _number(value: float) -> str:
    """repr, with the point that YAML 1.1 wants before an exponent."""
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    return text if not e or "." in mantissa else f"{mantissa}.0e{exponent}"
