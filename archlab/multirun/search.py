"""`hydra/sweeper=optuna`: trials that Optuna chooses, each told from its record, so that a search can go on.

Hydra's own plugin for it is held to Optuna before 3, knows no constraints, and ends at a point that is refused.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep

from archlab import plan as plans
from archlab.constraints import excesses
from archlab.errors import ConfigError, RequestError, extra_needed
from archlab.merit import DIRECTIONS, NO_MERIT, direction, wishes
from archlab.multirun.checks import MOST_POINTS, check_alike, check_count, whole_setting, written_value
from archlab.multirun.jobs import NUMBER, shown, subdir, with_subdir
from archlab.multirun.launcher import InProcessLauncher
from archlab.multirun.sweeper import GridSweeper, copy_record
from archlab.overrides import typed_keys
from archlab.plan import Point
from archlab.point import objective, of_sweep
from archlab.progress import Tally, is_quiet, of_points, say
from archlab.record import FILE, Record, clear_unfinished, full_name
from archlab.report.text import whole
from archlab.request import read_request
from archlab.units import counted

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution

log = logging.getLogger("archlab")

SAMPLERS = {"tpe": "TPESampler", "nsgaii": "NSGAIISampler", "random": "RandomSampler"}
Space = dict[str, "BaseDistribution"]


class SearchSweeper(GridSweeper):
    """A study of Optuna's, in memory: what it knows is told anew from the records."""

    def __init__(
        self,
        n_trials: int,
        n_jobs: int,
        sampler: str,
        seed: int | None,
        params: dict[str, str] | None = None,
        resume: bool = False,
    ) -> None:
        super().__init__(None, params, resume)
        self.n_trials = whole_setting("n_trials", n_trials, most=MOST_POINTS)
        self.n_jobs = whole_setting("n_jobs", n_jobs)
        self.seed = None if seed is None else whole_setting("seed", seed, least=0)
        if sampler not in SAMPLERS:
            raise ConfigError("hydra.sweeper.sampler", f"no sampler {sampler!r}", value=sampler, valid=SAMPLERS)
        self.sampler = sampler

    def sweep(self, arguments: list[str]) -> None:
        optuna = _optuna()
        parsed = self.asked(arguments)
        space = {one.get_key_element(): distribution(one) for one in parsed if one.is_sweep_override()}
        self.fixed = [one.input_line or "" for one in parsed if not one.is_sweep_override()]
        check_alike(self.composer, [self._overrides(one) for one in each_value(space)])
        study = optuna.create_study(directions=self._directions(), sampler=self._sampler())
        combinations = every_combination(space, self.n_trials)
        for one in combinations or []:
            study.enqueue_trial(one)
        trials = len(combinations or []) or self.n_trials
        say(f"a search of {counted(trials, 'trial')} in {self.folder}")
        self._planned(self._trials_planned(trials))
        with plans.lock(self.folder):
            self._search(study, space, trials)
        self._say_best(study)

    def check_values(self, override: Override) -> None:
        """As for a grid, but intervals are drawn from."""
        if not override.is_interval_sweep():
            super().check_values(override)

    # --- what is asked for --------------------------------------------------------------------------------------------

    def _sampler(self) -> Any:
        return getattr(_optuna().samplers, SAMPLERS[self.sampler])(seed=self.seed)

    @functools.cached_property
    def _base(self) -> dict[str, Any]:
        """The config that the trials begin with."""
        return of_sweep(self.composer.point(self.fixed).config)

    def _directions(self) -> list[str]:
        """A direction for each objective. Raises ConfigError for an objective or a constraint that no record has."""
        names = [full_name(name) for name in self._base.get("objective") or ["params"]]
        units = self._units()
        told = wishes(self._base)
        return [DIRECTIONS[(told.get(name) or _usual(name, units.get(name, ""))) > 0] for name in names]

    def _units(self) -> dict[str, str]:
        """The unit of each figure on paper; empty where the config that trials begin with cannot be."""
        try:
            request = read_request(self._base, typed_keys(shown(self.fixed)))
            request.check_runs()
        except ConfigError as error:
            if error.key in ("objective", "direction", "constraints"):
                raise
            return {}
        return {name: figure.unit for name, figure in request.figures().items()}

    def _trials_planned(self, trials: int) -> tuple[Point, ...]:
        """The trials before they are chosen: where their records go, and a checksum of what they begin with."""
        if subdir(self.config) != NUMBER:
            raise RequestError("hydra.sweep.subdir: a search numbers its folders")
        begun = shown(self.fixed)
        checksum = plans.checksum(self._base, typed_keys(begun))
        return tuple(Point(str(number), tuple(begun), checksum) for number in range(trials))

    # --- the search ---------------------------------------------------------------------------------------------------

    def _search(self, study: Study, space: Space, trials: int) -> None:
        if isinstance(self.launcher, InProcessLauncher):
            self.launcher.tally = Tally(trials)  # it counts what it runs; what is shown counts copies too
        seen: dict[str, int] = {}
        with of_points(trials) as tally:
            for start in range(0, trials, self.n_jobs):
                asked = [study.ask(space) for _ in range(min(self.n_jobs, trials - start))]
                self._run(asked, seen)
                for trial in asked:
                    record = plans.read_record(self.folder / str(trial.number) / FILE)
                    tell(study, trial, record)
                    tally.add(record is not None and record.ok)

    def _run(self, trials: Sequence[Trial], seen: dict[str, int]) -> None:
        """Leave a record of each trial: one from before, a copy of an equal trial's, or a new one. seen: by config."""
        left: list[list[str]] = []
        points = [self._point(trial, seen) for trial in trials]
        for trial, point in zip(trials, points, strict=True):
            if point.copy_of is None and not self._is_done(point):
                clear_unfinished(self.folder / point.folder)
                number = trials[0].number + len(left)  # the launcher counts from the first
                left.append(with_subdir(self._overrides(trial.params), point.folder, number))
        for job in self.launched(left, trials[0].number) if left else ():
            _ = job.return_value  # raises what ended the job
        for point in points:
            if point.copy_of is not None:
                copy_record(self.folder / str(point.copy_of), self.folder / point.folder, point)

    def _point(self, trial: Trial, seen: dict[str, int]) -> Point:
        """A trial as a point of the sweep. seen: the first trial of each config."""
        overrides = self._overrides(trial.params)
        own, made = tuple(shown(overrides)), self.composer.point(overrides)
        config = plans.checksum(made.config, typed_keys(own))
        first = seen.setdefault(config, trial.number) if made.plain else trial.number
        return Point(str(trial.number), own, config, None if first == trial.number else first)

    def _overrides(self, drawn: Mapping[str, Any]) -> list[str]:
        return [*self.fixed, *(f"{key}={value}" for key, value in drawn.items())]

    def _is_done(self, point: Point) -> bool:
        """Whether the record of this very trial is there, of the search that goes on."""
        file = self.folder / point.folder / FILE
        record = plans.read_record(file) if self.resume and plans.is_done(file) else None
        return record is not None and tuple(record.overrides) == point.overrides

    def _say_best(self, study: Study) -> None:
        names = [full_name(name) for name in self._base.get("objective") or ["params"]]
        kept = [trial for trial in study.best_trials if all(value <= 0 for value in trial.constraints.values())]
        if is_quiet():
            return
        if not kept:
            log.warning("no trial is ok and keeps the constraints")
        first = {tuple(trial.params.items()): trial for trial in reversed(kept)}  # a trial may be drawn again
        for trial in sorted(first.values(), key=lambda trial: trial.number)[:10]:
            chosen = " ".join(f"{key.lstrip('+')}={value}" for key, value in trial.params.items())
            values = ", ".join(f"{name} {whole(value)}" for name, value in zip(names, trial.values, strict=True))
            log.info("best: %s: %s", f"point {trial.number} {chosen}".rstrip(), values)


def tell(study: Study, trial: Trial, record: Record | None) -> None:
    """Tell Optuna what came of a trial. One that is refused or not ok is pruned: worse than any that has a value."""
    from optuna.trial import TrialState

    values = [] if record is None or not record.ok else _values(record)
    if record is None or not values or not all(map(math.isfinite, values)):
        study.tell(trial, state=TrialState.PRUNED)
        return
    for text, excess in excesses(record.config.get("constraints") or [], record.figures).items():
        trial.set_constraint(text, math.inf if excess is None else excess)
    study.tell(trial, values)


def _values(record: Record) -> list[float]:
    found = objective(record)
    return list(found) if isinstance(found, tuple) else [found]


# --- the space --------------------------------------------------------------------------------------------------------


def distribution(override: Override) -> BaseDistribution:
    """What Optuna draws from for an override that is swept over: `a,b`, `range(1,9)`, `interval(64,1024)`.

    Raises ConfigError for what cannot be drawn from, such as an interval that ends before it begins.
    """
    try:
        return _distribution(override)
    except (ValueError, OverflowError) as error:
        text, key = written_value(override), override.get_key_element().lstrip("+")
        raise ConfigError(key, f"{text} cannot be drawn from: {error}", value=text) from None


def _distribution(override: Override) -> BaseDistribution:
    """`distribution`. The ends of an interval say whether its numbers are whole, as Hydra makes floats of all."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    value: Any = override.value()
    if isinstance(value, IntervalSweep) and value.start is not None and value.end is not None:
        log = "log" in value.tags
        if isinstance(value.start, int) or not re.search(r"interval\([^)]*[.eE]", override.input_line or ""):
            return IntDistribution(int(value.start), int(value.end), log=log)
        return FloatDistribution(value.start, value.end, log=log)
    numbers = value.range() if isinstance(value, RangeSweep) and not value.shuffle else None
    if isinstance(numbers, range) and numbers.step > 0:
        return IntDistribution(numbers[0], numbers[-1], step=numbers.step)
    check_count([override])  # each is listed
    return CategoricalDistribution(list(override.sweep_string_iterator()))


def every_combination(space: Space, most: int) -> list[dict[str, Any]] | None:
    """All points of a space, None where they are more than so many."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    values: list[Sequence[Any]] = []
    for one in space.values():
        if isinstance(one, CategoricalDistribution):
            values.append(one.choices)
        elif isinstance(one, IntDistribution):
            values.append(range(one.low, one.high + 1, one.step))
        else:
            return None
    if math.prod(map(len, values)) > most:
        return None
    return [dict(zip(space, combination, strict=True)) for combination in itertools.product(*values)]


def each_value(space: Space) -> list[dict[str, Any]]:
    """Points in which each value that is listed stands at least once, and both ends of what numbers are drawn from."""
    from optuna.distributions import CategoricalDistribution

    values: dict[str, Sequence[Any]] = {
        key: one.choices if isinstance(one, CategoricalDistribution) else (one.low, one.high)  # type: ignore[attr-defined]
        for key, one in space.items()
    }
    longest = max(map(len, values.values()), default=1)
    return [{key: held[number % len(held)] for key, held in values.items()} for number in range(longest)]


def _usual(name: str, unit: str) -> int:
    """Rates are wanted, costs are not. Raises ConfigError for a figure that is neither."""
    better = 1 if name.endswith("_tok_s") else direction(unit) if unit else -1
    if not better or name.startswith(NO_MERIT):
        raise ConfigError("direction", f"of {name} neither less nor more is better; say which", valid=DIRECTIONS)
    return better


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise extra_needed("hydra/sweeper=optuna", "optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
