"""How numbers, options and names read. Exact figures keep every digit; measured ones keep four."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archlab.record import Figure
from archlab.units import show_bytes


def clean(text: object) -> str:
    """Text safe to print in one line: control characters (escape codes, line ends) become spaces."""
    return "".join(char if char.isprintable() else " " for char in str(text)).strip()


def whole(value: float | int) -> str:
    """Every digit, thousands separated: `63,912,192`; a fraction to two decimals."""
    return f"{int(value):,}" if value == int(value) else f"{value:,.2f}"


def digits(value: float | int) -> str:
    """Four digits or more: `12,345`, `123.4`, `1.234`, `0.01234`."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e15:
        return f"{value:.4g}"
    if size >= 1000:
        return f"{value:,.0f}"
    decimals = 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{value:.{decimals}f}" if size >= 1 else f"{value:.4g}"


def number(value: float | int, figure: Figure) -> str:
    """A figure's number, without its unit unless that is scaled: all of it when exact, four digits when measured."""
    if figure.kind == "exact":
        return whole(value)
    return show_bytes(value) if figure.unit == "B" else digits(value)


def seconds(value: float) -> str:
    """`1.234 s`, `12.34 ms`, `56.78 us`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= size:
            return f"{digits(value / size)} {unit}"
    return f"{digits(value / 1e-6)} us"


def share(part: float, total: float) -> str:
    """`7.7 %`; `<0.1 %` rather than a zero that is none."""
    percent = 100 * part / total if total else 0.0
    return "<0.1 %" if 0 < percent < 0.05 else f"{percent:.1f} %"


def value_text(value: Any) -> str:
    """A config value as YAML spells it, with thousands separated."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) and 1000 <= abs(value) < 1e15 else f"{value:.6g}"
    if isinstance(value, Mapping):
        options = options_text({name: item for name, item in value.items() if name != "choice"})
        return f"{clean(value.get('choice', ''))} ({options})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_text(item) for item in value)}]"
    return clean(value)


def options_text(options: Mapping[str, Any]) -> str:
    """`n_heads 8, n_kv_heads 4`."""
    return ", ".join(f"{clean(name)} {value_text(value)}" for name, value in options.items())


def broken(name: str, width: int) -> str:
    """A figure's name over several lines, broken after `_`, `.` or `/`, each at most `width` where that can be."""
    lines = [""]
    for piece in _pieces(name):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _pieces(name: str) -> list[str]:
    pieces = [""]
    for char in name:
        pieces[-1] += char
        if char in "_./":
            pieces.append("")
    return [piece for piece in pieces if piece]
