"""What is refused of a sweep before its first point: too many points, and what is wrong with all of them alike."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from hydra.core.override_parser.types import Override, RangeSweep
from omegaconf import OmegaConf

from archlab.errors import ConfigError, RequestError
from archlab.hydra_errors import hydra_errors
from archlab.multirun.jobs import shown
from archlab.multirun.points import Composer
from archlab.overrides import typed_keys
from archlab.point import of_sweep
from archlab.request import read_request

MOST_POINTS = 1_000_000
"""Of one sweep: each leaves a folder with a record."""


def whole_setting(name: str, number: Any, least: int = 1, most: int = 2**32 - 1) -> int:
    """A whole number that a sweeper was given. Raises ConfigError."""
    if type(number) is not int or not least <= number <= most:
        problem = f"{number!r} is no whole number from {least} to {most:,}"
        raise ConfigError(f"hydra.sweeper.{name}", problem, value=number)
    return number


def key_of(override: str) -> str:
    """What an override is of, without the mark of how it is set."""
    return override.partition("=")[0].lstrip("+")


def written_value(override: Override) -> str:
    """The value of an override as it was typed."""
    return (override.input_line or "").partition("=")[2]


def count(override: Override) -> int:
    """How many values an override is swept over, 1 where it is not; no list of them is made.

    Raises ConfigError for a range whose numbers never get to its end.
    """
    value: Any = override.value()
    if not override.is_sweep_override() or override.is_interval_sweep():
        return 1
    if not isinstance(value, RangeSweep):
        return sum(1 for _ in override.sweep_iterator())
    try:
        return max(0, math.ceil((Fraction(value.stop or 0) - Fraction(value.start or 0)) / Fraction(value.step)))
    except (ArithmeticError, ValueError):  # a step of 0, a number that is infinite or none
        key, text = key_of(override.get_key_element()), written_value(override)
        raise ConfigError(key, f"{text} has no end; a range is finite, and its step not 0", value=text) from None


def check_count(overrides: Iterable[Override]) -> None:
    """Raise RequestError for a sweep of more points than `MOST_POINTS`."""
    counts = {key_of(one.get_key_element()): count(one) for one in overrides}  # the last of a key counts
    asked = math.prod(counts.values())
    if asked > MOST_POINTS:
        of = " x ".join(f"{key} {number:,}" for key, number in counts.items() if number > 1)
        raise RequestError(f"a sweep of {asked:,} points ({of}); at most {MOST_POINTS:,}")


def check_alike(composer: Composer, jobs: Iterable[Sequence[str]]) -> None:
    """Raise ConfigError for what is wrong with every point in the same words, as it is of none of what is swept.

    A point that is right, or wrong in another way, ends the search, so that most sweeps have one point read here.
    """
    first: ConfigError | None = None
    for overrides in jobs:
        error = _refusal(composer, overrides)
        if error is None or (first is not None and (error.key, error.problem) != (first.key, first.problem)):
            return
        first = error
    if first is not None:
        raise first


def _refusal(composer: Composer, overrides: Sequence[str]) -> ConfigError | None:
    """Why a point cannot be run, None where it can, or where only the process that runs it can tell."""
    made = composer.point(overrides)
    try:
        config = made.config if made.plain else _resolved(made.config)
        if config is not None:
            read_request(of_sweep(config), typed_keys(shown(overrides))).check_runs()
    except ConfigError as error:
        return error
    return None


def _resolved(config: Mapping[str, Any]) -> Any:
    """The config with its interpolations followed; None where one is no key of it, but of a resolver."""
    if re.search(r"\$\{\s*(hydra\b|[\w.]+:)", str(config)):
        return None
    with hydra_errors():
        return OmegaConf.to_container(OmegaConf.create(dict(config)), resolve=True)
