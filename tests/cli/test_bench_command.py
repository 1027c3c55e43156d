"""archlab bench as a user runs it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TINY = (
    "gqa", "model.d_model=32", "model.n_layers=1", "model.vocab_size=61", "model.attention.n_heads=4",
    "bench.seconds=0.05", "bench.max_repeats=3",
)  # fmt: skip


def rows(answer, table):
    return answer.json["tables"][table]["rows"]


@pytest.mark.slow
def test_every_phase_has_its_speed_its_bound_and_its_memory(shell):
    answer = shell("bench", *TINY, "--dtype", "fp32", "--context", "16", "--json")
    assert answer.code == 0, answer.err
    assert [row["phase"] for row in rows(answer, "throughput")] == ["prefill", "decode", "train"]
    for speed, reached, memory in zip(
        *(rows(answer, name) for name in ("throughput", "roofline", "memory")), strict=True
    ):
        assert 0 < speed["p10"] <= speed["tok_s"] <= speed["p90"]
        assert speed["time"] > 0
        assert reached["reached"] == pytest.approx(max(reached["mfu"], reached["mbu"]))
        assert reached["binds"] in ("compute", "memory")
        assert reached["bound"] > reached["tok_s"]
        assert memory["peak"] > 0
        assert memory["kv_allocated"] == memory["kv_predicted"]
    assert any("mfu = FLOPs / time" in note for note in answer.json["notes"])
    assert answer.err.count(" tok/s (") == 3
    assert len([file for file in shell.left() if file.endswith("record.json")]) == 1


@pytest.mark.slow
def test_points_are_the_product_of_what_was_asked_and_each_leaves_a_record(shell):
    answer = shell(
        *(
            "bench",
            *TINY,
            "--phases",
            "decode",
            "--batch",
            "1,2",
            "--context",
            "8",
            "--backend",
            "flash,math",
            "--json",
        ),
        timeout=300,
    )
    assert answer.code == 0, answer.err
    found = [(row["backend"], row["batch"]) for row in rows(answer, "throughput")]
    assert found == [("flash", 1), ("math", 1), ("flash", 2), ("math", 2)]
    seen = {row["attention"].split()[0] for row in rows(answer, "clock") if row["backend"] == "math"}
    assert seen == {"math"}
    assert len([file for file in shell.left() if file.endswith("record.json")]) == 4
    compared = shell("results", str(Path(shell.left()[0]).parent.parent))
    assert compared.code == 0


@pytest.mark.slow
def test_interleaved_points_have_ratios_to_the_first(shell):
    deep = ["model.n_layers=16" if word == "model.n_layers=1" else word for word in TINY]
    answer = shell(
        *("bench", "bench.processes=2", *TINY, *deep, "--phases", "prefill,decode", "--interleave"),
        *("--context", "8", "--json"),
        timeout=300,
    )
    assert answer.code == 0, answer.err
    found = rows(answer, "ratios")
    assert [row["phase"] for row in found] == ["prefill", "decode"]
    for row in found:
        assert row["p10"] <= row["ratio"] <= row["p90"]
        assert row["rounds"] >= row["processes"] == 2
        assert "low" not in row or row["low"] is None
        assert row["ratio"] < 1  # sixteen layers beside one


@pytest.mark.slow
def test_a_point_that_cannot_be_is_a_row_and_the_next_one_runs(shell):
    answer = shell("bench", *TINY, "--phases", "prefill", "--backend", "cudnn,math", "--context", "8", "--json")
    assert answer.code == 1
    refused, ran = rows(answer, "throughput")
    assert refused["tok_s"] == "invalid"
    assert "CUDA only" in refused["stopped"]
    assert ran["tok_s"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--backend", "quick"], "bench.backend: quick is not one of its values; valid: sdpa, flash"),
        (["--graphs", "--compile"], "bench.graphs: true is given beside compile = true, which makes its own; set one"),
        (["--phases", "prefil"], "prefill, decode, train"),
        (["--phases", ""], "--phases: an empty text was given"),
        (["--dtype", "int4"], "valid: bf16, fp16, fp32, fp64"),
        (["--batch", "0"], "batch"),
        (["--context", "10k"], "can be 10,000 or 10,240"),
        (["--format", "xml"], "table, json, csv, md"),
        (["model.n_layer=3"], "n_layers"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_before_anything_runs(shell, words, said):
    answer = shell("bench", "gqa", *words)
    assert answer.code == 2
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert shell.left() == []


@pytest.mark.slow
def test_a_figure_that_is_not_there_costs_nothing_that_was_timed(shell):
    answer = shell(
        "bench", *TINY, "--phases", "prefill", "--context", "8", "--format", "csv", "--explain", "prefil_mfu"
    )
    assert answer.code == 2
    assert "no figure 'prefil_mfu'" in answer.err
    assert ",throughput," in answer.out
    assert len([file for file in shell.left() if file.endswith("record.json")]) == 1


@pytest.mark.slow
def test_a_phase_that_a_head_has_not_is_told_of_as_no_fault(shell):
    answer = shell(*("bench", *TINY, "model/head=regression", "--phases", "decode", "--context", "8"))
    assert answer.code == 0
    assert "decode  not timed: a regression head makes no tokens" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.killpg), (signal.SIGTERM, os.kill)]
)
def test_an_end_from_outside_keeps_what_was_finished_and_leaves_no_process(shell, end, send):
    """The second point would take for ever; the first one's record and row are there."""
    command = [sys.executable, "-m", "archlab", "bench", *TINY, *TINY, "bench.seconds=600", "bench.max_repeats=1000000"]
    command += ["bench.precision=1e-9", "--phases", "prefill", "--context", "8", "--json"]
    running = subprocess.Popen(
        command, cwd=shell.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert " tok/s (" in running.stderr.readline()
    deadline = time.monotonic() + 60
    while len(children := _children(running.pid)) == 0 and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(5)
    send(running.pid, end)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 128 + end, err
    assert len(json.loads(out)["tables"]["throughput"]["rows"]) == 1
    assert len([file for file in shell.left() if file.endswith("record.json")]) == 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


@pytest.mark.slow
def test_a_terminal_that_is_closed_costs_no_record(shell):
    """Nothing can be shown any more; the first point's record is there, and neither process is."""
    command = [sys.executable, "-m", "archlab", "bench", *TINY, *TINY, "bench.seconds=600", "bench.max_repeats=1000000"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(shell.folder)
        os.execv(sys.executable, [*command, "bench.precision=1e-9", "--phases", "prefill", "--context", "8"])
    shown = b""
    while b" tok/s (" not in shown:
        shown += os.read(terminal, 4096)
    time.sleep(2)
    children = _children(pid)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGHUP
    assert len([file for file in shell.left() if file.endswith("record.json")]) == 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def _children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.slow
def test_a_line_of_progress_that_cannot_be_written_costs_nothing_that_was_timed(shell):
    command = [
        sys.executable,
        "-m",
        "archlab",
        "bench",
        *TINY,
        "--phases",
        "prefill,decode",
        "--context",
        "8",
        "--json",
    ]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, cwd=shell.folder, stdout=subprocess.PIPE, stderr=full, text=True)
    assert ended.returncode == 0
    assert [row["tok_s"] > 0 for row in json.loads(ended.stdout)["tables"]["throughput"]["rows"]] == [True, True]


@pytest.mark.slow
def test_a_full_disk_loses_no_row(shell):
    """outputs/ is a file: nothing can be written there."""
    (shell.folder / "outputs").write_text("")
    answer = shell("bench", *TINY, "--phases", "prefill", "--context", "8", "--json")
    assert answer.code == 1
    assert "the record cannot be written" in answer.err
    assert rows(answer, "throughput")[0]["tok_s"] > 0
