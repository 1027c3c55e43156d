"""Nothing is lost: sweeps that were killed, that ran out of disk, that met a broken record, go on where they were."""

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
import stalls

pytestmark = pytest.mark.slow

SWEEP = (
    *("build", "-m", "model/attention=gqa,mqa", "model/norm=rmsnorm,layernorm", "model.attention.n_kv_heads=null,1,3"),
    *("model.n_layers=2,3", "model.n_layers=1,2", "bench=none", "hydra.sweep.dir=out"),
)
POINTS = 2 * 2 * 3 * 2


def bodies(shell, folder="out"):
    """The records by the folder of their point, less where and when they were made."""
    found = {}
    for file in sorted((shell.folder / folder).glob("*/record.json")):
        body = json.loads(file.read_text())
        found[file.parent.name] = {key: value for key, value in body.items() if key not in ("created", "folder")}
    return found


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, shell_in):
    shell = shell_in(tmp_path_factory.mktemp("unbroken"))
    assert shell(*SWEEP).code == 1  # 3 does not divide 8
    made = bodies(shell)
    assert len(made) == POINTS
    return made


def kill_at(shell, records, delay):
    """Start the sweep, end it with SIGKILL once it has so many records and after so long a time."""
    process = subprocess.Popen(
        [sys.executable, "-m", "archlab", *SWEEP], cwd=shell.folder, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    out = shell.folder / "out"
    while process.poll() is None and not (records == 0 or (out / str(records - 1) / "record.json").exists()):
        time.sleep(0.001)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()


def go_on(shell):
    """Go on with the sweep; from the start, where it had not begun."""
    begun = (shell.folder / "out" / "plan.json").exists()
    return shell("resume", "out") if begun else shell(*SWEEP)


MOMENTS = [(0, 0.5), (1, 0.0), (POINTS // 2, 0.0)]
RANDOM = random.Random(6)
MANY = [(RANDOM.choice((0, RANDOM.randrange(POINTS))), RANDOM.random() * RANDOM.choice((2, 0.02))) for _ in range(47)]


@pytest.mark.parametrize(
    ("records", "delay"), [*MOMENTS, *(pytest.param(*moment, marks=pytest.mark.slow) for moment in MANY)]
)
def test_a_sweep_killed_at_any_moment_goes_on(shell, unbroken, records, delay):
    kill_at(shell, records, delay)
    left = bodies(shell)
    assert all(unbroken[name] == body for name, body in left.items())  # whole, each of them
    kept = {name: (shell.folder / "out" / name / "record.json").stat().st_mtime_ns for name in left}
    answer = go_on(shell)
    assert answer.code == 1, answer.err
    assert bodies(shell) == unbroken
    for name, changed in kept.items():  # what was there was not done again
        assert (shell.folder / "out" / name / "record.json").stat().st_mtime_ns == changed
    assert [name for name in shell.left() if "/." in name and "record" not in name] == []


def test_what_a_kill_left_of_the_plan_is_cleared_away(shell):
    out = shell.folder / "out"
    out.mkdir()
    for name in (".plan.json.17", "..plan.json.17.0a1b2c3d"):
        (out / name).write_text("{")
    assert shell(*SWEEP).code == 1  # as one of its points cannot be
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []


def test_only_what_another_try_may_change_is_done_again(shell):
    assert shell("build", "-m", "model.n_layers=1,2,3,4,0,5", "bench=none", "hydra.sweep.dir=out").code == 1
    before = bodies(shell)
    broken = {"0": "failed", "1": "timeout", "2": "oom"}
    for name, status in broken.items():
        file = shell.folder / "out" / name / "record.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"status": status, "reason": "as it may be"}))
    (shell.folder / "out" / "5" / "record.json").write_text('{"schema": 1, "fig')
    answer = shell("resume", "out", "--json")
    assert answer.code == 1
    assert "4 points" in answer.err  # not the one that is ok, nor the invalid one
    assert [point["status"] for point in answer.json["points"]] == ["ok", "ok", "ok", "ok", "invalid", "ok"]
    assert bodies(shell) == before
    assert shell("resume", "out").code == 1  # there is nothing left to do


def test_what_cannot_go_on_is_refused(shell):
    """Nor is a sweep one run to begin from."""
    assert shell("resume", "nowhere").code == 2
    assert shell("build", "-m", "model.n_layers=1,2", "bench=none", "hydra.sweep.dir=out").code == 0
    assert "out: is a sweep; name one of its points, such as out/0" in shell("build", "--from", "out").err
    shutil.rmtree(shell.folder / "out" / "1")
    plan = shell.folder / "out" / "plan.json"
    text = plan.read_text()
    plan.write_text(text.replace("model.n_layers=1,2", "model.n_layers=1,3"))  # as if a file had been edited since
    answer = shell("resume", "out")
    assert answer.code == 2
    assert "point 1" in answer.err
    plan.write_text(text[: len(text) // 2])
    assert shell("resume", "out").code == 2
    assert not (shell.folder / "out" / "1").exists()


def test_a_sweep_that_is_running_is_left_alone(shell):
    assert shell("build", "-m", "model.n_layers=1,2", "bench=none", "hydra.sweep.dir=out").code == 0
    holding = (
        "import archlab.plan, pathlib, subprocess, sys\n"
        "with archlab.plan.lock(pathlib.Path('out')):\n"
        "    command = [sys.executable, '-m', 'archlab', 'resume', 'out']\n"
        "    done = subprocess.run(command, capture_output=True, text=True)\n"
        "print(done.returncode, done.stderr)\n"
    )
    answer = shell.python(holding)
    assert answer.out.startswith("2 ")
    assert "still running" in answer.out


def test_a_sweep_goes_on_from_another_folder_and_keeps_its_source(shell):
    (shell.folder / "mine.yaml").write_text("defaults: [gqa, _self_]\nname: mine\n")
    sweep = ("build", "--from", "mine.yaml", "-m", "model.n_layers=1,2", "bench=none", "hydra.sweep.dir=it's, a sweep")
    assert shell(*sweep).code in (0, 2)
    quoted = ("hydra.sweep.dir='it\\'s, a sweep'",)
    assert shell(*sweep[:-1], *quoted).code == 0
    folder = shell.folder / "it's, a sweep"
    before = bodies(shell, folder.name)
    shutil.rmtree(folder / "1")
    shutil.move(folder, shell.folder / "moved")
    answer = shell.python(
        "import os, sys; os.chdir('/')\n"
        f"sys.argv = ['archlab', 'resume', {str(shell.folder / 'moved')!r}]\n"
        "from archlab.cli import main; main()"
    )
    assert answer.code == 0, answer.err
    assert bodies(shell, "moved") == before


# --- Ctrl-C in a point that is timed ----------------------------------------------------------------------------------

TIMED = ("build", "-m", *stalls.MODEL, *stalls.TIMED, "model/ffn=gelu,stalls", "hydra.sweep.dir=out")


@pytest.mark.parametrize("more", [(), ("hydra/launcher=basic",), ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=2")])
def test_ctrl_c_keeps_the_finished_phases_of_a_sweeps_point_and_it_is_run_again(shell, more):
    if "hydra/sweeper=optuna" in more:
        pytest.importorskip("optuna", reason="the extra is not installed: pip install 'archlab[optuna]'")
    stalls.install(shell)
    for command in ((*TIMED, *more), ("resume", "out")):  # also where it is gone on with
        code, _, err = stalls.interrupted(shell, *command)
        assert code == 130, err
        assert "Traceback" not in err
        assert "archlab resume" in err
        found = {body["status"]: body for body in bodies(shell).values()}
        assert found["failed"]["reason"] == "interrupted before all was timed"
        assert found["failed"]["figures"]["prefill_tok_s"]["value"] > 0
        assert "decode_tok_s" not in found["failed"]["figures"]
    (shell.folder / "stall").unlink()
    kept = {name: body for name, body in bodies(shell).items() if body["status"] == "ok"}
    answer = shell("resume", "out")
    assert answer.code == 0, answer.err
    done = bodies(shell)
    assert [(body["status"], body["figures"]["decode_tok_s"]["value"] > 0) for body in done.values()] == [
        ("ok", True)
    ] * 2
    assert all(done[name] == body for name, body in kept.items())


# --- faults of the disk -----------------------------------------------------------------------------------------------


@contextmanager
def disk(folder, size):
    """A file system of its own, so small."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_ends_in_whole_records_and_the_sweep_goes_on(shell, unbroken):
    with disk(shell.folder / "out", "200k"):
        answer = shell(*SWEEP)
        assert answer.code == 1
        assert "No space left" in answer.err
        assert "archlab resume" in answer.err
        assert "Traceback" not in answer.err
        left = bodies(shell)
        assert 0 < len(left) < POINTS
        assert all(unbroken[name] == body for name, body in left.items())
        again = shell("resume", "out")  # there is no more room than before: what is there is shown, nothing is lost
        assert (again.code, bodies(shell)) == (1, left)
        assert f"{len(left)} records" in again.out
        subprocess.run(["mount", "-o", "remount,size=8m", shell.folder / "out"], check=True)
        assert shell("resume", "out").code == 1
        assert bodies(shell) == unbroken


def test_a_disk_that_is_full_from_the_start_is_one_message(shell):
    with disk(shell.folder / "out", "4k"):
        answer = shell(*SWEEP)
        assert answer.code == 2
        assert re.search(r"archlab: .*out/\S+: cannot be written: No space left", answer.err)
        assert "Traceback" not in answer.err


def test_a_read_only_folder_is_one_message(shell):
    with disk(shell.folder / "out", "1m"):
        subprocess.run(["mount", "-o", "remount,ro", shell.folder / "out"], check=True)
        answer = shell(*SWEEP)
        assert answer.code == 2
        assert "cannot be written" in answer.err
        assert "Traceback" not in answer.err


# --- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", '{"schema": 1, "figures": {', "[]", '{"schema": 9, "figures": {}}', "\x00\xff"])
def test_a_broken_record_is_a_row_that_says_so(shell, text):
    assert shell("build", "-m", "model.n_layers=1,2,3", "bench=none", "hydra.sweep.dir=out").code == 0
    (shell.folder / "out" / "1" / "record.json").write_text(text, encoding="latin-1")
    for command in (("compare", "out"), ("results", "out")):
        answer = shell(*command)
        assert answer.code == 0, answer.err
        assert "its record 1/record.json cannot be used" in answer.out
        assert "bench" not in answer.out.split("status")[0]  # what all others have is no column
        assert "Traceback" not in answer.err
    points = shell("results", "out", "--json").json["points"]
    assert [point["status"] for point in points] == ["ok", "failed", "ok"]


def test_points_with_the_same_config_are_computed_once(shell):
    answer = shell("build", "-m", "model/norm=rmsnorm,layernorm", "seed=0,0,1", "bench=none", "--json")
    assert "4 points" in answer.err
    points = answer.json["points"]
    assert [point.get("copy_of") for point in points] == [None, 0, None, None, 3, None]
    for number, first in ((1, 0), (4, 3)):
        assert points[number]["figures"] == points[first]["figures"]
        assert points[number]["config"] == points[first]["config"]
        assert f"copy of point {first}" in " ".join(points[number]["notes"])


def test_a_run_is_repeated_from_its_record(shell):
    model = ("model=minimind", "model/attention=mqa", "model.ffn.d_ff=64", "model.n_layers=1", "workload.prompt=8")
    asked = (*model, "seed=7", "workload.batch=3", "bench=none", "verify=false", "objective=[params,weight_bytes]")
    assert shell("build", *asked, "hydra.run.dir=one").code == 0
    assert shell("build", "--from", "one/record.json", "hydra.run.dir=two").code == 0
    timed = ("workload.batch=4", "bench=quick", "bench.phases=[decode]", "bench.seconds=0.1", "seed=1")
    answer = shell("build", "--from", "two", "hydra.run.dir=three", *timed)
    assert answer.code == 0, answer.err  # d_ff was typed: the rule of the preset does not come back with the clock
    files = (shell.folder / name / "record.json" for name in ("one", "two", "three"))
    one, two, three = (json.loads(file.read_text()) for file in files)
    for same in ("config", "composition", "figures", "status", "notes"):
        assert one[same] == two[same]
    assert three["config"]["model"] == one["config"]["model"]
    assert (three["config"]["seed"], three["config"]["workload"]["batch"]) == (1, 4)
    assert three["figures"]["decode_tok_s"]["status"] == "ok"


def test_two_points_that_share_a_folder_are_refused(shell):
    answer = shell("build", "-m", "seed=1,2", "bench=none", "hydra.sweep.subdir=same")
    assert answer.code == 2
    assert "'same'" in answer.err
    assert shell.left() == []
