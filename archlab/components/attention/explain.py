"""What the attentions mean, in words."""

from __future__ import annotations

from archlab.components.attention import show
from archlab.meaning import AXIS, explain
from archlab.papers import DEEPSEEK_V2, FLASH, GQA, LONGFORMER, MQA, SINKS, TRANSFORMER

explain(
    "attention",
    AXIS,
    what="Lets each token read from those before it: its query is compared with their keys, and the values of those "
    "that fit are mixed, in each head apart; the heads' results stand side by side, and one projection mixes them.",
    why="It is the only place where tokens meet. Its scores are as many as pairs of tokens; what later tokens will "
    "read, keys and values, is kept in the KV cache.",
    formula="head_h = softmax(scale q_h K^T + mask) V, out = [head_1 .. head_n] W_o; scale = 1 / sqrt(head_dim)",
    sources=(TRANSFORMER.at("section 3.2"), LONGFORMER.at("windows"), SINKS.at("sinks"), FLASH.at("scores not kept")),
    shows=show.scores,
)

ONE_HEAD = "head_h = softmax(scale q_h K_g^T + mask) V_g"

explain(
    "attention",
    "mha",
    what="Every query head has keys and values of its own.",
    why="Heads look for different things, and none is held back by another's keys. The cache pays for it: a key and a "
    "value of each head, each layer and each token.",
    formula=f"{ONE_HEAD}, g = h",
    sources=(TRANSFORMER.at("section 3.2.2"),),
    shows=show.heads_and_mask,
)
explain(
    "attention",
    "gqa",
    what="Groups of query heads share one key/value head. There are fewer key/value heads; each is as wide as before.",
    why="The cache shrinks by n_heads / n_kv_heads, and decoding, which reads all of it for each token, gets as much "
    "quicker there; its authors found quality close to multi-head at nearly the speed of multi-query.",
    formula=f"{ONE_HEAD}, g = floor(h n_kv_heads / n_heads), h from 0 on",
    sources=(GQA,),
    shows=show.heads_and_mask,
)
explain(
    "attention",
    "mqa",
    what="All query heads read one and the same key/value head.",
    why="The smallest cache that keeps keys and values as they are: 1 / n_heads of multi-head's. Quality may suffer, "
    "and devices that share the heads must each have a copy.",
    formula=f"{ONE_HEAD}, g = 0 for every h",
    sources=(MQA,),
    shows=show.heads_and_mask,
)
explain(
    "attention",
    "mla",
    what="Keys and values are made from one small latent a token, which is all that is kept of it, beside one rotated "
    "key that all heads share.",
    why="A cache as small as that of a few heads, while each head has keys and values of its own. After cached tokens "
    "the up-projections move to the query and the output, so that the latent itself is what is read.",
    formula="c = norm(W_down x), k_h = [W_k c, rope(W_r x)], v_h = W_v c; kept of a token: kv_rank + rope_dim",
    sources=(DEEPSEEK_V2.at("section 2.1"),),
    shows=show.heads_and_mask,
)
