"""Devices on paper: `conf/hardware/*.yaml`, what a user changes of one, and the one that is there. Torch-free.

Peaks are dense: the rate of a matrix product without structured sparsity, half of what many datasheets print first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from archlab import presets
from archlab.errors import ConfigError, RequestError, nearest, unknown_key
from archlab.frozen import Frozen, field, replace, values_of
from archlab.units import read_bandwidth, read_bytes, read_flop_rate

AUTO = "auto"
"""The name that stands for the device that is there."""

PEAKS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")
"""What a peak may be given for."""

Settings = dict[str, Any]
"""A device as YAML and the command line spell it: amounts with units, `peaks` a block."""


class Hardware(Frozen):
    """One device as its datasheet has it. What nobody published is not there, and no ceiling is made of it.

    name: the product. matches: names that drivers report. memory: bytes, as the driver counts them where that is
    known. bandwidth: B/s of this memory. peaks: dense FLOP/s (OP/s of whole numbers) by dtype, sums in 32 bits.
    interconnect: B/s from one device to others, both directions together, as datasheets count it. devices_per_node: so
    many does it join.
    """

    name: str
    matches: tuple[str, ...] = ()
    memory: int | None = None
    bandwidth: int | None = None
    peaks: Mapping[str, int] = field(default_factory=dict)
    interconnect: int | None = None
    devices_per_node: int | None = None
    source: str = ""

    def peak(self, dtype: str) -> int | None:
        """Dense FLOP/s in a dtype, None where they are not known."""
        return self.peaks.get(dtype)


def names() -> list[str]:
    """The devices of `conf/hardware/` by name."""
    found = sorted(file.stem for file in (presets.conf_dir() / "hardware").glob("*.yaml"))
    return [name for name in found if name != AUTO]


def hardware(name: str, changes: Mapping[str, Any] | None = None) -> Hardware:
    """A device: a name of `names()`, a path to a YAML, or `auto`; with settings changed. Raises ConfigError."""
    return located(read(_merged(_settings(name), changes or {})))


def chosen(words: Sequence[str]) -> tuple[Hardware | None, list[str]]:
    """The device that `hardware=NAME` and `hardware.KEY=VALUE` among overrides mean, and the other words.

    Without a name, values alone make a device of their own; without either there is none.
    """
    mine = [word for word in words if re.match(r"\+{0,2}hardware[=.]", word)]
    others = [word for word in words if word not in mine]
    if not mine:
        return None, others
    name: str | None = None
    changes: Settings = {}
    for word in mine:
        key, equals, value = word.lstrip("+").partition("=")
        if not equals:
            raise RequestError(f"{word}: a value is missing, such as hardware.memory=80GiB")
        if key == "hardware":
            name = value
        else:
            _put(changes, key.removeprefix("hardware."), value)
    return (read({"name": "custom", **changes}) if name is None else hardware(name, changes)), others


def _put(changes: Settings, key: str, value: str) -> None:
    """Set one dotted key: `memory`, `peaks.bf16`."""
    check_key(key)
    head, _, below = key.partition(".")
    plain = None if value == "null" else value.strip("'\"")
    if below:
        changes.setdefault(head, {})[below] = plain
    else:
        changes[head] = plain


def check_key(key: str) -> None:
    """Raise ConfigError, with the nearest spelling, where a dotted key below `hardware` is no setting."""
    head, _, below = key.partition(".")
    if head not in _READERS:
        raise unknown_key(head, _READERS).under("hardware")
    if below and head != "peaks":
        raise ConfigError(f"hardware.{head}", "is a value and has nothing below it")
    if key == "peaks":
        dtypes = [f"peaks.{dtype}" for dtype in PEAKS]
        raise ConfigError("hardware.peaks", "is a block: name a dtype below it", valid=dtypes)
    if head == "peaks" and below not in PEAKS:
        raise unknown_key(below, PEAKS).under("hardware.peaks")


def read(settings: Mapping[str, Any]) -> Hardware:
    """A device from its settings, checked. `auto` stays so: see `located`. Raises ConfigError."""
    for key in settings:
        if key not in _READERS:
            raise unknown_key(str(key), _READERS).under("hardware")
    if not settings.get("name"):
        raise ConfigError("hardware.name", "is required")
    given = {key: value for key, value in settings.items() if value is not None}
    return Hardware(**{key: _READERS[key](value, f"hardware.{key}") for key, value in given.items()})


def located(device: Hardware, there: Hardware | None = None) -> Hardware:
    """The device itself, or, where it is called `auto`, the one that is there under what was set of it.

    there: the one that is meant, without which it is looked for.
    """
    if device.name != AUTO:
        return device
    said = {name: value for name, value in values_of(device).items() if name != "name" and value}
    found = there or present()
    return replace(found, **{**said, "peaks": {**found.peaks, **device.peaks}})


def present() -> Hardware:
    """The first GPU that a driver names, else the processor; of one that is not known, its memory and nothing more."""
    from archlab import host  # for auto only

    gpus = host.gpus()
    name, memory = gpus[0] if gpus else (host.cpu_name(), host.total_memory())
    known = matching(name, memory if gpus else None)
    return replace(known or Hardware(name), memory=memory, devices_per_node=max(1, len(gpus)))


def matching(reported: str, memory: int | None = None) -> Hardware | None:
    """The device that a driver calls so: of all whose name stands in it in whole words, the one with the longest.

    None where there is none, where the name says that it is another model (`Laptop`, `MIG`), or where its memory is
    not about what the driver says.
    """
    said = _words(reported)
    devices = [hardware(name) for name in names()]
    found = [(name, device) for device in devices for name in device.matches if _stands_in(_words(name), said)]
    name, device = max(found, key=lambda match: len(match[0]), default=("", None))
    if device is None or _MODELS & set(said) - set(_words(name)):
        return None
    differs = memory and device.memory and abs(memory / device.memory - 1) > SAME_MEMORY
    return None if differs else device


SAME_MEMORY = 0.1
"""How far the memory that a driver reports may lie from the datasheet's; beyond, it is a part of one, or another."""

_MODELS = {"laptop", "mobile", "max", "mig", "d", "ti", "super"}
"""Words that make another model of a name."""


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


def _stands_in(part: Sequence[str], whole: Sequence[str]) -> bool:
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1))


def _settings(name: str) -> Settings:
    """The settings in a file, by the device's name or by a path."""
    if name == AUTO:
        return {"name": AUTO}
    if "/" in name or name.endswith((".yaml", ".yml")):
        return _load(Path(name))
    file = presets.conf_dir() / "hardware" / f"{name}.yaml"
    if not name.isprintable() or not file.is_file():
        known = [AUTO, *names()]
        raise ConfigError("hardware", f"no device {name!r}", value=name, valid=known, nearest=nearest(name, known))
    return _load(file)


def _load(path: Path) -> Settings:
    import yaml  # type: ignore[import-untyped]

    try:
        body = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise RequestError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(body, dict):
        raise RequestError(f"{path}: is no device: a mapping of settings is expected, such as memory: 80GiB")
    return body


def _merged(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Settings with changes on top; a peak changes without the others."""
    merged = {**settings, **changes}
    if isinstance(settings.get("peaks"), Mapping) and isinstance(changes.get("peaks"), Mapping):
        merged["peaks"] = {**settings["peaks"], **changes["peaks"]}
    return merged


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(key, f"{value!r} is not a word", value=value)
    return value


def _texts(value: Any, key: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(key, f"{value!r} is not a list", value=value)
    return tuple(_text(item, key) for item in value)


def _peaks(value: Any, key: str) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise ConfigError(key, f"{value!r} is not a block of dtypes", value=value, valid=PEAKS)
    for dtype in value:
        if dtype not in PEAKS:
            raise unknown_key(str(dtype), PEAKS).under(key)
    return {dtype: read_flop_rate(rate, f"{key}.{dtype}") for dtype, rate in value.items() if rate is not None}


def _count(value: Any, key: str) -> int:
    if isinstance(value, bool) or not str(value).isdecimal() or int(value) < 1:
        raise ConfigError(key, f"{value!r} is not a whole number of 1 or more", value=value)
    return int(value)


_READERS: Mapping[str, Callable[[Any, str], Any]] = {
    "name": _text,
    "matches": _texts,
    "memory": read_bytes,
    "bandwidth": read_bandwidth,
    "peaks": _peaks,
    "interconnect": read_bandwidth,
    "devices_per_node": _count,
    "source": _text,
}
