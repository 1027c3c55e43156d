"""Shared by the tests of interop: the data, and what is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError
from archlab.interop.hub import read_config

DATA = Path(__file__).parent / "data"
FACTS = sorted(file.stem for file in (DATA / "facts").glob("*.json"))
PUBLIC = sorted(file.stem for file in (DATA / "public").glob("*.json"))
REFERENCES = sorted(folder.name for folder in (DATA / "references").iterdir())


def fact(name: str) -> dict[str, Any]:
    return json.loads((DATA / "facts" / f"{name}.json").read_text())


def public(name: str) -> dict[str, Any]:
    """A config as published: `hf_config`, with `params_total` of transformers, or `refused` where archlab has to."""
    return json.loads((DATA / "public" / f"{name}.json").read_text())


def spec_of(config: dict[str, Any]) -> DecoderSpec:
    return resolve(read_config(config)[1]).spec


def reference_config(name: str, file: str = "config.json") -> dict[str, Any]:
    return json.loads((DATA / "references" / name / file).read_text())


def error_of(config: dict[str, Any]) -> str:
    """The one line by which a config is refused."""
    with pytest.raises(ConfigError) as caught:
        read_config(config)
    message = str(caught.value)
    assert "\n" not in message
    return message
