"""What every self-attention on paper says of itself: to the model, its costs and its cache."""

from __future__ import annotations

import functools

from archlab.components.locality import EVERYWHERE, Locality
from archlab.components.norm.spec import Norm
from archlab.frozen import Frozen
from archlab.options import Spec, inherited, option


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
    shares_kv = False  # no field: an option of those that can
    """Whether it reads the keys and values of an earlier layer (`archlab.decoder.sharing` says which)."""

    @property
    def q_width(self) -> int:
        """Query features, all heads together."""
        raise NotImplementedError

    @property
    def kv_width(self) -> int:
        """Key features, and value features, as attention reads them in a prefill: all heads together."""
        raise NotImplementedError

    @property
    def own_kv_width(self) -> int:
        """As kv_width, but of what the layer makes itself: none where it shares an earlier layer's."""
        return 0 if self.shares_kv else self.kv_width

    @property
    def rotary_width(self) -> int:
        """Features of a head that a rotation is offered."""
        raise NotImplementedError

    @property
    def locality(self) -> Locality:
        """How far back a query sees."""
        return EVERYWHERE

    @property
    def qk_norm_widths(self) -> tuple[int, ...] | None:
        """Features over which queries are normalised, and keys if they are its own; None where they are not."""
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

    def read(self) -> tuple[CachedTensor, ...]:
        """What a decode step reads of each earlier token: what this layer keeps of it, or the one whose it shares."""
        return self.cached()

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
