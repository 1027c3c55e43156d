"""From Typer to Hydra: run a composed config, or a sweep of them, through Hydra's own main and launchers.

The task is an undecorated function of an importable module, so that every launcher can pickle it. It catches all that
can go wrong in a point and writes a record; what is shown afterwards, and the exit code, come from the records.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archlab.compose import hydra_errors, model_source, path_first
from archlab.errors import ArchlabError, RequestError
from archlab.interrupt import noticed
from archlab.landing import Landing
from archlab.overrides import normalise, split, typed_keys
from archlab.presets import conf_dir
from archlab.record import Record

if TYPE_CHECKING:
    from omegaconf import DictConfig

DEBUG = "ARCHLAB_DEBUG"
"""The variable by which a point knows of --debug: it may run in another process."""

log = logging.getLogger("archlab")
_landings: list[Landing] = []
_refused: list[RequestError] = []


class FolderCallback:
    """Hydra calls it in this process before the first job: where will the output land?"""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        _landings.append(Landing.at(Path(config.hydra.run.dir), multirun=False))

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        _landings.append(Landing.at(Path(config.hydra.sweep.dir), multirun=True))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda **_: None
        raise AttributeError(name)


class Interrupted(ArchlabError):
    """Ctrl-C, before anything was finished."""

    exit_code = 130


@dataclass
class Outcome:
    """What a launch left behind. interrupted: Ctrl-C ended it. problem: what ended it beside its records."""

    records: list[Record]
    folder: Path | None
    multirun: bool
    interrupted: bool = False
    problem: str | None = None


def launch_from(source: str | None, arguments: Sequence[str], debug: bool = False) -> Outcome:
    """`launch`, with the model that a path names, or, where there is no such path, a preset. Raises RequestError."""
    if source is None:
        return launch(arguments, debug=debug)
    chosen = [word for word in arguments if word.startswith("model=")]
    if chosen:
        raise RequestError(f"--from {source} and {chosen[0]} both say which model; leave one out")
    with model_source(path_first(source)) as extra:
        return launch(arguments, extra, debug)


def launch(arguments: Sequence[str], extra: Sequence[str] = (), debug: bool = False) -> Outcome:
    """Run the command line's flags and overrides through Hydra. debug: a point that fails keeps its traceback.

    Raises RequestError, and then nothing is left; or what Hydra raised, where no point left a record.
    """
    flags, overrides = split(arguments)
    argv = [*flags, *extra, *normalise(overrides)]
    _landings.clear()
    _refused.clear()
    problem: BaseException | None = None
    with noticed() as interrupts:
        try:
            with _writable(), hydra_errors():
                _call_hydra(argv, debug)
            if _refused:
                raise _refused[0]
        except (KeyboardInterrupt, Exception) as error:
            problem = error
        finally:
            for landing in _landings:
                landing.tidy()
    if interrupts or isinstance(problem, KeyboardInterrupt):  # some of Hydra's code turns it into another error
        return _outcome(True, None)
    return _outcome(False, problem)


def _outcome(interrupted: bool, problem: BaseException | None) -> Outcome:
    """What there is to show; an end without any record is raised instead."""
    landing = _landings[-1] if _landings else None
    found = landing.records() if landing is not None else []
    if not found and interrupted:
        raise Interrupted("interrupted before anything was finished")
    if not found and problem is not None:
        raise problem
    said = None if problem is None else f"{type(problem).__name__}: {problem}"
    folder = landing.folder if landing is not None else None
    return Outcome(found, folder, landing is not None and landing.multirun, interrupted, said)


@contextlib.contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RequestError(f"{error.filename}: the output folder cannot be written: {error.strerror}") from error


def _call_hydra(argv: Sequence[str], debug: bool) -> None:
    """Call Hydra's public main with `argv`; HYDRA_FULL_ERROR lets exceptions reach the caller."""
    import hydra

    old_argv = sys.argv
    sys.argv = ["archlab build", *argv]
    try:
        with _environment(HYDRA_FULL_ERROR="1", **({DEBUG: "1"} if debug else {})):
            hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(run_job)()
    finally:
        sys.argv = old_argv


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Variables of the environment, which a launcher's own processes see too, put back afterwards."""
    old = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in old.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def run_job(config: DictConfig) -> float | tuple[float, ...]:
    """Hydra's task: one point; its objective, for a sweeper that searches.

    Nothing is raised but Ctrl-C, so that a sweep's next point runs. A single run that is refused leaves no record; it
    runs in the process of `launch`, which raises its error.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    from archlab.point import invalid_point, run_point

    hydra = HydraConfig.get()
    overrides = [override.removeprefix("++") for override in hydra.overrides.task]
    folder = Path(hydra.runtime.output_dir)
    single = hydra.mode == RunMode.RUN
    plain: dict[str, Any] = {}
    try:
        plain = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
        with progress(single) as on_progress:
            record = run_point(plain, overrides, typed_keys(overrides), on_progress, DEBUG in os.environ)
    except RequestError as error:
        if single:
            _refused.append(error)
            return math.nan
        record = invalid_point(plain, overrides, error)
    record.save(folder)
    OmegaConf.save(OmegaConf.create(record.config), folder / "config.yaml")
    if not single:
        log.info("%s %s: %s%s", hydra.job.num, " ".join(overrides), record.status, _because(record))
    return _objective(record)


def _objective(record: Record) -> float | tuple[float, ...]:
    """The figures that `objective` names; not a number where the record has none."""
    found = [record.value(name) for name in record.config.get("objective") or ["params"]]
    values = tuple(math.nan if value is None else float(value) for value in found)
    return values[0] if len(values) == 1 else values


def _because(record: Record) -> str:
    return f" ({record.reason})" if record.reason else ""


@contextlib.contextmanager
def progress(wanted: bool) -> Iterator[Any]:
    """A progress bar on stderr while a single run is timed, on a terminal only."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from archlab.report.console import console

    columns = (TextColumn("{task.description:<8}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, TimeElapsedColumn(), console=console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def update(phase: str, done: float) -> None:
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=1.0)
            bar.update(tasks[phase], completed=done)

        yield update
