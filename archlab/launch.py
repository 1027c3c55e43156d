"""From Typer to Hydra: run a composed config, or a sweep of them, through Hydra's own main and launchers.

The task is of an importable module and undecorated, so that every launcher can pickle it. It catches all that
can go wrong in a point and writes a record; what is shown afterwards, and the exit code, come from the records.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archlab import plan, plugins
from archlab.compose import store_choices
from archlab.errors import ArchlabError, RequestError, in_short, is_folder
from archlab.hydra_errors import hydra_errors
from archlab.interrupt import exit_code, noticed
from archlab.landing import Landing
from archlab.overrides import normalise, of_task, one_search_path, shown_by_hydra, split
from archlab.presets import conf_dir
from archlab.progress import QUIET, is_quiet, of_phases
from archlab.quotes import quoted, unescaped
from archlab.repeat import run_source

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from archlab.record import Record

log = logging.getLogger("archlab")


@dataclass
class _Noticed:
    """What Hydra's callback and its task, neither of which hands anything back, notice of a launch in this process.

    ended: what ended a single run: raised in a job, Hydra would print a line of its own about it first. lost: of
    points that were measured in this process, the records that could not be written.
    """

    landing: Landing | None = None
    ended: Exception | None = None
    lost: list[Record] = field(default_factory=list)


_launched = _Noticed()
"""Of the launch that is under way."""


class FolderCallback:
    """Hydra calls it in this process before the first job: where will the output land?"""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        _launched.landing = Landing.at(Path(config.hydra.run.dir), multirun=False)

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        folder, goes_on = Path(config.hydra.sweep.dir).absolute(), bool(config.hydra.sweeper.get("resume"))
        try:
            if not goes_on and (folder / plan.FILE).exists():  # whichever sweeper it is that would write over it
                raise _Stopped(plan.taken(folder))
            _launched.landing = Landing.at(folder, multirun=True, goes_on=goes_on)
        except OSError as error:
            raise _Stopped(RequestError(f"{folder}: cannot be read: {error.strerror}")) from error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda **_: None
        raise AttributeError(name)


class _Stopped(BaseException):
    """Carries an error out of a callback: what is an Exception there Hydra makes a warning of, and runs the sweep."""

    def __init__(self, error: RequestError) -> None:
        super().__init__(error)
        self.error = error


class Interrupted(ArchlabError):
    """Ctrl-C, before anything was finished."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code()


@dataclass
class Outcome:
    """What a launch left behind. files: its records. missing: points of a sweep that have none.

    goes_on: whether it is a sweep that can be gone on with. interrupted: Ctrl-C ended it. problem: what ended it beside
    its records. lost: records that could not be written, of points that were measured.
    """

    files: list[Path]
    folder: Path | None
    multirun: bool
    missing: int = 0
    goes_on: bool = False
    interrupted: bool = False
    problem: str | None = None
    lost: Sequence[Record] = ()


def launch_from(source: str | None, arguments: Sequence[str], debug: bool = False, quiet: bool = False) -> Outcome:
    """`launch` from the model or the run that a path or a preset names, where one is given. Raises RequestError."""
    plan.ask(arguments, source, plugins.named())
    if source is None:
        return launch(arguments, (), debug, quiet)
    with run_source(source, arguments) as extra:
        return launch(arguments, extra, debug, quiet)


def go_on(folder: str, quiet: bool = False) -> Outcome:
    """Go on with the sweep in a folder, from where it was started. Raises RequestError."""
    is_folder(Path(folder))
    path = Path(folder).absolute()
    planned = plan.read(path)
    plan.check_open(path, planned)
    asked = planned.asked
    plugins.load_again(asked.plugins)
    with contextlib.suppress(OSError):
        os.chdir(asked.cwd)  # its arguments may name files from there
    goes_on = (f"hydra.sweep.dir={quoted(str(path))}", "hydra.sweeper.resume=true")
    return launch_from(asked.source, [*asked.arguments, *goes_on], quiet=quiet)


def launch(arguments: Sequence[str], extra: Sequence[str] = (), debug: bool = False, quiet: bool = False) -> Outcome:
    """Run the command line's flags and overrides through Hydra.

    debug: a point that fails keeps its traceback. quiet: nothing is said of how far it is.

    Raises RequestError, and then nothing is left; or what Hydra raised, where no point left a record.
    """
    global _launched
    flags, overrides = split(arguments)
    argv = [*flags, *one_search_path([*extra, *normalise(overrides)])]
    _launched = _Noticed()
    with noticed() as interrupts:
        try:
            problem = _run(argv, arguments, debug, quiet)
        finally:
            if _launched.landing is not None:
                _launched.landing.tidy()
    if interrupts or isinstance(problem, KeyboardInterrupt):  # some of Hydra's code turns it into another error
        return _outcome(True, None)
    return _outcome(False, problem)


def _run(argv: Sequence[str], arguments: Sequence[str], debug: bool, quiet: bool) -> BaseException | None:
    """Run Hydra to its end; what ended it early, if anything did."""
    try:
        with _writable(), hydra_errors(), _own_stdout(arguments):
            _call_hydra(argv, debug, quiet)
            if _launched.ended is not None:
                raise _launched.ended
    except _Stopped as stopped:
        return stopped.error
    except (KeyboardInterrupt, Exception) as error:
        return error
    return None


def _outcome(interrupted: bool, problem: BaseException | None) -> Outcome:
    """What there is to show; an end without any record is raised instead."""
    landing, lost = _launched.landing, _launched.lost
    found = landing.files() if landing is not None else []
    nothing = not found and not lost
    if nothing and interrupted:
        raise Interrupted("interrupted before anything was finished")
    if nothing and problem is not None:
        raise problem
    if landing is None:
        return Outcome([], None, False)
    if nothing and landing.multirun:
        raise ArchlabError(f"no point left a record in {landing.folder}: can the workers write into that folder?")
    ended = None if problem is None else str(problem) if isinstance(problem, ArchlabError) else in_short(problem)
    left = landing.missing(), landing.has_plan
    return Outcome(found, landing.folder, landing.multirun, *left, interrupted, ended, lost)


@contextlib.contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # whoever read what Hydra printed has seen enough
        raise
    except OSError as error:
        where = error.filename or (_launched.landing.folder if _launched.landing else "the output folder")
        what = "read or written" if isinstance(error, PermissionError) else "written"
        raise RequestError(f"{where}: cannot be {what}: {error.strerror}") from error


@contextlib.contextmanager
def _own_stdout(arguments: Sequence[str]) -> Iterator[None]:
    """Keep stdout for what is shown at the end: some launchers' libraries log to it.

    What Hydra shows is itself that, and put out in one go: its log has a traceback for each line that nobody reads.
    """
    if shown_by_hydra(arguments) is None:
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        yield
    sys.stdout.write(text.getvalue())
    sys.stdout.flush()


def _call_hydra(argv: Sequence[str], debug: bool, quiet: bool) -> None:
    """Call Hydra's public main with `argv`; HYDRA_FULL_ERROR lets exceptions reach the caller."""
    import hydra

    from archlab.multirun.plugins import register
    from archlab.point import DEBUG

    register()
    store_choices()
    old_argv = sys.argv
    sys.argv = ["archlab build", *argv]
    try:
        with _environment(HYDRA_FULL_ERROR="1", **({DEBUG: "1"} if debug else {}), **({QUIET: "1"} if quiet else {})):
            hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(Task(plugins.named()))()
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


class Task:
    """Hydra's task, that takes the plugins along to whichever process it runs in."""

    def __init__(self, named: Sequence[Mapping[str, Any]]) -> None:
        self.plugins = named

    def __call__(self, config: DictConfig) -> float | tuple[float, ...]:
        return run_job(config, self.plugins)


def run_job(config: DictConfig, named: Sequence[Mapping[str, Any]] = ()) -> float | tuple[float, ...]:
    """One point; its objective, for a sweeper that searches. named: plugins that it may be made of.

    Nothing is raised but Ctrl-C, so that a sweep's next point runs. A single run that is refused, or whose record
    cannot be written, leaves none; it runs in the process of `launch`, which raises its error. The files that a config
    names are those that the command saw, in whichever folder a worker or Hydra's own `job.chdir` stands.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    hydra = HydraConfig.get()
    typed: Any = OmegaConf.to_container(hydra.overrides.task, resolve=False)  # as they are written
    overrides = of_task(typed)
    folder, home = Path(hydra.runtime.output_dir), Path(hydra.runtime.cwd)
    with contextlib.chdir(home) if home.is_dir() else contextlib.nullcontext():
        if hydra.mode != RunMode.RUN:
            return _run_of_sweep(config, overrides, folder, hydra.job.num, named)
        return _run_alone(config, overrides, folder)


def _run_alone(config: DictConfig, overrides: Sequence[str], folder: Path) -> float | tuple[float, ...]:
    from omegaconf import OmegaConf

    from archlab.point import kept_point, objective

    try:
        plain: Any = OmegaConf.to_container(config, resolve=True)
        with of_phases() as on_progress:
            on_lost = _launched.lost.append
            return objective(kept_point(plain, overrides, folder, on_progress=on_progress, on_lost=on_lost))
    except Exception as error:
        _launched.ended = error
        return math.nan


def _run_of_sweep(
    config: DictConfig, overrides: Sequence[str], folder: Path, number: int, named: Sequence[Mapping[str, Any]]
) -> float | tuple[float, ...]:
    from omegaconf import OmegaConf

    from archlab.point import invalid_point, leave_record, objective, save

    try:
        plugins.load_again(named)
        with hydra_errors():
            plain: Any = OmegaConf.to_container(config, resolve=True)
    except RequestError as error:  # an interpolation that leads nowhere
        record = invalid_point({}, overrides, error)
        save(record, folder)
    else:
        record = leave_record(plain, overrides, folder, on_lost=_launched.lost.append)
    because = f" ({record.reason})" if record.reason else ""
    if not is_quiet():
        log.info("%s %s: %s%s", number, " ".join(map(unescaped, overrides)), record.status, because)
    return objective(record)
