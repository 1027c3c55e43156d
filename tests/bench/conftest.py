"""A tiny model, and devices whose speed and memory are known."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from archlab.bench.clock import Call, Timer, stopwatch
from archlab.bench.device import Cpu
from archlab.decoder.resolve import resolve
from archlab.decoder.spec import DecoderSpec
from archlab.workload import BenchOptions, Workload

MODEL: dict[str, Any] = {
    "d_model": 32,
    "n_layers": 2,
    "vocab_size": 61,
    "context": 64,
    "norm": {"choice": "rmsnorm"},
    "position": {"choice": "rope"},
    "attention": {"choice": "gqa", "n_heads": 4, "n_kv_heads": 2},
    "ffn": {"choice": "swiglu"},
    "dropout": {"choice": "classic"},
    "head": {"choice": "tied"},
    "block": {"choice": "pre_norm"},
}


class Machine:
    """A pretend processor: it does `rate` units of work a second, give or take `jitter`, slower while it is cold."""

    def __init__(self, rate: float, jitter: float = 0.0, cold_seconds: float = 0.0) -> None:
        self.rate, self.jitter, self.cold_seconds = rate, jitter, cold_seconds
        self.now = 0.0
        self.calls = 0
        self.random = random.Random(0)

    def job(self, work: float) -> Call:
        """A call of `work` units."""

        def call() -> None:
            cold = self.cold_seconds if self.calls == 0 else 0.0
            self.now += work / self.rate * (1 + self.random.uniform(-self.jitter, self.jitter)) + cold
            self.calls += 1

        return call

    @property
    def timer(self) -> Timer:
        return stopwatch(lambda: self.now)


class PretendDevice(Cpu):
    """The CPU, but with `memory` bytes free and, where `seconds` is given, calls that all take as long."""

    def __init__(self, memory: int = 2**40, seconds: float | None = None) -> None:
        super().__init__()
        self.memory, self.seconds = memory, seconds
        self.releases = 0

    def available(self) -> int:
        return self.memory

    def time(self, call: Call) -> float:
        taken = super().time(call)
        return taken if self.seconds is None else self.seconds

    def release(self) -> None:
        self.releases += 1
        super().release()


def make_spec(**changes: Any) -> DecoderSpec:
    return resolve(MODEL | changes).spec


@pytest.fixture(autouse=True, scope="session")
def quick_collections() -> Iterator[None]:
    """What is there before the tests, torch above all, need not be searched at each phase's release of memory."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def spec() -> DecoderSpec:
    return make_spec()


@pytest.fixture
def model() -> dict[str, Any]:
    """The tiny model's config."""
    return MODEL


@pytest.fixture
def make() -> Callable[..., DecoderSpec]:
    return make_spec


@pytest.fixture
def with_head() -> Callable[[str], DecoderSpec]:
    return lambda choice: make_spec(head={"choice": choice})


@pytest.fixture(scope="session")
def workload() -> Workload:
    return Workload(batch=2, prompt=12, new=5, dtype="fp32")


@pytest.fixture(scope="session")
def options() -> BenchOptions:
    return BenchOptions(seconds=0.5, max_repeats=3, min_repeats=2, ceilings=False)


@pytest.fixture
def machine() -> type[Machine]:
    return Machine


@pytest.fixture
def pretend() -> type[PretendDevice]:
    return PretendDevice
