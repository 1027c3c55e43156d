"""What a token costs by the conventions that people name, each a function of its own that no other is mixed into.

`full` and `causal` are exact; the others are what papers and tools count in their place. N and the widths are those of
the very model: of a mixture the experts that a token is sent to, and for H Q of heads whose keys and values differ in
width the mean of both. Formulas written for attention over all tokens know no window, and so use none.

Sources: Kaplan et al. 2020, section 2.1 and table 1; Hoffmann et al. 2022 (Chinchilla), appendix F; Chowdhery et al.
2022 (PaLM), appendix B; Dao et al. 2022 (FlashAttention), section 3.1, for the recompute.
"""

from __future__ import annotations

from collections.abc import Callable

from archlab.cost.flops import prefill_parts
from archlab.cost.params import parameters
from archlab.decoder.spec import DecoderSpec
from archlab.frozen import Frozen
from archlab.written import named


class Cost(Frozen):
    """FLOPs of one sequence of `tokens`: `forward`, and `trained`, forward and backward."""

    tokens: int
    forward: int
    trained: int

    @property
    def forward_per_token(self) -> float:
        return self.forward / self.tokens

    @property
    def trained_per_token(self) -> float:
        return self.trained / self.tokens


class Convention(Frozen):
    """A way of counting. formula: of a trained token, in its source's letters; says: what N or the factor is."""

    formula: str
    says: str
    cost: Callable[[DecoderSpec, int], Cost]


def _thrice(tokens: int, forward: int) -> Cost:
    """The backward pass multiplies each product's two sides by what comes back: twice the forward pass."""
    return Cost(tokens, forward, 3 * forward)


def full(spec: DecoderSpec, tokens: int) -> Cost:
    """Every matmul, over every (query, key) pair."""
    return _thrice(tokens, sum(prefill_parts(spec, tokens, "full").values()))


def causal(spec: DecoderSpec, tokens: int) -> Cost:
    """Every matmul, over the pairs that see each other: about half, or those in a window."""
    return _thrice(tokens, sum(prefill_parts(spec, tokens, "causal").values()))


def recomputed(spec: DecoderSpec, tokens: int) -> Cost:
    """`causal`, and the scores once more in the backward pass, as fused attention does, which keeps none of them."""
    once, again = causal(spec, tokens), 0
    for layer, count in spec.layer_counts:
        again += 2 * count * layer.attention.locality.pairs(tokens) * layer.attention.q_width
    return Cost(tokens, once.forward, once.trained + again)


def six_n(spec: DecoderSpec, tokens: int) -> Cost:
    """2 N forward, 4 N backward, no attention."""
    return _thrice(tokens, 2 * tokens * n_active(spec))


def six_n_no_lookup(spec: DecoderSpec, tokens: int) -> Cost:
    """The same with the parameters that a token is multiplied by."""
    return _thrice(tokens, 2 * tokens * n_without_lookup(spec))


def palm(spec: DecoderSpec, tokens: int) -> Cost:
    """2 N + 4 L H Q T forward."""
    return _thrice(tokens, 2 * tokens * n_active(spec) + scores(spec, tokens))


def chinchilla(spec: DecoderSpec, tokens: int) -> Cost:
    """Every matmul in full, the embedding as if it were one, and 3 FLOPs for each score of the softmax."""
    softmax = sum(3 * count * layer.attention.n_heads * tokens * tokens for layer, count in spec.layer_counts)
    return _thrice(tokens, full(spec, tokens).forward + 2 * tokens * spec.vocab_size * spec.d_model + softmax)


def kaplan(spec: DecoderSpec, tokens: int) -> Cost:
    """2 N + 2 n_layer n_ctx d_attn forward: half of the scores' FLOPs, and neither embedding nor head."""
    return _thrice(tokens, 2 * tokens * n_in_layers(spec) + scores(spec, tokens) // 2)


def n_active(spec: DecoderSpec) -> int:
    """Every parameter; of a mixture, those that one token uses."""
    return named(parameters(spec).active, "N")


def n_without_lookup(spec: DecoderSpec) -> int:
    """Active parameters less the token and position tables, with the head's weight, tied or not."""
    counts = parameters(spec)
    tied = spec.vocab_size * spec.d_model if counts.tied else 0
    looked_up = counts.by_part["embedding"] + counts.by_part["positions"]
    return named(counts.active - looked_up + tied, "N")


def n_in_layers(spec: DecoderSpec) -> int:
    """The weights of the matrices that a token passes inside the layers: half of its FLOPs there but for the scores."""
    once = 0
    for layer, count in spec.layer_counts:
        placed = sum(part.flops(1) for part in layer.placed)
        once += count * (layer.attention.flops(1, 0) + layer.ffn.flops(1) + placed)
    return named(once // 2, "N")


def scores(spec: DecoderSpec, tokens: int) -> int:
    """4 L H Q T^2: queries with keys and weights with values, forward, over every pair of one sequence."""
    pairs = tokens * tokens
    return sum(count * layer.attention.flops(0, pairs) for layer, count in spec.layer_counts)


CONVENTIONS = {
    "full": Convention("3 x every matmul, all pairs", "exact; attention's factor is 12", full),
    "causal": Convention("3 x every matmul, pairs in sight", "exact; attention's factor is 6", causal),
    "recomputed": Convention("causal + 2 H Q x pairs in sight", "attention's factor is 7: fused kernels", recomputed),
    "6n": Convention("6 N", "N all active parameters; no attention", six_n),
    "6n_no_lookup": Convention("6 N", "N less lookup tables, a tied head counted; no attention", six_n_no_lookup),
    "palm": Convention("6 N + 12 L H Q T", "N all active parameters", palm),
    "chinchilla": Convention("full + 3 (2 V d + 3 L H T)", "lookup as a matmul, softmax counted", chinchilla),
    "kaplan": Convention("6 N + 6 n_layer n_ctx d_attn", "N in layers alone: no embedding, no head", kaplan),
}
"""By name; the first two are exact, the third is what a fused kernel runs, the others are estimates."""
