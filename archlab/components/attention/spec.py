"""Self-attention on paper: heads and their sizes, biases, scale, query/key norm, what it caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from archlab.components.norm.spec import Norm
from archlab.errors import ConfigError
from archlab.options import Spec, inherited, option
from archlab.registry import register


@dataclass(frozen=True)
class CachedTensor:
    """One tensor that a layer keeps a sequence: [heads, tokens, width]."""

    name: str
    heads: int
    width: int

    @property
    def elements_per_token(self) -> int:
        return self.heads * self.width


@dataclass(frozen=True, kw_only=True)
class Attention(Spec):
    """Scaled dot-product attention with n_kv_heads shared among n_heads. Ainslie et al. 2023 (GQA).

    n_kv_heads = n_heads is multi-head (Vaswani et al. 2017), 1 is multi-query (Shazeer 2019). Query head i reads
    KV head i // (n_heads / n_kv_heads). n_heads * head_dim need not be d_model.
    """

    d_model: int = inherited()
    norm: Norm = inherited()
    n_heads: int = option(help="query heads", ge=1)
    n_kv_heads: int = option(help="key/value heads", auto="one for four query heads, or the nearest that divides", ge=1)
    head_dim: int = option(help="features a head", auto="d_model / n_heads", ge=1)
    scale: float = option(help="multiplies the scores", auto="1 / sqrt(head_dim)", gt=0)
    q_bias: bool = option(False, "a bias on the query projection")
    k_bias: bool = option(False, "a bias on the key projection")
    v_bias: bool = option(False, "a bias on the value projection")
    o_bias: bool = option(False, "a bias on the output projection")
    qk_norm: str = option(
        "none",
        "the layer's norm on queries and keys: over each head, or over all heads at once",
        valid=("none", "head", "full"),
    )
    backend: str = option("sdpa", "torch's fused attention, or the explicit softmax", valid=("sdpa", "math"))

    @classmethod
    def derive(cls, values: dict[str, Any]) -> None:
        heads, d_model = values["n_heads"], values["d_model"]
        if "head_dim" not in values:
            if d_model % heads:
                problem = f"{heads} does not divide d_model = {d_model}; set head_dim, or choose a divisor"
                raise ConfigError("n_heads", problem, value=heads, valid=divisors(d_model))
            values["head_dim"] = d_model // heads
        values.setdefault("scale", values["head_dim"] ** -0.5)
        values.setdefault("n_kv_heads", min(divisors(heads), key=lambda n: (abs(n - heads / 4), n)))

    def check(self) -> None:
        if self.n_heads % self.n_kv_heads:
            problem = f"{self.n_kv_heads} does not divide n_heads = {self.n_heads}"
            raise ConfigError("n_kv_heads", problem, value=self.n_kv_heads, valid=divisors(self.n_heads))

    @property
    def q_width(self) -> int:
        """Query features, n_heads * head_dim; also the output projection's input."""
        return self.n_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Key features, and value features: n_kv_heads * head_dim."""
        return self.n_kv_heads * self.head_dim

    @property
    def qk_norm_widths(self) -> tuple[int, int] | None:
        """Width of the query norm and of the key norm, None where there are none."""
        widths = {"none": None, "head": (self.head_dim, self.head_dim), "full": (self.q_width, self.kv_width)}
        return widths[self.qk_norm]

    def params(self) -> dict[str, int]:
        """Parameters by tensor; `q_norm` and `k_norm` count under norms."""
        sizes = {"q": self.q_width, "k": self.kv_width, "v": self.kv_width}
        tensors = {name: self.d_model * width for name, width in sizes.items()}
        tensors |= {f"{name}_bias": width for name, width in sizes.items() if getattr(self, f"{name}_bias")}
        tensors["o"] = self.q_width * self.d_model
        if self.o_bias:
            tensors["o_bias"] = self.d_model
        if self.qk_norm_widths:
            for name, width in zip(("q_norm", "k_norm"), self.qk_norm_widths, strict=True):
                tensors[name] = sum(self.norm.params(width).values())
        return tensors

    def flops(self, tokens: int, pairs: int) -> int:
        """Matmul FLOPs of `tokens` positions and `pairs` (query, key) pairs, 2 a multiply-add."""
        projections = self.d_model * (2 * self.q_width + 2 * self.kv_width)
        return 2 * tokens * projections + 4 * pairs * self.q_width

    def cache(self) -> tuple[CachedTensor, ...]:
        """What is kept of each token between decode steps."""
        return (
            CachedTensor("key", self.n_kv_heads, self.head_dim),
            CachedTensor("value", self.n_kv_heads, self.head_dim),
        )


def divisors(number: int) -> list[int]:
    """All divisors in rising order."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


_FORMULA = "d (h + 2 kv) hd + h hd d"
register(
    "attention",
    "mha",
    Attention,
    summary="every query head has keys and values of its own",
    formula=_FORMULA,
    fixed={"n_kv_heads": lambda values: values["n_heads"]},
)
register("attention", "gqa", Attention, summary="groups of query heads share keys and values", formula=_FORMULA)
register(
    "attention",
    "mqa",
    Attention,
    summary="all query heads share one key/value head",
    formula=_FORMULA,
    fixed={"n_kv_heads": 1},
)
