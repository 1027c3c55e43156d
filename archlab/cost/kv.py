"""KV cache: exact bytes, from the tensors that each layer's attention says it keeps.

A layer with a window of W needs W tokens, the current one included; a layer with chunks, one chunk. Others count
otherwise: transformers keeps W - 1 between steps, engines keep full blocks or a batch more.
"""

from __future__ import annotations

from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.errors import ConfigError
from archlab.frozen import Frozen
from archlab.units import dtype_bytes, dtype_name


class LayerCache(Frozen):
    """One kind of layer: where it stands, and the bytes that one such layer keeps, all sequences together.

    tokens: of each sequence, as far as the layer sees. bytes_per_token: of one sequence. allocated: see KVCacheCost.
    """

    layers: tuple[int, ...]
    bytes_per_token: int
    tokens: int
    bytes: int
    allocated: int


class KVCacheCost(Frozen):
    """What `batch` sequences of `context` tokens keep.

    bytes: what the architecture requires, each layer capped at what it can see. allocated: what archlab's own KVCache
    of that length takes; it keeps a ring of as many slots, so that they agree. bytes_per_token: by how much one
    sequence grows, all layers, while it is shorter than every window.
    """

    batch: int
    context: int
    dtype: str
    bytes: int
    allocated: int
    bytes_per_token: int
    by_layer: list[LayerCache]


def kv_cache(spec: DecoderSpec, batch: int = 1, context: int | None = None, dtype: str = "bf16") -> KVCacheCost:
    """The cache that `batch` sequences of `context` tokens need (default: the model's context)."""
    context = spec.context if context is None else context
    for name, value in (("batch", batch), ("context", context)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(name, f"{value!r} is not a whole number of 1 or more", value=value)
    width = dtype_bytes(dtype)
    by_layer = []
    for layer, indices in spec.layer_kinds:
        per_token = elements_per_token(layer) * width
        kept = layer.attention.locality.kept(context)
        needed = per_token * batch * kept
        by_layer.append(LayerCache(indices, per_token, kept, needed, needed))
    return KVCacheCost(
        batch=batch,
        context=context,
        dtype=dtype_name(dtype),
        bytes=sum(kind.bytes * len(kind.layers) for kind in by_layer),
        allocated=sum(kind.allocated * len(kind.layers) for kind in by_layer),
        bytes_per_token=sum(kind.bytes_per_token * len(kind.layers) for kind in by_layer),
        by_layer=by_layer,
    )


def elements_per_token(layer: LayerSpec) -> int:
    """Cached elements a token in one layer."""
    return layer.attention.cached_elements
