"""What the norms mean, in words."""

from __future__ import annotations

from archlab.components.norm.show import one_norm
from archlab.components.norm.spec import LayerNorm, RMSNorm
from archlab.meaning import AXIS, explain
from archlab.papers import FIXUP, LAYER_NORM, OLMO_2, PRE_NORM, RMS_NORM

explain(
    "norm",
    AXIS,
    what="Brings the features of each token to a common size. It looks at one token at a time, never at the batch or "
    "at other positions; where it stands in a layer is the block's choice.",
    why="Without it the size of the residual stream grows from layer to layer, and gradients with it.",
    sources=(LAYER_NORM, PRE_NORM.at("section 3")),
)


def _layernorm(spec: LayerNorm) -> str:
    gain, shift = "gamma " if spec.weight else "", " + beta" if spec.bias else ""
    return f"y = {gain}(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps){shift}"


def _rmsnorm(spec: RMSNorm) -> str:
    gain = "" if not spec.weight else "(1 + gamma) " if spec.unit_offset else "gamma "
    root = "sqrt(mean(x^2) + eps)" if spec.eps_place == "inside" else "(sqrt(mean(x^2)) + eps)"
    return f"y = {gain}x / {root}"


explain(
    "norm",
    "layernorm",
    what="Subtracts the mean of a token's features and divides by their standard deviation; then a learned gain gamma "
    "and shift beta for each feature.",
    why="The next matrix product sees inputs of one size, whatever came before, in training and after it alike.",
    formula=_layernorm,
    sources=(LAYER_NORM.at("eq. 4"),),
    shows=one_norm,
)
explain(
    "norm",
    "rmsnorm",
    what="Divides a token's features by their root mean square; then a learned gain gamma for each feature. Nothing is "
    "subtracted and nothing is added.",
    why="Half the parameters of LayerNorm and one pass over the features less; its authors report comparable quality "
    "and 7 to 64 % less running time. eps belongs inside the root; outside is a variant (eps_place).",
    formula=_rmsnorm,
    sources=(RMS_NORM.at("eq. 4"), OLMO_2),
    shows=one_norm,
)
explain(
    "norm",
    "none",
    what="Passes the features on as they are.",
    why="To see what a norm does. A deep model without one needs another means to keep its activations in size, such "
    "as a special initialisation.",
    formula="y = x",
    sources=(FIXUP,),
    shows=one_norm,
)
