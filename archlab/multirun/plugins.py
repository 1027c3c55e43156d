"""archlab's own launcher and sweeper, as Hydra's plugins: `hydra/launcher=inproc`, `hydra/sweeper=grid`.

Hydra takes plugins from a top-level package `hydra_plugins` only, which many distributions share; `register` puts the
classes there without shipping one. They build on Hydra's basic ones, and hand to these whatever is not plain.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins

plugins = Plugins.instance()  # its scan executes Hydra's own plugins anew; classes imported before would be others

from hydra._internal.core_plugins.basic_launcher import BasicLauncher  # noqa: E402
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper  # noqa: E402
from hydra.core.override_parser.overrides_parser import OverridesParser  # noqa: E402
from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals  # noqa: E402
from hydra.plugins.launcher import Launcher  # noqa: E402
from hydra.types import HydraContext, TaskFunction  # noqa: E402
from omegaconf import DictConfig, OmegaConf  # noqa: E402

from archlab import plan as plans  # noqa: E402
from archlab.multirun.points import Composer  # noqa: E402
from archlab.overrides import quoted, typed_keys  # noqa: E402
from archlab.plan import Plan, Point  # noqa: E402
from archlab.point import leave_record, measures, objective, save  # noqa: E402
from archlab.record import FILE, Record, clear_unfinished  # noqa: E402

log = logging.getLogger("archlab")

SUBDIR = "hydra.sweep.subdir="
NUMBER = "${hydra.job.num}"
SAY_EVERY = 2.0
"""Seconds between two lines on how far a sweep is."""


def register() -> None:
    """Make the plugins known to Hydra."""
    home = _module("hydra_plugins.archlab")
    if importlib.util.find_spec("hydra_plugins") is None:
        _module("hydra_plugins").__path__ = []  # no other plugin is installed, which would bring the package
    for made in (InProcessLauncher, GridSweeper):
        made.__module__ = home.__name__
        setattr(home, made.__name__, made)
        plugins.register(made)


def _module(name: str) -> types.ModuleType:
    return sys.modules.setdefault(name, types.ModuleType(name))


class Tally:
    """How far a sweep is, said now and then."""

    def __init__(self, points: int) -> None:
        self.points, self.done, self.wrong, self.started = points, 0, 0, time.monotonic()
        self.said = self.started

    def add(self, record: Record) -> None:
        self.done += 1
        self.wrong += not record.ok
        if time.monotonic() > self.said + SAY_EVERY:
            self.say()

    def say(self) -> None:
        self.said = time.monotonic()
        rate = self.done / max(self.said - self.started, 1e-9)
        left = f", {(self.points - self.done) / rate:,.0f} s left" if self.done < self.points else ""
        log.info("%s of %s points, %s not ok, %s a second%s", f"{self.done:,}", f"{self.points:,}",
                 f"{self.wrong:,}", f"{rate:,.0f}", left)  # fmt: skip


class InProcessLauncher(BasicLauncher):
    """Runs points one after the other in this process; those that measure nothing without Hydra's ado for each."""

    config: DictConfig
    hydra_context: HydraContext
    composer: Composer
    """The sweeper's, where that is `GridSweeper`, which has composed all points by then."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self.composer = Composer(hydra_context.config_loader, config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        if not _is_plain(self.config) or not job_overrides or self._measures(job_overrides[0]):
            return super().launch(job_overrides, initial_job_idx)
        setup_globals()
        configure_log(self.config.hydra.job_logging, self.config.hydra.verbose)
        log.info("in-process launcher: nothing is measured; %s points", f"{len(job_overrides):,}")
        tally, done = Tally(len(job_overrides)), []
        for index, overrides in enumerate(job_overrides, initial_job_idx):
            done.append(self._run(overrides, index, tally))
        tally.say()
        return done

    def _measures(self, overrides: Sequence[str]) -> bool:
        made = self.composer.point(_without_subdir(overrides)[0])
        return not made.plain or measures(made.config)

    def _run(self, overrides: Sequence[str], index: int, tally: Tally) -> JobReturn:
        own, subdir = _without_subdir(overrides)
        made = self.composer.point(own)
        if not made.plain or measures(made.config):
            (ended,) = super().launch([overrides], index)
            return ended
        folder = Path(self.config.hydra.sweep.dir).absolute() / (subdir or str(index))
        try:
            record = leave_record(made.config, _shown(own), folder, flush=False)
        except Exception as error:  # such as a full disk: the others are tried, and the sweep raises it at its end
            return JobReturn(_return_value=error, status=JobStatus.FAILED)
        tally.add(record)
        return JobReturn(_return_value=objective(record), status=JobStatus.COMPLETED)


def _is_plain(config: DictConfig) -> bool:
    """Whether nothing of Hydra's own is asked for at each point: folders, callbacks, logs, variables."""
    hydra = config.hydra
    logs = hydra.runtime.choices.get("hydra/job_logging")
    extras = (hydra.job.chdir, hydra.output_subdir, hydra.job.env_set, set(hydra.callbacks) - {"folder"})
    return _subdir(config) == NUMBER and logs == "stderr" and not any(extras)


def _subdir(config: DictConfig) -> Any:
    """The pattern of the points' folders, as it is written."""
    raw: Any = OmegaConf.to_container(config.hydra.sweep, resolve=False)
    return raw["subdir"]


def _without_subdir(overrides: Sequence[str]) -> tuple[list[str], str | None]:
    """A job's overrides without the folder that the sweeper gave it, and that folder."""
    if not overrides or not overrides[-1].startswith(SUBDIR):
        return list(overrides), None
    return list(overrides[:-1]), str(OverridesParser.create().parse_override(overrides[-1]).value())


def _shown(overrides: Sequence[str]) -> list[str]:
    """The overrides as records keep them: those of the task, without the force that archlab gave them."""
    parsed = OverridesParser.create()
    own = (
        text
        for text in overrides
        if not text.startswith("hydra") or not parsed.parse_override(text).is_hydra_override()
    )
    return [override.removeprefix("++") for override in own]


class GridSweeper(BasicSweeper):
    """Every combination of the values, planned before the first is run."""

    config: DictConfig
    hydra_context: HydraContext
    launcher: Launcher

    def __init__(self, max_batch_size: int | None, params: dict[str, str] | None = None, resume: bool = False) -> None:
        super().__init__(max_batch_size, params)
        self.resume = resume

    def sweep(self, arguments: list[str]) -> Any:
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        parsed = parser.parse_overrides([*self._parse_config(), *arguments])
        (jobs,) = self.split_arguments(parsed, None)
        folder = Path(self.config.hydra.sweep.dir)
        plan = self._planned(folder, jobs)
        with plans.lock(folder):
            returned = self._launch(folder, plan, jobs)
            copy_records(folder, plan)
        for batch in returned:
            for job in batch:
                _ = job.return_value  # raises what ended the job
        return returned

    def _planned(self, folder: Path, jobs: Sequence[Sequence[str]]) -> Plan:
        """The plan of a new sweep, written; or that of the sweep that goes on, found to be the same."""
        if not self.resume and (folder / plans.FILE).exists():
            raise plans.taken(folder)  # before the points are composed, which may take long
        made = Plan(plans.asked(), tuple(self._points(jobs)))
        if self.resume:
            return plans.same(plans.read(folder), made, folder)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        made.write(folder)
        return made

    def _points(self, jobs: Sequence[Sequence[str]]) -> list[Point]:
        """Each job composed, so that a config that cannot be composed is refused before anything is run."""
        composer = getattr(self.launcher, "composer", None) or Composer(self.hydra_context.config_loader, self.config)
        points: list[Point] = []
        first: dict[str, int] = {}
        folders: dict[str, int] = {}
        for number, overrides in enumerate(jobs):
            made = composer.point(overrides)
            shown = _shown(overrides)
            config = plans.checksum(made.config, typed_keys(shown))
            folder = self._folder(overrides, number)
            if folders.setdefault(folder, number) != number:
                raise plans.one_folder(folder, folders[folder], number)
            copied = first.setdefault(config, number) if made.plain else number
            points.append(Point(folder, tuple(shown), config, None if copied == number else copied))
        return points

    def _folder(self, overrides: Sequence[str], number: int) -> str:
        """Where a point's record goes, in the sweep's folder."""
        if _subdir(self.config) == NUMBER:
            return str(number)
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        OmegaConf.update(config, "hydra.job.num", number, force_add=True)
        OmegaConf.update(config, "hydra.job.id", number, force_add=True)
        return str(OmegaConf.select(config, "hydra.sweep.subdir"))

    def _launch(self, folder: Path, plan: Plan, jobs: Sequence[Sequence[str]]) -> list[Sequence[JobReturn]]:
        """Hand the points to the launcher that have no record yet, each with its folder."""
        left: list[list[str]] = []
        for point, overrides in zip(plan.points, jobs, strict=True):
            if point.copy_of is None and not (self.resume and plans.is_done(folder / point.folder / FILE)):
                clear_unfinished(folder / point.folder)
                moved = point.folder != str(len(left))  # the launcher would count anew
                left.append([*overrides, *([f"{SUBDIR}{quoted(point.folder)}"] if moved else [])])
        chunks = self.split_overrides_to_chunks(left, self.max_batch_size) if left else []
        returned: list[Sequence[JobReturn]] = []
        for chunk in chunks:
            returned.append(self.launcher.launch(chunk, initial_job_idx=sum(map(len, returned))))
        return returned


def copy_records(folder: Path, plan: Plan) -> None:
    """Leave a record for each point whose config an earlier point has."""
    for point in plan.points:
        if point.copy_of is None:
            continue
        record = plans.read_record(folder / plan.points[point.copy_of].folder / FILE)
        if record is not None:
            record.overrides, record.copy_of = list(point.overrides), point.copy_of
            record.notes.append(f"a copy of point {point.copy_of}, which has the same config")
            save(record, folder.absolute() / point.folder, flush=False)
