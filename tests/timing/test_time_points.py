"""What one point's end does to the others: whatever was finished is told, kept and shown."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from archlab import point
from archlab.bench.child import Turn
from archlab.bench.figures import Figures
from archlab.errors import RequestError
from archlab.point import interrupted_point
from archlab.record import Figure, Record
from archlab.timing import run
from archlab.timing.document import document
from archlab.timing.points import Asked, Point, points
from archlab.timing.run import time_points

TIMED = {"prefill_tok_s": Figure(5.0, "tok/s", "measured", "stopped: so")}
REFUSED, STOPPED = RequestError("device: 'cuda' is not available here"), KeyboardInterrupt()


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """What becomes of the points in turn; a test fills it."""
    made: list[BaseException | None] = []

    def point_in_turns(
        config: Any, overrides: Any, typed: Any, progress: Any, told: Any, turns: bool
    ) -> Generator[Turn, bool, Record]:
        end = made.pop(0)
        if end is REFUSED:
            raise end
        yield Turn("prefill", "max_repeats", None)
        told(TIMED)
        yield Turn("decode", "max_repeats", None)
        if end is not None:
            raise end
        return Record(config, overrides, figures=TIMED)

    monkeypatch.setattr(run, "point_in_turns", point_in_turns)
    return made


def asked(batches: Sequence[int]) -> list[Point]:
    return points(Asked(["gqa"], batches=batches, phases=["prefill"]))


@pytest.mark.parametrize("in_turns", [False, True])
def test_a_point_that_its_process_refuses_costs_no_other(
    ends: list[BaseException | None], in_turns: bool, tmp_path: Path
) -> None:
    told: list[tuple[Point, Figures]] = []
    ends += [None, REFUSED, None]
    found = asked([1, 2, 4])
    timed = time_points(found, in_turns, lambda point, made: told.append((point, made)), tmp_path)
    assert [timed.records[number].status for number in range(3)] == ["ok", "invalid", "ok"]
    assert not timed.ok
    assert [(point, made["prefill_tok_s"].reason) for point, made in told] == [
        (found[0], None),
        (found[1], str(REFUSED)),
        (found[2], None),
    ]
    rows = document(timed).as_dict()["tables"]["throughput"]["rows"]
    assert [row["tok_s"] for row in rows] == [5.0, "invalid", 5.0]
    assert rows[1]["stopped"] == f"invalid: {REFUSED}"
    assert json.loads((tmp_path / "1" / "record.json").read_text())["reason"] == str(REFUSED)


@pytest.mark.parametrize("in_turns", [False, True])
def test_a_refusal_with_nothing_finished_is_the_answer(
    ends: list[BaseException | None], in_turns: bool, tmp_path: Path
) -> None:
    ends += [REFUSED]
    with pytest.raises(RequestError, match="cuda"):
        time_points(asked([1, 2]), in_turns, lambda *_: None, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("in_turns", [False, True])
def test_ctrl_c_keeps_the_phases_that_were_finished(
    ends: list[BaseException | None], in_turns: bool, tmp_path: Path
) -> None:
    ends += [None, STOPPED]
    found = points(Asked(["gqa", "gqa"], phases=["prefill", "decode"]))
    timed = time_points(found, in_turns, lambda *_: None, tmp_path)
    assert timed.interrupted
    assert not timed.ok
    assert timed.records[1].status == "failed"
    made = document(timed)
    rows = made.as_dict()["tables"]["throughput"]["rows"]
    assert [(row["phase"], row["tok_s"]) for row in rows] == [("prefill", 5.0)] * 2
    assert "gqa: failed: interrupted before all was timed" in made.notes
    body = json.loads((tmp_path / "1" / "record.json").read_text())
    assert body["figures"]["prefill_tok_s"]["value"] == 5.0
    assert body["figures"]["params"]["value"] == 38_937_088


def test_ctrl_c_before_anything_is_finished_names_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stopped(*_: Any) -> Generator[Turn, bool, Record]:
        raise STOPPED
        yield

    monkeypatch.setattr(run, "point_in_turns", stopped)
    timed = time_points(asked([1, 2]), False, lambda *_: None, tmp_path)
    assert timed.interrupted
    assert timed.records == {}
    assert not any("records: " in note for note in document(timed).notes)
    assert not list(tmp_path.iterdir())


def test_records_that_could_not_be_written_are_shown_and_no_folder_named(
    ends: list[BaseException | None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends += [None, None]
    (tmp_path / "file").touch()
    timed = time_points(asked([1, 2]), False, lambda *_: None, tmp_path / "file")
    assert capsys.readouterr().err.count("the record cannot be written: Not a directory") == 2
    made = document(timed)
    assert len(made.as_dict()["tables"]["throughput"]["rows"]) == 2
    assert not any("records: " in note for note in made.notes)
    assert not timed.ok


@pytest.mark.parametrize(
    ("backend", "said"), [("flex", "flex attention is a kernel on cuda"), ("math", "logit_cap 50")]
)
def test_a_note_is_on_the_attention_that_is_timed(backend: str, said: str) -> None:
    (point,) = points(Asked(["gemma-2-2b"], backends=[backend]))
    notes = interrupted_point(point.config, point.overrides, point.typed, TIMED).notes
    assert [note.removeprefix("attention: ").startswith(said) for note in notes] == [True]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The bench settings and the model's layers of each process in turn; each takes a second a layer and run."""
    made: list[Any] = []

    def point_in_turns(
        config: Any, overrides: Any, typed: Any, progress: Any, told: Any, turns: bool
    ) -> Generator[Turn, bool, Record]:
        layers = config["model"]["n_layers"]
        made.append((config["bench"], layers))
        if len(made) == made_before_ctrl_c:
            raise STOPPED
        phase = "decode" if layers == 3 else "prefill"
        yield Turn(phase, None, None)
        yield Turn(phase, "max_repeats", float(layers))
        told(TIMED)
        return Record(config, overrides, figures=TIMED)

    made_before_ctrl_c = 8
    monkeypatch.setattr(run, "point_in_turns", point_in_turns)
    return made


def two(processes: int) -> list[Point]:
    other = [f"bench.processes={processes}", "bench.seconds=2", "gqa", "model.n_layers=1", "gqa", "model.n_layers=2"]
    return points(Asked(other, phases=["prefill"]))


def test_points_in_turns_sit_down_anew_for_their_ratios(started: list[Any], tmp_path: Path) -> None:
    timed = time_points(two(processes=3), True, lambda *_: None, tmp_path)
    assert [layers for _, layers in started] == [1, 2, 2, 1, 1, 2]  # each begins as often as it can
    assert [bench.get("ceilings", True) for bench, _ in started] == [True, True, False, False, False, False]
    assert [bench["seconds"] for bench, _ in started] == [2.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    (ratio,) = timed.ratios
    assert (ratio.median, ratio.rounds, ratio.processes, ratio.interval) == (0.5, 3, 3, None)
    assert [record.config["bench"]["seconds"] for record in timed.records.values()] == [2.0, 2.0]
    assert sorted(file.parent.name for file in tmp_path.rglob("record.json")) == ["0", "1"]


def test_one_process_of_each_is_all_where_that_is_asked_for(started: list[Any], tmp_path: Path) -> None:
    (ratio,) = time_points(two(processes=1), True, lambda *_: None, tmp_path).ratios
    assert (len(started), ratio.processes) == (2, 1)


def test_no_process_is_started_anew_for_a_ratio_that_cannot_be(started: list[Any], tmp_path: Path) -> None:
    """The first point is timed in another phase than the second: nothing stands beside it."""
    other = ["gqa", "model.n_layers=1", "gqa", "model.n_layers=3"]
    timed = time_points(points(Asked(other)), True, lambda *_: None, tmp_path)
    assert (len(started), timed.ratios) == (2, [])


def test_figures_of_the_processes_for_ratios_alone_are_not_told(started: list[Any], tmp_path: Path) -> None:
    told: list[Point] = []
    found = two(processes=3)
    time_points(found, True, lambda point, _: told.append(point), tmp_path)
    assert sorted(map(id, told)) == sorted(map(id, found))


def test_ctrl_c_keeps_the_ratios_of_the_processes_that_ended(started: list[Any], tmp_path: Path) -> None:
    timed = time_points(two(processes=6), True, lambda *_: None, tmp_path)
    assert timed.interrupted
    assert len(timed.records) == 2
    assert [(ratio.median, ratio.processes) for ratio in timed.ratios] == [(0.5, 3)]


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (
            ImportError("libtorch_cpu.so: failed to map segment from shared object"),
            "oom",
            "ImportError: libtorch_cpu.so: failed to map segment from shared object",
        ),
        (MemoryError(), "oom", "MemoryError"),
        (ImportError("libgomp.so.1: not there"), "failed", "ImportError: libgomp.so.1: not there"),
        (RuntimeError("not\nhere\nException raised from a at b.cpp:1"), "failed", "RuntimeError: not here"),
    ],
)
def test_a_point_that_is_only_checked_and_has_no_room_for_it_is_out_of_memory(
    error: Exception, status: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def import_torch() -> None:
        raise error

    monkeypatch.setattr(point, "import_torch", import_torch)
    config = {**asked([1])[0].config, "bench": {"phases": []}, "verify": True}
    record = point.run_point(config, [], ())
    assert (record.status, record.reason) == (status, reason)
