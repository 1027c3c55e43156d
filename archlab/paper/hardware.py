"""archlab hardware: the devices that costs can be held against."""

from __future__ import annotations

from typing import Any

from archlab.document import Column, Document, Table
from archlab.hardware import Hardware, hardware, names

DENSE = "dense, as the datasheet says; - where it says nothing"
SHOWN = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")
COLUMNS = (
    Column("hardware"),
    Column("memory", "B", "", "as the driver counts it, where that is known"),
    Column("bandwidth", "GB/s", "", "of this memory"),
    *(Column(dtype, "TFLOP/s", "", DENSE) for dtype in SHOWN),
    Column("interconnect", "GB/s", "", "from one device to the others, both directions together"),
    Column("joined", "devices", "", "so many does the interconnect join"),
    Column("device"),
    Column("source"),
)


def document(name: str | None = None) -> Document:
    """One device, or all of them. Raises ConfigError for one that is not known."""
    rows = [_row(key, hardware(key)) for key in ([name] if name else names())]
    about = "peaks dense in TFLOP/s, int8 in TOP/s; bandwidth and interconnect in GB/s (10^9)"
    return Document(command="hardware", model="", tables=[Table("hardware", "Hardware", COLUMNS, rows, about)])


def _row(key: str, device: Hardware) -> dict[str, Any]:
    return {
        "hardware": key,
        "memory": device.memory,
        "bandwidth": _giga(device.bandwidth),
        **{dtype: _tera(device.peak(dtype)) for dtype in SHOWN},
        "interconnect": _giga(device.interconnect),
        "joined": device.devices_per_node,
        "device": device.name,
        "source": device.source or None,
    }


def _giga(rate: int | None) -> float | None:
    return None if rate is None else rate / 1e9


def _tera(rate: int | None) -> float | None:
    return None if rate is None else rate / 1e12
