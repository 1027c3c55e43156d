"""What one run was asked for: the whole composed config, read and checked, as specs and options."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from typing import Any

from archlab.budget import MEASURES, Budget, Solution, solve
from archlab.constraints import read as read_constraint
from archlab.cost.figures import exact_figures
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError, nearest, unknown_key
from archlab.frozen import Frozen
from archlab.hardware import Hardware
from archlab.hardware import read as read_hardware
from archlab.merit import DIRECTIONS
from archlab.options import BLOCK, Verbatim, option, options_of, read_plain
from archlab.record import Figure, full_name, no_figure
from archlab.workload import BenchOptions, Workload


class RunOptions(Frozen):
    """What belongs to the run rather than to the model."""

    device: str = option("auto", "auto, cpu, cuda, cuda:0, mps")
    seed: int = option(0, "of the weights and of the tokens that are timed", ge=0, lt=2**63)
    weights: str | None = option(None, "a safetensors file, a sharded index or a folder; null: random weights")
    objective: tuple[str, ...] = option(("params",), "figures that hydra/sweeper=optuna searches for the best of")
    direction: tuple[str, ...] = option((), "minimize or maximize, for each objective; empty: rates up, all else down")
    constraints: tuple[str, ...] = option((), "limits that points are to keep, such as params<=1B")
    verify: bool = option(
        True,
        "build the module on the meta device and compare it with the closed form",
        auto="true; false in a sweep that measures nothing",
    )

    def __post_init__(self) -> None:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self.device):
            valid = ("auto", "cpu", "cuda", "cuda:0", "mps")
            raise ConfigError("device", f"no device {self.device!r}", value=self.device, valid=valid)
        for text in self.constraints:
            read_constraint(text)
        self._check_direction()

    def _check_direction(self) -> None:
        for word in self.direction:
            if word not in DIRECTIONS:
                near = nearest(word, DIRECTIONS)
                raise ConfigError("direction", f"no direction {word!r}", value=word, valid=DIRECTIONS, nearest=near)
        names = self.objective or ("params",)
        if self.direction and len(self.direction) != len(names):
            wanted = ",".join(["maximize", *["minimize"] * (len(names) - 1)])
            problem = f"one for each objective ({', '.join(names)}) is wanted, such as [{wanted}]"
            raise ConfigError("direction", problem, value=list(self.direction))


GROUPS = {"workload": Workload, "bench": BenchOptions, "budget": Budget}
"""The groups of options beside the model, and their classes."""


class Request(Frozen):
    """A checked request. dropped: what had to be dropped to compose it, a line each.

    config: what it was read from, with the size that was solved for where there is a budget. hardware: where it is to
    run, on paper.
    """

    spec: DecoderSpec
    workload: Workload
    bench: BenchOptions
    hardware: Hardware | None
    run: RunOptions
    dropped: list[str]
    config: Mapping[str, Any]
    budget: Solution | None = None

    @property
    def notes(self) -> list[str]:
        """What a reader of its numbers should know: what was dropped or is not expected, and what a budget led to."""
        told = [*self.dropped, *self.spec.remarks]
        return [*told, self.budget.note] if self.budget else told

    def figures(self) -> dict[str, Figure]:
        """The exact figures, those of the budget among them."""
        return exact_figures(self.spec, self.workload) | (self.budget.figures() if self.budget else {})

    def check_runs(self) -> None:
        """Raise ConfigError where the model can be costed, but the workload cannot be run on it.

        So too where the objective or a constraint names a figure that the run will not have.
        """
        self.workload.check(self.spec, self.bench.phases)
        if self.run.objective != ("params",) or self.run.constraints:
            self._check_wanted(self.figures())

    def _check_wanted(self, figures: Mapping[str, Figure]) -> None:
        timed = tuple(f"{phase}_" for phase in self.bench.phases)
        constraints = [(text, read_constraint(text)) for text in self.run.constraints]
        wanted = [("objective", name, full_name(name)) for name in self.run.objective]
        wanted += [("constraints", text, one.figure) for text, one in constraints]
        for key, text, name in wanted:
            if name not in figures and not name.startswith(timed):
                valid = [*figures, *(f"{phase}_tok_s" for phase in self.bench.phases)]
                raise no_figure(key, name, valid, text)
        for _, one in constraints:
            one.excess(figures.get(one.figure))


def read_request(
    config: Mapping[str, Any], typed: Collection[str] = (), settings: Mapping[str, Any] | None = None
) -> Request:
    """Read a composed config. typed: dotted keys that the user set. Raises ConfigError.

    settings: what `read_settings` made of a config that differs in the model alone.
    """
    asked = dict(read_settings(config) if settings is None else settings)
    budget = asked.pop("budget")
    on_model, on_budget = _by_group(frozenset(typed))
    if not budget.is_set:
        _refuse_idle(on_budget)
        resolved = resolve(config["model"], on_model)
        return Request(spec=resolved.spec, dropped=resolved.notes, config=config, budget=None, **asked)
    found = solve(config["model"], on_model, budget, asked["workload"])
    resolved, config = found.answer.resolved, {**config, "model": found.answer.model}
    return Request(spec=resolved.spec, dropped=resolved.notes, config=config, budget=found, **asked)


def read_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """All that a config asks for beside the model, by the names of a Request. Raises ConfigError."""
    _check_groups(config)
    groups = {group: read_plain(options, config.get(group), group) for group, options in GROUPS.items()}
    own = {key: value for key, value in config.items() if key not in (*GROUPS, "model", "hardware", "hydra")}
    return {**groups, "run": read_plain(RunOptions, own, ""), "hardware": _hardware(config.get("hardware"))}


def _check_groups(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a key that nothing knows, for a group that is none, and without a model."""
    known = ("model", *GROUPS, "hardware")
    for key, value in config.items():
        if key in known:
            if not isinstance(value, BLOCK) and (key, value) != ("hardware", None):
                raise ConfigError(key, f"{value!r} is not a group of settings", value=value)
        elif key not in options_of(RunOptions) and key != "hydra":
            raise unknown_key(key, [*known, *options_of(RunOptions)])
    if "model" not in config:
        raise ConfigError("model", "is required")


def _hardware(settings: Mapping[str, Any] | None) -> Hardware | None:
    return None if settings is None else _read_hardware(Verbatim(settings))


@functools.lru_cache(2**10)
def _read_hardware(settings: Verbatim) -> Hardware:
    return read_hardware(settings.data)


@functools.lru_cache(2**10)
def _by_group(typed: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The typed keys of the model, and of the budget."""
    on_model = frozenset(key for key in typed if key.startswith("model."))
    return on_model, frozenset(key for key in typed if key.startswith("budget."))


def _refuse_idle(typed: Collection[str]) -> None:
    """Raise ConfigError for a setting of a budget that there is not."""
    if typed:
        valid = [f"budget.{name}" for name in ("base", *MEASURES)]
        raise ConfigError(min(typed), "is set, but there is no budget", valid=valid)
