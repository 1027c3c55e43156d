"""Experiments as `archlab lab` has them conducted, in this process, and what their tests share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import yaml

from archlab.document import Document
from archlab.lab.catalog import find, sort
from archlab.lab.conduct import conduct
from archlab.record import json_line
from archlab.request import Request
from archlab.variants import sweep

Lab = Callable[..., dict[str, Any]]
"""The words after `archlab lab`; the JSON document that it prints."""

SMALL = ("model=gqa", "model.d_model=64", "model.n_layers=3", "model.vocab_size=97", "model.context=512")
"""The small starting model, smaller still: 8 query heads of 8, 2 KV heads, SwiGLU of 192."""


def conducted(name: str, *words: str) -> Document:
    """The answer; overrides are put in without Hydra, which takes longer than most experiments."""
    experiment = find(name)
    source, settings, overrides = sort(experiment, words)
    return conduct(experiment, _request(source, overrides), settings)


def _request(source: str, overrides: list[str]) -> Request:
    """What Hydra would make of the overrides."""
    pairs = [override.partition("=") for override in overrides]
    (point,) = sweep(source, {key: [yaml.safe_load(value)] for key, _, value in pairs})
    if point.request is None:
        raise point.error or AssertionError
    return point.request


def printed(name: str, *words: str) -> dict[str, Any]:
    """The JSON document of the answer."""
    document: dict[str, Any] = json.loads(json_line(conducted(name, *words).as_dict()))
    return document


def rows(document: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    found: list[dict[str, Any]] = document["tables"][table]["rows"]
    return found
