"""What archlab kv says: its rows, its explanations, its assumptions."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import specs

from archlab.compose import request
from archlab.cost.kv import Engine, valid_tp
from archlab.cost.storage import KV_STORAGE
from archlab.document import Document, Row
from archlab.errors import ConfigError, RequestError
from archlab.frozen import replace
from archlab.paper.kv import document
from archlab.report.document import csv_text, md_text

GIB = 2**30
ROOT = request("gqa")


def asked(model: str, contexts: list[int] | None = None, **options: Any) -> Document:
    return document(request(model, **({"contexts": contexts} if contexts else {})), **options)


def rows(made: Document, table: str = "totals") -> list[Row]:
    return list({table.name: table for table in made.tables}[table].rows)


def test_a_row_for_each_dtype_batch_and_context() -> None:
    made = asked("llama-3-8b", [2048, 8192], batches=[1, 32], dtypes=["bf16", "int8"])
    found = {(row["dtype"], row["batch"], row["context"]): row["required"] for row in rows(made)}
    assert len(found) == 8
    assert found["bf16", 1, 2048] == 2048 * 131_072
    assert found["int8", 32, 8192] == 32 * 8192 * 32 * 2 * 8 * (128 + 2)


def test_allocated_is_only_what_archlabs_cache_can_be() -> None:
    made = rows(asked("llama-3-8b", [2048], dtypes=["fp32", "fp8", "int8", "int4"]))
    assert [row["allocated"] for row in made] == [2048 * 262_144, None, None, None]
    assert [row["allocated"] for row in rows(asked("llama-3-8b", [2048], tp=2))] == [None]
    assert "allocated" not in {why.figure for why in asked("llama-3-8b", tp=2).explanations}


def test_kinds_of_layers_with_kv_heads_and_queries_of_each() -> None:
    made = asked("gemma-2-2b", [8192])
    local, full = rows(made, "layers")
    assert (local["attention"], full["attention"]) == ("gqa, window 4,096", "gqa")
    for kind in (local, full):
        assert (kind["layers"], kind["n_kv_heads"], kind["queries_per_kv"]) == (13, 4, 2)
    assert (local["tokens"], full["tokens"]) == (4096, 8192)
    assert local["required"] + full["required"] == rows(made)[0]["required"]
    assert made.assumptions["window"].startswith("W tokens, the current one included; transformers keeps W - 1")
    assert "window" not in asked("llama-3-8b").assumptions


def test_layers_that_differ_in_their_ffn_alone_are_one_kind() -> None:
    (kind,) = rows(asked("deepseek-v3"), "layers")
    assert (kind["layers"], kind["at"], kind["keeps"]) == (61, "0-60", "latent 1 x 576")


def test_b08_the_form_of_a_latent_cache_is_said_and_can_be_chosen() -> None:
    latent, expanded = asked("deepseek-v3", [1]), asked("deepseek-v3", [1], cache="expanded")
    assert (latent.assumptions["cache"], expanded.assumptions["cache"]) == ("latent", "expanded")
    assert (rows(latent)[0]["required"], rows(expanded)[0]["required"]) == (70_272, 4_997_120)
    for made in (latent, expanded):
        assert "70,272 B a token as latents, 4,997,120 B expanded: 71.1 times as much (bf16)" in made.notes


def test_b17_device_and_cluster() -> None:
    made = asked("llama-3.1-70b", [1], tp=32)
    (row,) = rows(made)
    assert (row["required"], row["cluster"], row["copies"]) == (40_960, 32 * 40_960, 4)
    assert rows(made, "layers")[0]["heads_per_device"] == 1


def test_b28_engines_are_named_with_their_sizes() -> None:
    made = asked("gemma-3-1b", [4096], engine=Engine("llama_cpp", micro_batch=1024))
    assert (made.assumptions["engine"], made.assumptions["micro_batch"]) == ("llama_cpp", 1024)
    assert [row["engine"] // row["kv_bytes_per_token"] for row in rows(made, "layers")] == [1536, 4096]
    full = asked("gemma-3-1b", [4096], engine=Engine("full_pages", 64))
    assert (full.assumptions["engine"], full.assumptions["block"]) == ("full_pages", 64)
    assert rows(full)[0]["engine"] == 4096 * 26_624


def test_what_a_quantised_dtype_keeps_beside_is_said() -> None:
    made = asked("gqa", dtypes=["bf16", "fp8", "int8", "int4"])
    assert made.assumptions["fp8"] == "one scale a tensor, not counted"
    assert "fp16 scale for each head and token" in made.assumptions["int8"]
    assert "zero point for each 32 elements" in made.assumptions["int4"]
    assert "bf16" not in made.assumptions


def test_defaults_are_the_workloads() -> None:
    made = document(request("gqa", batch=3, kv_dtype="fp16", contexts=[7]))
    assert [(row["dtype"], row["batch"], row["context"]) for row in rows(made)] == [("fp16", 3, 7)]
    assert [row["context"] for row in rows(asked("llama-3.1-8b"))] == [2048, 8192, 32_768, 131_072]
    assert [row["context"] for row in rows(asked("gpt2"))] == [1024]


def test_the_same_asked_twice_is_one_row() -> None:
    made = asked("gqa", [64, 8, 64], batches=[2, 2], dtypes=["bf16", "bfloat16", "fp8"])
    assert [(row["dtype"], row["context"]) for row in rows(made)] == [
        ("bf16", 64),
        ("bf16", 8),
        ("fp8", 64),
        ("fp8", 8),
    ]
    assert list(made.charts[0].series) == ["bf16", "fp8"]


def test_what_is_beyond_the_model_is_refused_or_noted() -> None:
    with pytest.raises(RequestError, match="positions end at 1024 tokens; 1025 were asked for"):
        asked("gpt2", [8, 1025])
    assert any(
        "9,000 tokens are beyond the model's context of 8,192" in note for note in asked("llama-3-8b", [9000]).notes
    )
    assert asked("llama-3-8b", [8192]).notes == []


def test_a_padded_vocabulary_is_no_part_of_the_cache() -> None:
    assert any(
        "50,257 does not divide by tp = 4; model.vocab_multiple=4 pads" in note for note in asked("gpt2", tp=4).notes
    )
    assert not any("vocab_size" in note for note in asked("llama-3-8b", tp=4).notes)


@pytest.mark.parametrize(("cache", "problem"), [("latent", "no latent attention"), ("all", "no latent attention")])
def test_a_form_of_cache_that_a_model_has_not(cache: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        asked("gqa", cache=cache)
    with pytest.raises(ConfigError, match="valid: latent, expanded"):
        asked("deepseek-v3", cache="all")


@given(
    specs(),
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.sampled_from(sorted(KV_STORAGE)),
    st.integers(1, 3),
    st.data(),
)
def test_explanations_give_the_tables_numbers(
    spec: Any, contexts: list[int], dtype: str, beams: int, data: st.DataObject
) -> None:
    """The worked line, computed anew from its own text, is the figure that the tables show."""
    tp = data.draw(st.sampled_from(valid_tp(spec)))
    limit = spec.max_length or 40
    inside = [min(context, limit) for context in contexts]
    made = document(
        replace(ROOT, spec=spec, workload=replace(ROOT.workload, contexts=tuple(inside))), [2], [dtype], beams, tp
    )
    longest = max(rows(made), key=lambda row: row["context"])
    for why in made.explanations:
        left, _, right = why.worked.rpartition(" = ")
        computed = eval(re.sub(r",| B", "", left).replace("x", "*"), {})
        assert f"{computed:,} B" == right
        assert computed == longest[why.figure]
    kinds = rows(made, "layers")
    for column in ("kv_bytes_per_token", "required", "engine"):
        assert sum(kind[column] for kind in kinds) == longest[column]
    assert sum(kind["layers"] for kind in kinds) == spec.n_layers
    for curve in made.charts[0].series.values():
        assert [y for _, y in curve] == sorted(y for _, y in curve)
        assert curve[-1][0] == longest["context"]
    assert csv_text(made).count("\n") == 1 + len(kinds) + len(rows(made))
    assert md_text(made).count("\n| ") >= 4


def test_a_curve_for_each_dtype_or_batch_or_beside_no_windows() -> None:
    def names(**options: Any) -> list[str]:
        return list(asked("gemma-3-1b", **options).charts[0].series)

    assert names(dtypes=["bf16", "fp8"], batches=[1, 2]) == ["bf16", "fp8"]
    assert names(batches=[1, 2]) == ["batch 1", "batch 2"]
    assert names() == ["required", "without windows"]
    assert list(asked("llama-3-8b").charts[0].series) == ["required"]
    assert asked("gemma-3-1b").charts[0].series["without windows"][-1] == (32_768, 832 * 2**20)
