"""Where a launch lands: which folder, what stood there before, what this run added, and taking back what is empty."""

from __future__ import annotations

import contextlib
from pathlib import Path

from archlab import plan
from archlab import record as records
from archlab.frozen import Frozen

BEFOREHAND = ("multirun.yaml", plan.FILE)
"""Files that are written into a sweep's folder before its first job."""


class Landing(Frozen):
    """The folder of a run or a sweep, as it was when the run began.

    made: this folder and those above it that were not there, deepest first. before: the records that were there, with
    their time of change; a folder that is used again shows only what this run wrote, unless a sweep goes on in it.
    """

    folder: Path
    multirun: bool
    made: tuple[Path, ...]
    before: dict[Path, int | None]
    goes_on: bool = False

    @classmethod
    def at(cls, folder: Path, multirun: bool, goes_on: bool = False) -> Landing:
        folder = folder.absolute()
        made = tuple(path for path in (folder, *folder.parents) if not path.exists())
        there = records.files(folder) if folder.is_dir() else []
        return cls(folder, multirun, made, {file: _changed(file) for file in there}, goes_on)

    def files(self) -> list[Path]:
        """The records that this run wrote; of a sweep that went on, those from before too."""
        if not self.folder.is_dir() or self._is_anothers:
            return []
        if self.goes_on:
            return [file for file in plan.files(self.folder) if _changed(file)]
        files = records.files(self.folder) if self.multirun else [self.folder / records.FILE]
        return [file for file in files if _changed(file) and self._is_new(file)]

    @property
    def _is_anothers(self) -> bool:
        """Whether another process put a sweep here first: nothing of it is shown or taken back."""
        return self.multirun and plan.is_anothers(self.folder)

    @property
    def has_plan(self) -> bool:
        """Whether it is a sweep that was planned, and so can go on."""
        return self.multirun and (self.folder / plan.FILE).is_file()

    def missing(self) -> int:
        """How many points of the sweep have left no record."""
        if not self.has_plan:
            return 0
        return sum(not _changed(file) for file in plan.files(self.folder))

    def _is_new(self, file: Path) -> bool:
        return self.before.get(file) != _changed(file)

    def tidy(self) -> None:
        """Take back the empty folders that this run made. Nothing that holds a file of a user or a run is touched."""
        if self.folder not in self.made or not self.folder.is_dir() or self._is_anothers:
            return
        if not records.files(self.folder):
            for name in BEFOREHAND:
                (self.folder / name).unlink(missing_ok=True)
        inner = sorted((path for path in self.folder.rglob("*") if path.is_dir()), reverse=True)
        for path in (*inner, *self.made):
            with contextlib.suppress(OSError):  # it holds something
                path.rmdir()


def _changed(file: Path) -> int | None:
    """When a record was changed last, None where there is none, or none that may be read."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None
