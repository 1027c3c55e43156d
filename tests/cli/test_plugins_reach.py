"""Plugins in real processes: the child that times, sweeps and their going on, a run repeated, and what stays quick."""

import shlex
import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ("model.d_model=32", "model.n_layers=1", "model.vocab_size=64", "model.context=32", "model.attention.n_heads=4",
         "model.attention.head_dim=8", "workload.prompt=8", "workload.new=2")  # fmt: skip


@pytest.fixture
def beside(shell):
    """A shell in a folder that has the examples."""
    for file in EXAMPLES.glob("*.py"):
        shutil.copy(file, shell.folder)
    return shell


@pytest.mark.slow
def test_the_child_that_times_has_them_too(beside):
    plugins = ("--plugin", "dyt.py", "--plugin=short_conv.py")
    timed = ("bench.phases=[decode]", "bench.seconds=0.05", "bench.ceilings=false")
    answer = beside("build", *SMALL, "model/norm=dyt", *plugins, "model/conv=short", *timed, "--json")
    assert answer.code == 0, answer.err
    record = answer.json
    assert record["status"] == "ok"
    assert record["figures"]["decode_tok_s"]["value"] > 0
    names = [check["name"].partition(" ")[0] for check in record["checks"]]
    assert names == ["parameters:", "KV", "FLOPs", "FLOPs", "KV"]  # of others' choices FLOPs are counted too
    assert all(check["ok"] for check in record["checks"])
    assert [Path(plugin["word"]).name for plugin in record["plugins"]] == ["dyt.py", "short_conv.py"]
    assert record["overrides"].count("model/conv=short") == 1


@pytest.mark.slow
def test_a_sweep_goes_on_with_the_same_code_or_not_at_all(beside):
    run = ("build", "-m", "--plugin", "dyt.py", *SMALL, "model/norm=rmsnorm,dyt", "bench=none")
    answer = beside(*run, "hydra.sweep.dir=sweep", "--json")
    assert answer.code == 0, answer.err
    first, second = (point["figures"]["params"]["value"] for point in answer.json["points"])
    assert second - first == 3 * (32 + 1)
    (beside.folder / "sweep" / "1" / "record.json").unlink()
    again = beside("resume", "sweep", "--json")
    assert again.code == 0, again.err
    assert [point["figures"]["params"]["value"] for point in again.json["points"]] == [first, second]

    asked = beside("build", "--from", "sweep/1", "--json")
    assert asked.code == 2
    assert f"--plugin {shlex.quote(str(beside.folder / 'dyt.py'))}" in asked.json["error"]["message"]
    repeated = beside("build", "--from", "sweep/1", "--plugin", "dyt.py", "--json")
    assert repeated.code == 0, repeated.err
    assert repeated.json["figures"]["params"]["value"] == second

    (beside.folder / "dyt.py").write_text((beside.folder / "dyt.py").read_text() + "\n# changed\n")
    changed = beside("resume", "sweep")
    assert changed.code == 2
    assert "dyt.py has changed: it was dyt.py (sha256 " in changed.err


@pytest.mark.slow
def test_processes_of_a_launcher_have_them_too(beside):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="archlab[joblib] is not installed")
    chosen = ("cluster=joblib", "model/conv=none,short", "bench=none")
    answer = beside("build", "-m", "--plugin", "short_conv.py", *SMALL, *chosen, "--json")
    assert answer.code == 0, answer.err
    first, second = (point["figures"]["params"]["value"] for point in answer.json["points"])
    assert second - first == 32 * 4


def test_without_plugins_listing_imports_no_torch(shell):
    code = (
        "import sys\n"
        "from archlab.cli.app import answer\n"
        "assert answer(['components', 'norm']) == 0\n"
        "print({'torch', 'importlib.metadata', 'hydra'} & set(sys.modules))\n"
    )
    answer = shell.python(code)
    assert answer.out.splitlines()[-1] == "set()"
