"""Which experts a token is sent to, and with which weights. Scores are float32 or wider, whatever the model's dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archlab.components.ffn import spec as specs

TINY = 1e-20
"""Added to the sum that weights are divided by: sigmoid scores may all be 0. DeepSeek-V3."""


class Router(nn.Module):
    """weight [n_experts, d_model], bias [n_experts] where there is one.

    balance_bias: float32 (float64 in a float64 model) [n_experts], added to the scores for the choice only. It is
    trained by counting, not by gradients, so it is a buffer; a cast below float32 would change who is chosen, so it
    follows the module's device but not such a cast.
    """

    balance_bias: Tensor | None

    def __init__(self, spec: specs.MixtureOfExperts) -> None:
        super().__init__()
        self.spec = spec
        self.weight = nn.Parameter(torch.zeros(spec.n_experts, spec.d_model))
        self.bias = nn.Parameter(torch.zeros(spec.n_experts)) if spec.router_bias else None
        self.register_buffer("balance_bias", torch.zeros(spec.n_experts) if spec.balance_bias else None)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [tokens, d_model] -> the chosen experts int64 and their weights, both [tokens, experts_per_token]."""
        scores = self._scores(x)
        ranked = scores if self.balance_bias is None else scores + self.balance_bias
        if self.spec.limited:
            ranked = ranked.masked_fill(~self._open(ranked), -torch.inf)
        chosen = ranked.topk(self.spec.experts_per_token, -1).indices
        weights = scores.gather(-1, chosen)
        if self.spec.normalise:
            weights = weights / (weights.sum(-1, keepdim=True) + TINY)
        return chosen, weights * self.spec.scaling

    def _scores(self, x: Tensor) -> Tensor:
        """[tokens, n_experts]."""
        wide = torch.promote_types(x.dtype, torch.float32)
        bias = None if self.bias is None else self.bias.to(wide)
        logits = F.linear(x.to(wide), self.weight.to(wide), bias)
        return logits.softmax(-1) if self.spec.scoring == "softmax" else logits.sigmoid()

    def _open(self, ranked: Tensor) -> Tensor:
        """Bool [tokens, n_experts]: the experts of the groups that a token may choose from. DeepSeek-V2, 2.1.2."""
        groups = ranked.unflatten(-1, (self.spec.n_groups, self.spec.group_size))
        best = groups.topk(2 if self.spec.group_score == "top2" else 1, -1).values.sum(-1)
        chosen = best.topk(self.spec.groups_per_token, -1, sorted=False).indices
        opened = torch.zeros_like(best, dtype=torch.bool).scatter(-1, chosen, True)
        return opened.repeat_interleave(self.spec.group_size, -1)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        held = self.balance_bias
        super()._apply(fn, recurse)
        if held is not None and self.balance_bias is not None:
            device, wide = self.balance_bias.device, torch.promote_types(self.balance_bias.dtype, torch.float32)
            # from the meta device there is nothing to keep, and a bias that was never trained is 0
            fresh = held.is_meta and device.type != "meta"
            self.balance_bias = torch.zeros_like(held, dtype=wide, device=device) if fresh else held.to(device, wide)
        return self
