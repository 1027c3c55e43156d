"""What `archlab bench` times: each model with each dtype, backend, batch and context that was asked for."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from archlab.compose import composed
from archlab.errors import ConfigError
from archlab.frozen import Frozen, derived
from archlab.overrides import typed_keys
from archlab.report.text import value_text
from archlab.request import Request, read_request
from archlab.sources import groups
from archlab.workload import PHASES

BESIDE = ("bench", "workload", "hardware", "device", "seed", "verify", "weights")
"""What overrides begin with that change nothing of the model."""


class Asked(Frozen):
    """The command line. words: models with overrides after each; of the others, None leaves what the config says."""

    words: Sequence[str]
    dtypes: Sequence[str] | None = None
    backends: Sequence[str] | None = None
    batches: Sequence[int] | None = None
    contexts: Sequence[int] | None = None
    phases: Sequence[str] | None = None
    compile: bool = False
    graphs: bool = False

    def settings(self) -> Iterator[dict[str, Any]]:
        """The settings of each point of a model, by dotted key."""
        fixed: dict[str, Any] = {"bench.phases": list(self.phases)} if self.phases else {}
        fixed |= {"bench.compile": True} if self.compile else {}
        fixed |= {"bench.graphs": True} if self.graphs else {}
        swept = {
            "workload.dtype": self.dtypes,
            "bench.backend": self.backends,
            "workload.batch": self.batches,
            "workload.prompt": self.contexts,
        }
        given = {key: values for key, values in swept.items() if values}
        for values in itertools.product(*given.values()):
            yield fixed | dict(zip(given, values, strict=True))


class Point(Frozen):
    """One thing to time. name: the model with what was changed of it; overrides: all of them, those of options too."""

    name: str
    config: Mapping[str, Any]
    overrides: Sequence[str]
    typed: frozenset[str]

    @derived
    def request(self) -> Request:
        return read_request(self.config, self.typed)

    @property
    def labels(self) -> dict[str, Any]:
        """What may tell it from the others of a run."""
        workload, bench = self.request.workload, self.request.bench
        told = {"model": self.name, "dtype": workload.dtype, "backend": bench.backend}
        return told | {"batch": workload.batch, "context": workload.prompt}

    def called(self, names: Collection[str]) -> str:
        """Those of its labels, as far as they are set: `gqa, batch 8`."""
        told = ((name, value) for name, value in self.labels.items() if name in names and value is not None)
        return ", ".join(str(value) if name == "model" else f"{name} {value}" for name, value in told)

    @property
    def cell(self) -> tuple[int, int]:
        """Points of the same work, which may be compared."""
        return self.request.workload.batch, self.request.workload.prompt


def points(asked: Asked) -> list[Point]:
    """The points in the order in which they are timed. Raises ConfigError or RequestError for one that cannot be."""
    models = [(source, overrides, composed(source, overrides)) for source, overrides in groups(asked.words)]
    found = [_point(*model, settings) for settings in asked.settings() for model in models]
    order = found_cells(found)
    return sorted(found, key=lambda point: order.index(point.cell))


def found_cells(found: Sequence[Point]) -> list[tuple[int, int]]:
    """The cells in the order in which they come."""
    return list(dict.fromkeys(point.cell for point in found))


def _point(source: str, overrides: Sequence[str], config: Mapping[str, Any], settings: Mapping[str, Any]) -> Point:
    made = dict(config)
    for key, value in settings.items():
        group, _, name = key.partition(".")
        made[group] = {**(made.get(group) or {}), name: value}
    said = [f"{key}={_text(value)}" for key, value in settings.items()]
    name = " ".join((source, *(word for word in overrides if not word.lstrip("+~").startswith(BESIDE))))
    point = Point(name, made, [*overrides, *said], frozenset({*typed_keys(overrides), *settings}))
    point.request.check_runs()
    if not point.request.bench.phases:
        raise ConfigError("bench.phases", f"{name}: there is nothing to time", value=[], valid=PHASES)
    return point


def _text(value: Any) -> str:
    """A value as an override spells it."""
    return f"[{','.join(value)}]" if isinstance(value, list) else value_text(value).replace(",", "")
