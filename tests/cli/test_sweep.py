"""`archlab build -m`: Hydra's multirun, a record a point, one table; bad points are rows."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

PAPER = ("bench=none", "verify=false")


def test_a_sweep_over_two_axes(shell):
    answer = shell("build", "-m", "model/attention=mha,gqa,mqa", "model/norm=layernorm,rmsnorm", *PAPER)
    assert answer.code == 0, answer.err
    records = [name for name in shell.left() if name.endswith("record.json")]
    assert len(records) == 6
    assert all(name.startswith("outputs") for name in records)
    for total in ("42,082,816", "38,937,088", "38,412,800"):  # mha, gqa, mqa with rmsnorm
        assert total in answer.out
    assert "\x1b[" not in answer.out


def test_its_json_is_one_document(shell):
    answer = shell("build", *PAPER, "model/attention=mha,gqa,mqa", "--json", "-m")
    assert answer.json["schema"] == 1
    points = answer.json["points"]
    assert [point["figures"]["params"]["value"] for point in points] == [42_082_816, 38_937_088, 38_412_800]
    assert [point["composition"]["axes"]["attention"]["choice"] for point in points] == ["mha", "gqa", "mqa"]


def test_i01_a_bad_point_is_a_row_and_the_others_run(shell):
    answer = shell("build", "-m", "model.attention.n_kv_heads=2,3,4", *PAPER, "--json")
    assert answer.code == 1
    points = answer.json["points"]
    assert [point["status"] for point in points] == ["ok", "invalid", "ok"]
    assert "3 does not divide n_heads = 8" in points[1]["reason"]
    assert len([name for name in shell.left() if name.endswith("record.json")]) == 3


def test_a_bad_point_shows_in_the_table(shell):
    answer = shell("build", "-m", "model.attention.n_kv_heads=2,3", *PAPER)
    assert answer.code == 1
    assert "invalid" in answer.out
    assert "does not divide" in answer.out
    assert "Traceback" not in answer.err


def test_a_point_is_called_what_was_typed(shell):
    """Hydra writes what it sweeps over anew, with backslashes before braces, spaces and commas."""
    words = ("model.ffn.d_ff=${model.d_model},1024", "model/attention=mha", "model.about=one two\\, ${seed}")
    answer = shell("build", "-m", *words, *PAPER, "hydra.sweep.dir=out")
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    labels = [line.split()[0] for line in lines if line.split()[1:2] in (["*31,072,768"], ["37,364,224"])]
    assert labels == ["${model.d_model}", "1024"]
    (note,) = [line for line in lines if "${model.d_model} model/attention=mha" in line]
    assert "model.about=one two, ${seed} bench=none" in note
    assert note.endswith(": dropped model.attention.n_kv_heads = 2: mha fixes it")
    assert "[INFO] 0 model.ffn.d_ff=${model.d_model} model/attention=mha model.about=one two, ${seed}" in answer.err
    results = shell("results", "out", "--group-by", "model.ffn.d_ff")
    assert [line.split()[0] for line in results.out.splitlines()[-2:]] == ["${model.d_model}", "1024"]
    assert "\\" not in answer.out + answer.err + results.out


@pytest.mark.slow
def test_values_are_checked_against_the_choice_of_their_own_point(shell):
    answer = shell("build", "-m", "model=mha,gqa", "model.n_layers=2,4", *PAPER, "--json")
    assert answer.code == 0, answer.err
    assert [point["composition"]["n_layers"] for point in answer.json["points"]] == [2, 4, 2, 4]


def test_an_unknown_choice_refuses_the_sweep_before_it_starts(shell):
    answer = shell("build", "-m", "model/norm=layernorm,rmsnrm", *PAPER)
    assert answer.code == 2
    assert "did you mean model/norm=rmsnorm?" in answer.err
    assert shell.left() == []


def test_an_unknown_key_refuses_the_sweep_before_it_starts(shell):
    answer = shell("build", "-m", "model.n_layer=2,4", *PAPER)
    assert answer.code == 2
    assert "did you mean model.n_layers?" in answer.err
    assert shell.left() == []


def test_flags_on_both_sides_of_the_overrides(shell):
    answer = shell("build", "model=mha", "-m", "model.n_layers=1,2", "--json", *PAPER)
    assert answer.code == 0, answer.err
    assert len(answer.json["points"]) == 2


@pytest.mark.slow
def test_choices_of_patterns_and_lists(shell):
    layers = "model.layers=[{attention:{n_kv_heads:1},repeat:3},{position:{choice:none}}]"
    answer = shell("build", "-m", layers, "model.n_layers=4,8", *PAPER, "--json")
    assert answer.code == 0, answer.err
    assert [len(point["composition"]["layer_kinds"]) for point in answer.json["points"]] == [2, 2]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_an_end_from_outside_keeps_the_finished_records(shell, end):
    command = [sys.executable, "-m", "archlab", "build", "-m", f"seed={','.join(map(str, range(1000)))}", *PAPER]
    process = subprocess.Popen(
        command, cwd=shell.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until = time.monotonic() + 120
    while len(_records(shell)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(process.pid, end)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + end, err
    assert "Traceback" not in err
    kept = _records(shell)
    assert 2 <= len(kept) < 1000
    assert all(json.loads((shell.folder / name).read_text())["status"] == "ok" for name in kept)
    assert out.count("38,937,088") == len(kept)


def _records(shell):
    return [name for name in shell.left() if name.endswith("/record.json")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("model.n_layers=range(5,1)",), "model.n_layers: range(5,1) has no values"),
        (("model/attention=glob(x*)",), "model/attention: glob(x*) has no values"),
        (("model.d_model=interval(64,1024)",), "interval(64,1024) is drawn from, by hydra/sweeper=optuna"),
    ],
)
def test_a_sweep_over_nothing_is_one_message(shell, arguments, says):
    answer = shell("build", "-m", "bench=none", *arguments)
    assert answer.code == 2
    assert says in answer.err
    assert answer.err.count("\n") == 1
    assert shell.left() == []


WRONG_ALIKE = {
    "no list": ("constraints=foo", "constraints: 'foo' is not a list"),
    "no figure": ("constraints=[paramz<=1B]", "constraints: no figure 'paramz'; did you mean params?"),
    "no unit": ("constraints=[params<=1XB]", "constraints: params<=1XB"),
    "no direction": ("direction=[up]", "direction: no direction 'up'; valid: minimize, maximize"),
    "no preset": ("budget.base=minimnd", "budget.base: no preset 'minimnd'"),
    "no device": ("device=quantum", "device: no device 'quantum'"),
    "below a bound": ("workload.batch=0", "workload.batch: 0 must be >= 1"),
    "of the model": ("model.attention.n_heads=abc", "model.attention.n_heads: 'abc' is not a whole number"),
}


@pytest.mark.parametrize("sweeper", ["grid", pytest.param("optuna", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", WRONG_ALIKE)
def test_what_is_wrong_with_every_point_alike_is_one_message_and_no_point(case, sweeper, shell):
    if sweeper == "optuna":
        pytest.importorskip("optuna", reason="the extra is not installed: pip install 'archlab[optuna]'")
    setting, said = WRONG_ALIKE[case]
    answer = shell("build", "-m", "-q", f"hydra/sweeper={sweeper}", "model.n_layers=2,3,4", setting, *PAPER)
    assert answer.code == 2
    assert answer.err.count("archlab: ") == 1
    assert answer.err.startswith(f"archlab: {said}")
    assert answer.out == ""
    assert shell.left() == []


def test_what_is_itself_swept_is_a_record_for_each_value(shell):
    answer = shell("build", "-m", "model.n_layers=2,3", "device=quantum,abacus", *PAPER, "--json")
    assert answer.code == 1
    assert [point["status"] for point in answer.json["points"]] == ["invalid"] * 4


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (("model.d_model=range(1,1000000000)",), "a sweep of 999,999,999 points"),
        (("model.d_model=shuffle(range(1,1000000000))",), "a sweep of 999,999,999 points"),
        (("model.attention.scale=range(0.0,2.0,0.00000095367431640625)",), "a sweep of 2,097,152 points"),
        (("model.d_model=range(1,2001)", "model.n_layers=range(1,1002)"), "model.d_model 2,000 x model.n_layers 1,001"),
        (("model.d_model=range(1,9,0)",), "range(1,9,0) has no end"),
        (("model.d_model=range(1,inf)",), "range(1,inf) has no end"),
    ],
)
def test_the_points_of_a_sweep_are_counted_before_they_are_made(axes, said, shell):
    answer = shell("build", "-m", *axes, *PAPER, timeout=20)  # a list of them would take minutes and all memory
    assert answer.code == 2
    assert said in answer.err
    assert shell.left() == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("max_batch_size=0", "max_batch_size: 0 is no whole number from 1 to "),
        ("max_batch_size=x", "max_batch_size: 'x' is no whole number from 1 to "),
        ("params=3", "params: 3 is not a group of overrides"),
        ("params=[1]", "params: [1] is not a group of overrides"),
    ],
)
def test_a_setting_of_the_sweeper_that_is_wrong(setting, said, shell):
    answer = shell("build", "-m", "model.n_layers=1,2", f"hydra.sweeper.{setting}", *PAPER)
    assert answer.code == 2
    assert answer.err.startswith(f"archlab: hydra.sweeper.{said}")
    assert shell.left() == []
