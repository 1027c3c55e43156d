"""`hydra/sweeper=grid`: every combination of the values, planned before the first point is run."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from archlab import plan as plans
from archlab.errors import ArchlabError, ConfigError, RequestError
from archlab.multirun.basic import BasicSweeper
from archlab.multirun.checks import check_alike, check_count, count, key_of, whole_setting, written_value
from archlab.multirun.jobs import NUMBER, shown, subdir, with_subdir
from archlab.multirun.launcher import InProcessLauncher
from archlab.multirun.points import Composer
from archlab.overrides import normalise, typed_keys
from archlab.plan import Plan, Point
from archlab.point import save
from archlab.progress import of_points, say, watched
from archlab.quotes import quoted
from archlab.record import FILE, clear_unfinished, write_atomically
from archlab.units import counted

Jobs = Sequence[Sequence[str]]


class GridSweeper(BasicSweeper):
    """Every combination of the values."""

    config: DictConfig
    hydra_context: HydraContext
    launcher: Launcher

    def __init__(self, max_batch_size: int | None, params: dict[str, str] | None = None, resume: bool = False) -> None:
        if max_batch_size not in (None, -1):  # Hydra's ways to say no end
            whole_setting("max_batch_size", max_batch_size)
        if not isinstance(params, Mapping | None):
            raise ConfigError("hydra.sweeper.params", f"{params!r} is not a group of overrides", value=params)
        super().__init__(max_batch_size, params)
        self.resume = resume

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        folder = str(Path(config.hydra.sweep.dir).absolute())
        with read_write(config), open_dict(config):  # workers may stand in another folder, and compose anew
            config.hydra.sweep.dir = folder
            config.hydra.overrides.hydra.append(f"hydra.sweep.dir={quoted(folder)}")
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)

    def asked(self, arguments: Sequence[str]) -> list[Override]:
        """What is swept over or set: by a file (`hydra.sweeper.params`), then by what is typed, in its place."""
        typed = {key_of(argument) for argument in arguments}
        given = normalise(f"{key}={value}" for key, value in (self.params or {}).items() if key_of(key) not in typed)
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        parsed = parser.parse_overrides([*given, *arguments])
        for one in parsed:
            self.check_values(one)
        return parsed

    def check_values(self, override: Override) -> None:
        """Raise ConfigError for a sweep over no values, or over an interval, which has no list of them."""
        key, text = key_of(override.get_key_element()), written_value(override)
        if override.is_interval_sweep():
            problem = f"{text} is drawn from, by hydra/sweeper=optuna; range(64,1025,64) lists values"
            raise ConfigError(key, problem, value=text)
        if not count(override):
            raise ConfigError(key, f"{text} has no values", value=text)

    @functools.cached_property
    def composer(self) -> Composer:
        """The launcher's, where that is archlab's, so that a point is composed once."""
        made: Composer | None = getattr(self.launcher, "composer", None)
        return made or Composer(self.hydra_context.config_loader, self.config)

    @property
    def folder(self) -> Path:
        return Path(self.config.hydra.sweep.dir)

    def sweep(self, arguments: list[str]) -> Any:
        random.seed(0)  # what is shuffled goes on in the order in which it began
        asked = self.asked(arguments)
        check_count(asked)
        (jobs,) = self.split_arguments(asked, None)
        say(f"a sweep of {counted(len(jobs), 'point')} in {self.folder}")  # before they are composed
        check_alike(self.composer, jobs)
        plan = self._planned(tuple(self._points(jobs)))
        with plans.lock(self.folder):
            returned = self._launch(plan, jobs)
            copy_records(self.folder, plan)
        for batch in returned:
            for job in batch:
                _ = job.return_value  # raises what ended the job
        return returned

    def _planned(self, points: tuple[Point, ...]) -> Plan:
        """The plan of a new sweep, written; or that of the sweep that goes on, found to be the same."""
        made = Plan(plans.asked(), points)
        if self.resume:
            return plans.same(plans.read(self.folder), made, self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        made.write(self.folder)  # first, for the folder may have become another sweep's
        write_atomically(self.folder / "multirun.yaml", OmegaConf.to_yaml(self.config))
        return made

    def _points(self, jobs: Jobs) -> list[Point]:
        """Each job composed, so that a config that cannot be composed is refused before anything is run."""
        points: list[Point] = []
        first: dict[str, int] = {}
        folders: dict[str, int] = {}
        for number, overrides in enumerate(jobs):
            made = self.composer.point(overrides)
            own = shown(overrides)
            config = plans.checksum(made.config, typed_keys(own))
            folder = self._folder(overrides, number)
            if folders.setdefault(folder, number) != number:
                raise plans.one_folder(folder, folders[folder], number)
            copied = first.setdefault(config, number) if made.plain else number
            points.append(Point(folder, tuple(own), config, None if copied == number else copied))
        return points

    def _folder(self, overrides: Sequence[str], number: int) -> str:
        """Where a point's record goes, in the sweep's folder."""
        if subdir(self.config) == NUMBER:
            return str(number)
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        OmegaConf.update(config, "hydra.job.num", number, force_add=True)
        OmegaConf.update(config, "hydra.job.id", number, force_add=True)
        return str(OmegaConf.select(config, "hydra.sweep.subdir"))

    def _launch(self, plan: Plan, jobs: Jobs) -> list[Sequence[JobReturn]]:
        """Hand the points to the launcher that have no record yet, each with its folder."""
        left: list[list[str]] = []
        files: list[Path] = []
        for point, overrides in zip(plan.points, jobs, strict=True):
            file = self.folder / point.folder / FILE
            if point.copy_of is None and not (self.resume and plans.is_done(file)):
                clear_unfinished(file.parent)
                left.append(with_subdir(overrides, point.folder, len(left)))  # the launcher counts anew
                files.append(file)
        chunks = self.split_overrides_to_chunks(left, self.max_batch_size) if left else []
        returned: list[Sequence[JobReturn]] = []
        with self._counted(files):
            for chunk in chunks:
                returned.append(self.launched(chunk, sum(map(len, returned))))
        return returned

    def launched(self, jobs: Jobs, first: int) -> Sequence[JobReturn]:
        """What the launcher returns of jobs. Raises RequestError where it cannot launch, as without its cluster."""
        if isinstance(self.launcher, InProcessLauncher):
            return self.launcher.launch(jobs, initial_job_idx=first)
        try:
            return self.launcher.launch(jobs, initial_job_idx=first)
        except (ArchlabError, OSError):
            raise
        except Exception as error:
            name = self.config.hydra.runtime.choices["hydra/launcher"]
            said = " ".join(str(error).split()) or type(error).__name__
            raise RequestError(f"hydra/launcher={name}: {said}") from error

    @contextlib.contextmanager
    def _counted(self, files: Sequence[Path]) -> Iterator[None]:
        """Show how far the launcher is: by what it counts, or by the records that come."""
        if not isinstance(self.launcher, InProcessLauncher):
            with watched(files):
                yield
            return
        with of_points(len(files)) as self.launcher.tally:
            yield


def copy_records(folder: Path, plan: Plan) -> None:
    """Leave a record for each point whose config an earlier point has."""
    for point in plan.points:
        if point.copy_of is not None:
            copy_record(folder / plan.points[point.copy_of].folder, folder / point.folder, point)


def copy_record(source: Path, folder: Path, point: Point) -> None:
    """Leave in a folder the record of the point that this one is a copy of, where that has one."""
    record = plans.read_record(source / FILE)
    if record is not None:
        record.overrides, record.copy_of = list(point.overrides), point.copy_of
        record.notes.append(f"a copy of point {point.copy_of}, which has the same config")
        save(record, folder, flush=False)
