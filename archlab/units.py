"""Units: bytes are binary (KiB, MiB, GiB), counts are powers of ten (k, M, B, T), dtypes have short names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from archlab.errors import ConfigError, nearest

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}
"""Bytes an element of each dtype that a model can be built in."""

DTYPE_ALIASES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float64": "fp64"}


def dtype_name(dtype: str) -> str:
    """The short name of a dtype: `bfloat16` and `bf16` are `bf16`. Raises ConfigError."""
    name = DTYPE_ALIASES.get(str(dtype).removeprefix("torch."), str(dtype))
    if name not in DTYPE_BYTES:
        near = nearest(name, [*DTYPE_BYTES, *DTYPE_ALIASES])
        raise ConfigError("dtype", f"{dtype!r} is no dtype", value=dtype, valid=DTYPE_BYTES, nearest=near)
    return name


def dtype_bytes(dtype: str) -> int:
    """Bytes an element."""
    return DTYPE_BYTES[dtype_name(dtype)]


def show_bytes(count: float) -> str:
    """`24.00 MiB`, `12,288 B`: the largest binary unit that keeps the number at 1 or more, from MiB on."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20)):
        if abs(count) >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count:,.0f} B"


def show_count(count: float) -> str:
    """`63.91 M`, `8.03 B`: powers of ten."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count:,.0f}"


def counted(number: int, noun: str) -> str:
    """`1 point`, `1,234 points`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_few(names: Sequence[str], most: int = 3) -> str:
    """`a, b, c, ...`: as many as a line may name."""
    return ", ".join((*names[:most], *(["..."] if len(names) > most else [])))


def show_flops(count: float) -> str:
    """`291.65 GFLOP`."""
    return show_in(count, "FLOP")


def show_in(count: float, unit: str) -> str:
    """`3.35 TB/s`: a number of units by SI's prefixes."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:,.2f} {prefix}{unit}"
    return f"{count:,.0f} {unit}"


_COUNTS = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_FLOPS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def read_count(text: str | int, key: str) -> int:
    """A count in powers of ten: `124M`, `1.3B`, `640000`. Raises ConfigError under `key`."""
    number, unit = _split(text, key, "a count such as 124M or 1.3B")
    if unit not in _COUNTS:
        raise ConfigError(key, f"{text!r}: {unit!r} is no power of ten", value=text, valid=list(filter(None, _COUNTS)))
    return _whole(number * _COUNTS[unit], text, key)


def read_flops(text: str | int, key: str) -> int:
    """A number of FLOPs in powers of ten: `250M`, `1.5GFLOP`, `640000`. Raises ConfigError under `key`."""
    number, unit = _split(text, key, "a number of FLOPs such as 250M or 1.5GFLOP")
    power = unit.removesuffix("FLOP")
    if power not in _FLOPS:
        valid = [f"{name}FLOP" for name in _FLOPS if name]
        raise ConfigError(key, f"{text!r}: {unit!r} is no unit of FLOPs", value=text, valid=valid)
    return _whole(number * _FLOPS[power], text, key)


def read_tokens(text: str | int, key: str) -> int:
    """A length in tokens: `4096`, `8k` (8,192, as contexts are named). Raises ConfigError where k could mean either."""
    number, unit = _split(text, key, "a number of tokens such as 4096 or 8k")
    if unit.lower() not in ("", "k", "m"):
        raise ConfigError(key, f"{text!r}: {unit!r} is no unit of tokens", value=text, valid=["4096", "8k", "128k"])
    power = {"": 0, "k": 1, "m": 2}[unit.lower()]
    ten, two = number * 1000**power, number * 1024**power
    if power == 1 and number.denominator == 1 and number.numerator.bit_count() == 1:
        return int(two)  # 8k, 128k: the contexts that models are named by
    if power:
        raise ConfigError(key, f"{text!r} can be {int(ten):,} or {int(two):,} tokens; write one of them", value=text)
    return _whole(number, text, key)


def read_bytes(text: str | int, key: str) -> int:
    """An amount of memory: `80GB` (10^9), `1.5GiB` (2^30), `4096`. Raises ConfigError where it could be either."""
    number, unit = _split(text, key, "an amount of memory such as 80GB, 1.5GiB or a number of bytes")
    if unit in _BYTES or not unit:
        return _whole(number * _BYTES[unit or "B"], text, key)
    letter = unit[0].upper()
    if letter in "KMGT" and (unit[1:] in ("", "i", "b", "ib")):
        ten, two = int(number * _BYTES[f"{letter}B"]), int(number * _BYTES[f"{letter}iB"])
        problem = f"{text!r} can be {ten:,} bytes ({letter}B) or {two:,} bytes ({letter}iB); write one of them"
        raise ConfigError(key, problem, value=text)
    raise ConfigError(key, f"{text!r}: {unit!r} is no unit of memory", value=text, valid=list(_BYTES))


def read_bandwidth(text: str | int, key: str) -> int:
    """Bytes a second: `3.35TB/s`, `900GB/s`. Raises ConfigError as `read_bytes` does."""
    return read_bytes(str(text).strip().removesuffix("/s"), key)


_POWERS = {"": 1, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_RATES = {power + what: size for power, size in _POWERS.items() for what in ("", "FLOP/s", "FLOPS", "OP/s", "OPS")}


def read_flop_rate(text: str | int, key: str) -> int:
    """FLOP/s, of whole numbers OP/s: `989.4TFLOP/s`, `1979TOPS`, `312T`. Raises ConfigError under `key`."""
    per_second = str(text).strip().endswith("/s")
    number, unit = _split(str(text).strip().removesuffix("/s"), key, "a rate such as 989.4TFLOP/s")
    unit += "/s" if per_second else ""
    if unit not in _RATES:
        valid = ["GFLOP/s", "TFLOP/s", "PFLOP/s", "TOP/s"]
        raise ConfigError(key, f"{text!r}: {unit!r} is no unit of FLOP/s", value=text, valid=valid)
    return _whole(number * _RATES[unit], text, key)


def _split(text: str | int, key: str, wanted: str) -> tuple[Fraction, str]:
    """The number, above zero, and what stands after it."""
    found = re.fullmatch(r"\s*([0-9][0-9_]{0,39}(?:\.[0-9]{1,30})?)\s*([A-Za-z]*)\s*", str(text))
    if found is None or isinstance(text, bool):
        raise ConfigError(key, f"{text!r} is not {wanted}", value=text)
    number = Fraction(found[1].replace("_", ""))
    if not number:
        raise ConfigError(key, f"{text} must be above zero", value=text)
    return number, found[2]


def _whole(number: Fraction, text: str | int, key: str) -> int:
    if number.denominator != 1:
        raise ConfigError(key, f"{text!r} is not a whole number: {float(number):,}", value=text)
    return int(number)
