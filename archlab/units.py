"""Units: bytes are binary (KiB, MiB, GiB), counts are powers of ten (k, M, B, T), dtypes have short names."""

from __future__ import annotations

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


def show_flops(count: float) -> str:
    """`291.65 GFLOP`."""
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:,.2f} {unit}FLOP"
    return f"{count:,.0f} FLOP"
