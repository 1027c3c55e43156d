"""What the heads mean, in words."""

from __future__ import annotations

from archlab.components.head.show import shares
from archlab.meaning import AXIS, explain
from archlab.papers import GPT, INSTRUCT_GPT, TIED, TIED_LOSS, TRANSFORMER, UNTIED

explain(
    "head",
    AXIS,
    what="Turns the last hidden state into what is asked for: a logit for each token of the vocabulary, scores of "
    "classes, or numbers.",
    why="Its matrix is as large as the embedding; in a small model with a large vocabulary the two are most of it.",
    formula="logits = W h, W [vocab_size, d_model]",
    sources=(TRANSFORMER.at("section 3.4"), TIED),
    shows=shares,
)
explain(
    "head",
    "tied",
    what="Multiplies with the token embedding: one matrix looks tokens up and scores them.",
    why="Saves vocab_size d_model parameters, and its authors found perplexity lower for it. The product is still "
    "there: a tied head costs the FLOPs of an untied one.",
    formula="logits = E h, E [vocab_size, d_model] the embedding",
    sources=(TIED, TIED_LOSS),
    shows=shares,
)
explain(
    "head",
    "untied",
    what="Multiplies with a matrix of its own.",
    why="Looking up and scoring are freed from each other, which large models can afford; in tests with two matrices "
    "the output's size mattered more than the input's.",
    formula="logits = W h, W [vocab_size, d_model]",
    sources=(UNTIED,),
    shows=shares,
)
explain(
    "head",
    "classification",
    what="Scores of n_outputs classes, read off the last token of a sequence.",
    why="In a causal model only the last token has seen all others. There is no vocabulary to score, and nothing to "
    "decode.",
    formula="scores = W h_last + b, W [n_outputs, d_model]",
    sources=(GPT.at("section 3.2"),),
)
explain(
    "head",
    "regression",
    what="Numbers, n_outputs of them, read off the last token of a sequence, trained by the squared error.",
    why="For a rating or a measurement; reward models are so, with one number.",
    formula="y = W h_last + b, W [n_outputs, d_model]",
    sources=(INSTRUCT_GPT.at("section 3.5"),),
)
