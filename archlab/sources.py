"""The models that a command line names: presets, YAML files, run folders and records, each with its overrides."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from archlab import presets
from archlab import record as records
from archlab.compose import holds_import, request
from archlab.decoder.describe import composition
from archlab.errors import RequestError, UnknownFlag
from archlab.plugins import described
from archlab.record import Record
from archlab.request import Request


def gather(words: Sequence[str]) -> list[Record]:
    """A record for each model: the overrides after a name belong to it. Run folders bring what was measured."""
    return [record for source, overrides in groups(words) for record in _records(source, overrides)]


def pair(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Two models with their overrides; of one with overrides after it, that model without those and with them."""
    found, common = groups(words), _of_all(words)
    if len(found) == 1 and found[0][1] != common:
        return [(found[0][0], common), *found]
    if len(found) != 2:
        problem = "nothing says what changes" if len(found) == 1 else f"{len(found)} models"
        raise RequestError(f"{problem}: name two models, or one and what to change, as llama-3-8b model/attention=mha")
    return found


def groups(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each model that is named, with the overrides after it, and before them those that stand before all models."""
    found: list[tuple[str, list[str]]] = []
    common = _of_all(words)
    for word in words[len(common) :]:
        if word.startswith("-"):
            raise UnknownFlag(word.partition("=")[0], [])
        if _is_override(word):
            found[-1][1].append(word)
        else:
            found.append((word, list(common)))
    if not found:
        raise RequestError(f"{' '.join(common)}: no model is named; archlab models lists the presets")
    return found


def _of_all(words: Sequence[str]) -> list[str]:
    """The overrides that stand before all models."""
    return list(itertools.takewhile(_is_override, words))


def _is_override(word: str) -> bool:
    return word.startswith("~") or ("=" in word and not word.startswith("-"))


def _records(source: str, overrides: list[str]) -> list[Record]:
    path = Path(source)
    if not presets.exists(source) and holds_import(path):
        return [on_paper(request(path, overrides), overrides)]
    if not overrides and path.exists() and (path.is_dir() or path.suffix == ".json") and not presets.exists(source):
        found = list(records.collect(path)) if path.is_dir() else [records.load(path)]
        if not found:
            raise RequestError(f"{source}: no {records.FILE} at or under this folder")
        return found
    return [on_paper(request(source, overrides), overrides)]


def on_paper(asked: Request, overrides: Sequence[str] = ()) -> Record:
    """The record of a model that was only costed: exact figures, nothing built, nothing written."""
    return Record(
        config=dict(asked.config),
        overrides=list(overrides),
        notes=[*asked.dropped, *asked.spec.remarks],
        composition=composition(asked.spec),
        figures=asked.figures(),
        plugins=described(),
    )
