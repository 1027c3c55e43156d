"""The in-process launcher leaves the records that Hydra's basic one leaves."""

import json

import pytest

BASIC = ("hydra/launcher=basic",)
OWN = {"created", "folder"}
EXPERIMENT = """# @package _global_
defaults:
  - override /model: minimind
  - override /bench: none
seed: 7
"""


def records(shell, folder):
    found = {}
    for file in (shell.folder / folder).rglob("record.json"):
        body = json.loads(file.read_text())
        assert body["folder"] == str(file.parent)
        config = (file.parent / "config.yaml").read_text()
        found[file.parent.name] = {key: value for key, value in body.items() if key not in OWN} | {"yaml": config}
    return found


SWEEPS = {
    "choices": ("model=gqa,gpt2", "model/norm=layernorm,rmsnorm", "model/position=rope,learned", "bench=none"),
    "values": ("model.n_layers=1,4", "model.attention.window=null,16", "model.name=a,'b c'", "seed=3", "bench=none"),
    "failing": ("model.attention.n_kv_heads=2,3", "model/attention=gqa,mqa", "model.ffn.d_ff=64,0", "bench=none"),
    "lists": (
        "model.layers=[{attention:{n_kv_heads:1},repeat:3},{position:{choice:none}}],null",
        "workload.contexts=[1,2],[4]", "objective=[params,kv_bytes_per_token]", "bench.phases=[]",
    ),
    "experiment": ("--config-dir", "mine", "experiment=small", "seed=1,2", "model.n_layers=2,3"),
    "verified": ("model.n_layers=1,2", "bench=none", "verify=true"),
    "followed": ("model.n_layers=1,2", "model.about=seed${seed}", "bench=none"),
    "folders": ("model.n_layers=1,2", "bench=none", "hydra.sweep.subdir=n${model.n_layers}"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("arguments", SWEEPS.values(), ids=SWEEPS)
def test_both_launchers_leave_the_same_records(shell, arguments):
    (shell.folder / "mine" / "experiment").mkdir(parents=True)
    (shell.folder / "mine" / "experiment" / "small.yaml").write_text(EXPERIMENT)
    own = shell("build", "-m", *arguments, "hydra.sweep.dir=own")
    basic = shell("build", "-m", *arguments, *BASIC, "hydra.sweep.dir=basic")
    assert own.code == basic.code, own.err
    found = records(shell, "own")
    assert found == records(shell, "basic")
    assert len(found) >= 2


@pytest.mark.slow
def test_the_log_says_which_and_how_many(shell):
    answer = shell("build", "-m", "seed=1,2,3", "bench=none")
    assert "in-process launcher: nothing is measured; 3 points" in answer.err
    assert "in-process" not in shell("build", "-m", "seed=1,2,3", "bench=none", *BASIC).err


def test_i08_a_sweep_on_paper_composes_once_not_once_a_point(shell):
    answer = shell.python(
        "import sys\n"
        "from hydra._internal.config_loader_impl import ConfigLoaderImpl as loader\n"
        "asked, whole = [], loader.load_sweep_config\n"
        "loader.load_sweep_config = lambda *given: asked.append(1) or whole(*given)\n"
        "sys.argv = ['archlab', 'build', '-m', 'model.n_layers=1,2,3', 'seed=range(0,100)', 'bench=none']\n"
        "from archlab.cli.app import answer\n"
        "code = answer(sys.argv[1:])\n"
        "print('composed', len(asked), 'code', code)\n"
    )
    assert answer.out.splitlines()[-1] == "composed 1 code 0"
    assert "300 points" in answer.err.splitlines()[0]
    assert len([name for name in shell.left() if name.endswith("record.json")]) == 300


@pytest.mark.slow
def test_an_unmeasured_sweep_is_not_verified_unless_asked(shell):
    for arguments, verified in (((), False), (("verify=true",), True), (BASIC, False), (("verify=false",), False)):
        answer = shell("build", "-m", "seed=1,2", "bench=none", *arguments, "--json")
        for point in answer.json["points"]:
            assert bool(point["checks"]) == point["config"]["verify"] == verified
    assert shell("build", "bench=none", "--json").json["checks"]
