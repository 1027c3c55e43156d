"""Where runs land: a folder of the user's own is never taken away, and only what this run wrote is shown."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import stalls

from archlab import point, summary
from archlab.cli.app import answer
from archlab.record import Figure

PAPER = ("bench=none", "verify=false")
REFUSED = "model.attention.n_kv_heads=3"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("hydra.run.dir=keep", REFUSED),
        ("hydra.run.dir=.", REFUSED),
        ("hydra.run.dir=keep/new/deep", REFUSED),
        ("-m", "hydra.sweep.dir=keep", "model=nosuch,gqa"),
        ("-m", "hydra.sweep.dir=keep/new", "model=nosuch,gqa"),
    ],
)
def test_a_refusal_leaves_the_users_folders_as_they_were(shell, arguments):
    (shell.folder / "keep" / "empty").mkdir(parents=True)
    (shell.folder / "keep" / "file").write_text("precious")
    before = sorted(shell.folder.rglob("*"))
    assert shell("build", *PAPER, *arguments).code == 2
    left = [path for path in sorted(shell.folder.rglob("*")) if path.name != "multirun.yaml"]
    assert left == before
    assert (shell.folder / "keep" / "file").read_text() == "precious"


@pytest.mark.parametrize("arguments", [(REFUSED,), ("-m", "model=nosuch,gqa"), ("model=nosuch",)])
def test_a_refusal_leaves_no_folder_either(shell, arguments):
    assert shell("build", *PAPER, *arguments).code == 2
    assert list(shell.folder.iterdir()) == []


def test_a_run_shows_its_own_record_not_one_below_it(shell):
    shell("build", "model=gqa", "hydra.run.dir=out/a", *PAPER)
    answer = shell("build", "model=gpt2", "hydra.run.dir=out", *PAPER, "--json")
    assert answer.json["figures"]["params"]["value"] == 124_439_808


def test_a_sweep_into_the_folder_of_another_is_refused(shell):
    sweep = ("build", "-m", "hydra.sweep.dir=out", *PAPER)
    assert shell(*sweep, "model.n_layers=1,2,0").code == 1
    before = {name: (shell.folder / name).read_bytes() for name in shell.left()}
    answer = shell(*sweep, "model.n_layers=5")
    assert answer.code == 2
    assert "archlab resume out" in answer.err
    assert {name: (shell.folder / name).read_bytes() for name in shell.left()} == before


RACE = """
import pathlib, sys
from archlab import plan
write = plan.Plan.write

def beaten(made, folder):  # another sweep is put here while this one is composed
    write(plan.Plan(plan.Asked(("theirs",), None, "/"), made.points[:1]), folder)
    plan._own.clear()
    for name, text in {{"0/record.json": "theirs", "multirun.yaml": "theirs"}}.items() if {begun} else ():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    write(made, folder)

plan.Plan.write = beaten
from archlab.cli.app import answer
sys.exit(answer(["build", "-m", "model.n_layers=1,2", "bench=none", "hydra.sweep.dir=out", *{more}]))
"""


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("more", [(), pytest.param(("hydra/sweeper=optuna",), marks=pytest.mark.slow)])
def test_of_two_sweeps_that_begin_at_once_the_later_leaves_the_other_alone(shell, begun, more):
    """Not a file of it is shown, written over or taken back, whether it has left a record by then or not."""
    if more:
        pytest.importorskip("optuna")
    answer = shell.python(RACE.format(begun=begun, more=more))
    assert answer.code == 2
    assert answer.out == ""
    assert "archlab resume out" in answer.err.splitlines()[-1]
    assert json.loads((shell.folder / "out" / "plan.json").read_text())["arguments"] == ["theirs"]
    theirs = {"0/record.json", "multirun.yaml"} if begun else set()
    assert {str((shell.folder / name).relative_to(shell.folder / "out")) for name in shell.left()} == theirs | {
        "plan.json"
    }
    assert all((shell.folder / "out" / name).read_text() == "theirs" for name in theirs)


def test_a_multirun_by_configuration_is_shown_as_one(shell):
    answer = shell("build", "hydra.mode=MULTIRUN", "model.n_layers=1,2,0", *PAPER, "--json")
    assert answer.code == 1
    assert [point["status"] for point in answer.json["points"]] == ["ok", "ok", "invalid"]


@pytest.mark.slow
def test_no_sweeper_writes_over_the_sweep_of_another(shell):
    sweep = ("build", "-m", "hydra.sweep.dir=out", *PAPER)
    assert shell(*sweep, "model.n_layers=1,2").code == 0
    before = {name: (shell.folder / name).read_bytes() for name in shell.left()}
    answer = shell(*sweep, "hydra/sweeper=basic", "model.n_layers=5,6")
    assert answer.code == 2
    assert "archlab resume out" in answer.err
    assert {name: (shell.folder / name).read_bytes() for name in shell.left()} == before


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--json",), ()])
def test_ctrl_c_before_anything_is_finished_leaves_nothing(shell, arguments):
    command = [sys.executable, "-m", "archlab", "build", "bench=full", *arguments]
    process = subprocess.Popen(
        command, cwd=shell.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until = time.monotonic() + 60
    while not (shell.folder / "outputs").exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted" in (json.loads(out)["error"]["message"] if arguments else err)
    assert list(shell.folder.iterdir()) == []


@pytest.mark.slow
def test_what_was_measured_is_shown_where_its_record_cannot_be_written(shell):
    """A file may have 1 KiB, which a record is larger than."""
    words = "build model=gqa model.d_model=32 model.n_layers=1 model.vocab_size=61 workload.prompt=8 bench.seconds=0.05"
    command = f"ulimit -f 1; {sys.executable} -m archlab {words} 'bench.phases=[prefill]' bench.ceilings=false --json"
    ended = subprocess.run(["bash", "-c", command], cwd=shell.folder, capture_output=True, text=True)
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["figures"]["prefill_tok_s"]["value"] > 0
    assert "record.json: cannot be written: File too large" in ended.stderr
    assert "ended early" not in ended.stderr


@pytest.fixture
def full(tmp_path, monkeypatch):
    """A clock that gives 7 tok/s a layer, and a disk with room for the records of so many points."""
    run, write = point.run_point, point.write_atomically

    def timed(config, overrides, typed, on_progress, on_figures):
        record = run({**config, "bench": {"phases": []}, "verify": False}, overrides, typed)
        figures = {"prefill_tok_s": Figure(7.0 * record.composition["n_layers"], "tok/s", "measured", "a clock")}
        on_figures(figures)
        record.figures |= figures
        return record

    def full(room):
        def written(path, *rest):
            if int(path.parent.name) >= room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return write(path, *rest)

        monkeypatch.setattr(point, "write_atomically", written)

    monkeypatch.setattr(point, "run_point", timed)
    monkeypatch.chdir(tmp_path)
    return full


@pytest.mark.parametrize("room", [0, 1, 2])
@pytest.mark.parametrize(
    ("sweeper", "tries"), [("grid", 3), ("optuna", 1), pytest.param("basic", 3, marks=pytest.mark.slow)]
)
def test_what_a_sweep_measured_is_shown_where_a_record_cannot_be_written(
    sweeper, tries, room, full, monkeypatch, capsys
):
    """A search ends at the first point without a record, for it could not go on from there."""
    if sweeper == "optuna":
        pytest.importorskip("optuna")
    full(room)
    monkeypatch.setattr(summary, "MOST_ROWS", 1)  # two that have a record are told of in short
    sweep = ["build", "-m", f"hydra/sweeper={sweeper}", "model.n_layers=1,2,3"]
    rates = {7.0: "7.000", 14.0: "14.00", 21.0: "21.00"}
    measured = [*rates][: min(3, room + tries)]
    assert answer([*sweep, "hydra.sweep.dir=a", "--json"]) == 1
    printed = capsys.readouterr()
    points = json.loads(printed.out)["points"]
    assert [made["figures"]["prefill_tok_s"]["value"] for made in points] == measured
    assert "cannot be written: No space left on device" in printed.err
    without = f"{3 - room} point{'s' if room < 2 else ''} without a record; archlab resume"
    assert (without in printed.err) == (sweeper != "basic" and room > 0)
    assert answer([*sweep, "hydra.sweep.dir=b"]) == 1
    shown = capsys.readouterr().out
    assert all(rates[rate] in shown for rate in measured[room:])


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_an_end_from_outside_keeps_the_phases_that_were_finished(shell, end):
    """Decoding stands still; the prefill before it is printed and in the record."""
    stalls.install(shell)
    timed = ("build", "model=gqa", *stalls.MODEL, *stalls.TIMED, "model/ffn=stalls", "--json")
    code, out, err = stalls.interrupted(shell, *timed, end=end)
    assert code == 128 + end, err
    found = json.loads(out)
    assert found["status"] == "failed"
    assert found["reason"] == "interrupted before all was timed"
    assert found["figures"]["prefill_tok_s"]["value"] > 0
    assert "decode_tok_s" not in found["figures"]
    assert len([file for file in shell.left() if file.endswith("record.json")]) == 1
