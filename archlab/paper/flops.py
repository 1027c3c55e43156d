"""archlab flops: what a token costs, part by part."""

from __future__ import annotations

from archlab.cost.flops import Flops, flops
from archlab.document import Column, Document, Table
from archlab.request import Request

HOW = "matmul FLOPs, 2 a multiply-add; embedding lookup 0"
COLUMNS = (
    Column("part"),
    Column("full", "FLOP", "exact", f"{HOW}; every query-key pair"),
    Column("causal", "FLOP", "exact", f"{HOW}; the pairs that see each other"),
)


def document(asked: Request) -> Document:
    """FLOPs of the workload's prompt by part, full and causal side by side."""
    batch, prompt = asked.workload.batch, asked.workload.prompt
    full, causal = (flops(asked.spec, batch, prompt, 0, convention) for convention in ("full", "causal"))
    about = f"{batch} x {prompt:,} tokens, logits of all positions"
    return Document(
        command="flops",
        model=asked.spec.name,
        tables=[Table("prefill", "Prefill", COLUMNS, _rows(full, causal), about)],
        assumptions={"batch": batch, "context": prompt},
        notes=asked.notes,
    )


def _rows(full: Flops, causal: Flops) -> list[dict[str, str | int]]:
    rows: list[dict[str, str | int]] = [
        {"part": part, "full": full.by_part[part], "causal": causal.by_part[part]} for part in full.by_part
    ]
    return [*rows, {"part": "total", "full": full.prefill, "causal": causal.prefill}]
