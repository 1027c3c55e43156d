"""KV cache on paper, from the tensors that each layer's attention says it keeps, in three columns.

required   what the architecture needs: a layer with a window of W needs W tokens, the current one included, a layer
           with chunks one chunk, MLA its latent. transformers keeps W - 1 between steps.
allocated  what archlab's own KVCache takes: slots for the whole length at once, a ring of them where a layer sees only
           so far. It is kept in the plain dtypes and on one device.
engine     what a serving engine sets aside while it decodes, by whole blocks: see `Engine`.

A layer that shares the keys and values of an earlier one keeps nothing, in any of them. What a layer keeps however long
a sequence is (a convolution's last inputs) is in all three.

With tensor parallelism all three are those of one device: KV heads are dealt out, and where there are more devices than
heads each has copies, so that the cluster keeps more than one device without it would. A latent, one for all heads, is
on each device (as in vLLM and Megatron-LM).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from archlab.components.attention.base import Attention, CachedTensor, divisors
from archlab.components.locality import Locality
from archlab.cost.storage import Storage, kv_storage
from archlab.decoder.spec import DecoderSpec, LayerSpec, check_spec
from archlab.errors import ConfigError, check_whole, nearest
from archlab.frozen import Frozen, remembered

ENGINES = {
    "paged": "a window's layers keep the blocks of a window and one more (vLLM)",
    "full_pages": "a window's layers keep as many as the others (vLLM without its hybrid KV cache manager)",
    "llama_cpp": "a window's layers keep cells for the window and a micro-batch (llama.cpp)",
}
"""The engines whose reservation is known, each in words."""

LLAMA_CPP_PAD = 256
"""Cells that llama.cpp rounds a cache up to (llama-kv-cache-iswa.cpp, llama-context.cpp)."""


class Engine(Frozen):
    """How a serving engine keeps a sequence. block: tokens a page; micro_batch: tokens of a prefill step of llama.cpp.

    paged: ceil(W / block) + 1 blocks of a window of W, for it may start anywhere in one (vLLM, SlidingWindowSpec; while
    it prefills, as many tokens more as it takes at once). llama_cpp: pad(min(context, W + micro_batch), 256) cells.
    """

    kind: str = "paged"
    block: int = 16
    micro_batch: int = 512

    def __post_init__(self) -> None:
        if self.kind not in ENGINES:
            near = nearest(str(self.kind), ENGINES)
            raise ConfigError("engine", f"no engine {self.kind!r}", value=self.kind, valid=ENGINES, nearest=near)
        check_whole("block", self.block)
        check_whole("micro_batch", self.micro_batch)

    @classmethod
    def given(cls, kind: str, block: int | None = None, micro_batch: int | None = None) -> Engine:
        """An engine with the sizes that were said. Raises ConfigError for one that this engine does not have."""
        sizes = {"block": block, "micro_batch": micro_batch}
        engine = cls(kind, **{name: size for name, size in sizes.items() if size is not None})
        for name, size in sizes.items():
            if size is not None and name not in engine.sizes:
                problem = f"plays no part in engine {kind}, which has {', '.join(engine.sizes)}"
                raise ConfigError(name, problem, value=size)
        return engine

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that this engine reserves by."""
        return {"micro_batch": self.micro_batch} if self.kind == "llama_cpp" else {"block": self.block}

    def slots(self, locality: Locality, context: int) -> int:
        """Tokens that one layer has room for."""
        limit = locality.limit
        if self.kind == "llama_cpp":
            return _up(context if limit is None else min(context, limit + self.micro_batch), LLAMA_CPP_PAD)
        whole = _up(context, self.block)
        if limit is None or self.kind == "full_pages":
            return whole
        return min(whole, _up(limit, self.block) + self.block)


PAGED = Engine()


def _up(count: int, step: int) -> int:
    return -(-count // step) * step


class LayerCache(Frozen):
    """One kind of layer: where it stands, and what one such layer keeps of `sequences` sequences.

    tokens: of each sequence, as far as the layer sees; slots: those that an engine has room for. bytes_per_token: of
    one sequence; state: bytes of one sequence that do not grow.
    """

    layers: tuple[int, ...]
    bytes_per_token: int
    tokens: int
    slots: int
    sequences: int
    state: int = 0

    @property
    def required(self) -> int:
        return self.sequences * (self.bytes_per_token * self.tokens + self.state)

    @property
    def allocated(self) -> int:
        """As required: archlab's rings have a slot for each token that is still seen."""
        return self.required

    @property
    def engine(self) -> int:
        return self.sequences * (self.bytes_per_token * self.slots + self.state)


class KVCacheCost(Frozen):
    """What `batch` x `beams` sequences of `context` tokens keep on one of `tp` devices, in the module's three columns.

    bytes_per_token: by how much one sequence grows, all layers, while it is shorter than every window.
    """

    batch: int
    beams: int
    context: int
    dtype: str
    tp: int
    required: int
    allocated: int
    engine: int
    bytes_per_token: int
    by_layer: list[LayerCache]

    @property
    def bytes(self) -> int:
        """What is required."""
        return self.required


def kv_cache(
    spec: DecoderSpec,
    batch: int = 1,
    context: int | None = None,
    dtype: str = "bf16",
    *,
    beams: int = 1,
    tp: int = 1,
    engine: Engine = PAGED,
) -> KVCacheCost:
    """The cache of `batch` sequences of `context` tokens (default: `spec.reach`) in a dtype of KV_STORAGE.

    beams: each keeps a copy of its own of the whole sequence. tp: devices that share the heads. Raises ConfigError, and
    RequestError for more tokens than there are positions.
    """
    check_spec(spec)
    context = spec.reach if context is None else context
    for name, value in (("batch", batch), ("context", context), ("beams", beams)):
        check_whole(name, value)
    spec.check_length(context)
    if tp != 1:
        check_tp(spec, tp)
    storage = kv_storage(dtype)
    by_layer = []
    for layer, indices in spec.layer_kinds:
        locality, each = layer.attention.locality, kept_bytes(layer.attention, storage, tp)
        kept, slots = locality.kept(context), engine.slots(locality, context)
        by_layer.append(LayerCache(indices, each, kept, slots, batch * beams, state_bytes(layer, storage)))
    return KVCacheCost(
        batch=batch,
        beams=beams,
        context=context,
        dtype=storage.name,
        tp=tp,
        required=sum(kind.required * len(kind.layers) for kind in by_layer),
        allocated=sum(kind.allocated * len(kind.layers) for kind in by_layer),
        engine=sum(kind.engine * len(kind.layers) for kind in by_layer),
        bytes_per_token=sum(kind.bytes_per_token * len(kind.layers) for kind in by_layer),
        by_layer=by_layer,
    )


@remembered
def kept_bytes(attention: Attention, storage: Storage, tp: int) -> int:
    """Bytes that one layer keeps of a token on a device."""
    return sum(token_bytes(tensor, storage, tp) for tensor in attention.cached())


@remembered
def state_bytes(layer: LayerSpec, storage: Storage) -> int:
    """Bytes that one layer keeps of a sequence however long it is; whole on each device."""
    return sum(storage.bytes(state.elements, state.shape[-1]) for state in layer.states.values())


@remembered
def read_bytes(attention: Attention, storage: Storage, tp: int) -> int:
    """Bytes that one layer reads of an earlier token on a device: its own, or those of the layer that it shares."""
    return sum(token_bytes(tensor, storage, tp) for tensor in attention.read())


def token_bytes(tensor: CachedTensor, storage: Storage, tp: int = 1) -> int:
    """Bytes of one token of one cached tensor on a device: its heads there, each a row of its own."""
    return heads_per_device(tensor, tp) * storage.bytes(tensor.width, tensor.width)


def heads_per_device(tensor: CachedTensor, tp: int) -> int:
    """Heads of a cached tensor that each of `tp` devices keeps; one where there are fewer than devices."""
    return max(1, tensor.heads // tp)


def check_tp(spec: DecoderSpec, tp: int, valid: Callable[[DecoderSpec], list[int]] | None = None) -> None:
    """Raise ConfigError where `tp` devices cannot share the heads of every layer evenly.

    valid: what names the numbers that can, where there is more to share than heads.
    """
    valid = valid or valid_tp
    check_whole("tp", tp)
    for layer, _ in spec.layer_kinds:
        heads = layer.attention.n_heads
        if heads % tp:
            raise ConfigError("tp", f"{tp} does not divide n_heads = {heads}", value=tp, valid=valid(spec))
        for tensor in layer.attention.cached():
            if not _deals(tensor, tp):
                problem = f"{tp} devices can neither share nor copy {tensor.heads} KV heads evenly"
                raise ConfigError("tp", problem, value=tp, valid=valid(spec))


def valid_tp(spec: DecoderSpec) -> list[int]:
    """The numbers of devices that can share the heads of every layer evenly, in rising order."""
    shared = divisors(math.gcd(*(layer.attention.n_heads for layer, _ in spec.layer_kinds)))
    tensors = [tensor for _, _, kept in spec.cache_kinds for tensor in kept]
    return [tp for tp in shared if all(_deals(tensor, tp) for tensor in tensors)]


def _deals(tensor: CachedTensor, tp: int) -> bool:
    return tensor.heads % tp == 0 or tp % tensor.heads == 0
