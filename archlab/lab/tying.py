"""archlab lab tying: the vocabulary's share of the model, tied and untied, at several vocabulary sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from archlab.components.head.spec import LanguageHead
from archlab.cost.flops import decode_by_part
from archlab.cost.params import parameters
from archlab.decoder.build import build, parameters_by_part
from archlab.decoder.spec import DecoderSpec
from archlab.document import Chart, Column, Document, Row, Table
from archlab.errors import RequestError
from archlab.lab.catalog import Tying
from archlab.lab.setup import Setup
from archlab.registry import choices

COLUMNS = (
    Column("vocab", "tokens"),
    Column("head"),
    Column("params", "parameters", "exact", "of the whole model"),
    Column("embedding", "parameters", "exact", "V d"),
    Column("lm_head", "parameters", "exact", "of its own; a tied one has none but a bias"),
    Column("share", "%", "exact", "embedding and head, of all parameters"),
    Column("head_flops", "FLOP", "exact", "of a token's logits, tied or not"),
    Column("flops_share", "%", "exact", "of those of one token without context"),
    Column("built", "", "", "whether the built module has as many"),
)


def run(setup: Setup) -> Document:
    """Every head that gives logits, at each vocabulary."""
    asked: Tying = setup.settings
    problems: list[str] = []
    rows = [row for vocab in asked.vocabs for row in _rows(setup, vocab, problems)]
    if not rows:
        raise RequestError(f"{setup.spec.name}: {'; '.join(problems)}")
    return Document(
        command="lab tying",
        model=setup.spec.name,
        verdict=_seen(rows),
        tables=[Table("tying", "The vocabulary's share", COLUMNS, rows, "checked on the meta device")],
        assumptions={"rest": f"{rows[0]['params'] - rows[0]['embedding'] - rows[0]['lm_head']:,} other parameters"},
        charts=[_chart(rows)],
        notes=problems,
    )


def _rows(setup: Setup, vocab: int, problems: list[str]) -> Iterator[Row]:
    for name, chosen in choices("head").items():
        if not issubclass(chosen.spec, LanguageHead):
            continue
        try:
            spec = setup.swapped({"vocab_size": vocab}, head=name)
        except RequestError as error:
            problems.append(f"{name} at {vocab:,}: {error}")
            continue
        yield {"vocab": spec.vocab_size, "head": name, **_row(spec)}


def _row(spec: DecoderSpec) -> dict[str, Any]:
    counted = parameters(spec)
    part, flops = counted.by_part, decode_by_part(spec, 0, 1)
    built = parameters_by_part(build(spec, device="meta")) == part
    return {
        "params": counted.total,
        "embedding": part["embedding"],
        "lm_head": part["lm_head"],
        "share": 100 * (part["embedding"] + part["lm_head"]) / counted.total,
        "head_flops": flops["lm_head"],
        "flops_share": 100 * flops["lm_head"] / sum(flops.values()),
        "built": "yes" if built else "no",
    }


def _seen(rows: Sequence[Row]) -> str:
    """The share at each vocabulary, head by head."""
    vocabs = ", ".join(f"{vocab:,}" for vocab in dict.fromkeys(row["vocab"] for row in rows))
    heads = dict.fromkeys(row["head"] for row in rows)
    told = [f"{head} {_shares([row for row in rows if row['head'] == head])}" for head in heads]
    return f"embedding and head at {vocabs} tokens: {'; '.join(told)}"


def _shares(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row['share']:.1f} %" for row in rows)


def _chart(rows: Sequence[Row]) -> Chart:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=lambda row: row["vocab"]):
        series.setdefault(row["head"], []).append((float(row["vocab"]), row["share"]))
    return Chart("Share of the model", "vocab", "%", series, log_x=True)
