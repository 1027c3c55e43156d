"""What attention looks like: which heads read which keys and values, which tokens see which, what the scores take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from archlab.components.attention.base import Attention
from archlab.components.attention.latent import LatentAttention
from archlab.components.attention.spec import GroupedAttention
from archlab.components.locality import Locality
from archlab.document import Column, Drawing, Table
from archlab.meaning import Here, Part

WIDTH = 72
"""Columns of a drawing."""
TOKENS = 8
"""Marks on each side of a mask without a limit, a token each; one with a limit has twice as many."""
LENGTHS = (1024, 2048, 4096, 8192)


def heads_and_mask(here: Here) -> Iterable[Part]:
    """Which heads share keys and values; which tokens a query sees, where that is not all before it."""
    attention: Attention = here.spec
    if isinstance(attention, GroupedAttention | LatentAttention):
        yield heads(attention)
    if attention.locality.limit is not None:
        yield mask(attention.locality)


def scores(here: Here) -> Iterable[Part]:
    """What the matrix of scores takes, and what a query sees."""
    attention: Attention = here.axes["attention"]
    lengths = sorted({*LENGTHS, here.tokens})
    columns = [Column("n", "tokens"), Column("head", "B", "exact", "n^2 bytes"), Column("layer", "B", "exact", FORMULA)]
    rows = [
        {"n": n, "head": n * n * here.width, "layer": here.batch * attention.n_heads * n * n * here.width}
        for n in lengths
    ]
    about = f"of a head, and of a layer: {FORMULA}, {here.batch} x {attention.n_heads} x n^2 x {here.width}"
    yield Table("scores", "Matrix of scores", columns, rows, f"{about}; fused attention holds none of it")
    yield mask(attention.locality)


FORMULA = "batch n_heads n^2 bytes"


# --- heads ------------------------------------------------------------------------------------------------------------


def heads(attention: GroupedAttention | LatentAttention) -> Drawing:
    """The query heads in their groups, each above what it reads; as many groups as there is room for."""
    latent = isinstance(attention, LatentAttention)
    n_kv = 1 if isinstance(attention, LatentAttention) else attention.n_kv_heads
    size = attention.n_heads // n_kv
    groups = [_group([f"{kv * size + i}" for i in range(size)], "latent" if latent else f"{kv}") for kv in range(n_kv)]
    shown = list(_fitting(groups, WIDTH - len(LABELS[0])))
    lines = ["".join([label, *("   " + group[row] for group in shown)]).rstrip() for row, label in enumerate(LABELS)]
    left = f"; {n_kv - len(shown)} more groups" if len(shown) < n_kv else ""
    if isinstance(attention, LatentAttention):
        about = f"{attention.n_heads} heads, keys and values of each made from one latent of {attention.kv_rank}"
    else:
        read = f"{n_kv} key/value head{'s' if n_kv > 1 else ''} of {attention.head_dim} features"
        about = f"{attention.n_heads} query heads read {read}{left}"
    return Drawing("Heads", lines, about)


LABELS = ("queries     ", "            ", "keys, values")

Group = tuple[str, str, str]
"""Query heads, what joins them, and what they read, all as wide as each other."""


def _group(queries: Sequence[str], read: str) -> Group:
    """`0 1 2 3` over a bracket over `0`; of many heads the first and the last."""
    names = queries if len(queries) <= 16 else [*queries[:7], "..", queries[-1]]
    text = " ".join(names)
    width = max(len(text), len(read))
    middle = (width - 1) // 2
    joint = "│".center(width) if len(names) == 1 else f"└{'─' * (middle - 1)}┬{'─' * (width - middle - 2)}┘"
    return text.center(width), joint, read.center(width)


def _fitting(groups: Sequence[Group], width: int) -> Iterator[Group]:
    for group in groups:
        width -= 3 + len(group[0])
        if width < 0:
            return
        yield group


# --- masks ------------------------------------------------------------------------------------------------------------


def mask(locality: Locality) -> Drawing:
    """Queries down, keys across: what each sees. A mark stands for one token, or for as many as are said."""
    if locality.limit is None:
        return Drawing("Mask", _rows(locality, TOKENS, 1), f"{TOKENS} tokens: a query sees itself and all before it")
    step = max(1, locality.limit * 3 // (2 * TOKENS))
    kind = f"a window of {locality.window:,}" if locality.window else f"chunks of {locality.chunk:,}"
    each = f", {step:,} tokens a mark" if step > 1 else ""
    legend = ["■ all of them seen, □ some, · none"] if step > 1 else []
    lines = [*_rows(locality, 2 * TOKENS, step), *legend]
    return Drawing("Mask", lines, f"{kind}, queries down, keys across{each}")


def _rows(locality: Locality, places: int, step: int) -> list[str]:
    starts = range(0, places * step, step)
    return [" ".join(_mark(locality, query, key, step) for key in starts) for query in starts]


def _mark(locality: Locality, query: int, key: int, step: int) -> str:
    """What queries from one on see of keys from one on: all of them, some, none.

    The first key that a query sees never lies before that of the query before it, so that the ends tell of all between.
    """
    last_query, last_key = query + step - 1, key + step - 1
    if _first(locality, last_query) <= key and last_key <= query:
        return "■"
    nearest = max(query, key)
    return "□" if nearest <= last_query and _first(locality, nearest) <= last_key else "·"


def _first(locality: Locality, query: int) -> int:
    """The first key that a query sees; the last is its own."""
    return query + 1 - locality.seen(query + 1)
