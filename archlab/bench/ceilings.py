"""What this very device does at best, measured beside the phases that it bounds: reads, copies, matrix products."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from archlab.bench.clock import Call, quantile
from archlab.bench.device import Device
from archlab.components.product import blocks, has_onednn, onednn
from archlab.decoder.dtype import torch_dtype
from archlab.record import Figure
from archlab.units import show_bytes

SHARE, LONGEST = 1 / 3, 1.0
"""Of a phase's time budget that one ceiling takes, and the most seconds that it does."""

LEAST_RUNS, MOST_RUNS = 3, 200
LEAST_MOVED = 2**26
"""Bytes that one timed call moves at least, over and over where the working set is smaller: a call's own start is not
to be what is measured."""

MOST_MOVED = 2**30
"""Bytes of the largest working set: beyond every cache, a rate no longer hangs on it."""

NEAR = 0.1
"""Working sets that differ by no more than this share are measured once."""

SIZES, EMULATED = (1024, 2048, 4096, 8192), (256,)
"""Of square products; small ones wait for threads more than they multiply. What is emulated takes its time at any."""

ROW = 1024
"""Features of the rows of a matrix that is read."""

LONG_PRODUCT = 5e-3
"""Seconds of a product beyond which none larger is tried."""


class Ceilings:
    """The ceilings of one device, each measured when it is first asked for. seconds: the time budget of a phase."""

    def __init__(self, device: Device, seconds: float) -> None:
        self.device, self.seconds = device, min(LONGEST, SHARE * seconds)
        self._products: dict[str, Figure] = {}
        self._reads: dict[int, Figure] = {}
        self._copies: dict[int, Figure] = {}

    def forget(self) -> None:
        """Measure anew what is asked for from now on."""
        for known in (self._products, self._reads, self._copies):
            known.clear()

    def matmul(self, dtype: str) -> Figure:
        """FLOP/s of a square matrix product in a dtype, at the size at which it is fastest."""
        if dtype not in self._products:
            self._products[dtype] = max(self._matmuls(dtype), key=lambda figure: figure.value or 0)
        return self._products[dtype]

    def read(self, working_set: int) -> Figure:
        """B/s read, over and over, from a working set of so many bytes: a small one lives in a cache."""
        return self._kept(self._reads, working_set, self._read)

    def copy(self, working_set: int) -> Figure:
        """B/s read and written, both counted, by copying one half of a working set to the other."""
        return self._kept(self._copies, working_set, self._copy)

    def _kept(self, known: dict[int, Figure], working_set: int, make: Callable[[int], Figure]) -> Figure:
        size = max(2**10, min(working_set, MOST_MOVED, self.device.available() // 4)) // 8 * 8
        near = next((held for held in known if abs(size / held - 1) <= NEAR), None)
        if near is None:
            near, known[size] = size, make(size)
            self.device.release()
        return known[near]

    def _matmuls(self, dtype: str) -> Iterator[Figure]:
        for size in SIZES if self.device.supports(dtype) else EMULATED:
            a, b, c = (self._random(size, dtype) for _ in range(3))
            flops = 2 * size**3
            calls = {"torch.mm": functools.partial(torch.mm, a, b, out=c)}
            if self._on_cpu and has_onednn(a.dtype):
                calls["oneDNN"] = functools.partial(onednn, a, b, None)
            figure = self._best_of(calls, flops, "FLOP/s", f"{size} x {size} {dtype} product")
            yield figure
            if flops / (figure.value or math.inf) > LONG_PRODUCT:
                return

    def _read(self, size: int) -> Figure:
        rows, width = max(1, size // 4 // ROW), min(size // 4, ROW)
        held, again = self._ones(rows * width).view(rows, width), max(1, LEAST_MOVED // size)
        reads: dict[str, Call] = {"torch.sum": held.sum}
        if self._on_cpu:
            reads["a matrix-vector product"] = functools.partial(blocks, held[:1], held, None)
        calls = {name: functools.partial(_repeated, read, again) for name, read in reads.items()}
        return self._best_of(calls, again * held.nbytes, "B/s", f"over {show_bytes(held.nbytes)} of fp32")

    def _copy(self, size: int) -> Figure:
        source, again = self._ones(size // 8), max(1, LEAST_MOVED // size)
        target = torch.empty_like(source)

        def call() -> None:
            for _ in range(again):
                target.copy_(source)

        return self._best(call, again * size, "B/s", f"read and written, {show_bytes(size)} in all")

    def _random(self, size: int, dtype: str) -> Tensor:
        """A matrix of random numbers: with zeros a processor stays cooler, and its clock higher than it else could."""
        return torch.randn(size, size, device=self.device.name).to(torch_dtype(dtype))

    def _ones(self, count: int) -> Tensor:
        return torch.ones(count, device=self.device.name)

    @property
    def _on_cpu(self) -> bool:
        return self.device.kind == "cpu"

    def _best_of(self, calls: Mapping[str, Call], amount: int, unit: str, what: str) -> Figure:
        """The highest rate of several ways to the same, which share the time."""
        made = (self._best(call, amount, unit, f"{name}, {what}", 1 / len(calls)) for name, call in calls.items())
        return max(made, key=lambda figure: figure.value or 0)

    def _best(self, call: Call, amount: int, unit: str, what: str, share: float = 1.0) -> Figure:
        """The highest of many rates, for a ceiling is what can be reached. share: of the time of one ceiling."""
        self.device.time(call)
        rates: list[float] = []
        spent = 0.0
        while len(rates) < LEAST_RUNS or (spent < self.seconds * share and len(rates) < MOST_RUNS):
            took = self.device.time(call)
            spent += took
            rates.append(amount / took)
        how, low, most = f"best of {len(rates)} runs on {self.device.name}", quantile(rates, 0.1), max(rates)
        return Figure(most, unit, "measured", f"{how}: {what}", low, most, len(rates), facts={"what": what})


def _repeated(call: Call, times: int) -> None:
    for _ in range(times):
        call()
