"""What the figures on paper mean, in words. A name that ends in `.` or `_` stands for all that begin so."""

from __future__ import annotations

from collections.abc import Mapping

from archlab.meaning import Meaning
from archlab.papers import CHINCHILLA, GQA, KAPLAN, MIXTURE, MQA, PALM, SCALING_INFERENCE, TIED, TRANSFORMER

_PART = "Parameters of one part of the model, a sum over its layers."
_FORWARD = (
    "Each matrix product of the forward pass, 2 FLOPs a multiply-add; an embedding lookup is 0, elementwise work "
)
_FORWARD += "is not counted, the head counts tied or not."

FIGURES: Mapping[str, Meaning] = {
    "params": Meaning(
        "Every parameter once: what is trained, and what a checkpoint holds. A tied head is the embedding's matrix and "
        "adds nothing.",
        "It says what the weights take, and is what models are named by. What a token costs hangs on those that it is "
        "multiplied by: see params_active and params_non_embedding.",
        "embedding + positions + n_layers (attention + ffn + norms) + final norm + lm_head",
        (TRANSFORMER, TIED),
    ),
    "params_active": Meaning(
        "The parameters that one token uses: all, less those of the experts that it is not sent to.",
        "FLOPs of a mixture of experts follow these; its memory follows all.",
        "params - n_layers (n_experts - experts_per_token) expert",
        (MIXTURE,),
    ),
    "params_non_embedding": Meaning(
        "All parameters less the tables of tokens and positions; an untied head stays, for it is a product.",
        "A lookup costs no product, so that laws of scaling go by these: Kaplan's N.",
        "params - vocab_size d_model - learned positions",
        (KAPLAN.at("section 2.1"),),
    ),
    "params.embedding": Meaning(
        "The token embedding: a row of d_model numbers for each token, looked up and not multiplied.",
        "In a small model with a large vocabulary it is much of it.",
        "vocab_size d_model",
        (TRANSFORMER.at("section 3.4"),),
    ),
    "params.positions": Meaning(_PART, "Learned positions and biases have some; fixed ones have none.", ""),
    "params.attention": Meaning(
        f"{_PART} Norms of queries and keys count under norms.",
        "Fewer key/value heads make it smaller, by less than they make the cache.",
        "n_layers (d_model n_heads head_dim + 2 d_model n_kv_heads head_dim + n_heads head_dim d_model)",
        (TRANSFORMER.at("section 3.2"), GQA),
    ),
    "params.ffn": Meaning(
        f"{_PART} Of a mixture, all experts.",
        "It is the largest part of most models.",
        "2 n_layers d_model d_ff plain, 3 n_layers d_model d_ff gated",
        (TRANSFORMER.at("section 3.3"),),
    ),
    "params.ffn.": Meaning(
        "Parameters of one role in the FFNs: dense ones, the router, routed experts, shared experts.",
        "Of the routed experts a token uses a few.",
        "",
        (MIXTURE,),
    ),
    "params.norms": Meaning(_PART, "Few, and hardly a cost.", "d_model a norm, 2 d_model with a shift"),
    "params.lm_head": Meaning(
        f"{_PART} 0 where the head is tied.",
        "An untied one is as large as the embedding.",
        "vocab_size d_model",
        (TIED,),
    ),
    "params.other": Meaning(_PART, "What belongs to no other part."),
    "params.layers.": Meaning(
        "Parameters of one kind of layer, all of its layers together.", "Where layers differ, it says which weigh what."
    ),
    "weight_bytes": Meaning(
        "What the weights take in the dtype of the workload.",
        "Each decoded token reads all that it is multiplied by: for one sequence this over the bandwidth is the least "
        "time of a token.",
        "params bytes",
        (SCALING_INFERENCE,),
    ),
    "kv_bytes_per_token": Meaning(
        "What the KV cache grows by with each token of one sequence, all layers together, while that is shorter than "
        "every window.",
        "Keys and values of earlier tokens are kept so that they need not be made again: a token then costs its own "
        "projections and one look at each key. Decoding reads all of it for every token.",
        "2 n_layers n_kv_heads head_dim bytes",
        (MQA, GQA, SCALING_INFERENCE),
    ),
    "kv_bytes.": Meaning(
        "What the KV cache takes at a context, for all sequences of the batch: what the architecture needs, of a layer "
        "with a window no more than the window.",
        "With long contexts and large batches it is more than the weights. In training there is none: all tokens of a "
        "sequence pass at once.",
        "2 n_layers n_kv_heads head_dim context bytes batch",
        (SCALING_INFERENCE,),
    ),
    "flops_decode_per_token": Meaning(
        f"FLOPs of one token after others that are cached. {_FORWARD}",
        "It grows with the context by the scores alone. Decoding seldom waits for it: reading weights and cache takes "
        "longer.",
        "2 x weights that a token meets + 4 n_layers context n_heads head_dim",
        (KAPLAN.at("table 1"), CHINCHILLA.at("appendix F"), PALM.at("appendix B")),
    ),
    "flops_prefill_per_token.": Meaning(
        f"FLOPs of a prompt over its tokens. {_FORWARD} `full` counts every pair of tokens, `causal` those that see "
        "each other, about half.",
        "A prompt is bound by it, and so is training, at three times as much: the backward pass has two products for "
        "each of the forward pass.",
        "2 x weights that a token meets + 4 n_layers pairs n_heads head_dim / prompt",
        (KAPLAN.at("table 1"), CHINCHILLA.at("appendix F"), PALM.at("appendix B")),
    ),
    "budget_": Meaning(
        "What a budget asks of a figure of that name, and budget_residual what is left of it.",
        "Choices are compared fairly at one size or one cost.",
    ),
    "solved_": Meaning(
        "The size at which the model meets its budget: d_ff, n_layers or d_model.",
        "It is the largest within the budget, unless budget.round says otherwise.",
    ),
}
"""By the name of the figure."""
