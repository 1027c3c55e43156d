"""The record: the one JSON document that a run leaves behind. Everything shown later is read from it."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from archlab.errors import RequestError

SCHEMA = 1
FILE = "record.json"
KINDS = ("exact", "measured", "estimated")
STATUSES = ("ok", "invalid", "oom", "too_large", "failed", "timeout")


@dataclass(frozen=True)
class Figure:
    """One number and how it was got. A figure that could not be got has no value, but a status and a reason.

    kind: exact (closed form, equal to the built module), measured (a clock, an allocator) or estimated (a model).
    how: the definition, the formula or the convention. low, high, repeats: the 10th and 90th percentile of a
    measured figure and how many runs stand behind it.
    """

    value: float | int | None
    unit: str
    kind: str
    how: str
    low: float | None = None
    high: float | None = None
    repeats: int | None = None
    status: str = "ok"
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        shown = {key: value for key, value in asdict(self).items() if value is not None}
        return shown | {"value": self.value}


@dataclass
class Record:
    """One run: its config, its composition, its figures, where it ran and whether it is ok.

    config: the composed config, enough to repeat the run. composition: the resolved choices, see `decoder/describe.py`.
    figures: by name; `params`, `kv_bytes_per_token`, `decode_tok_s` and so on. notes: what was dropped or assumed.
    """

    config: dict[str, Any]
    overrides: list[str] = field(default_factory=list)
    status: str = "ok"
    reason: str | None = None
    notes: list[str] = field(default_factory=list)
    composition: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    created: str = ""
    folder: str | None = None

    @property
    def name(self) -> str:
        return str((self.config.get("model") or {}).get("name", "model"))

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def value(self, figure: str) -> float | int | None:
        """The figure's value, None where the record has none."""
        found = self.figures.get(figure)
        return None if found is None else found.value

    def as_dict(self) -> dict[str, Any]:
        """The record as plain JSON data; floats that JSON cannot hold become null."""
        body = {key: value for key, value in self.__dict__.items() if key != "figures"}
        body["figures"] = {name: figure.as_dict() for name, figure in self.figures.items()}
        plain: dict[str, Any] = _finite({"schema": SCHEMA, **body})
        return plain

    def save(self, folder: Path) -> Path:
        """Write record.json into `folder`, whole or not at all: a temporary name, flushed, then renamed."""
        self.folder = str(folder)
        text = json.dumps(self.as_dict(), indent=1, allow_nan=False, ensure_ascii=False)
        return write_atomically(folder / FILE, text + "\n")


def write_atomically(path: Path, text: str) -> Path:
    """Write a file, whole or not at all; its folder is made where it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def load(path: Path) -> Record:
    """Read a record file, or the record of a run folder. Raises RequestError with what is wrong."""
    file = path / FILE if path.is_dir() else path
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{file}: is not a JSON document: {error}") from None
    return from_dict(body, str(file))


def from_dict(body: Any, where: str) -> Record:
    """The record of a JSON document."""
    if not isinstance(body, dict) or not isinstance(body.get("figures"), dict) or "schema" not in body:
        raise RequestError(f"{where}: is no record of archlab")
    if body["schema"] != SCHEMA:
        raise RequestError(f"{where}: has schema {body['schema']!r}; this archlab reads {SCHEMA}")
    fields = {key: value for key, value in body.items() if key in Record.__dataclass_fields__}
    try:
        fields["figures"] = {name: Figure(**figure) for name, figure in body["figures"].items()}
        return Record(**fields)
    except TypeError as error:
        raise RequestError(f"{where}: is no record of archlab: {error}") from None


def collect(folder: Path) -> Iterator[Record]:
    """Every record at or under `folder`, in the order of its jobs' numbers."""
    yield from (load(file) for file in files(folder))


def files(folder: Path) -> list[Path]:
    """Every record's file at or under `folder`, in the order of its jobs' numbers."""
    return sorted(folder.rglob(FILE), key=lambda path: _natural(path.relative_to(folder)))


def _natural(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in path.parts]
