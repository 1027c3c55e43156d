"""What a sweep set out to do: its points, written into its folder before the first is run.

A sweep that was killed at any moment is its plan less the records that it left. While it runs it holds a lock on the
plan, which the system lets go when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from archlab import record as records
from archlab.errors import RequestError, in_short
from archlab.frozen import Frozen, values_of
from archlab.record import Record, clear_unfinished, write_atomically
from archlab.units import counted, first_few

FILE = "plan.json"
SCHEMA = 1
LASTING = ("ok", "invalid", "too_large")
"""Statuses that another try would not change."""


class Asked(Frozen):
    """The command line of a sweep and the folder that it was given in. source: what `--from` named.

    plugins: those that it named, see `archlab.plugins.named`.
    """

    arguments: tuple[str, ...]
    source: str | None
    cwd: str
    plugins: tuple[Mapping[str, Any], ...] = ()


_asked = [Asked((), None, "")]
_own: set[Path] = set()
"""Folders whose sweep is this process's."""


def ask(arguments: Sequence[str], source: str | None, plugins: Sequence[Mapping[str, Any]] = ()) -> None:
    """Note what this process was asked for, for the plan of the sweep that may come of it."""
    _asked[0] = Asked(tuple(arguments), source, os.getcwd(), tuple(plugins))


def asked() -> Asked:
    """What this process was asked for."""
    return _asked[0]


class Point(Frozen):
    """One point: where in the sweep's folder its record goes, its overrides, and a checksum of its composed config.

    copy_of: the number of an earlier point with the same config, whose record stands for this one too.
    """

    folder: str
    overrides: tuple[str, ...]
    config: str
    copy_of: int | None = None


class Plan(Frozen):
    """The points of a sweep in their order, and what was asked for."""

    asked: Asked
    points: tuple[Point, ...]

    @property
    def titles(self) -> list[tuple[str, ...]]:
        """What has to be the same for a sweep to go on."""
        return [(point.folder, point.config, *point.overrides) for point in self.points]

    def write(self, folder: Path) -> None:
        """Put the plan into a folder that has none, which is this sweep's then. Raises RequestError for another's."""
        body = {"schema": SCHEMA, **values_of(self.asked), "points": [values_of(point) for point in self.points]}
        temporary = folder / f".{FILE}.{os.getpid()}"
        try:
            write_atomically(temporary, json.dumps(body) + "\n")
            os.link(temporary, folder / FILE)  # unlike a rename, it fails where there is one
            _own.add(folder)
        except (FileExistsError, FileNotFoundError):  # where two begin at once, the first clears away what it finds
            if not is_anothers(folder):
                raise
            raise taken(folder) from None
        finally:
            with contextlib.suppress(OSError):  # there may be no such folder
                temporary.unlink()
        clear_unfinished(folder, FILE)


def _short(folder: Path) -> Path:
    """A folder as the user would name it from here."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def taken(folder: Path) -> RequestError:
    """The error of a sweep into the folder of another."""
    folder = _short(folder)
    return RequestError(
        f"{folder}: another sweep was put here; archlab resume {folder} goes on with it, "
        "hydra.sweep.dir=FOLDER names another folder"
    )


def is_anothers(folder: Path) -> bool:
    """Whether a folder has the sweep of another process, which may be running."""
    return folder not in _own and (folder / FILE).exists()


def one_folder(name: str, first: int, second: int) -> RequestError:
    """The error of two points that would leave their records in one place."""
    return RequestError(f"hydra.sweep.subdir: points {first} and {second} would both go into {name!r}")


def same(planned: Plan, composed: Plan, folder: Path) -> Plan:
    """The plan of a sweep that goes on. Raises RequestError where its points are not composed as they were."""
    if planned.titles == composed.titles:
        return planned
    pairs = zip(planned.titles, composed.titles, strict=False)
    number = next((number for number, (old, new) in enumerate(pairs) if old != new), 0)
    raise RequestError(
        f"{_short(folder)}: point {number} is composed otherwise now than when the sweep began; "
        "a file of the configuration, or archlab itself, has changed since; start a sweep anew"
    )


def read(folder: Path) -> Plan:
    """The plan of a sweep's folder. Raises RequestError where there is none that can be read."""
    file = folder / FILE
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        if body["schema"] != SCHEMA:
            raise RequestError(f"{file}: has schema {body['schema']!r}; this archlab reads {SCHEMA}")
        asked = Asked(tuple(body["arguments"]), body["source"], body["cwd"], tuple(body.get("plugins", ())))
        points = [Point(**{**point, "overrides": tuple(point["overrides"])}) for point in body["points"]]
    except OSError as error:
        raise RequestError(f"{file}: no sweep's plan can be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise RequestError(f"{file}: is no plan of a sweep: {in_short(error)}") from None
    return Plan(asked, tuple(points))


def files(folder: Path) -> list[Path]:
    """Where the records of the sweep in a folder are, or will be, in the order of its points."""
    return [folder / point.folder / records.FILE for point in read(folder).points]


def check_open(folder: Path, planned: Plan) -> None:
    """Raise RequestError where a folder of a point is there, and what it holds cannot be read or written over."""
    there = (folder / point.folder for point in planned.points)
    closed = [str(_short(at)) for at in there if os.path.lexists(at) and not os.access(at, os.R_OK | os.W_OK | os.X_OK)]
    if closed:
        problem = f"{counted(len(closed), 'folder')} of points may not be read and written here"
        raise RequestError(f"{problem}: {first_few(closed)}")


def is_done(file: Path) -> bool:
    """Whether a record is there that another try would not change."""
    found = read_record(file)
    return found is not None and found.status in LASTING


def read_record(file: Path) -> Record | None:
    """A point's record, None where it is not there or cannot be read."""
    try:
        return records.load(file)
    except RequestError:
        return None


def checksum(config: Mapping[str, Any], typed: Collection[str]) -> str:
    """Of a composed config and of the keys that the user set, which decide what is an error."""
    import hashlib  # it loads OpenSSL, 10 ms

    text = json.dumps([config, sorted(typed)], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the sweep in a folder. Raises RequestError where another process does."""
    import fcntl

    with (folder / FILE).open() as file:
        try:
            _own.add(folder)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _own.discard(folder)
            raise RequestError(f"{_short(folder)}: the sweep in it is still running") from None
        except OSError:
            pass  # a file system without locks
        yield
