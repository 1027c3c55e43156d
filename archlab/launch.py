"""From Typer to Hydra: run a composed config, or a sweep of them, through Hydra's own main and launchers.

The task is an undecorated function of an importable module, so that every launcher can pickle it. It catches all that
can go wrong in a point and writes a record; what is shown afterwards, and the exit code, come from the records.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archlab import record as records
from archlab.compose import hydra_errors, model_source
from archlab.errors import RequestError
from archlab.overrides import normalise, split, typed_keys
from archlab.presets import conf_dir
from archlab.record import Record

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger("archlab")
_folders: list[Path] = []
_refused: list[RequestError] = []


class FolderCallback:
    """Hydra calls it in this process before the first job: where will the output land?"""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        _folders.append(Path(config.hydra.run.dir).absolute())

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        _folders.append(Path(config.hydra.sweep.dir).absolute())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda **_: None
        raise AttributeError(name)


@dataclass
class Outcome:
    """What a launch left behind. interrupted: Ctrl-C ended it."""

    records: list[Record]
    folder: Path | None
    multirun: bool
    interrupted: bool = False


def launch_from(source: str | None, arguments: Sequence[str]) -> Outcome:
    """`launch`, with the model that a path or a preset names, where one is given. Raises RequestError."""
    if source is None:
        return launch(arguments)
    chosen = [word for word in arguments if word.startswith("model=")]
    if chosen:
        raise RequestError(f"--from {source} and {chosen[0]} both say which model; leave one out")
    with model_source(source) as extra:
        return launch(arguments, extra)


def launch(arguments: Sequence[str], extra: Sequence[str] = ()) -> Outcome:
    """Run the command line's flags and overrides through Hydra. Raises RequestError; nothing is left then."""
    flags, overrides = split(arguments)
    argv = [*flags, *extra, *normalise(overrides)]
    multirun = "-m" in flags or "--multirun" in flags
    _folders.clear()
    _refused.clear()
    interrupted = False
    try:
        with _writable(), hydra_errors():
            _call_hydra(argv)
        if _refused:
            raise _refused[0]
    except KeyboardInterrupt:
        interrupted = True
    except RequestError:
        _discard()
        raise
    folder = _folders[-1] if _folders else None
    found = list(records.collect(folder)) if folder is not None and folder.is_dir() else []
    return Outcome(found, folder, multirun, interrupted)


@contextlib.contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RequestError(f"{error.filename}: the output folder cannot be written: {error.strerror}") from error


def _discard() -> None:
    """Remove the run folder that Hydra made for a request that was refused."""
    for folder in _folders:
        if folder.is_dir() and not any(folder.rglob(records.FILE)):
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()


def _call_hydra(argv: Sequence[str]) -> None:
    """Call Hydra's public main with `argv`; HYDRA_FULL_ERROR lets exceptions reach the caller."""
    import hydra

    old_argv, old_full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["archlab build", *argv]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(run_job)()
    finally:
        sys.argv = old_argv
        if old_full is None:
            os.environ.pop("HYDRA_FULL_ERROR")
        else:
            os.environ["HYDRA_FULL_ERROR"] = old_full


def run_job(config: DictConfig) -> None:
    """Hydra's task: one point. Nothing is raised but Ctrl-C, so that a sweep's next point runs.

    A single run that is refused leaves no record; it runs in the process of `launch`, which raises its error.
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
            record = run_point(plain, overrides, typed_keys(overrides), on_progress)
    except RequestError as error:
        if single:
            _refused.append(error)
            return
        record = invalid_point(plain, overrides, error)
    record.save(folder)
    OmegaConf.save(OmegaConf.create(record.config), folder / "config.yaml")
    if not single:
        log.info("%s %s: %s%s", hydra.job.num, " ".join(overrides), record.status, _because(record))


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
