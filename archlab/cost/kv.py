"""KV cache: exact bytes, from the tensors that each layer's attention says it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.errors import ConfigError
from archlab.units import dtype_bytes, dtype_name


@dataclass(frozen=True)
class LayerCache:
    """One kind of layer: where it stands, and the bytes that one such layer keeps, all sequences together."""

    layers: tuple[int, ...]
    bytes_per_token: int
    bytes: int


@dataclass(frozen=True)
class KVCacheCost:
    """bytes: the whole cache for `batch` sequences of `context` tokens. bytes_per_token: all layers, one sequence."""

    batch: int
    context: int
    dtype: str
    bytes: int
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
        by_layer.append(LayerCache(indices, per_token, per_token * batch * context))
    return KVCacheCost(
        batch=batch,
        context=context,
        dtype=dtype_name(dtype),
        bytes=sum(kind.bytes * len(kind.layers) for kind in by_layer),
        bytes_per_token=sum(kind.bytes_per_token * len(kind.layers) for kind in by_layer),
        by_layer=by_layer,
    )


def elements_per_token(layer: LayerSpec) -> int:
    """Cached elements a token in one layer."""
    return sum(tensor.elements_per_token for tensor in layer.attention.cache())
