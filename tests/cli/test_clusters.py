"""`cluster=...`: wherever the points of a sweep run, they leave the records that one process leaves."""

import importlib.util
import json
import os
import re

import pytest
from cli import clusters

pytestmark = pytest.mark.slow

SWEEP = ("model.n_layers=1,2", "model.attention.n_kv_heads=2,3", "bench=none", "verify=true")
TINY = (
    *("model.d_model=32", "model.n_layers=1", "model.vocab_size=64", "model.attention.n_heads=4", "model.context=64"),
    *("workload.prompt=4", "workload.new=2", "bench.phases=[decode]", "bench.seconds=0.02", "bench.max_repeats=3"),
)
PLUGINS = {"joblib": "joblib", "submitit_local": "submitit", "slurm": "submitit", "ray": "ray"}
SMALL = ("hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=null")


def records(folder):
    found = {}
    for file in sorted(folder.glob("*/record.json")):
        body = json.loads(file.read_text())
        assert body["folder"] == str(file.parent)
        found[file.parent.name] = {key: value for key, value in body.items() if key not in ("created", "folder")}
    return found


def installed(plugin):
    """Whether a launcher is there; without any, not even the package of plugins is."""
    try:
        return importlib.util.find_spec(f"hydra_plugins.hydra_{plugin}_launcher") is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="module")
def of_one_process(tmp_path_factory, shell_in):
    """The records of Hydra's own basic launcher."""
    shell = shell_in(tmp_path_factory.mktemp("basic"))
    assert shell("build", "-m", *SWEEP, "hydra/launcher=basic", "hydra.sweep.dir=out").code == 1
    return records(shell.folder / "out")


@pytest.fixture(params=["none", *PLUGINS])
def cluster(request, tmp_path_factory):
    """A kind of cluster that runs: its name, the overrides that it needs here and the variables to reach it."""
    name = request.param
    plugin = PLUGINS.get(name)
    if plugin and not installed(plugin):
        extra = plugin.replace("submitit", "slurm")
        pytest.skip(f"the extra of {name} is not installed: pip install 'archlab[{extra}]'")
    if name == "slurm":
        if clusters.no_slurm():
            pytest.skip(clusters.no_slurm())
        with clusters.slurm(tmp_path_factory.mktemp("slurm")) as env:
            yield name, SMALL, env
    elif name == "ray":
        with clusters.ray_of_two_nodes(tmp_path_factory.mktemp("ray") / "elsewhere") as env:
            yield name, (), env
    else:
        yield name, (), {}


def test_a_cluster_leaves_the_records_of_one_process(shell, cluster, of_one_process):
    name, needs, env = cluster
    answer = shell("build", "-m", f"cluster={name}", *SWEEP, *needs, "hydra.sweep.dir=out", env=env, timeout=300)
    assert answer.code == 1, answer.err  # 3 does not divide 8
    assert records(shell.folder / "out") == of_one_process
    assert [record["status"] for record in of_one_process.values()] == ["ok", "invalid"] * 2
    assert answer.out.count("3 does not divide") == 2
    assert "4 records, 2 not ok" in answer.out
    if name in ("slurm", "ray"):
        timed(shell, name, needs, env)


def timed(shell, name, needs, env):
    """Points that are timed there, one of which takes too long."""
    arguments = ("seed=1,2", "bench.timeout=60,0.05", *TINY, *needs, "hydra.sweep.dir=timed", "--json")
    if name == "ray":
        arguments += ("+hydra.launcher.ray.remote.resources={second:1}",)
    answer = shell("build", "-m", f"cluster={name}", *arguments, env=env, timeout=300)
    assert answer.code == 1, answer.err
    assert [point["status"] for point in answer.json["points"]] == ["ok", "timeout"] * 2
    assert answer.json["points"][0]["figures"]["decode_tok_s"]["value"] > 0


@pytest.mark.parametrize("name", ["joblib", "submitit_local"])
def test_a_sweep_goes_on_with_the_cluster_that_it_began_with(shell, name):
    if not installed(PLUGINS[name]):
        pytest.skip(f"the launcher of {name} is not installed")
    sweep = ("seed=1,2,3", "bench=none", "hydra.sweep.dir=out")
    assert shell("build", "-m", f"cluster={name}", *sweep).code == 0
    (shell.folder / "out" / "1" / "record.json").unlink()
    answer = shell("resume", "out")
    assert answer.code == 0, answer.err
    assert "1 of 1 point," in answer.err
    assert len(records(shell.folder / "out")) == 3


def test_a_sweep_of_which_nothing_was_left_is_no_success(shell):
    program = (
        "import sys\n"
        "from archlab import launch\n"
        "launch._run_of_sweep = lambda *given: 0.0\n"
        "from archlab.cli.app import answer\n"
        "sys.exit(answer(['build', '-m', 'seed=1,2', 'bench=none', 'hydra/launcher=basic']))\n"
    )
    answer = shell.python(program)
    assert answer.code == 1
    assert "no point left a record" in answer.err


def test_the_script_that_slurm_gets_asks_for_what_the_config_says(shell):
    if importlib.util.find_spec("submitit") is None:
        pytest.skip("the extra of slurm is not installed: pip install 'archlab[slurm]'")
    programs = shell.folder / "programs"
    programs.mkdir()
    for program, does in (("sbatch", 'cp "$1" asked.sh; exit 1'), ("srun", "exit 1")):  # a cluster that takes no job
        (programs / program).write_text(f"#!/bin/sh\n{does}\n")
        (programs / program).chmod(0o755)
    (shell.folder / "mine" / "cluster").mkdir(parents=True)
    lab = "# @package _global_\ndefaults: [slurm]\nhydra: {launcher: {partition: long, gpus_per_node: 1}}\n"
    (shell.folder / "mine" / "cluster" / "lab.yaml").write_text(lab)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    answer = shell("build", "-m", "--config-dir", "mine", "cluster=lab", "seed=1,2,3", "bench=none", env=path)
    assert answer.code != 0
    asked = (shell.folder / "asked.sh").read_text()
    for line in ("array=0-2%3", "cpus-per-task=4", "mem=16GB", "gpus-per-node=1", "partition=long", "time=60"):
        assert re.search(rf"^#SBATCH --{line}$", asked, re.MULTILINE), line
    assert "submitit.core._submit" in asked


NO_CLUSTER = """
import sys
from hydra_plugins.hydra_joblib_launcher import _core

def launch(**_):
    raise RuntimeError("no cluster\\n  is there")

_core.launch = launch
from archlab.cli.app import answer
sys.exit(answer(["build", "-m", "cluster=joblib", "seed=1,2", "bench=none", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("sweeper", ["grid", "optuna"])
def test_a_launcher_that_cannot_launch_is_one_message(shell, sweeper):
    """Such as Slurm's where there is no Slurm, and Ray's where no cluster answers."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    if sweeper == "optuna":
        pytest.importorskip("optuna")
    answer = shell.python(NO_CLUSTER.replace("*sys.argv[1:]", f"'hydra/sweeper={sweeper}'"))
    assert answer.code == 2
    assert answer.err.splitlines()[-1] == "archlab: hydra/launcher=joblib: no cluster is there"
    assert "Traceback" not in answer.err
    assert shell.left() == []
