"""The command line's overrides, before Hydra sees them: sort, check the keys, let the specs be the schema.

Hydra's own check knows only the keys that some YAML happens to list. Here the dataclasses are the schema, so a value
override is handed over in the form that always applies (`++key=value`), after its key was checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from archlab.decoder.resolve import ModelOptions
from archlab.errors import ConfigError, RequestError, nearest, unknown_key
from archlab.options import Option, options_of
from archlab.registry import AXES, Choice, choices, part_choices
from archlab.request import RunOptions
from archlab.workload import BenchOptions, Workload

FLAGS = {
    "--multirun": False, "-m": False, "--run": False, "-r": False, "--resolve": False, "--hydra-help": False,
    "--cfg": True, "-c": True, "--info": True, "-i": True, "--package": True, "-p": True,
    "--config-dir": True, "-cd": True, "--config-name": True, "-cn": True, "--config-path": True, "-cp": True,
}  # fmt: skip
"""Hydra's flags, and whether a value follows."""

_VALUE = re.compile(r"^(?P<mode>\+\+|\+|~)?(?P<key>[^\s=/~+][^\s=/]*)(?P<rest>=.*)?$", re.DOTALL)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Flags with their values, and overrides: Hydra 1.3 takes overrides on one side of its flags only."""
    flags, overrides, rest = [], [], list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            overrides.append(word)
            continue
        flag, _, _ = word.partition("=")
        if flag not in FLAGS:
            raise RequestError(_no_flag(flag))
        flags.append(word)
        if FLAGS[flag] and "=" not in word:
            if not rest:
                raise RequestError(f"{flag} needs a value")
            flags.append(rest.pop(0))
    return flags, overrides


def _no_flag(flag: str) -> str:
    near = nearest(flag, [*FLAGS, "--json", "--debug", "--help"])
    return f"no option {flag}" + (f"; did you mean {near}?" if near else "")


def typed_keys(overrides: Iterable[str]) -> set[str]:
    """The dotted keys that were set, choices of groups left out: `model.attention.n_heads`, `seed`."""
    found = set()
    for override in overrides:
        match = _VALUE.match(override)
        if match and match["rest"] is not None and match["mode"] != "~":
            found.add(match["key"])
    return found


def normalise(overrides: Iterable[str]) -> list[str]:
    """The overrides as Hydra is to have them; a key that no choice knows raises ConfigError."""
    return [_normalise(override) for override in overrides]


def _normalise(override: str) -> str:
    match = _VALUE.match(override)
    if match is None or match["rest"] is None or match["key"].split(".")[0] == "hydra":
        return override
    key, rest, mode = match["key"], match["rest"], match["mode"] or ""
    if key == "experiment":  # a group that is listed, whose choices are the user's own; + adds nothing
        return f"{key}{rest}"
    if mode == "~" or "@" in key:
        return override
    if "." in key or mode:
        check_key(key, rest[1:])
    return f"++{key}{rest}" if "." in key else override


def check_key(key: str, value: str = "") -> None:
    """Raise ConfigError, with the nearest spelling, for a dotted key that nothing knows."""
    head, *tail = key.split(".")
    tops = {"workload": Workload, "bench": BenchOptions}
    if head == "model":
        _check_model_key(tail, value)
    elif head in tops:
        _check_option(tail, options_of(tops[head]), head)
    elif head not in options_of(RunOptions) or tail:
        if head not in options_of(RunOptions):
            raise unknown_key(head, ["model", *tops, *options_of(RunOptions)])
        raise ConfigError(key, "is a value and has nothing below it")


def _check_model_key(tail: list[str], value: str) -> None:
    own = options_of(ModelOptions)
    if not tail or (tail[0] in AXES and tail[1:] in ([], ["choice"])):
        axis = tail[0] if tail else ""
        if value.startswith("{"):
            return
        name = f"model.{axis}" if axis else "model"
        near = nearest(value, choices(axis)) if axis else None
        chosen = f"model/{axis}={near or value}" if axis else f"model={value}"
        raise ConfigError(name, "is chosen, not set", value=value, nearest=chosen)
    if tail[0] in AXES:
        _check_option(tail[1:], _options_of_any(choices(tail[0])), f"model.{tail[0]}")
    elif tail[0].split("[")[0] != "layers":
        _check_option(tail, own, "model", [*own, *AXES, "layers"])


def _options_of_any(known: Mapping[str, Choice]) -> dict[str, Option]:
    """The options that one of these choices has."""
    return {name: opt for choice in known.values() for name, opt in options_of(choice.spec).items()}


def _check_option(
    tail: list[str], known: Mapping[str, Option], prefix: str, valid: Iterable[str] | None = None
) -> None:
    if not tail or tail[0] not in known:
        raise unknown_key(tail[0] if tail else "", valid or known).under(prefix)
    below, opt = tail[1:], known[tail[0]]
    if below and opt.part is not None and below != ["choice"]:
        below_known = _options_of_any(part_choices(opt))
        _check_option(below, below_known, f"{prefix}.{tail[0]}", ["choice", *below_known])
    elif below and opt.part is None:
        raise ConfigError(f"{prefix}.{tail[0]}", "is a value and has nothing below it")
