"""torch's own layers, that draw no weights on the meta device.

`build` makes a model there and sets every weight afterwards. What torch draws there has no value to keep, and drawing
it would import torch's compiler, a second of every self-check.
"""

from __future__ import annotations

from torch import Tensor, nn

from archlab.components.product import Product


class Linear(nn.Linear, Product):
    """nn.Linear; on the meta device its weights are not drawn, and products go the way that `tune` found."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight, self.bias)


class Embedding(nn.Embedding):
    """nn.Embedding; on the meta device its weights are not drawn."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()
