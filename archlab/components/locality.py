"""Which earlier tokens a query may see: all of them, a sliding window, or those of its own chunk. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archlab.frozen import Frozen

if TYPE_CHECKING:
    from torch import Tensor


class Locality(Frozen):
    """How far back a query sees; without either, as far as there are tokens.

    window: so many keys, the query's own included, as Mistral and gpt-oss count (Beltagy et al. 2020, section 3.1).
    chunk: the keys of the same run of so many positions, 0 to chunk - 1, chunk to 2 chunk - 1, .. (Llama 4).
    """

    window: int | None = None
    chunk: int | None = None

    @property
    def limit(self) -> int | None:
        """The most keys that one query sees, None where there is no end."""
        return self.window if self.window is not None else self.chunk

    def kept(self, length: int) -> int:
        """Tokens that must be kept after `length`, so that the last one could be asked for again."""
        return length if self.limit is None else min(length, self.limit)

    def seen(self, length: int) -> int:
        """Keys that the last of `length` tokens sees, its own included."""
        return self.kept(length) if self.chunk is None else (length - 1) % self.chunk + 1

    def pairs(self, length: int) -> int:
        """(query, key) pairs that see each other among the first `length` positions."""
        if self.chunk is not None:
            whole, rest = divmod(length, self.chunk)
            return whole * _triangle(self.chunk) + _triangle(rest)
        kept = self.kept(length)
        return _triangle(kept) + (length - kept) * kept

    def visible(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Bool [n, m] of the positions queries [n] and keys [m]; a negative key is an empty place, seen by none."""
        return self.sees(queries[:, None], keys)

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        """Bool, of positions that are broadcast against each other; a negative key is an empty place."""
        behind = query - key
        seen = (behind >= 0) & (key >= 0)
        if self.window is not None:
            seen = seen & (behind < self.window)
        if self.chunk is not None:
            seen = seen & (query // self.chunk == key // self.chunk)
        return seen

    def blocks(self, first: Tensor, last: Tensor, least: Tensor, most: Tensor) -> tuple[Tensor, Tensor]:
        """Of blocks of queries, at positions first to last, and of keys, at least to most, which are broadcast against
        each other: whether some pair may see each other, and whether all surely do.
        """
        some, full = (last >= least) & (most >= 0), (first >= most) & (least >= 0)
        if self.window is not None:
            some, full = some & (first - most < self.window), full & (last - least < self.window)
        if self.chunk is not None:
            first, last, least, most = (ends // self.chunk for ends in (first, last, least, most))
            some, full = some & (first <= most), full & (last == least)
        return some, full


EVERYWHERE = Locality()


def _triangle(n: int) -> int:
    return n * (n + 1) // 2
