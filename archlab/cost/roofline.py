"""Roofline: the least time that a pass takes on a device, from what it computes and what it must move.

    compute   FLOPs / peak of the dtype: arithmetic without a pause
    memory    bytes / bandwidth: every weight that is used read once, what the cache must give and take
    link      bytes that a device must send to the others / interconnect, one way

The slowest of the three is a bound: nothing on this device is faster, what runs is slower. Williams et al. 2009. Not
counted, so that it stays one: activations (what one layer hands to the next may stay on the chip), launches, waiting.
What is not known of a device bounds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from archlab.components.block.spec import Parallel
from archlab.components.locality import Locality
from archlab.cost.flops import decode_by_part, flops
from archlab.cost.kv import kept_bytes, read_bytes, state_bytes
from archlab.cost.shards import Weights, check_split, up, weights
from archlab.cost.storage import Storage, kv_storage, weight_storage
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError, nearest
from archlab.frozen import Frozen, derived, replace
from archlab.hardware import Hardware
from archlab.workload import Workload

ARITHMETIC = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes an element of what matrices may be multiplied in."""


class Setting(Frozen):
    """How a model runs. dtype: of the arithmetic; weights, cache: how they are kept; tp: devices that share a layer."""

    dtype: str = "bf16"
    weights: str = "bf16"
    cache: str = "bf16"
    tp: int = 1

    def __post_init__(self) -> None:
        if self.dtype not in ARITHMETIC:
            near = nearest(str(self.dtype), ARITHMETIC)
            problem = f"{self.dtype!r} is nothing that matrices are multiplied in"
            raise ConfigError("dtype", problem, value=self.dtype, valid=ARITHMETIC, nearest=near)
        weight_storage(self.weights, "weights_dtype")
        kv_storage(self.cache, "kv_dtype")

    @classmethod
    def given(
        cls, workload: Workload, dtype: str | None, weights: str | None, cache: str | None, tp: int = 1
    ) -> Setting:
        """A setting from what was asked for, the rest from the workload; a cache is not quantised unless it says so."""
        dtype = cls(dtype or workload.weight_dtype).dtype
        weights = weights or ("fp32" if dtype == "tf32" else dtype)
        plain = weights if weight_storage(weights, "weights_dtype").plain else "bf16"
        return cls(dtype, weights, cache or workload.kv_dtype or plain, tp)

    @derived
    def weight_storage(self) -> Storage:
        return weight_storage(self.weights, "weights_dtype")

    @derived
    def cache_storage(self) -> Storage:
        return kv_storage(self.cache, "kv_dtype")

    @property
    def trained(self) -> Setting:
        """The same in training, where weights are no narrower than 16 bits."""
        kept = "fp32" if self.dtype == "tf32" else self.dtype
        return replace(self, weights=kept if weight_storage(kept).plain else "bf16")


class Work(Frozen):
    """What one pass does. tokens: those it brings on, all sequences together. flops: of all devices together.

    bytes: that each device reads and writes, by what they are. link: bytes that each must send to the others. With
    experts, bytes are an estimate: which experts are read hangs on the tokens.
    """

    phase: str
    tokens: int
    flops: int
    bytes: Mapping[str, float]
    link: int
    setting: Setting

    @property
    def moved(self) -> float:
        """Bytes of one device."""
        return sum(self.bytes.values())

    @property
    def intensity(self) -> float:
        """FLOPs a byte that is moved."""
        return self.flops / self.setting.tp / self.moved


class Bound(Frozen):
    """The least seconds of a pass by each ceiling, None where the device's datasheet gives none."""

    work: Work
    compute: float | None
    memory: float | None
    link: float | None

    @property
    def ceilings(self) -> dict[str, float]:
        """Those that are known."""
        found = {"compute": self.compute, "memory": self.memory, "link": self.link}
        return {name: seconds for name, seconds in found.items() if seconds is not None}

    @property
    def binds(self) -> str | None:
        """The ceiling that is reached first."""
        found = self.ceilings
        return max(found, key=found.__getitem__, default=None)

    @property
    def seconds(self) -> float | None:
        """The least time, None where nothing is known."""
        return max(self.ceilings.values(), default=None)

    @property
    def tok_s(self) -> float | None:
        """The most tokens a second."""
        seconds = self.seconds
        return None if seconds is None else self.work.tokens / seconds


def bound(work: Work, device: Hardware) -> Bound:
    """What a device bounds a pass by."""
    setting = work.setting
    peak, way = device.peak(setting.dtype), device.interconnect
    return Bound(
        work=work,
        compute=work.flops / (setting.tp * peak) if peak else None,
        memory=work.moved / device.bandwidth if device.bandwidth else None,
        link=2 * work.link / way if way and work.link else None,  # of both directions together
    )


def ridge(device: Hardware, dtype: str) -> float | None:
    """FLOPs a byte above which arithmetic binds and below which memory does, None where either is not known."""
    peak = device.peak(dtype)
    return peak / device.bandwidth if peak and device.bandwidth else None


class Passes(Frozen):
    """The passes of a model in one setting. Weights are looked at once, each pass after that is cheap."""

    spec: DecoderSpec
    setting: Setting = Setting()

    def __post_init__(self) -> None:
        if self.setting.tp != 1:
            check_split(self.spec, self.setting.tp)

    @derived
    def weights(self) -> Weights:
        """Of one device."""
        return weights(self.spec, self.setting.weight_storage, self.setting.tp)

    @derived
    def _written(self) -> list[int]:
        """Bytes of a token that one device keeps, of each kind of layer."""
        storage, tp = self.setting.cache_storage, self.setting.tp
        return [len(at) * kept_bytes(layer.attention, storage, tp) for layer, at in self.spec.layer_kinds]

    @derived
    def _read(self) -> list[int]:
        """Bytes of an earlier token that one device reads in a decode step, of each kind of layer."""
        storage, tp = self.setting.cache_storage, self.setting.tp
        return [len(at) * read_bytes(layer.attention, storage, tp) for layer, at in self.spec.layer_kinds]

    @derived
    def _state(self) -> int:
        """Bytes that all layers keep of a sequence however long it is."""
        storage = self.setting.cache_storage
        return sum(len(at) * state_bytes(layer, storage) for layer, at in self.spec.layer_kinds)

    @property
    def _localities(self) -> list[Locality]:
        """How far back each kind of layer sees."""
        return [layer.attention.locality for layer, _ in self.spec.layer_kinds]

    def decode(self, batch: int, context: int) -> Work:
        """One token more for each of `batch` sequences with `context` tokens cached.

        Of the cache each layer reads what the new token sees before itself, and writes one token. A layer that shares
        another's keys and values reads them again, and writes none (Brandon et al. 2024). What is kept however long a
        sequence is, is read and written whole.
        """
        seen = [locality.pairs(context + 1) - locality.pairs(context) - 1 for locality in self._localities]
        read = self._state + sum(size * tokens for size, tokens in zip(self._read, seen, strict=True))
        written = self._state + sum(self._written)
        moved = self._weights_read(batch) | {"cache read": batch * read, "cache written": batch * written}
        return self._work("decode", batch, batch * sum(decode_by_part(self.spec, context, 1).values()), moved)

    def prefill(self, batch: int, context: int, convention: str = "causal", logits: str = "last") -> Work:
        """The prompts, `batch` x `context` tokens, into an empty cache.

        Weights are read once. Keys and values are written as far back as later tokens see them; they are read on the
        chip. convention: of `flops`. logits: of the last position, which is all that serving needs, or of all.
        """
        tokens = batch * context
        kept = [locality.kept(context) for locality in self._localities]
        written = self._state + sum(size * count for size, count in zip(self._written, kept, strict=True))
        moved = self._weights_read(tokens) | {"cache written": batch * written}
        count = flops(self.spec, batch, context, 0, convention).prefill
        head = self.spec.head
        if logits == "last" and not head.last_token_only:
            count -= batch * (head.flops(context) - head.flops(1))
        return self._work("prefill", tokens, count, moved)

    def train(self, batch: int, context: int, convention: str = "causal") -> Work:
        """Forward, backward and an AdamW step on `batch` x `context` tokens, all kept in the dtype of the weights.

        The backward pass computes twice what the forward pass does. Weights are read by both and read and written by
        the step; gradients are written and read; two moments are read and written.
        """
        tokens, held = batch * context, self.weights.total
        passes = self._weights_read(tokens)
        moved = {name: 2 * size for name, size in passes.items() if name != "embedding rows"}
        moved |= {"embedding rows": passes["embedding rows"], "weights updated": 2 * held}
        moved |= {"gradients": 2 * held, "optimizer": 4 * held}
        count = 3 * flops(self.spec, batch, context, 0, convention).prefill
        return self._work("train", tokens, count, moved, passes=2)

    def _weights_read(self, tokens: int) -> dict[str, float]:
        """Bytes of weights that a pass of so many tokens reads."""
        held = self.weights
        moved: dict[str, float] = {"weights": held.whole}
        if held.experts:
            moved["experts"] = held.read_experts(tokens)
        rows = min(tokens, self.spec.vocab_size)
        return moved | {"embedding rows": up(rows, self.setting.tp) * held.row}

    def _work(self, phase: str, tokens: int, count: int, moved: Mapping[str, float], passes: int = 1) -> Work:
        setting, spec = self.setting, self.spec
        sums = sum((1 if isinstance(layer.block, Parallel) else 2) * len(at) for layer, at in spec.layer_kinds)
        link = passes * sums * tokens * spec.d_model * ARITHMETIC[setting.dtype] if setting.tp > 1 else 0
        return Work(phase, tokens, count, moved, link, setting)
