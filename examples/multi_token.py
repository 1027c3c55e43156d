"""Multi-token prediction: in training further modules predict the tokens after the next one, one after the other.

archlab build --plugin examples/multi_token.py model=gqa model/head=mtp model.head.further=2

DeepSeek-V3 (arXiv 2412.19437, section 2.2), after Gloeckle et al. 2024 (arXiv 2404.19737): module k joins what the one
before it made of a token with the embedding of the k-th token after it, runs a layer over that, and predicts through
the head that all share. Outside training there is the next token alone, as in any model.
"""

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import archlab


class Further(nn.Module):
    """One more token ahead: a projection of [state; embedding], then a layer. It is torch's own, without positions."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.state_norm, self.token_norm = nn.RMSNorm(d_model), nn.RMSNorm(d_model)
        self.joined = nn.Linear(2 * d_model, d_model, bias=False)
        self.layer = nn.TransformerEncoderLayer(d_model, n_heads, 4 * d_model, 0.0, F.silu, batch_first=True)

    def forward(self, x: Tensor, token: Tensor) -> Tensor:
        """States and embeddings [B, n, d_model] -> states [B, n, d_model]."""
        x = self.joined(torch.cat((self.state_norm(x), self.token_norm(token)), -1))
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device, dtype=x.dtype)
        return self.layer(x, src_mask=mask, is_causal=True)


@archlab.component(
    "head",
    "mtp",
    summary="logits through the token embedding; in training tokens further ahead too",
    source="DeepSeek-AI 2024, DeepSeek-V3 Technical Report, arXiv 2412.19437, section 2.2",
)
class MultiTokenHead(nn.Module):
    """Logits of the next token, and a loss of this one and of `further` more."""

    def __init__(
        self,
        d_model: int,
        *,
        further: Annotated[int, archlab.option(help="tokens after the next one that training predicts", ge=1)] = 1,
        n_heads: Annotated[int, archlab.option(help="heads of each further layer", ge=1)] = 4,
        weight: Annotated[float, "of the further tokens' mean loss"] = 0.3,
    ) -> None:
        super().__init__()
        self.further = nn.ModuleList(Further(d_model, n_heads) for _ in range(further))
        self.weight = weight
        self.seen: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """x [B, n, d_model], embedding [V, d_model] -> [B, n, V]."""
        self.seen = (x, embedding) if self.training else None
        return F.linear(x, embedding)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Of the next tokens, targets [B, n], and weight / further times the sum of the further ones' losses."""
        x, embedding = self.seen or (None, None)
        self.seen, total = None, F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        for ahead, module in enumerate(self.further, 1) if x is not None else ():
            x = module(x[:, :-1], F.embedding(targets[:, ahead - 1 : -1], embedding))
            further = F.linear(x, embedding).flatten(0, 1).to(logits.dtype)
            total = total + self.weight / len(self.further) * F.cross_entropy(further, targets[:, ahead:].flatten())
        return total
