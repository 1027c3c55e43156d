"""What the FFNs mean, in words."""

from __future__ import annotations

from archlab.components.ffn import show
from archlab.meaning import AXIS, explain
from archlab.papers import (
    BALANCE,
    BLOOM,
    DEEPSEEK_MOE,
    DEEPSEEK_V3,
    GELU,
    GLU,
    GPT_OSS,
    MIXTURE,
    PRIMER,
    RELU,
    SILU,
    SWISH,
    TRANSFORMER,
    Paper,
)

explain(
    "ffn",
    AXIS,
    what="Widens each token to d_ff features, puts them through a non-linearity, and narrows them again: each position "
    "by itself, the same weights for all. A gated one has a second widening that the first is multiplied with; nothing "
    "follows the last product.",
    why="Most parameters of a model are here, and what is not linear in it, beside the softmax and the norms. A gated "
    "FFN of 8/3 d_model costs what a plain one of 4 d_model does.",
    formula="plain: down(act(up(x))); gated: down(act(gate(x)) * up(x))",
    sources=(TRANSFORMER.at("section 3.3"), GLU.at("section 3")),
    shows=show.widths,
)


def _plain(name: str, act: str, what: str, why: str, *sources: Paper) -> None:
    explain(
        "ffn",
        name,
        what=f"Two products with an activation between: {what}",
        why=why,
        formula=f"y = W_down act(W_up x), act(u) = {act}",
        sources=sources,
        shows=show.curve,
    )


def _gated(name: str, act: str, what: str, why: str, *sources: Paper) -> None:
    explain(
        "ffn",
        name,
        what=f"Two products side by side, of which one, {what}, gates the other; a third narrows what they give.",
        why=why,
        formula=f"y = W_down (act(W_gate x) * W_up x), act(g) = {act}",
        sources=sources,
        shows=show.gate,
    )


_plain(
    "relu",
    "max(0, u)",
    "zero below zero, and what is above as it is.",
    "Cheap, and many features are exactly zero. One that is below zero for every input gets no gradient: it is dead.",
    RELU,
    TRANSFORMER.at("section 3.3"),
)
_plain(
    "gelu",
    "u Phi(u), Phi the normal distribution's",
    "each feature times the share of a normal distribution that lies below it.",
    "Smooth, and a little gradient is left below zero, so that units seldom die.",
    GELU,
)
_plain(
    "gelu_tanh",
    "0.5 u (1 + tanh(sqrt(2 / pi) (u + 0.044715 u^3)))",
    "GELU by a formula with tanh that comes near it.",
    "Was quicker than the exact one where no kernel had the error function; GPT-2 was trained with it, so that its "
    "weights want it.",
    GELU.at("section 2"),
)
_plain(
    "gelu_bloom",
    "0.5 u (1 + tanh(0.79788456 (u + 0.044715 u^3)))",
    "GELU by its tanh form, sqrt(2 / pi) cut to eight digits.",
    "BLOOM was trained so; to give its outputs to the last digit, an implementation must cut the constant too.",
    BLOOM,
    GELU,
)
_plain(
    "silu",
    "u sigmoid(u)",
    "each feature times its own sigmoid; it is also called Swish.",
    "Smooth, like GELU, and plainer to compute. It is lowest, -0.278, at -1.278, and goes to zero below.",
    SILU,
    SWISH,
)
_plain(
    "relu2",
    "max(0, u)^2",
    "ReLU, squared.",
    "Found by a search over whole programs to lower the cost of training; its slope has no jump at zero.",
    PRIMER,
)
_gated(
    "swiglu",
    "g sigmoid(g)",
    "through SiLU",
    "At equal parameters and FLOPs gated FFNs reached a lower loss than plain ReLU or GELU; why, its author leaves "
    "open. Llama has it, and most models since.",
    GLU,
)
_gated(
    "geglu",
    "g Phi(g)",
    "through GELU",
    "As SwiGLU; in its paper the two had the lowest perplexities, side by side.",
    GLU,
)
_gated(
    "geglu_tanh",
    "0.5 g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3)))",
    "through GELU by its tanh form",
    "GEGLU as Gemma has it.",
    GLU,
    GELU,
)
_gated("reglu", "max(0, g)", "through ReLU", "A gate that is quite shut below zero, and cheap.", GLU)
explain(
    "ffn",
    "swiglu_clamped",
    what="SwiGLU whose gate is clamped to at most a limit and whose other side is kept within it, with a sharper "
    "sigmoid and 1 added to that side.",
    why="So has gpt-oss, whose model card calls it unconventional: the clamp bounds what one feature can reach, "
    "and the 1 lets the gate through by itself.",
    formula="y = W_down (g sigmoid(alpha g) (u + 1)), g = min(W_gate x, limit), u = W_up x kept within +- limit",
    sources=(GPT_OSS,),
    shows=show.gate,
)
explain(
    "ffn",
    "moe",
    what="Many FFNs, the experts, of which a router sends each token to a few; what they give is added up by the "
    "router's weights. Shared experts, where there are some, see every token.",
    why="Parameters grow with the experts while the FLOPs of a token stay those of the few that it is sent to. All "
    "must be held in memory, and tokens must spread over them evenly.",
    formula="y = sum of w_i expert_i(x) over the experts_per_token best of n_experts scores of W_r x, + shared(x)",
    sources=(MIXTURE, DEEPSEEK_MOE.at("section 3"), BALANCE, DEEPSEEK_V3.at("section 2.1.2")),
    shows=show.experts,
)
