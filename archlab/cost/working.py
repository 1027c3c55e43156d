"""What a layer makes while it runs and lets go again, by two ways to run it. Both are estimates.

    running          archlab's own modules, operation by operation: every tensor that their tapes make
    engine_elements  a serving engine's fused kernels: what stands between them, and nothing inside

The second is no more than the first for the FFNs and attentions here, as a test holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from archlab.components.ffn.spec import FFN, FeedForward, MixtureOfExperts
from archlab.components.tape import Tape
from archlab.cost.activations import masked
from archlab.decoder.spec import DecoderSpec, LayerSpec


class Work(Protocol):
    def tape(self) -> Tape: ...


def running(layers: Sequence[LayerSpec], work: Work) -> int:
    """Bytes: the most that one of these layers makes while it runs, and the masks."""
    tape = work.tape()
    masks = [alike[0].position.mask_on_tape(tape) for alike in masked(layers, tape)]
    return sum(mask.buffer.bytes for mask in masks) + max(_made(layer, work) for layer in layers)


def _made(layer: LayerSpec, work: Work) -> int:
    """The residual stream before and after a branch, a norm, and all that the larger branch makes."""
    sizes = []
    for branch in (layer.attention_on_tape, layer.ffn_on_tape):
        tape = work.tape()
        x = tape.new(layer.attention.d_model)
        branch(tape, layer.norm.on_tape(tape, x))
        sizes.append(tape.made + x.buffer.bytes)
    return max(sizes)


def engine_elements(spec: DecoderSpec, tp: int = 1) -> int:
    """Elements a token that stand at once while an engine runs a prefill step, on one of `tp` devices.

    The residual stream, its normalised copy and what is added to it; beside them queries, keys, values and the result
    of attention, or the FFN's middle with its activation fused. For Llama-3.1-8B this gives 110,592 B a token in bf16;
    vLLM 0.6 profiled 0.92 GiB more for 9,000 tokens more, 109,757 B a token (vllm-project/vllm#10517).
    """
    layers = [layer.share(tp, 1) if tp > 1 else layer for layer, _ in spec.layer_kinds]
    return max(3 * spec.d_model + max(_heads(layer), _middle(layer.ffn)) for layer in layers)


def _heads(layer: LayerSpec) -> int:
    return 2 * layer.attention.q_width + 2 * layer.attention.kv_width


def _middle(ffn: FFN) -> int:
    """Elements of an FFN's middle; of each expert that a token is sent to, and of its copy of the token."""
    if isinstance(ffn, MixtureOfExperts):
        shared = 0 if ffn.shared is None else _middle(ffn.shared)
        return ffn.experts_per_token * (_middle(ffn.expert) + 2 * ffn.d_model) + shared
    if isinstance(ffn, FeedForward):
        return (ffn.n_up + 1) * ffn.d_ff
    tape = Tape(1, 1, "bf16")
    ffn.on_tape(tape, tape.new(ffn.d_model), 0.0)
    return tape.made // tape.width
