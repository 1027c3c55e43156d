"""What the last hidden state becomes. A tied head owns no weight: it is handed the token embedding's at each call,

so that the tie survives the meta device, copies and casts, and each parameter is counted once.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archlab.components.head import spec as specs
from archlab.components.product import Product
from archlab.registry import implements


class _Projection(Product):
    """weight [outputs, d_model] unless tied, bias [outputs] where there is one; set by `init_weights`."""

    def __init__(self, width: int, d_model: int, own_weight: bool, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, d_model)) if own_weight else None
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None


@implements(specs.LanguageHead)
class LanguageHead(_Projection):
    """Logits over the vocabulary, through the token embedding when tied. Press and Wolf 2017."""

    def __init__(self, spec: specs.LanguageHead) -> None:
        super().__init__(spec.width, spec.d_model, not spec.tied, spec.bias)
        self.logit_scale, self.logit_cap = spec.logit_scale, spec.logit_cap

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """x [B, n, d_model], embedding [vocab_size, d_model] -> [B, n, vocab_size]."""
        logits = self.product(x, embedding if self.weight is None else self.weight, self.bias)
        logits = logits if self.logit_scale == 1.0 else logits * self.logit_scale
        return logits if self.logit_cap is None else self.logit_cap * (logits / self.logit_cap).tanh()


@implements(specs.TaskHead)
class TaskHead(_Projection):
    """Classes or numbers."""

    def __init__(self, spec: specs.TaskHead) -> None:
        super().__init__(spec.width, spec.d_model, True, spec.bias)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """x [B, n, d_model] -> [B, n, n_outputs]; the embedding is not used."""
        assert self.weight is not None
        return self.product(x, self.weight, self.bias)


def loss_of(head: nn.Module, spec: specs.Head, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss that a head is trained with, in float32 or wider: its own `loss(outputs, targets)` where it has one.

    Next-token cross entropy; for classes, cross entropy, and for numbers, the squared error, against made-up ones.
    """
    wide = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    own = getattr(head, "loss", None)
    if own is not None:
        loss: Tensor = own(wide, targets)
        return loss
    if isinstance(spec, specs.RegressionHead):
        return F.mse_loss(wide, torch.zeros_like(wide))
    if spec.last_token_only:
        targets = targets[:, -1] % wide.shape[-1]
    return F.cross_entropy(wide.flatten(0, -2), targets.flatten())
