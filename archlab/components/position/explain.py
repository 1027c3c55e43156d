"""What the positions mean, in words."""

from __future__ import annotations

from archlab.components.position import show
from archlab.meaning import AXIS, explain
from archlab.papers import (
    ALIBI,
    GPT,
    INTERPOLATION,
    LENGTHS,
    LLAMA_3,
    LONGROPE,
    NOPE,
    NTK,
    ROPE,
    T5,
    TRANSFORMER,
    YARN,
)

explain(
    "position",
    AXIS,
    what="Tells a token where it is: by a vector added to the input, by turning queries and keys, or by a number added "
    "to the scores. Values are never touched by the last two.",
    why="Attention by itself does not see order: shuffle keys and values together and each query's result stays. Only "
    "the causal mask tells tokens apart, by how many they see.",
    sources=(TRANSFORMER.at("section 3.5"), LENGTHS),
)
explain(
    "position",
    "none",
    what="Adds nothing; the causal mask is all that a token has to tell where it is.",
    why="A causal model learns positions without being told them, and in small models longer inputs went better so "
    "than with absolute, rotary or linear ones. Some models leave rotation out of every fourth layer.",
    formula="score(m, n) = q_m . k_n",
    sources=(NOPE, LENGTHS),
)
explain(
    "position",
    "learned",
    what="Adds a trained vector for each position to the token's embedding, once, before the first layer.",
    why="The simplest there is. It ends at the last position that it has a row for, and rows that training seldom "
    "reached are poorly trained.",
    formula="x_m = embedding(token_m) + P[m + offset]",
    sources=(GPT, TRANSFORMER.at("section 3.5")),
)
explain(
    "position",
    "sinusoidal",
    what="Adds fixed sines and cosines of the position, of wavelengths that rise geometrically, to the token's "
    "embedding.",
    why="No parameters and no last position; a shift by so many tokens is the same linear map wherever it starts.",
    formula="PE(m, 2i) = sin(m base^(-2i / d_model)), PE(m, 2i + 1) = cos(m base^(-2i / d_model))",
    sources=(TRANSFORMER.at("section 3.5"),),
    shows=show.sinusoids,
)
explain(
    "position",
    "alibi",
    what="Takes from each score a penalty that grows with the distance between query and key, at a slope that each "
    "head has of its own. Nothing is added to the embedding.",
    why="Near tokens count more, and distances that training never saw go on in the same line: its authors trained on "
    "1,024 tokens and ran on 2,048.",
    formula="score(m, n) = q_m . k_n / sqrt(head_dim) - slope_h (m - n), "
    "slope_h = scale 2^(-max_bias (h + 1) / n_heads), h from 0 on, where n_heads is a power of two",
    sources=(ALIBI.at("section 3"),),
    shows=show.slopes,
)
explain(
    "position",
    "t5",
    what="Adds to each score a trained number for its head and its bucket of distance: one bucket a distance up to "
    "half of them, then buckets that widen with the logarithm. One table for all layers.",
    why="Few parameters, and distances beyond the last bucket are all alike, so that a longer run is no new thing.",
    formula="score(m, n) = q_m . k_n / sqrt(head_dim) + b[bucket(m - n), h]",
    sources=(T5.at("section 2.1"),),
    shows=show.buckets,
)

TURN = "pair i turns by m w_i at position m, w_i = base^(-2i / rotary_dim)"

explain(
    "position",
    "rope",
    what="Turns each pair of query and key features by an angle that grows with the position: fast pairs, slow pairs, "
    "and a geometric ladder between. Values are not turned.",
    why="The score of a query and a key then hangs on their distance alone, with no parameters; fast pairs tell "
    "neighbours apart, slow ones far tokens. A larger base slows the slow pairs, for longer contexts.",
    formula=f"{TURN}; score(m, n) = sum_i Re(q_i conj(k_i) e^(j (m - n) w_i))",
    sources=(ROPE.at("eq. 34"),),
    shows=show.rotation,
)
explain(
    "position",
    "linear",
    what="Rotary positions with every position divided by a factor, so that a longer run keeps to the angles that "
    "training saw.",
    why="Interpolating is safer than running on into angles never seen; after little fine-tuning it reaches a context "
    "many times longer. Neighbours are told apart less well, for the fast pairs are slowed too.",
    formula="w_i = base^(-2i / rotary_dim) / factor",
    sources=(INTERPOLATION,),
    shows=show.rotation,
)
explain(
    "position",
    "ntk",
    what="Rotary positions whose base grows with the length of the run beyond the original context: the slowest pair "
    "is divided by s, the fastest not at all.",
    why="Works without fine-tuning: pairs that tell neighbours apart keep their angles. Here the base is that of the "
    "whole run, so that keys in the cache keep the angle that they were given.",
    formula="w_i = (base s^(rotary_dim / (rotary_dim - 2)))^(-2i / rotary_dim), "
    "s = factor length / original_context - (factor - 1)",
    sources=(NTK, YARN),
    shows=show.rotation,
)
explain(
    "position",
    "yarn",
    what="Rotary positions in which pairs that turn often over the original context are kept, pairs that turn less "
    "than once are divided by the factor, and a ramp leads from one to the other; scores are scaled a little.",
    why="Only pairs that would run into angles never seen are interpolated. Its authors needed a tenth of the tokens "
    "of earlier ways to stretch a context.",
    formula="w_i' = (1 - g_i) w_i + g_i w_i / factor, w_i = base^(-2i / rotary_dim), g_i a ramp from 0 to 1; "
    "cos and sin times attention_factor",
    sources=(YARN.at("section 3"),),
    shows=show.rotation,
)
explain(
    "position",
    "llama3",
    what="Rotary positions in which wavelengths longer than the original context are divided by the factor, short ones "
    "are kept, and those between are blended.",
    why="How Llama 3.1 goes from the 8,192 tokens of Llama 3 to 131,072; the rule stands in its released code.",
    formula="w_i' = k_i w_i + (1 - k_i) w_i / factor, t_i = original_context w_i / (2 pi), "
    "k_i = (t_i - low_freq_factor) / (high_freq_factor - low_freq_factor) kept within 0 and 1",
    sources=(LLAMA_3,),
    shows=show.rotation,
)
explain(
    "position",
    "longrope",
    what="Rotary positions with a divisor of its own for each pair, one list for runs within the original context and "
    "one for longer ones; cos and sin are scaled for the longer context.",
    why="Divisors found by search fit a model better than any formula; its authors reached 2,048k tokens.",
    formula="w_i = base^(-2i / rotary_dim) / divisor_i; cos and sin times attention_factor",
    sources=(LONGROPE,),
    shows=show.rotation,
)
