"""Self-attention on paper: heads and their sizes, how far back they see, query/key norm, what is cached."""

from __future__ import annotations

import functools
from typing import Any

from archlab.components.locality import EVERYWHERE, Locality
from archlab.components.norm.spec import LayerNorm, Norm
from archlab.errors import ConfigError
from archlab.frozen import Frozen, replace
from archlab.options import Spec, inherited, option
from archlab.registry import register

CACHES = ("latent", "expanded")


class CachedTensor(Frozen):
    """One tensor that a layer keeps a sequence: [heads, tokens, width]."""

    name: str
    heads: int
    width: int

    @property
    def elements_per_token(self) -> int:
        return self.heads * self.width


class Attention(Spec):
    """Base of the attentions: what the model, its costs and its cache ask of one."""

    d_model: int = inherited()
    norm: Norm = inherited()
    n_heads: int = option(help="query heads", ge=1)

    @property
    def q_width(self) -> int:
        """Query features, all heads together."""
        raise NotImplementedError

    @property
    def kv_width(self) -> int:
        """Key features, and value features, as attention reads them in a prefill: all heads together."""
        raise NotImplementedError

    @property
    def rotary_width(self) -> int:
        """Features of a head that a rotation is offered."""
        raise NotImplementedError

    @property
    def locality(self) -> Locality:
        """How far back a query sees."""
        return EVERYWHERE

    @property
    def qk_norm_widths(self) -> tuple[int, int] | None:
        """Features over which queries are normalised, and keys; None where they are not."""
        return None

    @property
    def has_sinks(self) -> bool:
        """Whether each query head has a sink."""
        return False

    @property
    def backend_used(self) -> str:
        """What really runs: `sdpa` or `math`."""
        raise NotImplementedError

    def params(self) -> dict[str, int]:
        """Parameters by tensor; those that end in `_norm` count under norms."""
        raise NotImplementedError

    def fan_in(self) -> dict[str, int]:
        """Input features of each matrix among `params`, by tensor: what a row of it has."""
        raise NotImplementedError

    def flops(self, tokens: int, pairs: int) -> int:
        """Matmul FLOPs of `tokens` positions and `pairs` (query, key) pairs in a prefill, 2 a multiply-add."""
        raise NotImplementedError

    def decode_flops(self, tokens: int, pairs: int) -> int:
        """The same of tokens decoded one by one after others that are cached."""
        return self.flops(tokens, pairs)

    def cached(self) -> tuple[CachedTensor, ...]:
        """What is kept of each token between decode steps."""
        raise NotImplementedError

    @functools.cached_property
    def kept(self) -> tuple[CachedTensor, ...]:
        """`cached`, worked out once."""
        return self.cached()

    @functools.cached_property
    def n_params(self) -> int:
        """All of its parameters."""
        return sum(self.params().values())

    @functools.cached_property
    def n_norm_params(self) -> int:
        """Those of its norms."""
        return sum(count for tensor, count in self.params().items() if tensor.endswith("_norm"))


class GroupedAttention(Attention):
    """Scaled dot-product attention with n_kv_heads shared among n_heads. Ainslie et al. 2023 (GQA).

    n_kv_heads = n_heads is multi-head (Vaswani et al. 2017), 1 is multi-query (Shazeer 2019). Query head i reads
    KV head i // (n_heads / n_kv_heads). n_heads * head_dim need not be d_model.
    """

    n_kv_heads: int = option(help="key/value heads", auto="one for four query heads, or the nearest that divides", ge=1)
    head_dim: int = option(help="features a head", auto="d_model / n_heads", ge=1)
    scale: float = option(help="multiplies the scores", auto="1 / sqrt(head_dim)", gt=0)
    q_bias: bool = option(False, "a bias on the query projection")
    k_bias: bool = option(False, "a bias on the key projection")
    v_bias: bool = option(False, "a bias on the value projection")
    o_bias: bool = option(False, "a bias on the output projection")
    qk_norm: str = option(
        "none",
        "the layer's norm on queries and keys: over each head, over all heads at once, or over each head with weights "
        "of its own",
        valid=("none", "head", "full", "per_head"),
    )
    qk_norm_bias: bool = option(help="the shift of these norms, where the norm has one", auto="as the layer's norm has")
    qkv_clip: float | None = option(
        None, "clamps queries, keys and values to +- this after projection (and after a full norm); null: off", gt=0
    )
    window: int | None = option(
        None, "keys that a query sees, its own included; null: all before it", ge=1, excludes="chunk"
    )
    chunk: int | None = option(
        None, "a query sees only keys of its own run of so many positions; null: off", ge=1, excludes="window"
    )
    sinks: bool = option(False, "one learned logit a query head in the softmax's denominator (gpt-oss)")
    logit_cap: float | None = option(
        None, "scores become cap tanh(score / cap), after scaling and before the mask; null: off", gt=0
    )
    backend: str = option(
        "sdpa", "torch's fused attention, or the explicit softmax, which a logit_cap needs", valid=("sdpa", "math")
    )

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        heads = values["n_heads"]
        if "head_dim" not in values:
            values["head_dim"] = _even_share(values, "head_dim")
        values.setdefault("scale", values["head_dim"] ** -0.5)
        values.setdefault("qk_norm_bias", isinstance(values["norm"], LayerNorm) and values["norm"].bias)
        values.setdefault("n_kv_heads", min(divisors(heads), key=lambda n: (abs(n - heads / 4), n)))

    def check(self) -> None:
        if self.n_heads % self.n_kv_heads:
            problem = f"{self.n_kv_heads} does not divide n_heads = {self.n_heads}"
            raise ConfigError("n_kv_heads", problem, value=self.n_kv_heads, valid=divisors(self.n_heads))
        if self.qk_norm_bias and not isinstance(self.norm, LayerNorm):
            raise ConfigError("qk_norm_bias", f"{self.norm.choice} has no shift", value=True)
        if self.window is not None and self.chunk is not None:
            problem = f"{self.chunk} is given beside window = {self.window}; set one of them"
            raise ConfigError("chunk", problem, value=self.chunk)

    @property
    def q_width(self) -> int:
        """Query features, n_heads * head_dim; also the output projection's input."""
        return self.n_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.n_kv_heads * self.head_dim

    @property
    def rotary_width(self) -> int:
        return self.head_dim

    @functools.cached_property
    def locality(self) -> Locality:
        return Locality(self.window, self.chunk)

    @property
    def has_sinks(self) -> bool:
        return self.sinks

    @property
    def backend_used(self) -> str:
        return self.backend if self.logit_cap is None else "math"

    @property
    def qk_norm_widths(self) -> tuple[int, int] | None:
        head = (self.head_dim, self.head_dim)
        return {"none": None, "head": head, "full": (self.q_width, self.kv_width), "per_head": head}[self.qk_norm]

    @property
    def head_norm(self) -> Norm:
        """The norm of queries and keys."""
        return replace(self.norm, bias=self.qk_norm_bias) if isinstance(self.norm, LayerNorm) else self.norm

    @property
    def qk_norm_heads(self) -> tuple[int | None, int | None]:
        """Heads for which the query norm has weights of their own, and the key norm; None where all share them."""
        return (self.n_heads, self.n_kv_heads) if self.qk_norm == "per_head" else (None, None)

    def params(self) -> dict[str, int]:
        sizes = {"q": self.q_width, "k": self.kv_width, "v": self.kv_width}
        tensors = {name: self.d_model * width for name, width in sizes.items()}
        tensors |= {f"{name}_bias": width for name, width in sizes.items() if getattr(self, f"{name}_bias")}
        tensors["o"] = self.q_width * self.d_model
        if self.o_bias:
            tensors["o_bias"] = self.d_model
        if self.sinks:
            tensors["sinks"] = self.n_heads
        if self.qk_norm_widths:
            for name, width, heads in zip(("q_norm", "k_norm"), self.qk_norm_widths, self.qk_norm_heads, strict=True):
                tensors[name] = (heads or 1) * sum(self.head_norm.params(width).values())
        return tensors

    def fan_in(self) -> dict[str, int]:
        return dict.fromkeys("qkv", self.d_model) | {"o": self.q_width}

    def flops(self, tokens: int, pairs: int) -> int:
        projections = self.d_model * (2 * self.q_width + 2 * self.kv_width)
        return 2 * tokens * projections + 4 * pairs * self.q_width

    def cached(self) -> tuple[CachedTensor, ...]:
        return (
            CachedTensor("key", self.n_kv_heads, self.head_dim),
            CachedTensor("value", self.n_kv_heads, self.head_dim),
        )


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
    backend: str = option("sdpa", "torch's fused attention, or the explicit softmax", valid=("sdpa", "math"))

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        if "nope_dim" not in values:
            values["nope_dim"] = _even_share(values, "nope_dim")
        values.setdefault("rope_dim", max(2, values["nope_dim"] // 4 * 2))
        values.setdefault("v_dim", values["nope_dim"])
        values.setdefault("kv_rank", 4 * values["nope_dim"])
        values.setdefault("scale", (values["nope_dim"] + values["rope_dim"]) ** -0.5)

    def check(self) -> None:
        if self.latent_eps is not None and not hasattr(self.norm, "eps"):
            raise ConfigError("latent_eps", f"the norm {self.norm.choice} has no eps", value=self.latent_eps)

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


def divisors(number: int) -> list[int]:
    """All divisors in rising order."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _even_share(values: dict[str, Any], name: str) -> int:
    """d_model / n_heads, the rule of the option `name`. Raises ConfigError where it is not whole."""
    heads, d_model = values["n_heads"], values["d_model"]
    if d_model % heads:
        problem = f"{heads} does not divide d_model = {d_model}; set {name}, or choose a divisor"
        raise ConfigError("n_heads", problem, value=heads, valid=divisors(d_model))
    share: int = d_model // heads
    return share


_FORMULA = "d (h + 2 kv) hd + h hd d"
register(
    "attention",
    "mha",
    GroupedAttention,
    summary="every query head has keys and values of its own",
    formula=_FORMULA,
    fixed={"n_kv_heads": lambda values: values["n_heads"]},
)
register("attention", "gqa", GroupedAttention, summary="groups of query heads share keys and values", formula=_FORMULA)
register(
    "attention",
    "mqa",
    GroupedAttention,
    summary="all query heads share one key/value head",
    formula=_FORMULA,
    fixed={"n_kv_heads": 1},
)
register(
    "attention",
    "mla",
    LatentAttention,
    summary="keys and values from one small latent a token (DeepSeek)",
    formula="d h (nope + rope) + d (r + rope) + r h (nope + v) + h v d",
)
