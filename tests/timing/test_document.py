"""The answer of archlab bench, from records as the clock leaves them."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from archlab.cost.kv import kv_cache
from archlab.errors import ConfigError
from archlab.record import Figure, Record
from archlab.report.document import csv_text
from archlab.timing.document import document
from archlab.timing.points import Asked, Point, points
from archlab.timing.rounds import Ratio
from archlab.timing.run import Timed


def asked(*words: str, **options: Any) -> list[Point]:
    return points(Asked(words, **options))


def timed(point: Point, speed: float, **figures: Figure) -> Record:
    """A decode that makes `speed` tok/s of at most 100, which memory bounds."""
    request = point.request
    kept = kv_cache(request.spec, request.workload.batch, request.workload.length, "bf16").allocated
    how = "1 x 32 new tokens; median of 7 runs after 2 to warm up"
    facts = {"products": "packed", "attention": "flash (op)", "stopped": "2 s are spent"}
    made = {
        "decode_tok_s": Figure(speed, "tok/s", "measured", how, speed * 0.9, speed * 1.1, 7, facts=facts),
        "decode_seconds_per_token": Figure(request.workload.batch / speed, "s/token", "measured", how),
        "decode_bound_tok_s": Figure(100.0, "tok/s", "bound", "tokens / max(..)", facts={"binds": "memory"}),
        "decode_mfu": Figure(1.0, "%", "measured", "12 GFLOP / time / 180 GFLOP/s"),
        "decode_mbu": Figure(speed, "%", "measured", "1 GiB / time / 40 GB/s"),
        "ceiling_matmul": Figure(180e9, "FLOP/s", "measured", "best of 3 runs on cpu: 1024 x 1024 bf16 product"),
        "ceiling_read.decode": Figure(
            40e9, "B/s", "measured", "best of 3 runs", facts={"what": "torch.sum over 1 GiB"}
        ),
        "kv_allocated_bytes": Figure(kept, "B", "measured", ""),
    }
    environment = {"device": "cpu", "device_name": "a processor", "timed_dtype": "bf16"}
    environment |= {"warnings": {"it was loaded": ["by others", 1.0]}}
    return Record(dict(point.config), [], figures=made | figures, environment=environment)


def answer(found: list[Point], *records: Record, ratios: tuple[Ratio, ...] = ()) -> Any:
    return document(Timed(found, dict(enumerate(records)), list(ratios), Path("outputs/x"))).as_dict()


def test_bound_measured_and_fraction_stand_in_one_row_with_the_ceiling_that_binds() -> None:
    found = asked("gqa")
    shown = answer(found, timed(found[0], 25.0))
    (row,) = shown["tables"]["roofline"]["rows"]
    assert {
        "tok_s": 25.0,
        "bound": 100.0,
        "reached": 25.0,
        "binds": "memory",
        "mfu": 1.0,
        "mbu": 25.0,
    }.items() <= row.items()
    assert shown["tables"]["roofline"]["columns"]["bound"]["kind"] == "bound"
    (rates,) = shown["tables"]["ceilings"]["rows"]
    assert (rates["matmul"], rates["read"], rates["read_at"]) == (180, 40, "torch.sum over 1 GiB")
    (speed,) = shown["tables"]["throughput"]["rows"]
    assert (speed["p10"], speed["runs"], speed["stopped"]) == (22.5, 7, "2 s are spent")
    assert speed["time"] == pytest.approx(40)
    (memory,) = shown["tables"]["memory"]["rows"]
    assert memory["kv_allocated"] == memory["kv_predicted"] > 0
    (clock,) = shown["tables"]["clock"]["rows"]
    assert (clock["products"], clock["attention"]) == ("packed", "flash (op)")
    assert "it was loaded: by others" in shown["notes"]
    assert shown["explanations"]["decode_mbu"]["formula"] == "1 GiB / time / 40 GB/s"


def test_nothing_is_shown_of_what_was_not_timed() -> None:
    found = asked("gqa")
    lost = timed(found[0], 1.0)
    lost.figures = {"decode_tok_s": Figure(None, "tok/s", "measured", "", status="too_large", reason="needs 9 GiB")}
    assert list(answer(found, lost)["tables"]) == ["throughput"]
    bare = timed(found[0], 25.0)
    bare.figures = {name: figure for name, figure in bare.figures.items() if "tok_s" in name or "per_token" in name}
    assert list(answer(found, bare)["tables"]) == ["throughput", "roofline", "clock"]
    del bare.figures["decode_bound_tok_s"]
    assert list(answer(found, bare)["tables"]) == ["throughput", "clock"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("gqa",), "nothing else has the work of gqa"),
        (("gqa", "mha"), "nothing was timed in turn with gqa"),
    ],
)
def test_why_there_are_no_ratios(words: tuple[str, ...], why: str) -> None:
    found = asked(*words)
    records = {number: timed(point, 25.0) for number, point in enumerate(found)}
    for in_turns in (False, True):
        shown = document(Timed(found, records, [], Path("outputs/x"), in_turns=in_turns)).as_dict()
        assert (f"no ratios: {why}" in shown["notes"]) is in_turns


def test_a_cache_whose_dtype_is_not_known_is_not_predicted() -> None:
    """The device would have chosen it, and the point was interrupted before that was told."""
    found, given = asked("gqa"), asked("gqa", dtypes=["fp32"])
    for points_, predicted in ((found, [None]), (given, [True])):
        record = timed(points_[0], 25.0)
        record.environment = {}
        rows = answer(points_, record)["tables"]["memory"]["rows"]
        assert [row.get("kv_predicted") and row["kv_predicted"] > 0 for row in rows] == predicted


def test_g04_a_share_that_cannot_be_is_said_to_be_invalid_and_the_time_stays() -> None:
    found = asked("gqa")
    wrong = Figure(None, "%", "measured", "", status="invalid", reason="130.0 % of 40 GB/s cannot be")
    (row,) = answer(found, timed(found[0], 130.0, decode_mbu=wrong))["tables"]["roofline"]["rows"]
    assert (row["tok_s"], row["reached"], row["mbu"]) == (130.0, "invalid", "invalid")


def test_a_point_that_did_not_run_says_why_in_its_row() -> None:
    found = asked("gqa", batches=[1, 2])
    lost = timed(found[1], 1.0)
    lost.figures = {
        "decode_tok_s": Figure(
            None, "tok/s", "measured", "", status="too_large", reason="needs 9 GiB, cpu has 8 GiB free"
        )
    }
    lost.status, lost.reason = "too_large", "decode: needs 9 GiB, cpu has 8 GiB free"
    shown = answer(found, timed(found[0], 25.0), lost)
    row = shown["tables"]["throughput"]["rows"][1]
    assert (row["batch"], row["tok_s"], row["stopped"]) == (
        2,
        "too_large",
        "too_large: needs 9 GiB, cpu has 8 GiB free",
    )
    assert "gqa: too_large: decode: needs 9 GiB, cpu has 8 GiB free" in shown["notes"]
    assert len(shown["tables"]["roofline"]["rows"]) == 1


def test_only_what_differs_labels_a_row_and_the_curves() -> None:
    found = asked("gqa", "gqa", "model/attention=mqa", batches=[1, 8])
    assert [point.labels["model"] for point in found] == ["gqa", "gqa model/attention=mqa"] * 2
    records = [timed(point, 10.0 * (1 + number)) for number, point in enumerate(found)]
    made = document(Timed(found, dict(enumerate(records)), [], Path("x")))
    assert [column.name for column in made.tables[0].columns][:3] == ["model", "batch", "phase"]
    (chart,) = made.charts
    assert chart.title == "decode over batch"
    assert chart.series["gqa"] == [(1, 10.0), (8, 30.0)]
    assert chart.series["bound of gqa"] == [(1, 100.0), (8, 100.0)]
    assert set(chart.series) == {
        name for model in ("gqa", "gqa model/attention=mqa") for name in (model, f"bound of {model}")
    }


def test_ratios_are_shown_with_their_spread() -> None:
    found = asked("gqa", "gqa", "model/attention=mqa")
    records = [timed(point, 10.0) for point in found]
    ratio = Ratio("decode", 1, 1.25, 1.2, 1.4, (1.22, 1.31), 9, 6)
    (row,) = answer(found, *records, ratios=(ratio,))["tables"]["ratios"]["rows"]
    assert row == {
        "model": "gqa model/attention=mqa", "phase": "decode", "ratio": 1.25, "p10": 1.2, "p90": 1.4, "rounds": 9,
        "low": 1.22, "high": 1.31, "processes": 6,
    }  # fmt: skip


def test_points_of_equal_work_stand_together_whatever_else_differs() -> None:
    found = asked("gqa", batches=[1, 2], dtypes=["bf16", "fp32"], backends=["flash"], phases=["decode"], compile=True)
    assert [(point.labels["batch"], point.labels["dtype"]) for point in found] == [
        (1, "bf16"), (1, "fp32"), (2, "bf16"), (2, "fp32")
    ]  # fmt: skip
    assert found[1].request.bench.backend == "flash"
    assert found[1].request.bench.compile
    assert list(found[1].overrides) == [
        "bench.phases=[decode]", "bench.compile=true", "workload.dtype=fp32", "bench.backend=flash", "workload.batch=1",
    ]  # fmt: skip


def test_graphs_are_asked_for_by_name() -> None:
    (found,) = asked("gqa", phases=["decode"], graphs=True)
    assert found.request.bench.graphs
    assert "bench.graphs=true" in found.overrides


def test_a_model_is_called_by_what_was_changed_of_it() -> None:
    (found,) = asked("gqa", "model/attention=mqa", "bench=full", "workload.new=8", "+bench.seconds=3")
    assert found.name == "gqa model/attention=mqa"
    assert (found.request.workload.new, found.request.bench.seconds) == (8, 3.0)


def test_settings_that_come_first_are_of_all_models() -> None:
    found = asked("bench=full", "workload.new=8", "gqa", "mqa", "workload.new=9")
    assert [point.name for point in found] == ["gqa", "mqa"]
    assert [point.request.bench.seconds for point in found] == [30.0, 30.0]
    assert [point.request.workload.new for point in found] == [8, 9]


def test_no_curve_over_one_batch_where_a_model_is_there_twice() -> None:
    found = asked("gqa", "gqa", batches=[8])
    records = dict(enumerate(timed(point, 10.0) for point in found))
    assert document(Timed(found, records, [], Path("outputs/x"))).charts == []


def test_nothing_to_time_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"gqa: there is nothing to time; valid: prefill, decode, train"):
        asked("gqa", "bench=none")


def test_a_point_that_cannot_be_is_refused_before_any_is_timed() -> None:
    with pytest.raises(ConfigError, match="positions end at 1024"):
        asked("gpt2", contexts=[512, 1024])


def test_a_prompt_may_be_as_long_as_the_positions_where_nothing_is_decoded() -> None:
    assert len(asked("gpt2", contexts=[1024], phases=["prefill", "train"])) == 1
    with pytest.raises(ConfigError, match="prompt 1025 tokens, but learned positions end at 1024"):
        asked("gpt2", contexts=[1025], phases=["train"])


def test_a_warning_is_said_once_with_the_points_that_it_holds_for() -> None:
    found = asked("gqa", batches=[1, 2, 4])
    records = [timed(point, 25.0) for point in found]
    slow = {"cpu has no bf16 arithmetic": ["torch emulates it", 0]}
    for record, load in zip(records, (9.8, None, 10.2), strict=True):  # of texts, 9.8 is the larger
        loads = {} if load is None else {"the machine was loaded": [f"others used {load} of its 12 CPUs", load]}
        record.environment["warnings"] = loads | slow
    notes = answer(found, *records)["notes"]
    (loaded,) = (note for note in notes if "loaded" in note)
    assert loaded == (
        "the machine was loaded: others used 10.2 of its 12 CPUs "
        "(at most; at 2 of 3 points: gqa, batch 1; gqa, batch 4)"
    )
    assert [note for note in notes if "emulates" in note] == [
        "cpu has no bf16 arithmetic: torch emulates it (at every point)"
    ]


def test_csv_has_one_column_of_each_name_and_the_rows_own_model() -> None:
    found = asked("gqa", "gqa", "model.n_layers=2")
    made = document(Timed(found, {0: timed(found[0], 25.0), 1: timed(found[1], 50.0)}, [], Path("outputs/x")))
    head, *rows = csv.reader(io.StringIO(csv_text(made)))
    assert len(set(head)) == len(head)
    speeds = {row[0]: float(row[head.index("tok_s")]) for row in rows if row[1] == "throughput"}
    assert speeds == {"gqa": 25.0, "gqa model.n_layers=2": 50.0}


@pytest.mark.parametrize(
    ("finished", "said"), [(0, "interrupted: 2 of 2 points not timed"), (1, "interrupted: 1 of 2 points not timed")]
)
def test_that_it_was_interrupted_is_told_with_what_is_left(finished: int, said: str) -> None:
    found = asked("gqa", "minimind")
    records = {number: timed(found[number], 25.0) for number in range(finished)}
    ended = Timed(found, records, [], Path("outputs/x"), interrupted=True)
    assert said in document(ended).notes
    assert not any("interrupted" in note for note in document(Timed(found, records, [], Path("outputs/x"))).notes)


def test_where_each_point_has_something_only_the_interruption_is_told() -> None:
    found = asked("gqa")
    ended = Timed(found, {0: timed(found[0], 25.0)}, [], Path("outputs/x"), interrupted=True)
    assert "interrupted" in document(ended).notes
