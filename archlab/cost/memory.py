"""Memory, estimated: what inference and one training step need, part by part, a little on the high side.

    weights      parameters x bytes of the dtype
    gradients    the same again, training only; a tied embedding's twice, from the head and from the lookup
    optimizer    two AdamW moments in the dtype of the weights, training only: 2 x weights
    cache        the KV cache of `prompt` + `new` tokens, inference only
    activations  tokens x bytes a token; in inference those of the one layer that is running, in training those
                 that every layer keeps for the backward pass (after Korthikanti et al. 2022, section 4, but with
                 fused attention, which keeps no scores, and with norms that keep a float32 copy)
    logits       inference: of the last position, and a float32 copy; training: of all positions, with the float32
                 copy, the log-softmax and the gradient that the loss makes

Not counted: the code and the context of torch itself, and what an allocator rounds up.
"""

from __future__ import annotations

from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.frozen import Frozen, values_of
from archlab.units import dtype_bytes
from archlab.workload import Workload

FP32 = 4
"""Bytes of the float32 in which norms, softmax and the loss are computed, whatever the dtype."""


class Memory(Frozen):
    """Bytes by part."""

    weights: int
    gradients: int
    optimizer: int
    cache: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """The parts that are there, by name."""
        return {name: count for name, count in values_of(self).items() if count}


def inference_memory(spec: DecoderSpec, workload: Workload) -> Memory:
    """Bytes at the peak of a prefill of [batch, prompt] tokens into a cache of the whole run."""
    width = dtype_bytes(workload.weight_dtype)
    tokens = workload.batch * workload.prompt
    live = max(_live_bytes(layer, width, workload.length) for layer, _ in spec.layer_kinds)
    live += _shared_bytes(spec, width)
    return Memory(
        weights=parameters(spec).total * width,
        gradients=0,
        optimizer=0,
        cache=kv_cache(spec, workload.batch, workload.length, workload.cache_dtype).allocated,
        activations=tokens * live,
        logits=workload.batch * spec.head.width * (width + FP32),
    )


def training_memory(spec: DecoderSpec, workload: Workload) -> Memory:
    """Bytes at the peak of one step on [batch, prompt] tokens: forward, loss, backward, fused AdamW."""
    width = dtype_bytes(workload.weight_dtype)
    tokens = workload.batch * workload.prompt
    weights = parameters(spec).total * width
    live = max(_live_bytes(layer, width, workload.prompt) for layer, _ in spec.layer_kinds)
    kept = sum(len(indices) * _kept_bytes(layer, width, workload.prompt) for layer, indices in spec.layer_kinds)
    twice = spec.vocab_size * spec.d_model * width if spec.head.tied else 0
    rows = workload.batch if spec.head.last_token_only else tokens
    return Memory(
        weights=weights,
        gradients=weights + twice,
        optimizer=2 * weights,
        cache=0,
        activations=tokens * (kept + live + _norm_bytes(spec.d_model, width)),
        logits=rows * spec.head.width * (width + 3 * _wide(width)),
    )


def _wide(width: int) -> int:
    """Bytes an element where statistics, softmax and the loss are computed."""
    return max(width, FP32)


def _norm_bytes(features: int, width: int) -> int:
    """What a norm holds of one token beside its output: the input and the normalised input in float32."""
    return 2 * _wide(width) * features


def _score_bytes(layer: LayerSpec, width: int, keys: int) -> int:
    """The score matrix's rows of one token, where they are built, and the keys and values repeated for each head."""
    scores = layer.attention.n_heads * keys * (width + _wide(width))
    return scores + 2 * _wide(width) * layer.attention.q_width


def _mask_bytes(layer: LayerSpec, width: int, keys: int) -> int:
    """A mask's rows of one token, where there is one: bool, and as numbers; a row a head where heads differ."""
    by_head = layer.position.biases or layer.attention.has_sinks
    if not by_head and layer.attention.locality.kept(keys) == keys:
        return 0
    return keys * (1 + width + (2 * _wide(width) * layer.attention.n_heads if by_head else 0))


def _shared_bytes(spec: DecoderSpec, width: int) -> int:
    """Bytes a token of the keys and values that are held on for layers that share them, where no cache has them all."""
    kinds = dict(zip(spec.shared_kv, spec.layers, strict=True)).items()
    attentions = [layer.attention for kind, layer in kinds if kind is not None]
    return sum(2 * width * attention.kv_width for attention in attentions if attention.locality.limit is not None)


def _live_bytes(layer: LayerSpec, width: int, keys: int) -> int:
    """Bytes a token while one layer runs: the residual stream twice, a norm, and the larger of its two branches."""
    attention, ffn = layer.attention, layer.ffn
    branch = width * (3 * attention.q_width + 3 * attention.kv_width) + 3 * _wide(width) * attention.q_width
    branch += _mask_bytes(layer, width, keys)
    if attention.backend_used == "math":
        branch += _score_bytes(layer, width, keys)
    return 2 * width * ffn.d_model + _norm_bytes(ffn.d_model, width) + max(branch, width * ffn.middle_elements)


def _kept_bytes(layer: LayerSpec, width: int, keys: int) -> int:
    """Bytes a token that one layer keeps for the backward pass."""
    attention, ffn, dropout = layer.attention, layer.ffn, layer.dropout
    kept = len(layer.block.norm_names) * _norm_bytes(ffn.d_model, width)
    if attention.qk_norm_widths:
        kept += _norm_bytes(attention.q_width + attention.own_kv_width, width)
    # input; q, k, v; q and k once turned; the result by head, and merged for the output projection
    kept += width * (ffn.d_model + 4 * attention.q_width + 3 * attention.own_kv_width)
    if attention.backend_used == "math" or dropout.attention:
        kept += _score_bytes(layer, width, keys)
    if dropout.attention:
        kept += 2 * _wide(width) * attention.n_heads * keys
    kept += width * (ffn.d_model + ffn.middle_elements)
    return kept + (width + 1) * ffn.d_model * sum(rate > 0 for rate in (dropout.residual, dropout.ffn))
