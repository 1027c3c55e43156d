"""What fits: the memory that serving takes on one device; the largest context and batch, the fewest devices, by search.

    budget        utilisation x memory - reserve
    weights       of one of `tp` devices, in the dtype that they are kept in; all experts, whichever a token uses
    cache         what the engine sets aside, by whole blocks
    activations   of one prefill step, estimated: cost/working.py, as an engine runs it
    logits        of a decode step: a row a sequence, in the dtype of the arithmetic and in float32

All of it grows with context and with batch, so that what fits is found by bisection on the sum itself: no formula is
turned round, and no curve is extended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from archlab.cost.kv import PAGED, Engine, kv_cache
from archlab.cost.roofline import ARITHMETIC, Setting
from archlab.cost.shards import check_split, valid_split, weights
from archlab.cost.storage import weight_storage
from archlab.cost.working import engine_elements
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError, check_whole
from archlab.frozen import Frozen, derived, replace, values_of
from archlab.hardware import Hardware

FP32 = 4
"""Bytes of a logit that is sampled from."""

MOST = 2**40
"""Tokens or sequences past which there is no end."""


class Serving(Frozen):
    """How a model is served. chunk: tokens that one prefill step takes at most, None for the whole prompts at once.

    utilisation: share of the device's memory that may be used; reserve: bytes of it that the driver and the engine's
    own code take.
    """

    setting: Setting = Setting()
    engine: Engine = PAGED
    utilisation: float = 0.9
    reserve: int = 2**30
    chunk: int | None = 8192

    def __post_init__(self) -> None:
        if not 0 < self.utilisation <= 1:
            problem = f"{self.utilisation} is no share: above 0, at most 1"
            raise ConfigError("utilisation", problem, value=self.utilisation)
        if self.chunk is not None:
            check_whole("chunk", self.chunk)

    def budget(self, device: Hardware) -> int:
        """Bytes of one device that a model may take. Raises ConfigError where its memory is not known."""
        if device.memory is None:
            problem = f"the memory of {device.name} is not known; set it, such as hardware.memory=80GiB"
            raise ConfigError("hardware.memory", problem)
        return int(self.utilisation * device.memory) - self.reserve


class Need(Frozen):
    """Bytes on one device, by part."""

    weights: int
    cache: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        return sum(values_of(self).values())


class Fit(Frozen):
    """A model, how it is served, and a device whose memory is known."""

    spec: DecoderSpec
    serving: Serving
    device: Hardware

    def __post_init__(self) -> None:
        self.serving.budget(self.device)
        check_split(self.spec, self.tp)

    @property
    def tp(self) -> int:
        return self.serving.setting.tp

    @property
    def budget(self) -> int:
        """Bytes of one device that the model may take."""
        return self.serving.budget(self.device)

    @derived
    def _weights(self) -> int:
        setting = self.serving.setting
        return weights(self.spec, weight_storage(setting.weights, "weights_dtype"), setting.tp).total

    @derived
    def _live(self) -> int:
        """Bytes a token of a prefill step."""
        width = ARITHMETIC[self.serving.setting.dtype]
        return width * engine_elements(self.spec, self.tp)

    def need(self, context: int, batch: int) -> Need:
        """What `batch` sequences of `context` tokens take on one device."""
        serving = self.serving
        setting, chunk = serving.setting, serving.chunk
        tokens = batch * context if chunk is None else min(batch * context, chunk)
        kept = kv_cache(self.spec, batch, context, setting.cache, tp=setting.tp, engine=serving.engine)
        logits = batch * self.spec.head.width * (ARITHMETIC[setting.dtype] + FP32)
        return Need(self._weights, kept.engine, tokens * self._live, logits)

    def left(self, context: int, batch: int) -> int:
        """Bytes of the budget that stay free; below zero, what it is short by."""
        return self.budget - self.need(context, batch).total

    def largest_context(self, batch: int) -> int | None:
        """The most tokens a sequence, 0 where not even one fits, None where memory sets no end."""
        end = self.spec.max_length
        found = largest(lambda context: self.left(context, batch) >= 0, end or MOST)
        return None if found == MOST else found

    def largest_batch(self, context: int) -> int:
        """The most sequences, 0 where not even one fits."""
        return largest(lambda batch: self.left(context, batch) >= 0, MOST)

    def at(self, tp: int) -> Fit:
        """The same on another number of devices."""
        return replace(self, serving=replace(self.serving, setting=replace(self.serving.setting, tp=tp)))

    def smallest_tp(self, context: int, batch: int) -> int | None:
        """The fewest devices that hold it, of those that can share the heads; None where none of these do."""
        return first(valid_split(self.spec), lambda tp: self.at(tp).left(context, batch) >= 0)


def largest(holds: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` for which it holds, where it holds for all below such a one; 0 for none."""
    if not holds(1):
        return 0
    good, bad = 1, 2
    while bad <= most and holds(bad):
        good, bad = bad, 2 * bad
    if bad > most:
        if holds(most):
            return most
        bad = most
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def first(choices: Iterable[int], holds: Callable[[int], bool]) -> int | None:
    """The first choice for which it holds."""
    return next((choice for choice in choices if holds(choice)), None)
