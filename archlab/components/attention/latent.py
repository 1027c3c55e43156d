"""Latent attention on paper."""

from __future__ import annotations

from typing import Any, Self

from archlab.components.attention import kept
from archlab.components.attention.backend import BACKENDS, remarks
from archlab.components.attention.base import Attention, CachedTensor, even_share
from archlab.components.norm.spec import Norm
from archlab.components.tape import Activation, Tape
from archlab.errors import ConfigError
from archlab.frozen import replace
from archlab.options import option

CACHES = ("latent", "expanded")


class LatentAttention(Attention):
    """Multi-head latent attention (MLA): keys and values come from one small latent a token. DeepSeek-AI 2024 (V2).

    A head's queries and keys have nope_dim features that no rotation touches and rope_dim that one may turn; these keys
    are one for all heads. The cache keeps the latent and that key. In a prefill keys and values are expanded from it;
    after cached tokens they are not: the up-projection moves to the query and to the output (section 2.1.2), so that
    each cached token is read once for all heads.
    """

    q_rank: int | None = option(None, "width of the query latent; null: queries straight from the input", ge=1)
    kv_rank: int = option(help="width of the key/value latent", auto="4 nope_dim", ge=1)
    nope_dim: int = option(help="query/key features a head without rotation", auto="d_model / n_heads", ge=1)
    rope_dim: int = option(help="query/key features with it, the key shared", auto="half of nope_dim, made even", ge=1)
    v_dim: int = option(help="value features a head", auto="nope_dim", ge=1)
    scale: float = option(help="multiplies the scores", auto="1 / sqrt(nope_dim + rope_dim)", gt=0)
    bias: bool = option(False, "a bias on the projections to the latents")
    o_bias: bool = option(False, "a bias on the output projection")
    latent_eps: float | None = option(
        None, "eps of the norms over the latents; null: the layer's (DeepSeek has 1e-6 whatever the layer has)", gt=0
    )
    cache: str = option(
        "latent", "what is kept: the latent and the shared key, or each head's keys and values", valid=CACHES
    )
    backend: str = option(
        "sdpa", "torch's fused attention, the explicit softmax, or torch's flex attention", valid=BACKENDS
    )

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        if "nope_dim" not in values:
            values["nope_dim"] = even_share(values, "nope_dim")
        values.setdefault("rope_dim", max(2, values["nope_dim"] // 4 * 2))
        values.setdefault("v_dim", values["nope_dim"])
        values.setdefault("kv_rank", 4 * values["nope_dim"])
        values.setdefault("scale", (values["nope_dim"] + values["rope_dim"]) ** -0.5)

    def check(self) -> None:
        if self.latent_eps is not None and not hasattr(self.norm, "eps"):
            raise ConfigError("latent_eps", f"the norm {self.norm.choice} has no eps", value=self.latent_eps)

    def remarks(self) -> tuple[str, ...]:
        return remarks(self.backend, None)

    @property
    def latent_norm(self) -> Norm:
        """The norm over the latents: the layer's, perhaps with an eps of its own."""
        changes: dict[str, Any] = {} if self.latent_eps is None else {"eps": self.latent_eps}
        return replace(self.norm, **changes)

    @property
    def qk_dim(self) -> int:
        """Query features a head, and key features."""
        return self.nope_dim + self.rope_dim

    @property
    def q_width(self) -> int:
        return self.n_heads * self.qk_dim

    @property
    def kv_width(self) -> int:
        return self.n_heads * max(self.qk_dim, self.v_dim)

    @property
    def rotary_width(self) -> int:
        return self.rope_dim

    @property
    def backend_used(self) -> str:
        return self.backend

    def _weights(self) -> dict[str, int]:
        """Elements of each projection."""
        rank = self.q_rank
        queries = (
            {"q": self.d_model * self.q_width}
            if rank is None
            else {"q_down": self.d_model * rank, "q_up": rank * self.q_width}
        )
        return queries | {
            "kv_down": self.d_model * (self.kv_rank + self.rope_dim),
            "kv_up": self.kv_rank * self.n_heads * (self.nope_dim + self.v_dim),
            "o": self.n_heads * self.v_dim * self.d_model,
        }

    def params(self) -> dict[str, int]:
        tensors = self._weights()
        if self.bias:
            tensors |= {"q_down_bias": self.q_rank or 0, "kv_down_bias": self.kv_rank + self.rope_dim}
        if self.o_bias:
            tensors["o_bias"] = self.d_model
        if self.q_rank is not None:
            tensors["q_norm"] = sum(self.norm.params(self.q_rank).values())
        return tensors | {"kv_norm": sum(self.norm.params(self.kv_rank).values())}

    def fan_in(self) -> dict[str, int]:
        rows = {"kv_down": self.d_model, "kv_up": self.kv_rank, "o": self.n_heads * self.v_dim}
        if self.q_rank is None:
            return rows | {"q": self.d_model}
        return rows | {"q_down": self.d_model, "q_up": self.q_rank}

    def flops(self, tokens: int, pairs: int) -> int:
        return 2 * tokens * sum(self._weights().values()) + 2 * pairs * self.n_heads * (self.qk_dim + self.v_dim)

    def decode_flops(self, tokens: int, pairs: int) -> int:
        """As `flops` with an expanded cache. With a latent one a query meets kv_rank + rope_dim features of each token,

        and kv_rank of them again as its value; moving the up-projection costs a token what projecting it up would.
        """
        if self.cache == "expanded":
            return self.flops(tokens, pairs)
        met = 2 * self.kv_rank + self.rope_dim
        return 2 * tokens * sum(self._weights().values()) + 2 * pairs * self.n_heads * met

    def cached(self) -> tuple[CachedTensor, ...]:
        if self.cache == "latent":
            return (CachedTensor("latent", 1, self.kv_rank + self.rope_dim),)
        return (CachedTensor("key", self.n_heads, self.qk_dim), CachedTensor("value", self.n_heads, self.v_dim))

    @property
    def core(self) -> kept.Core:
        return kept.Core(self.n_heads, self.n_heads, self.qk_dim, self.v_dim, self.backend_used)

    @property
    def decode_core(self) -> kept.Core:
        if self.cache == "expanded":
            return self.core
        return kept.Core(self.n_heads, 1, self.kv_rank + self.rope_dim, self.kv_rank, self.backend_used)

    def attended(self, tape: Tape, x: Activation, step: kept.Pass) -> Activation:
        return kept.latent(self, tape, x, step)

    def share(self, tp: int) -> Self:
        return replace(self, n_heads=self.n_heads // tp)
