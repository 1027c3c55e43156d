"""A line that is kept up to date on a terminal; plain lines in a pipe; nothing with -q."""

import os
import pty
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SWEEP = ("build", "-m", "model.n_layers=range(1,150)", "model.attention.n_kv_heads=1,3", "bench=none")


def on_a_terminal(folder, *arguments):
    """What a command shows on a terminal of 100 columns, its stdout apart."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    process = subprocess.Popen(
        [sys.executable, "-m", "archlab", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    process.communicate()
    os.close(ours)
    return shown.decode()


def test_on_a_terminal_one_line_is_kept_up_to_date(shell):
    shown = on_a_terminal(shell.folder, *SWEEP)
    counts = [int(text) for text in re.findall(r"(\d+) of 298 points", shown)]
    assert counts == sorted(counts)
    assert len(counts) >= 2
    assert re.search(r"\d+ of 298 points, \d+ not ok, \d+ a second, \d+ s left", shown)
    assert "\x1b[2K" in shown  # the line is wiped and written again
    assert "[INFO] 298 of 298" not in shown


def test_in_a_pipe_lines_are_plain_and_the_last_says_all(shell):
    answer = shell(*SWEEP)
    assert re.fullmatch(r"\[INFO\] 298 of 298 points, 149 not ok, \d+ a second", answer.err.splitlines()[-1])
    assert "\x1b" not in answer.err


def test_quiet_says_nothing_of_it(shell):
    quiet = shell("build", "-q", "-m", "model.n_layers=1,2", "bench=none")
    assert quiet.err == ""
    assert "38,937,088" not in quiet.out
    assert "19,203,584" in quiet.out
    assert on_a_terminal(shell.folder, "build", "--quiet", "-m", "model.n_layers=1,2", "bench=none") == ""
    basic = shell(
        "build", "-q", "-m", "model.n_layers=1,2", "bench=none", "hydra/launcher=basic", "hydra.sweep.dir=out"
    )
    assert basic.err == ""
    assert shell("resume", "out", "-q").err == ""


@pytest.mark.parametrize(
    "way",
    [
        ("hydra.output_subdir=.hydra",),  # the in-process launcher, by way of Hydra
        ("hydra.job.chdir=true",),
        ("hydra.sweep.subdir=n${model.n_layers}",),
        ("hydra/launcher=basic",),
        ("bench.phases=[decode]", "bench.seconds=0.01", "workload.new=2", "workload.prompt=2"),
    ],
    ids=lambda way: way[0],
)
def test_what_is_counted_is_what_the_records_say(shell, way):
    answer = shell("build", "-m", "model.n_layers=1,0", "model.d_model=64", "model.vocab_size=64", "bench=none", *way)
    assert answer.code == 1
    assert re.match(r"\[INFO\] 2 of 2 points, 1 not ok, ", answer.err.splitlines()[-1])


def test_how_many_points_there_are_is_said_before_they_are_composed(shell):
    answer = shell("build", "-m", "model.n_layers=1,2", "model/attention=mha,mqa", "bench=none", "hydra.sweep.dir=out")
    assert answer.err.splitlines()[0] == f"[INFO] a sweep of 4 points in {shell.folder / 'out'}"
