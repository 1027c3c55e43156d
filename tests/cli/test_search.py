"""`hydra/sweeper=optuna`: what it finds is what trying everything finds; refused points and limits do not end it."""

import itertools
import json

import pytest

import archlab

pytestmark = pytest.mark.slow
pytest.importorskip("optuna", reason="the extra is not installed: pip install 'archlab[optuna]'")

SEARCH = ("build", "-m", "hydra/sweeper=optuna", "bench=none", "hydra.sweep.dir=out")
LAYERS, WIDTHS, KV_HEADS = range(1, 17), range(64, 577, 64), (1, 2, 4, 8)
SPACE = ("model.n_layers=range(1,17)", "model.d_model=range(64,577,64)", "model.attention.n_kv_heads=1,2,4,8")


def records(shell):
    files = sorted((shell.folder / "out").glob("*/record.json"), key=lambda file: int(file.parent.name))
    return [json.loads(file.read_text()) for file in files]


def value(record, name):
    return record["figures"][name]["value"]


@pytest.fixture(scope="module")
def everything():
    """Parameters and KV bytes a token in bf16 of every point of `SPACE`, by (layers, width, KV heads)."""
    axes = {"model.n_layers": list(LAYERS), "model.d_model": list(WIDTHS), "model.attention.n_kv_heads": list(KV_HEADS)}
    points = archlab.sweep("gqa", axes)
    keys = itertools.product(LAYERS, WIDTHS, KV_HEADS)
    return {
        key: (archlab.parameters(point.spec).total, archlab.kv_cache(point.spec, 1, 1, "bf16").bytes)
        for key, point in zip(keys, points, strict=True)
    }


def test_one_objective_within_limits_finds_the_best_that_there_is(shell, everything):
    """The most parameters within 20 M and 2 KiB a token, out of 576 points, in 100 trials."""
    limits = "constraints=['params<=20M','kv<=2KiB']"
    answer = shell(*SEARCH, *SPACE, limits, "direction=[maximize]", "hydra.sweeper.n_trials=100")
    assert answer.code == 0, answer.err
    best = max(params for params, kv in everything.values() if params <= 20_000_000 and kv <= 2048)
    made = records(shell)
    assert len(made) == 100
    found = [(value(one, "params"), value(one, "kv_bytes_per_token")) for one in made]
    assert max(params for params, kv in found if params <= 20_000_000 and kv <= 2048) == best
    assert "break a constraint" in answer.out
    (said,) = [line for line in answer.err.splitlines() if "best: point" in line]
    assert said.endswith(f": params {best:,}")


def test_two_objectives_make_the_front_that_trying_everything_makes(shell, everything):
    """Each of 36 points once, for they are no more than the trials: more parameters for less cache."""
    space = ("model.n_layers=1,2,4", "model.d_model=64,128,192", "model.attention.n_kv_heads=1,2,4,8")
    wish = ("objective=[params,kv]", "direction=[maximize,minimize]", "constraints=[params<=6M]")
    answer = shell(*SEARCH, *space, *wish, "hydra.sweeper.n_trials=50")
    assert answer.code == 0, answer.err
    made = records(shell)
    assert len({tuple(one["overrides"]) for one in made}) == len(made) == 36
    able = [everything[key] for key in itertools.product((1, 2, 4), (64, 128, 192), KV_HEADS)]
    able = [point for point in able if point[0] <= 6_000_000]
    front = {a for a in able if not any(b != a and b[0] >= a[0] and b[1] <= a[1] for b in able)}
    said = [line.rpartition(": ")[2] for line in answer.err.splitlines() if "best: point" in line]
    assert {text.split()[-1].replace(",", "") for text in said} == {f"{kv}" for _, kv in front}
    assert len(said) == len(front)


def test_a_refused_point_is_a_row_and_the_search_goes_on(shell):
    answer = shell(
        *SEARCH, "model.attention.n_kv_heads=1,2,3,5", "model.n_layers=range(1,9)", "hydra.sweeper.n_trials=20"
    )
    assert answer.code == 1
    made = records(shell)
    assert {one["status"] for one in made} == {"ok", "invalid"}
    assert len(made) == 20
    assert (
        min(value(one, "params") for one in made if one["status"] == "ok")
        == archlab.parameters(archlab.load("gqa", "model.attention.n_kv_heads=1", "model.n_layers=1")).total
    )


def test_a_search_goes_on_where_it_was(shell):
    search = (*SEARCH, *SPACE, "hydra.sweeper.n_trials=30", "hydra.sweeper.n_jobs=3", "constraints=[params<=20M]")
    assert shell(*search).code == 0
    whole = [{key: one[key] for key in one if key not in ("created", "folder")} for one in records(shell)]
    for number in (*range(17, 30), 4):
        (shell.folder / "out" / str(number) / "record.json").unlink()
    kept = (shell.folder / "out" / "3" / "record.json").stat().st_mtime_ns
    answer = shell("resume", "out")
    assert answer.code == 0, answer.err
    assert [{key: one[key] for key in one if key not in ("created", "folder")} for one in records(shell)] == whole
    assert (shell.folder / "out" / "3" / "record.json").stat().st_mtime_ns == kept
    assert shell(*search).code == 2  # a folder that another has


def test_a_point_that_is_drawn_again_is_copied(shell):
    answer = shell(
        *SEARCH, "model.n_layers=interval(1,3)", "model.d_model=tag(log,interval(64,65))", "hydra.sweeper.n_trials=5"
    )
    assert answer.code == 1, answer.err  # 8 heads do not divide 65
    made = records(shell)
    twice = [one for one in made if one["copy_of"] is not None]
    assert twice
    for one in twice:
        first = made[one["copy_of"]]
        assert (one["status"], one["figures"]) == (first["status"], first["figures"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("objective=[parms]",), "objective: no figure 'parms'; did you mean params?"),
        (("objective=[decode_tok_s]",), "no figure 'decode_tok_s': decode is not timed"),
        (("constraints=[parms<=1B]",), "did you mean params?"),
        (("constraints=[params<=1GiB]",), "no power of ten"),
        (("constraints=['params']",), "no limit of a figure"),
        (("constraints=[kv<=32KB]",), None),
        (("constraints=[kv<=32K]",), "write one of them"),
        (("direction=[down]",), "valid: minimize, maximize"),
        (("direction=[minimize,maximize]",), "one for each objective (params) is wanted, such as [maximize]"),
        (("model.d_model=interval(64,32)",), "model.d_model: interval(64,32) cannot be drawn from"),
        (("hydra.sweeper.seed=abc",), "hydra.sweeper.seed: 'abc' is no whole number from 0 to 4,294,967,295"),
        (("objective=[solved_d_ff]", "budget.params=30M", "budget.solve=d_ff"), "say which"),
        (("hydra.sweeper.n_trials=0",), "archlab: hydra.sweeper.n_trials: 0 is no"),
        (("hydra.sweep.subdir=n${model.n_layers}",), "a search numbers its folders"),
    ],
)
def test_a_wish_that_cannot_be_is_refused_before_it_starts(shell, arguments, says):
    answer = shell(*SEARCH, "model.n_layers=1,2", *arguments)
    assert answer.code == (2 if says else 0), answer.err
    assert (says or "") in answer.err
    assert "Traceback" not in answer.err
    assert not says or shell.left() == []


def test_without_optuna_the_extra_is_named(shell):
    (shell.folder / "optuna.py").write_text("raise ImportError\n")
    answer = shell(*SEARCH, "model.n_layers=1,2", env={"PYTHONPATH": str(shell.folder)})
    assert answer.code == 2
    assert "pip install 'archlab[optuna]'" in answer.err


def test_limits_hold_in_any_sweep(shell):
    sweep = ("build", "-m", "model.n_layers=1,2,8", "bench=none", "hydra.sweep.dir=out", "constraints=[params<=20M]")
    answer = shell(*sweep)
    assert answer.code == 0, answer.err
    rows = [line.split() for line in answer.out.splitlines() if line.split()[:1] in (["1"], ["2"], ["8"])]
    assert ["params<=20M" in row for row in rows] == [False, True, True]
    found = shell("results", "out", "--where", "breaks=null", "--json").json
    assert [value(point, "params") for point in found["points"]] == [19_203_584]
    assert len(shell("results", "out", "--pareto", "kv", "--json").json["points"]) == 1
