"""archlab diff: what it says changes is the difference of the two, and the public cases' ratios."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from strategies import CONTEXT, specs
from worked import evaluate

from archlab.compose import request
from archlab.cost.figures import exact_figures
from archlab.cost.flops import flops
from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.decoder.spec import DecoderSpec
from archlab.document import Document
from archlab.errors import RequestError
from archlab.frozen import replace
from archlab.hardware import Hardware, hardware
from archlab.paper.diff import document
from archlab.request import Request
from archlab.sources import pair

GIB = 2**30


def sides(*words: str, **workload: Any) -> list[Request]:
    return [request(source, overrides, **workload) for source, overrides in pair(words)]


def diff(*words: str, **workload: Any) -> Document:
    return document(*sides(*words, **workload), names=["one", "the other"])


def rows(made: Document) -> dict[str, dict[str, Any]]:
    """The rows of all tables by their first column."""
    return {next(iter(row.values())): row for table in made.tables for row in table.rows}


def test_b23_a_70b_with_64_kv_heads_keeps_80_gib() -> None:
    made = diff("llama-3.1-70b", "model/attention=mha", contexts=[32_768])
    changed = rows(made)["kv_bytes.32768"]
    assert (changed["before"], changed["after"]) == (10 * GIB, 80 * GIB)
    assert rows(made)["kv_bytes_per_token"]["before"] == 327_680
    assert made.verdict.startswith("KV cache at 32,768 8.00x larger, parameters +")


def test_b08_expanded_or_latent() -> None:
    made = rows(diff("deepseek-v3", "model.attention.cache=expanded"))["kv_bytes_per_token"]
    assert (made["before"], made["after"]) == (70_272, 4_997_120)


@pytest.mark.parametrize(("kv_heads", "saving"), [(4, "8.00x smaller"), (8, "4.00x smaller")])
def test_b30_kv_heads_are_no_group_size(kv_heads: int, saving: str) -> None:
    made = diff("llama-2-7b", "llama-2-7b", "model/attention=gqa", f"model.attention.n_kv_heads={kv_heads}")
    assert f"KV cache at 4,096 {saving}" in made.verdict
    assert rows(made)["attention.n_kv_heads"] == {"setting": "attention.n_kv_heads", "before": 32, "after": kv_heads}


PAIRS: list[tuple[str, ...]] = [
    ("llama-3-8b", "model/attention=mha"),
    ("gpt2", "minimind"),
    ("gqa", "model/ffn=moe", "model.attention.window=100"),
    ("deepseek-moe-16b", "llama-2-7b"),
    ("gemma-2-2b", "gemma-3-1b"),
    ("gqa", "model/head=classification"),
    ("mixtral-8x7b", "mixtral-8x7b", "workload.dtype=fp32", "workload.batch=2"),
]


def costs(asked: Request, contexts: list[int]) -> dict[str, float]:
    """Every figure that a diff is about, from the Python interface."""
    spec, workload, counts = asked.spec, asked.workload, parameters(asked.spec)
    found: dict[str, float] = {"params": counts.total, "params_non_embedding": counts.non_embedding}
    found |= {f"params.{part}": count for part, count in counts.by_part.items()}
    found["weight_bytes"] = exact_figures(spec, workload)["weight_bytes"].value or 0
    found["kv_bytes_per_token"] = kv_cache(spec, 1, 1, workload.cache_dtype).bytes_per_token
    for context in contexts:
        found[f"kv_bytes.{context}"] = kv_cache(spec, workload.batch, context, workload.cache_dtype).bytes
        for side in ("full", "causal"):
            found[f"flops_prefill_per_token.{side}.{context}"] = flops(spec, 1, context, 0, side).prefill_per_token
        if not spec.head.last_token_only:
            found[f"flops_decode_per_token.{context}"] = flops(spec, 1, context - 1, 1).decode
    return found


@pytest.mark.parametrize("words", PAIRS, ids=" ".join)
def test_what_changes_is_the_difference_of_the_two(words: tuple[str, ...]) -> None:
    contexts = [50, 1000]
    before, after = (costs(side, contexts) for side in sides(*words))
    shown = rows(diff(*words, contexts=contexts))
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if old == new:
            assert name not in shown
        elif old is None or new is None:
            assert (shown[name]["change"], shown[name]["percent"]) == (None, None)
        else:
            assert (shown[name]["before"], shown[name]["after"]) == (old, new)
            assert shown[name]["change"] == new - old
            assert not old or shown[name]["percent"] == pytest.approx(100 * (new - old) / old)


@pytest.mark.parametrize("words", PAIRS, ids=" ".join)
def test_both_sides_of_each_figure_are_explained(words: tuple[str, ...]) -> None:
    made = diff(*words, contexts=[50, 1000])
    explained = {(item.model, item.figure): item.worked for item in made.explanations}
    for table in made.tables[1:]:
        for row in table.rows:
            for side in ("before", "after"):
                if row.get(side):
                    arithmetic = explained[side, row["figure"]].rpartition(" = ")[0]
                    assert float(evaluate(arithmetic)) == pytest.approx(row[side], rel=1e-12)
    as_json = made.as_dict()["explanations"]
    assert as_json["before"].keys() >= {"params", "weight_bytes", "kv_bytes.50"}
    assert as_json.keys() == {"before", "after"}


@pytest.mark.slow
@settings(max_examples=60)
@given(specs(), specs())
def test_any_two_compositions(one: DecoderSpec, other: DecoderSpec) -> None:
    """Whatever is put side by side: each row is a difference, each side's explanation comes to it."""
    asked = request("gqa", (), contexts=[3, CONTEXT])
    sides = [replace(asked, spec=spec) for spec in (one, other)]
    made = document(*sides, names=["one", "the other"])
    explained = {(item.model, item.figure): item.worked for item in made.explanations}
    for table in made.tables:
        for row in table.rows if table.name != "choices" else ():
            if row.get("change"):
                assert row["change"] == row["after"] - row["before"]
            for side in ("before", "after"):
                if row.get(side):
                    arithmetic, _, result = explained[side, row["figure"]].rpartition(" = ")
                    assert float(evaluate(arithmetic or result)) == pytest.approx(row[side], rel=1e-12)


def on(device: str, *words: str, **workload: Any) -> Document:
    """A diff of models on one device."""
    before, after = (replace(side, hardware=hardware(device)) for side in sides(*words, **workload))
    return document(before, after, ["one", "the other"])


def test_a_device_bounds_both_sides() -> None:
    """Decoding 2,048 tokens of Llama 3 8B in bf16 on an H200: its weights but for the embedding, and its cache."""
    made = on("h200", "llama-3-8b", "model/attention=mha", contexts=[2048])
    weights, grown = 2 * (8_030_261_248 - 128_256 * 4096 + 4096), 805_306_368
    cache = 131_072 * 2048
    shown = rows(made)["bound_decode_tok_s.2048"]
    assert shown["before"] == pytest.approx(4.8e12 / (weights + cache))
    assert shown["after"] == pytest.approx(4.8e12 / (weights + 2 * grown + 4 * cache))
    assert shown["binds"] == "memory"
    assert rows(made)["bound_prefill_tok_s.2048"]["binds"] == "compute"
    assert made.assumptions["hardware"] == hardware("h200").name
    assert "decode bound at 2,048 -" in made.verdict


def test_each_side_may_have_a_device_of_its_own() -> None:
    before, after = sides("gqa", "gqa")
    two = (replace(before, hardware=hardware("h100-sxm")), replace(after, hardware=hardware("h200")))
    made = document(*two, names=["one", "the other"])
    changed = rows(made)["bound_decode_tok_s.4096"]
    assert changed["percent"] == pytest.approx(100 * (4.8 / 3.35 - 1), abs=0.1)
    assert made.assumptions["hardware"] == f"{hardware('h100-sxm').name} -> {hardware('h200').name}"
    shared = document(before, two[1], ["one", "the other"])
    assert shared.verdict == "nothing that is costed changes"


@pytest.mark.parametrize("words", PAIRS, ids=" ".join)
def test_bounds_are_explained(words: tuple[str, ...]) -> None:
    made = on("a100-sxm-80gb", *words, contexts=[50, 1000])
    explained = {(item.model, item.figure): item.worked for item in made.explanations}
    table = next(table for table in made.tables if table.name == "bound")
    shown = [row for row in table.rows if not row["figure"].endswith("without change")]
    assert shown
    for row in shown:
        for side in ("before", "after"):
            if row[side] is not None:
                arithmetic = explained[side, row["figure"]].rpartition(" = ")[0]
                assert float(evaluate(arithmetic)) == pytest.approx(row[side], rel=1e-9)


def test_a_device_of_which_nothing_is_known_bounds_nothing() -> None:
    bare = Hardware("a device")
    before, after = (replace(side, hardware=bare) for side in sides("gqa", "model/attention=mha"))
    made = document(before, after, ["one", "the other"])
    assert "bound" not in [table.name for table in made.tables]
    worked = {item.figure: item.worked for item in made.explanations}
    assert worked["bound_decode_tok_s.4096"] == "no ceiling is known"


def test_one_model_and_what_changes_is_two_models() -> None:
    change = ("model/norm=layernorm", "model.n_layers=3")
    one, two = diff("gqa", *change), diff("gqa", "gqa", *change)
    assert [table.rows for table in one.tables] == [table.rows for table in two.tables]
    assert one.verdict == two.verdict


def test_what_does_not_change_is_a_count() -> None:
    same = diff("gqa", "gqa")
    assert same.verdict == "nothing that is costed changes"
    assert [table.name for table in same.tables] == ["parameters", "memory", "flops"]
    figures = exact_figures(sides("gqa", "gqa")[0].spec, sides("gqa", "gqa")[0].workload)
    telling = [name for name, figure in figures.items() if name.startswith("params") and figure.value]
    telling = [name for name in telling if name not in ("params_active", "params.layers.0-7")]
    assert same.tables[0].rows == [{"figure": f"{len(telling)} without change", "change": 0, "percent": 0}]


def test_layers_that_differ_are_named() -> None:
    pattern = "model.layers=[{attention:{window:512},repeat:3},{attention:{window:null}}]"
    made = rows(diff("gqa", pattern))
    assert made["attention.window"] == {"setting": "attention.window", "before": None, "after": 512}
    assert made["layers 3,7: attention.window"]["after"] is None
    assert made["layer kinds"] == {"setting": "layer kinds", "before": 1, "after": 2}


def test_the_verdict_says_what_it_comes_to() -> None:
    assert diff("gqa", "workload.dtype=fp32").verdict == "KV cache at 4,096 2.00x larger, weights 2.00x larger"
    wide = diff("gqa", "model.n_layers=10", contexts=[2048])
    before, after = (costs(side, [2048]) for side in sides("gqa", "model.n_layers=10"))
    percent = 100 * (after["params"] - before["params"]) / before["params"]
    assert f"KV cache at 2,048 +25.0 %, parameters +{percent:.1f} %, decode FLOPs at 2,048 +" in wide.verdict
    assert "parameters -" in diff("gqa", "gqa", "model.ffn.d_ff=1000").verdict


def test_each_side_has_its_own_workload() -> None:
    made = diff("gqa", "gqa", "workload.batch=4")
    assert made.assumptions["batch"] == "1 -> 4"
    assert made.assumptions["dtype"] == "bf16"
    asked = request("gqa", ())
    once = exact_figures(asked.spec, replace(asked.workload, contexts=(4096,)))["kv_bytes.4096"].value
    assert rows(made)["kv_bytes.4096"]["after"] == 4 * (once or 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gqa",), "nothing says what changes"),
        (("gqa", "mha", "mqa"), "3 models"),
        (("model.n_layers=3", "gqa"), "nothing says what changes"),
        (("model.n_layers=3",), "no model is named"),
    ],
)
def test_what_is_no_pair_is_refused(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        pair(words)


def test_what_comes_first_is_of_both_sides() -> None:
    both, change = ["model.n_layers=3"], "model/attention=mha"
    assert pair((*both, "gqa", change)) == [("gqa", both), ("gqa", [*both, change])]
    assert pair((*both, "gqa", "mqa", change)) == [("gqa", both), ("mqa", [*both, change])]


def test_a_context_past_the_positions_of_either_is_refused() -> None:
    for words in (("gpt2", "minimind"), ("minimind", "gpt2")):
        with pytest.raises(RequestError, match="end at 1024"):
            diff(*words, contexts=[2048])
        assert "kv_bytes.1024" in rows(diff(*words))
