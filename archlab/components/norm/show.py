"""What one norm has, and what it makes of a few numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from archlab.components.norm.spec import LayerNorm, Norm, RMSNorm
from archlab.document import Column, Table
from archlab.meaning import Here, Part

EXAMPLE = (1.0, 2.0, 3.0, 6.0)


def one_norm(here: Here) -> Iterable[Part]:
    """The tensors of one norm over d_model features; four features before and after it."""
    norm: Norm = here.spec
    tensors = norm.params(here.d_model)
    rows = [{"tensor": name, "count": count} for name, count in (*tensors.items(), ("total", sum(tensors.values())))]
    counted = Column("count", "parameters", "exact")
    yield Table("tensors", "One norm", [Column("tensor"), counted], rows, f"over {here.d_model:,} features")
    if type(norm) in (Norm, LayerNorm, RMSNorm):
        yield _example(norm)


def _example(norm: Norm) -> Table:
    columns = [Column("x", "1"), Column("y", "1", how="gain 1, shift 0, in float64")]
    rows = [{"x": x, "y": y} for x, y in zip(EXAMPLE, normed(norm, EXAMPLE), strict=True)]
    return Table("example", "Four features", columns, rows, "gain 1, shift 0, in float64")


def normed(norm: Norm, x: Sequence[float]) -> list[float]:
    """The norm of a token's features, gain 1 and shift 0."""
    if isinstance(norm, LayerNorm):
        mean = sum(x) / len(x)
        x = [value - mean for value in x]
        return [value / (_mean_square(x) + norm.eps) ** 0.5 for value in x]
    if isinstance(norm, RMSNorm):
        outside = norm.eps_place == "outside"
        root = _mean_square(x) ** 0.5 + norm.eps if outside else (_mean_square(x) + norm.eps) ** 0.5
        return [value / root for value in x]
    return list(x)


def _mean_square(x: Sequence[float]) -> float:
    return sum(value * value for value in x) / len(x)
