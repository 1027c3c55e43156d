"""Shared by the tests of interop: the data, and a skip for what this registry does not have yet."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError
from archlab.interop.hub import read_config
from archlab.registry import choices

DATA = Path(__file__).parent / "data"
FACTS = sorted(file.stem for file in (DATA / "facts").glob("*.json"))
REFERENCES = sorted(folder.name for folder in (DATA / "references").iterdir())
NEEDED = {"ffn": "moe", "attention": "mla", "position": "alibi", "block": "res_post_norm"}
T = TypeVar("T")


def known_or_skip(make: Callable[[], T]) -> T:
    """What `make` gives. Skips where it needs a choice or an option that no registry of before the families had.

    With all choices of NEEDED there, nothing is skipped any more.
    """
    try:
        return make()
    except ConfigError as error:
        complete = all(name in choices(axis) for axis, name in NEEDED.items())
        lacking = ("no choice", "no such setting", "per_head is not one of")
        if complete or not error.problem.startswith(lacking):
            raise
        pytest.skip(f"this registry lacks it: {error}")


def fact(name: str) -> dict[str, Any]:
    return json.loads((DATA / "facts" / f"{name}.json").read_text())


def spec_of(config: dict[str, Any]) -> DecoderSpec:
    return known_or_skip(lambda: resolve(read_config(config)[1]).spec)


def reference_config(name: str, file: str = "config.json") -> dict[str, Any]:
    return json.loads((DATA / "references" / name / file).read_text())


def error_of(config: dict[str, Any]) -> str:
    """The one line by which a config is refused."""
    with pytest.raises(ConfigError) as caught:
        read_config(config)
    message = str(caught.value)
    assert "\n" not in message
    return message
