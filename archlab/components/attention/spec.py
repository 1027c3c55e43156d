"""Self-attention on paper: heads and their sizes, how far back they see, query/key norm, what is cached."""

from __future__ import annotations

from typing import Any, Self

from archlab.components.attention import kept
from archlab.components.attention.backend import BACKENDS, backend_used, remarks
from archlab.components.attention.base import Attention, CachedTensor, divisors, even_share
from archlab.components.attention.latent import LatentAttention
from archlab.components.locality import Locality
from archlab.components.norm.spec import LayerNorm, Norm
from archlab.components.tape import Activation, Tape
from archlab.errors import ConfigError
from archlab.frozen import derived, replace
from archlab.options import option
from archlab.registry import register


class GroupedAttention(Attention):
    """Scaled dot-product attention with n_kv_heads shared among n_heads. Ainslie et al. 2023 (GQA).

    n_kv_heads = n_heads is multi-head (Vaswani et al. 2017), 1 is multi-query (Shazeer 2019). Query head i reads
    KV head i // (n_heads / n_kv_heads). n_heads * head_dim need not be d_model. A layer that shares_kv projects queries
    alone and reads the keys and values that an earlier layer made and keeps. Brandon et al. 2024 (CLA).
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
    shares_kv: bool = option(
        False,
        "a layer of model.layers reads the keys and values of the nearest layer before it that has such ones itself; "
        "it projects, normalises and caches none of its own",
    )
    logit_cap: float | None = option(
        None, "scores become cap tanh(score / cap), after scaling and before the mask; null: off", gt=0
    )
    backend: str = option(
        "sdpa",
        "torch's fused attention, which takes no logit_cap, the explicit softmax, or torch's flex attention",
        valid=BACKENDS,
    )

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        heads = values["n_heads"]
        if values["shares_kv"]:
            values |= {"k_bias": False, "v_bias": False}  # of projections that it lacks
        if "head_dim" not in values:
            values["head_dim"] = even_share(values, "head_dim")
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

    @derived
    def locality(self) -> Locality:
        return Locality(self.window, self.chunk)

    @property
    def backend_used(self) -> str:
        return backend_used(self.backend, self.logit_cap)

    def remarks(self) -> tuple[str, ...]:
        return remarks(self.backend, self.logit_cap)

    @property
    def qk_norm_widths(self) -> tuple[int, ...] | None:
        if self.qk_norm == "none":
            return None
        widths = (self.q_width, self.kv_width) if self.qk_norm == "full" else (self.head_dim, self.head_dim)
        return widths[:1] if self.shares_kv else widths

    @property
    def head_norm(self) -> Norm:
        """The norm of queries and keys."""
        return replace(self.norm, bias=self.qk_norm_bias) if isinstance(self.norm, LayerNorm) else self.norm

    @property
    def qk_norm_heads(self) -> tuple[int | None, int | None]:
        """Heads for which the query norm has weights of their own, and the key norm; None where all share them."""
        return (self.n_heads, self.n_kv_heads) if self.qk_norm == "per_head" else (None, None)

    @property
    def projected(self) -> dict[str, int]:
        """What is projected from the input, each with its features: queries, and keys and values of its own."""
        return {"q": self.q_width} | ({} if self.shares_kv else {"k": self.kv_width, "v": self.kv_width})

    def params(self) -> dict[str, int]:
        sizes = self.projected
        tensors = {name: self.d_model * width for name, width in sizes.items()}
        tensors |= {f"{name}_bias": width for name, width in sizes.items() if getattr(self, f"{name}_bias")}
        tensors["o"] = self.q_width * self.d_model
        if self.o_bias:
            tensors["o_bias"] = self.d_model
        if self.sinks:
            tensors["sinks"] = self.n_heads
        if self.qk_norm_widths:
            for name, width, heads in zip(("q_norm", "k_norm"), self.qk_norm_widths, self.qk_norm_heads, strict=False):
                tensors[name] = (heads or 1) * sum(self.head_norm.params(width).values())
        return tensors

    def fan_in(self) -> dict[str, int]:
        return dict.fromkeys(self.projected, self.d_model) | {"o": self.q_width}

    def flops(self, tokens: int, pairs: int) -> int:
        projections = self.d_model * (2 * self.q_width + 2 * self.own_kv_width)
        return 2 * tokens * projections + 4 * pairs * self.q_width

    def cached(self) -> tuple[CachedTensor, ...]:
        return () if self.shares_kv else self.read()

    def read(self) -> tuple[CachedTensor, ...]:
        return (
            CachedTensor("key", self.n_kv_heads, self.head_dim),
            CachedTensor("value", self.n_kv_heads, self.head_dim),
        )

    @property
    def core(self) -> kept.Core:
        heads, width, capped = (self.n_heads, self.n_kv_heads), self.head_dim, self.logit_cap is not None
        return kept.Core(*heads, width, width, self.backend_used, capped, self.sinks)

    def attended(self, tape: Tape, x: Activation, step: kept.Pass) -> Activation:
        return kept.grouped(self, tape, x, step)

    def share(self, tp: int) -> Self:
        return replace(self, n_heads=self.n_heads // tp, n_kv_heads=max(1, self.n_kv_heads // tp))


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
