"""The record: the one JSON document that a run leaves behind. Everything shown later is read from it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from archlab.errors import ConfigError, RequestError, nearest
from archlab.frozen import Frozen, values_of
from archlab.quotes import unescaped

SCHEMA = 1
FILE = "record.json"
UNREADABLE = "?"
"""The name of a record whose file cannot be used."""
KINDS = ("exact", "measured", "estimated", "bound")
SHORT = {
    "kv": "kv_bytes_per_token", "decode": "decode_tok_s", "prefill": "prefill_tok_s", "train": "train_tok_s",
    "active": "params_active", "flops": "flops_decode_per_token", "weights": "weight_bytes",
}  # fmt: skip
"""Names of figures in short."""
STATUSES = ("ok", "invalid", "oom", "too_large", "failed", "timeout")


def full_name(name: str) -> str:
    """A figure's name, which may be given in short."""
    return SHORT.get(name, name)


def no_figure(key: str, name: str, known: Iterable[str], value: Any = None, what: str = "figure") -> ConfigError:
    """The error of a name that no figure has. known: the figures that there are. value: what the name was read from.

    One of a phase of which there is no figure at all says that the phase is not timed.
    """
    valid = list(known)
    phase = name.partition("_")[0]
    is_phase = full_name(phase) == f"{phase}_tok_s"  # a phase is short for its rate
    untimed = is_phase and not any(figure.startswith(phase) for figure in valid)
    problem = f"no {what} {name!r}" + (f": {phase} is not timed" if untimed else "")
    near = None if untimed else nearest(name, valid)
    return ConfigError(key, problem, value=name if value is None else value, valid=valid, nearest=near)


class Figure(Frozen):
    """One number and how it was got. A figure that could not be got has no value, but a status and a reason.

    kind: exact (closed form, equal to the built module), measured (a clock, an allocator), estimated (a model) or bound
    (what nothing on the device can beat).
    how: the definition, the formula or the convention. low, high, repeats: the 10th and 90th percentile of a
    measured figure and how many runs stand behind it. facts: what of `how` was found out on the way, by name.
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
    facts: Mapping[str, str] | None = None

    def fact(self, name: str) -> str | None:
        """What was found out under a name, if anything."""
        return (self.facts or {}).get(name)

    def as_dict(self) -> dict[str, Any]:
        shown = {key: value for key, value in values_of(self).items() if value is not None}
        return shown | {"value": self.value}


@dataclass
class Record:
    """One run: its config, its composition, its figures, where it ran and whether it is ok.

    config: the composed config, enough to repeat the run. composition: the resolved choices, see `decoder/describe.py`.
    figures: by name; `params`, `kv_bytes_per_token`, `decode_tok_s` and so on. notes: what was dropped or assumed.
    copy_of: the point of the same sweep that has the same config, and whose record this is. plugins: the code of others
    that brought choices, see `archlab.plugins`.
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
    copy_of: int | None = None
    plugins: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str((self.config.get("model") or {}).get("name", "model"))

    @property
    def title(self) -> str:
        """Its model and its overrides, without the backslashes that Hydra writes."""
        return " ".join((self.name, *map(unescaped, self.overrides)))

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
        plain: dict[str, Any] = finite({"schema": SCHEMA, **body})
        return plain

    def save(self, folder: Path, flush: bool = True) -> Path:
        """Write record.json into `folder`, whole or not at all: a temporary name, flushed, then renamed."""
        self.folder = str(folder)
        return write_atomically(folder / FILE, _document_text(self.as_dict()), flush)


def _document_text(body: Mapping[str, Any]) -> str:
    """A document as JSON, a line for each entry of its groups; in ASCII, for a path may hold any bytes."""
    return "{\n" + ",\n".join(f" {_one_line(key)}: {_group_text(value)}" for key, value in body.items()) + "\n}\n"


def _group_text(value: Any) -> str:
    if not isinstance(value, Mapping) or not value:
        return _one_line(value)
    return "{\n" + ",\n".join(f"  {_one_line(key)}: {_one_line(item)}" for key, item in value.items()) + "\n }"


def _one_line(value: Any) -> str:
    return json.dumps(value, allow_nan=False)  # without an indent it is C that encodes


def write_atomically(path: Path, text: str | bytes, flush: bool = True) -> Path:
    """Write a file, whole or not at all, whenever this process ends; its folder is made where it is not there.

    flush: wait until the disk has it (some milliseconds), so that the same holds when the machine loses its power.
    Whoever may read new files here may read it. Raises OSError, which names the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")  # tempfile's would be for this user's eyes alone
    try:
        with temporary.open("xb") as file:
            file.write(text.encode("utf-8") if isinstance(text, str) else text)
            if flush:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):  # of a full disk it has no name, else that of the temporary
            error.filename = str(path)
        raise
    return path


def write_named(file: str | Path, body: str | bytes) -> Path:
    """Write a file that a user named, as `write_atomically`; into a pipe or a device as it is. Raises RequestError."""
    path = Path(file)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # what no file may replace
            path.write_bytes(body.encode("utf-8") if isinstance(body, str) else body)
        else:
            write_atomically(path.resolve(), body)
    except OSError as error:
        raise RequestError(f"{file}: cannot be written: {error.strerror}") from None
    return path


def clear_unfinished(folder: Path, *names: str) -> None:
    """Remove what writes of files of these names that were ended in their midst, by a kill, have left in a folder.

    Without names: those of a point.
    """
    for name in names or (FILE, "config.yaml"):
        for left in folder.glob(f".*{name}.*"):
            left.unlink(missing_ok=True)


def finite(value: Any) -> Any:
    """JSON data, with null for the floats that JSON cannot hold."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_line(document: Any) -> str:
    """One line of ASCII, so that no terminal, pipe or name can break it; null for floats that JSON cannot hold."""
    return json.dumps(finite(document), ensure_ascii=True, allow_nan=False, default=str) + "\n"


def load(path: Path) -> Record:
    """Read a record file, or the record of a run folder. Raises RequestError with what is wrong."""
    file = path
    try:
        file = path / FILE if path.is_dir() else path
        body = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{file}: is not a JSON document: {error}") from None
    return from_dict(body, str(file))


def from_dict(body: Any, where: str) -> Record:
    """The record of a JSON document."""
    if not isinstance(body, dict) or not isinstance(body.get("figures"), dict) or "schema" not in body:
        raise RequestError(f"{where}: is no record of archlab: it has no figures or no schema")
    if body["schema"] != SCHEMA:
        raise RequestError(f"{where}: has schema {body['schema']!r}; this archlab reads {SCHEMA}")
    fields = {key: value for key, value in body.items() if key in Record.__dataclass_fields__}
    figures = fields.pop("figures")
    problem = _wrong(fields, _RECORD) or _wrong_composition(fields.get("composition"))
    for name, figure in figures.items():
        problem = problem or _wrong_figure(name, figure)
    if problem is None and "config" not in fields:
        problem = "config is missing"
    if problem is not None:
        raise RequestError(f"{where}: is no record of archlab: {problem}")
    return Record(**fields, figures={name: Figure(**figure) for name, figure in figures.items()})


def _number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False


def _list_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _group(value: Any) -> bool:
    return isinstance(value, dict)


def _texts_by_name(value: Any) -> bool:
    return _group(value) and all(isinstance(item, str) for item in value.values())


def _or_null(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or holds(value)


Kinds = Mapping[str, tuple[Callable[[Any], bool], str]]
_TEXT, _TEXT_OR_NULL, _GROUP = (_text, "text"), (_or_null(_text), "text or null"), (_group, "a group")
_NUMBER_OR_NULL = (_or_null(_number), "a number or null")
_TEXTS, _GROUPS = (_list_of(str), "a list of text"), (_list_of(dict), "a list of groups")
_RECORD: Kinds = {
    "config": _GROUP, "overrides": _TEXTS, "status": (STATUSES.__contains__, "one of " + ", ".join(STATUSES)),
    "reason": _TEXT_OR_NULL, "notes": _TEXTS, "composition": _GROUP, "checks": _GROUPS, "environment": _GROUP,
    "created": _TEXT, "folder": _TEXT_OR_NULL, "copy_of": _NUMBER_OR_NULL, "plugins": _GROUPS,
}  # fmt: skip
_FIGURE: Kinds = {
    "value": _NUMBER_OR_NULL, "unit": _TEXT, "kind": (KINDS.__contains__, "one of " + ", ".join(KINDS)), "how": _TEXT,
    "low": _NUMBER_OR_NULL, "high": _NUMBER_OR_NULL, "repeats": _NUMBER_OR_NULL, "status": _TEXT,
    "reason": _TEXT_OR_NULL, "facts": (_or_null(_texts_by_name), "a group of texts or null"),
}  # fmt: skip


def _wrong(fields: Mapping[str, Any], kinds: Kinds, under: str = "") -> str | None:
    """What is wrong with the types of some fields, None where nothing is."""
    for name, value in fields.items():
        if name not in kinds:
            return f"{under}{name} is no field of it"
        holds, wanted = kinds[name]
        if not holds(value):
            return f"{under}{name} is not {wanted}"
    blocks = ("model", "workload", "bench", "hardware")
    config = fields.get("config", {}) if kinds is _RECORD else {}
    wrong = [f"config.{name} is not a group" for name in blocks if not _or_null(_group)(config.get(name))]
    lists = (
        ("objective", "direction", "constraints") if fields.get("status", "ok") == "ok" else ()
    )  # else they may be it
    wrong += [f"config.{name} is not {_TEXTS[1]}" for name in lists if not _or_null(_TEXTS[0])(config.get(name))]
    return wrong[0] if wrong else None


def _wrong_figure(name: str, figure: Any) -> str | None:
    if not isinstance(figure, dict):
        return f"figures.{name} is not a group"
    missing = [key for key in ("value", "unit", "kind", "how") if key not in figure]
    return f"figures.{name} has no {missing[0]}" if missing else _wrong(figure, _FIGURE, f"figures.{name}.")


def _wrong_composition(composition: Any) -> str | None:
    """What is wrong with a composition: the tables read its sizes, its axes and its kinds of layer."""
    if not composition:
        return None
    missing = [name for name in _SIZES if name not in composition]
    if missing:
        return f"composition.{missing[0]} is missing"
    if not isinstance(composition.get("layer_kinds"), list):
        return "composition.layer_kinds is not a list"
    if type(composition.get("more_kinds", 0)) is not int:
        return "composition.more_kinds is not a whole number"
    problem = _wrong_axes(composition.get("axes"), "composition.axes")
    for kind in composition["layer_kinds"]:
        layers = kind.get("layers") if isinstance(kind, dict) else None
        if not (isinstance(layers, list) and layers and all(type(layer) is int for layer in layers)):
            return "composition.layer_kinds has one without layers"
        problem = problem or _wrong_axes(kind.get("axes"), "composition.layer_kinds.axes")
    return problem


_SIZES = ("d_model", "n_layers", "vocab_size", "context")


def _wrong_axes(axes: Any, where: str) -> str | None:
    if not isinstance(axes, dict):
        return f"{where} is not a group"
    return next((f"{where}.{axis} names no choice" for axis, block in axes.items() if not _names_choices(block)), None)


def _names_choices(block: Any) -> bool:
    """Whether a block of options, and each block in it, says which choice it is."""
    if not isinstance(block, dict) or not isinstance(block.get("choice"), str):
        return False
    return all(_names_choices(value) for value in block.values() if isinstance(value, dict))


def collect(folder: Path) -> Iterator[Record]:
    """Every record at or under `folder`, in the order of its jobs' numbers; `row` for one that cannot be read."""
    yield from map(row, files(folder))


def row(file: Path) -> Record:
    """The record of a file; for one that cannot be read, a record that says so."""
    try:
        return load(file)
    except RequestError as error:
        reason = str(error).removeprefix(f"{file}: ")
        return Record(
            {"model": {"name": UNREADABLE}},
            [],
            "failed",
            f"its record {file.parent.name}/{file.name} cannot be used: {reason}",
            folder=str(file.parent),
        )


def files(folder: Path) -> list[Path]:
    """Every record's file at or under `folder`, in the order of its jobs' numbers.

    Of a folder that cannot be read the file that its record would be, so that it is told of as a record like that is.
    """
    closed: list[str] = []
    found = [
        at
        for at, inner, names in os.walk(folder, onerror=lambda error: closed.append(error.filename))
        if FILE in names or FILE in inner
    ]
    return sorted((Path(at, FILE) for at in (*found, *closed)), key=lambda path: _natural(path.relative_to(folder)))


def _natural(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in path.parts]
