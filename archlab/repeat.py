"""What `archlab build --from` starts from: a model, or a run to be repeated as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from archlab import plan
from archlab import record as records
from archlab.compose import imported_from, is_path, model_source, path_first
from archlab.errors import RequestError, is_folder
from archlab.options import options_of
from archlab.overrides import typed_keys
from archlab.quotes import quoted
from archlab.record import Record
from archlab.request import RunOptions

GROUPS = ("workload", "bench", "hardware", "budget")
"""The config groups beside the model."""


@contextlib.contextmanager
def run_source(source: str, arguments: Sequence[str]) -> Iterator[list[str]]:
    """The overrides that go before the command line's: the model, and of a run all else that it was asked for.

    Raises RequestError.
    """
    chosen = [word for word in arguments if word.startswith("model=")]
    if chosen:
        raise RequestError(f"--from {source} and {chosen[0]} both say which model; leave one out")
    path = path_first(source)
    record = _record_behind(path)
    config = {} if record is None else record.config
    typed = {word.partition("=")[0] for word in arguments}
    groups = {name: config[name] for name in GROUPS if isinstance(config.get(name), dict) and name not in typed}
    with model_source(path, **groups) as extra:
        yield extra if record is None else [*extra, *_settings(record, typed)]


def _record_behind(source: str | Path) -> Record | None:
    """The record of a run that a path names, None where it names anything else."""
    if not is_path(source):
        return None
    path = Path(source)
    file = path / records.FILE if is_folder(path) else path
    if file != path and (path / plan.FILE).is_file():
        raise RequestError(
            f"{path}: is a sweep; name one of its points, such as {path / plan.read(path).points[0].folder}"
        )
    if not file.is_file() or file.suffix != ".json" or imported_from(path) is not None:
        return None
    return records.load(file)


def _settings(record: Record, typed: set[str]) -> Iterator[str]:
    """The run's own options, and the values that were typed for it: what is typed is never dropped.

    A value of a group that is chosen anew now stays out.
    """
    for override in record.overrides:
        for key in typed_keys([override]):
            group, dot, _ = key.partition(".")
            if dot and group not in typed:
                yield f"++{override}"
    for name in options_of(RunOptions):
        if name in record.config:
            yield f"++{name}={_literal(record.config[name])}"


def _literal(value: Any) -> str:
    """A value as Hydra's parser reads it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(_literal, value))}]"
    return quoted(value) if isinstance(value, str) else repr(value)
