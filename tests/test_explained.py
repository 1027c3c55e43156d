"""The explanations of a record's figures: closed forms where they hold, else what the figure says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worked import evaluate

from archlab.explained import explanations
from archlab.record import Figure, Record
from archlab.sources import gather

MODELS = [
    ["minimind"],
    ["gqa", "model.ffn.d_ff=1000", "workload.dtype=fp32", "workload.batch=3"],  # takes the place of the preset's rule
    ["minimind-moe", "model.ffn.n_shared=2", "model.attention.window=100"],
]


@pytest.mark.parametrize("words", MODELS, ids=" ".join)
def test_each_exact_figure_comes_out_of_its_explanation(words: list[str]) -> None:
    (record,) = gather(words)
    made = explanations(record)
    assert made.keys() == record.figures.keys()
    for name, figure in record.figures.items():
        arithmetic, _, result = made[name].worked.rpartition(" = ")
        assert float(evaluate(arithmetic or result)) == pytest.approx(figure.value, rel=1e-12), name


def timed(**changed: object) -> Record:
    (record,) = gather(["gqa", "workload.prompt=64"])
    how = "prompt tokens a second; fp32 on cpu; median of 5 runs"
    figure = {"value": 1810.4, "low": 1717.6, "high": 1961.9, "repeats": 5, **changed}
    record.figures["prefill_tok_s"] = Figure(unit="tok/s", kind="measured", how=how, **figure)  # type: ignore[arg-type]
    record.environment |= {"device": "cpu", "device_name": "AMD EPYC", "timed_dtype": "fp32"}
    return record


def test_a_measured_figure_says_how_often_and_where() -> None:
    made = explanations(timed())["prefill_tok_s"]
    assert (made.kind, made.formula) == ("measured", "prompt tokens a second; fp32 on cpu; median of 5 runs")
    assert made.worked == "median of 5 runs = 1,810 tok/s, a tenth of them below 1,718, a tenth above 1,962"
    assert made.assumptions == ["cpu, AMD EPYC, fp32", "batch 1, prompt 64, new 32"]


def test_a_ceiling_is_the_best_of_its_runs() -> None:
    record = timed()
    record.figures["ceiling_matmul"] = Figure(4.2e11, "FLOP/s", "measured", "best of 7 runs", 3.9e11, 4.2e11, 7)
    assert explanations(record)["ceiling_matmul"].worked.startswith("best of 7 runs = ")
    once = timed(value=5.0, low=5.0, high=5.0, repeats=1)
    assert explanations(once)["prefill_tok_s"].worked.startswith("median of 1 runs = ")
    assert explanations(record)["ceiling_matmul"].worked.endswith(", a tenth of them below 390,000,000,000")


def test_measured_bytes_say_their_unit_once() -> None:
    record = timed()
    record.figures["prefill_peak_bytes"] = Figure(3 * 2**20, "B", "measured", "peak of the process")
    assert explanations(record)["prefill_peak_bytes"].worked == "3.00 MiB"


def test_a_figure_without_a_value_says_why() -> None:
    lost = timed(value=None, low=None, high=None, repeats=None, status="oom", reason="out of memory: 14 GiB")
    assert explanations(lost)["prefill_tok_s"].worked == "no value: out of memory: 14 GiB"


def test_a_record_that_counted_otherwise_is_not_explained_by_todays_formula() -> None:
    (record,) = gather(["gqa"])
    record.figures["params"] = Figure(7, "parameters", "exact", "as an older version counted")
    record.figures["solved_d_ff"] = Figure(2304, "", "exact", "model.ffn.d_ff, multiple of 64")
    made = explanations(record)
    assert made["solved_d_ff"].worked == "2,304"
    assert (made["params"].worked, made["params"].formula) == ("7 parameters", "as an older version counted")
    assert "512" in made["params.ffn"].worked


def test_a_choice_that_is_not_installed_leaves_what_the_figure_says() -> None:
    (record,) = gather(["gqa"])
    config = {"model": {**record.config["model"], "norm": {"choice": "of_another_package"}}}
    made = explanations(replace(record, config=config))
    assert made["params"].worked == "38,937,088 parameters"
    assert made.keys() == record.figures.keys()
