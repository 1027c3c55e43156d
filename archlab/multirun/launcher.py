"""`hydra/launcher=inproc`: points one after the other in this process, those that measure nothing without Hydra's ado
for each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from archlab.multirun.basic import BasicLauncher
from archlab.multirun.jobs import is_plain, shown, without_subdir
from archlab.multirun.points import Composer
from archlab.plan import read_record
from archlab.point import leave_record, measures, objective
from archlab.progress import Tally, is_quiet
from archlab.record import FILE
from archlab.units import counted

log = logging.getLogger("archlab")


class InProcessLauncher(BasicLauncher):
    """Runs a sweep's points in this process."""

    config: DictConfig
    hydra_context: HydraContext
    composer: Composer
    """The sweeper's, where that is archlab's, which has composed all points by then."""
    tally: Tally | None = None
    """Of the whole sweep, which may come in several launches."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self.composer = Composer(hydra_context.config_loader, config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        quick = is_plain(self.config) and bool(job_overrides) and self._is_quick(job_overrides[0])
        tally = self.tally or Tally(len(job_overrides))
        if quick:
            setup_globals()
            configure_log(self.config.hydra.job_logging, self.config.hydra.verbose)
            if not tally.done and not is_quiet():
                log.info("in-process launcher: nothing is measured; %s", counted(tally.points, "point"))
        numbered = enumerate(job_overrides, initial_job_idx)
        return [self._run(overrides, number, tally, quick) for number, overrides in numbered]

    def _is_quick(self, overrides: Sequence[str]) -> bool:
        """Whether a point needs nothing of Hydra but its config."""
        made = self.composer.point(without_subdir(overrides)[0])
        return made.plain and not measures(made.config)

    def _run(self, overrides: Sequence[str], index: int, tally: Tally, quick: bool) -> JobReturn:
        own, subdir = without_subdir(overrides)
        if not quick or not self._is_quick(overrides):
            (ended,) = super().launch([overrides], index)
            own_config: Any = ended.hydra_cfg  # `ended.working_dir` is where the point stood, not where its record is
            record = read_record(Path(own_config.hydra.runtime.output_dir) / FILE)
            tally.add(record is not None and record.ok)
            return ended
        folder = Path(self.config.hydra.sweep.dir) / (subdir or str(index))
        try:
            record = leave_record(self.composer.point(own).config, shown(own), folder, flush=False)
        except Exception as error:  # such as a full disk: the others are tried, and the sweep raises it at its end
            return JobReturn(overrides=own, _return_value=error, status=JobStatus.FAILED)
        tally.add(record.ok)
        return JobReturn(_return_value=objective(record), status=JobStatus.COMPLETED)
