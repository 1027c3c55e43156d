"""What the placements of dropout mean, in words."""

from __future__ import annotations

from archlab.components.dropout.show import rates
from archlab.meaning import AXIS, explain
from archlab.papers import DROPOUT, GPT, PALM, TRANSFORMER

explain(
    "dropout",
    AXIS,
    what="In training, sets each number to zero with a rate and scales the others by 1 / (1 - rate), so that the mean "
    "stays; outside training it does nothing. There are five places for it.",
    why="A unit cannot rely on any other one being there, which keeps a model from learning its data by heart. It has "
    "no parameters and costs memory: what was dropped is kept for the backward pass.",
    formula="y = x mask / (1 - rate), mask 0 with the rate, else 1",
    sources=(DROPOUT,),
    shows=rates,
)
explain(
    "dropout",
    "none",
    what="Nothing is dropped, anywhere.",
    why="Large models see most of their data once and cannot learn it by heart: PaLM was trained without dropout.",
    formula="y = x",
    sources=(PALM.at("section 5"),),
    shows=rates,
)
explain(
    "dropout",
    "classic",
    what="Drops from the sum of token and position, from the attention's weights, and from what attention and FFN add "
    "to the residual stream.",
    why="Small data seen many times: the Transformer dropped at most of these places, GPT at all, at a rate of 0.1. "
    "Fused attention on a CPU takes no dropout on the weights, so that training then runs the explicit softmax.",
    formula="y = x mask / (1 - rate), mask 0 with the rate, else 1",
    sources=(DROPOUT, TRANSFORMER.at("section 5.4"), GPT.at("section 4.1")),
    shows=rates,
)
explain(
    "dropout",
    "all",
    what="The classic four places, and the features that the head reads.",
    why="To drop everywhere that there is; each place has a rate of its own, so that any may be set to 0.",
    formula="y = x mask / (1 - rate), mask 0 with the rate, else 1",
    sources=(DROPOUT,),
    shows=rates,
)
