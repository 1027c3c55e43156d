"""archlab flops: its tables against published numbers, its explanations against its tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from strategies import CONTEXT, specs
from worked import BARE, evaluate

import archlab
from archlab.compose import request
from archlab.cost.figures import exact_figures
from archlab.cost.roofline import Passes, Setting, bound
from archlab.decoder.spec import DecoderSpec
from archlab.document import Document
from archlab.errors import RequestError
from archlab.frozen import replace
from archlab.hardware import hardware
from archlab.paper.flops import document


def answer(
    preset: str, *overrides: str, trained_on: int | None = None, device: str | None = None, **workload: Any
) -> Document:
    asked = request(preset, overrides, **workload)
    return document(asked if device is None else replace(asked, hardware=hardware(device)), trained_on)


def rows(made: Document, table: str) -> dict[Any, dict[str, Any]]:
    """A table's rows by what they are about."""
    found = made.as_dict()["tables"][table]["rows"]
    return {next(iter(row.values())): row for row in found}


def test_h01_the_reference_table() -> None:
    made = answer("gpt2", *BARE, prompt=1024)
    assert rows(made, "prefill")["total"]["full"] == 291_648_307_200
    conventions = rows(made, "conventions")
    assert conventions["full"]["sequence"] == 874_944_921_600
    assert conventions["palm"]["sequence"] == 879_894_724_608
    assert conventions["palm"]["of_full"] == pytest.approx(100.57, abs=5e-3)


def test_h02_the_embedding_is_free_and_the_head_is_not() -> None:
    for head in ("tied", "untied"):
        parts = rows(answer("gpt2", f"model/head={head}"), "prefill")
        assert parts["embedding"]["full"] == 0
        assert parts["lm_head"]["full_per_token"] == 77_194_752


def test_h07_attention_beside_six_n() -> None:
    shares = rows(answer("llama-3.1-8b"), "attention")
    found = [shares[context]["share_full"] for context in (2048, 8192, 32768, 131072)]
    assert [round(share, 1) for share in found[:2]] == [7.2, 28.6]
    assert [round(share) for share in found[2:]] == [114, 458]


def test_h15_no_total_mixes_conventions() -> None:
    """The parts add up to `full` and `causal`, which count no lookup; Chinchilla's is in its own row alone."""
    made = answer("llama-3-8b", prompt=2048)
    parts, conventions = rows(made, "prefill"), rows(made, "conventions")
    total = parts.pop("total")
    for side in ("full", "causal"):
        assert sum(part[side] for part in parts.values()) == total[side] == conventions[side]["sequence"] / 3
    lookup, softmax = 2 * 128_256 * 4096, 3 * 32 * 32 * 2048
    assert conventions["chinchilla"]["forward"] == conventions["full"]["forward"] + lookup + softmax


def test_total_training_flops() -> None:
    """To the last of 24 digits."""
    made = answer("llama-3-8b", trained_on=15 * 10**12)
    row = rows(made, "conventions")["6n"]
    assert row["training"] == 6 * 8_030_261_248 * 15 * 10**12
    assert "training" not in rows(answer("llama-3-8b"), "conventions")["6n"]
    assert made.assumptions["trained_on"] == 15 * 10**12
    full = rows(made, "conventions")["full"]["training"]
    assert f"{full:.4g} FLOPs in all" in made.verdict


def test_h01_an_mfu_is_a_rate_over_that_at_the_peak() -> None:
    """100 sequences in 0.755 s on an A100: 37.14 %, 34.7 % of the causal work, by PaLM's count 37.35 %."""
    conventions = rows(answer("gpt2", *BARE, prompt=1024, device="a100-sxm-40gb"), "conventions")
    mfu = {name: 100 * (100 * 1024 / 0.755) / row["peak_tok_s"] for name, row in conventions.items()}
    assert round(mfu["full"], 2) == 37.14
    assert round(mfu["causal"], 1) == 34.7
    assert mfu["palm"] == pytest.approx(37.14 * 1.0057, abs=0.01)


def test_days_of_a_device() -> None:
    made = answer("llama-3.1-8b", prompt=8192, trained_on=15 * 10**12, device="h100-sxm")
    conventions = rows(made, "conventions")
    assert conventions["6n"]["device_days"] == pytest.approx(6 * 8_030_261_248 * 15e12 / 989.4e12 / 86_400)
    asked = request("llama-3.1-8b", (), prompt=8192)
    trained = bound(Passes(asked.spec, Setting()).train(1, 8192), hardware("h100-sxm"))
    assert conventions["causal"]["peak_tok_s"] == pytest.approx(trained.tok_s)
    assert "at least 9,032 days of one" in made.verdict
    assert made.assumptions["peak"] == "989.4 TFLOP/s, dense bf16"


def test_no_time_where_the_peak_is_not_known() -> None:
    made = answer("gqa", "workload.dtype=fp64", trained_on=10**9, device="rtx-4090")
    assert "device_days" not in rows(made, "conventions")["full"]
    assert any("no dense fp64 peak" in note for note in made.notes)


def test_a_batch_multiplies_the_total_and_not_the_token() -> None:
    parts = rows(answer("gqa", batch=4, prompt=100), "prefill")
    assert parts["total of 4 sequences"]["full"] == 4 * parts["total"]["full"]
    assert parts["total of 4 sequences"]["full_per_token"] == parts["total"]["full_per_token"]


CASES = [("gpt2", ()), ("deepseek-v3", ()), ("gpt-oss-20b", ()), ("gqa", ("model/head=classification",))]
CASES += [("minimind", ("model.attention.chunk=100",)), ("minimind-moe", ())]


def shown(made: Document) -> dict[str, float]:
    """Every number of the tables by the name of its explanation."""
    found = {}
    for part, row in rows(made, "prefill").items():
        for side in ("full", "causal"):
            each = f"flops_prefill_per_token.{side}" if part == "total" else f"{part}.{side}.per_token"
            found |= {f"{part}.{side}": row[side], each: row[f"{side}_per_token"]}
    for context, row in rows(made, "decode").items() if "decode" in made.as_dict()["tables"] else ():
        found |= {f"decode.{context}.{name}".removesuffix(".total"): value for name, value in list(row.items())[1:]}
    for name, row in rows(made, "conventions").items():
        kinds = ("forward", "trained", "sequence", "training", "peak_tok_s", "device_days")
        found |= {f"{kind}.{name}": row[kind] for kind in kinds if kind in row}
    for context, row in rows(made, "attention").items():
        found |= {f"{name}.{context}": value for name, value in list(row.items())[1:]}
    return found


def check_explained(made: Document) -> None:
    worked = {}
    for item in made.explanations:
        arithmetic, _, result = item.worked.rpartition(" = ")
        worked[item.figure] = float(evaluate(arithmetic or result))
    assert worked == pytest.approx(shown(made), rel=1e-12)


@pytest.mark.parametrize(("preset", "overrides"), CASES)
def test_every_figure_is_explained_and_comes_out_so(preset: str, overrides: tuple[str, ...]) -> None:
    check_explained(answer(preset, *overrides, prompt=300, trained_on=10**9))
    check_explained(answer(preset, *overrides, prompt=300, trained_on=10**9, device="h200"))


@pytest.mark.slow
@settings(max_examples=60)
@given(specs())
def test_every_figure_of_any_composition(spec: DecoderSpec) -> None:
    check_explained(document(replace(request("gqa", (), prompt=CONTEXT - 3), spec=spec), 10**9))


def test_a_prompt_costs_here_what_it_costs_everywhere() -> None:
    asked = request("qwen3-30b-a3b", (), prompt=500)
    figures, parts = exact_figures(asked.spec, asked.workload), rows(document(asked), "prefill")
    for side in ("full", "causal"):
        assert parts["total"][f"{side}_per_token"] == figures[f"flops_prefill_per_token.{side}"].value


def test_a_context_past_the_positions_is_refused() -> None:
    with pytest.raises(RequestError, match="end at 1024 tokens; 2048"):
        answer("gpt2", prompt=2048)
    assert 1024 in rows(answer("gpt2"), "decode")
    assert archlab.load("gpt2").max_length == 1024


def test_a_head_that_makes_no_tokens_has_no_decoding() -> None:
    assert "decode" not in answer("gqa", "model/head=regression").as_dict()["tables"]
