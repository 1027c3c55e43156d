"""What share of a model its vocabulary takes, tied and untied."""

from __future__ import annotations

from collections.abc import Iterable

from archlab import presets
from archlab.components.head.spec import LanguageHead
from archlab.document import Column, Table
from archlab.meaning import Here, Part

VOCABULARIES = ("minimind", "gpt2", "qwen3-8b")
"""Presets whose vocabularies are put in the place of the model's: small, middling, large."""


def shares(here: Here) -> Iterable[Part]:
    """The parameters that a tied head shares and an untied one has, at several sizes of the vocabulary."""
    head = here.spec if isinstance(here.spec, LanguageHead) else here.axes.get("head")
    if not isinstance(head, LanguageHead):
        return
    own = here.d_model + sum(head.params().values()) // here.vocab_size
    rest = here.params - here.vocab_size * own
    sizes = {presets.model(name)["vocab_size"]: name for name in VOCABULARIES} | {here.vocab_size: "here"}
    columns = [Column("tokens"), Column("of"), Column("matrix", "parameters", "exact", "vocab_size d_model")]
    columns += [Column(f"{side}", "%", "exact", f"share of the model, {side}") for side in ("tied", "untied")]
    columns.append(Column("flops", "FLOP", "exact", "a token: 2 vocab_size d_model"))
    rows = [_row(size, name, here.d_model, rest + size * head.bias) for size, name in sorted(sizes.items())]
    about = f"what is beside it stays: {rest:,} parameters; the matrix once where tied, twice where not"
    yield Table("vocabularies", "Share of the model", columns, rows, about)


def _row(size: int, name: str, d_model: int, rest: int) -> dict[str, str | float]:
    matrix = size * d_model
    tied, untied = (100 * times * matrix / (rest + times * matrix) for times in (1, 2))
    return {"tokens": f"{size:,}", "of": name, "matrix": matrix, "tied": tied, "untied": untied, "flops": 2 * matrix}
