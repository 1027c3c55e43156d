"""What the residual layouts mean, in words."""

from __future__ import annotations

from archlab.components.block.show import layout
from archlab.components.block.spec import Block
from archlab.meaning import AXIS, explain
from archlab.papers import COGVIEW, GEMMA_2, GPT_2, GPT_J, OLMO_2, PALM, PRE_NORM, SWIN_V2, TRANSFORMER

explain(
    "block",
    AXIS,
    what="Says where the norms of a layer stand around attention and FFN, and what the skip path and the branches are "
    "multiplied by.",
    why="Each layer adds to the residual stream rather than replacing it, so that gradients reach the first layer "
    "along the skip path. A norm on that path stands in their way; without one the stream grows with depth.",
    formula="x <- residual_scale x + branch_scale branch(x)",
    sources=(TRANSFORMER.at("section 3.1"), PRE_NORM),
    shows=layout,
)


def _scaled(text: str) -> str:
    """The formula with the scales where they are."""
    return f"x <- residual_scale x + branch_scale {text}"


def _post_norm(spec: Block) -> str:
    return f"x <- norm({_scaled('f(x)').removeprefix('x <- ')})"


explain(
    "block",
    "pre_norm",
    what="A norm before attention and before the FFN; the skip path has none. One more norm stands before the head.",
    why="At initialisation gradients are of one size in all layers, so that training needs no warm-up. The stream "
    "grows with depth, and deep layers change it little.",
    formula=f"{_scaled('f(norm(x))')}, f attention, then FFN",
    sources=(PRE_NORM.at("fig. 1b"), GPT_2.at("section 2.3")),
    shows=layout,
)
explain(
    "block",
    "post_norm",
    what="A norm after each residual sum, on the skip path itself.",
    why="The layout of 2017. The stream keeps its size; gradients near the output are large at first, so that training "
    "needs a warm-up of the learning rate.",
    formula=_post_norm,
    sources=(TRANSFORMER.at("section 3.1"), PRE_NORM.at("fig. 1a")),
    shows=layout,
)
explain(
    "block",
    "sandwich",
    what="A norm before attention and FFN, and one on what each of them adds.",
    why="What is added to the stream is kept in size as well: CogView got rid of overflows in half precision by it; "
    "Gemma 2 has it too.",
    formula=f"{_scaled('norm(f(norm(x)))')}, f attention, then FFN",
    sources=(COGVIEW.at("section 2.4"), GEMMA_2.at("section 2")),
    shows=layout,
)
explain(
    "block",
    "res_post_norm",
    what="A norm on what attention and FFN add, and none before them; the skip path has none either.",
    why="The branches read the stream as it is, and none can add more than its norm lets through: for stable training "
    "of large models.",
    formula=f"{_scaled('norm(f(x))')}, f attention, then FFN",
    sources=(SWIN_V2.at("section 3.2"), OLMO_2.at("section 3.2")),
    shows=layout,
)
explain(
    "block",
    "parallel",
    what="Attention and FFN read the same stream side by side, through one norm or one each, and are added together.",
    why="Their first products can run as one, and devices that share a layer add up once instead of twice; PaLM saw "
    "training about 15 % faster, with no loss of quality in its larger model.",
    formula=_scaled("(attention(norm(x)) + ffn(norm(x)))"),
    sources=(GPT_J, PALM.at("section 2")),
    shows=layout,
)
