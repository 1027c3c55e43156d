"""A conf of one's own, names of all kinds, quoting in real shells, and Hydra's own flags."""

import csv
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from archlab.quotes import quoted

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs" / "sweeps.md"
MODEL = "defaults: [gqa, override attention: mqa, _self_]\nname: 'mine, \"ä\"'\nn_layers: 1\n"
BOTH = "defaults: [override /model/ffn: wide, override /workload: short]\n"
NAMES = ("a model", "größer, it's", 'say "hi"', "7", "日本", "1e3", "null")


@pytest.fixture
def own(shell):
    """A shell beside a conf of the user's own."""
    files = {f"model/{name}.yaml": MODEL for name in NAMES}
    files |= {
        "model/ffn/wide.yaml": "choice: swiglu\nd_ff: 2048\n",
        "workload/short.yaml": "batch: 2\nprompt: 16\nnew: 4\n",
        "experiment/both.yaml": f"# @package _global_\n{BOTH}",
    }
    for name, text in files.items():
        (shell.folder / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (shell.folder / "mine" / name).write_text(text)
    return shell


def in_quotes(name):
    return '"' + name.replace('"', '\\"') + '"'


def test_a_model_of_any_name(own):
    models = ",".join(map(in_quotes, NAMES))
    answer = own("build", "-m", "--config-dir", "mine", f"model={models}", "bench=none", "--json")
    assert answer.code == 0, answer.err
    points = answer.json["points"]
    assert len(points) == len(NAMES)
    for point in points:
        assert point["config"]["model"]["name"] == 'mine, "ä"'
        assert (point["composition"]["n_layers"], point["composition"]["axes"]["attention"]["choice"]) == (1, "mqa")
    assert own("results", "outputs", "--format", "csv").out.count('mine, ""ä""') == len(NAMES)


@pytest.mark.parametrize(
    "place",
    [
        ("--config-dir", "mine"),
        ("hydra.searchpath=[file://mine]",),
        ("--from", "mine/model/7.yaml", "hydra.searchpath=[file://mine]"),
    ],
    ids=["dir", "path", "path and from"],
)
@pytest.mark.parametrize("chosen", [("model/ffn=wide", "workload=short"), ("experiment=both",)])
def test_a_choice_and_a_workload_of_ones_own(own, place, chosen):
    answer = own("build", *place, *chosen, "bench=none", "--json")
    assert answer.code == 0, answer.err
    assert answer.json["composition"]["axes"]["ffn"]["d_ff"] == 2048
    assert answer.json["composition"]["n_layers"] == (1 if "--from" in place else 8)
    assert (answer.json["config"]["workload"]["batch"], answer.json["config"]["workload"]["prompt"]) == (2, 16)


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_what_the_docs_say_of_quoting_holds_in_a_shell(own, name):
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    text = DOCS.read_text(encoding="utf-8")
    block = re.search(r"## Quoting.*?```bash\n(.*?)```", text, re.DOTALL)[1]
    commands = [line.replace("archlab build", "archlab --config-dir mine") for line in block.splitlines()]
    assert len(commands) == 7
    call = shlex.join([sys.executable, "-m", "archlab", "build", "-q", "--json", "verify=false"])
    script = "\n".join([f'archlab() {{ {call} "$@"; }}', *commands])
    done = subprocess.run([program, "-c", script], cwd=own.folder, capture_output=True, text=True, check=False)
    assert done.stderr.count("archlab:") == 0, done.stderr
    records = [point for line in done.stdout.splitlines() for point in [json.loads(line)]]
    assert len(records) == 7
    names = [record["config"]["model"]["name"] for record in records if "config" in record]
    assert names == ['mine, "ä"', 'mine, "ä"', "one, two", "gqa", "gqa"]
    assert [len(record["points"]) for record in records if "points" in record] == [2, 4]
    assert len(records[4]["composition"]["layer_kinds"]) == 2
    assert records[5]["config"]["constraints"] == ["params<=1B", "kv<=32KiB"]


def test_folders_named_like_numbers(shell):
    assert shell("build", "-m", "model.n_layers=1,2", "bench=none", "hydra.sweep.dir=2026").code == 0
    assert shell("build", "model.n_layers=3", "bench=none", "hydra.run.dir=007").code == 0
    assert len(shell("results", "2026", "--json").json["points"]) == 2
    assert shell("resume", "2026").code == 0  # there is nothing left to do
    assert shell("build", "--from", "007", "bench=none", "--json").json["composition"]["n_layers"] == 3
    compared = shell("compare", "2026/1", "007", "--json").json["points"]
    assert [point["composition"]["n_layers"] for point in compared] == [2, 3]


def test_each_point_in_its_own_folder_finds_the_files_that_were_named(shell):
    made = shell.python(
        "import archlab, safetensors.torch as st\n"
        "decoder = archlab.build(archlab.load('gqa', 'model.d_model=32', 'model.n_layers=1', 'model.vocab_size=64',"
        " 'model.attention.n_heads=4'), device='cpu', dtype='fp32')\n"
        "st.save_model(decoder, 'w.safetensors')\n"
    )
    assert made.code == 0, made.err
    tiny = ("model.d_model=32", "model.n_layers=1", "model.vocab_size=64", "model.attention.n_heads=4")
    run = ("weights=w.safetensors", "hydra.job.chdir=true", "bench=none", *tiny)
    answer = shell("build", *run, "hydra.run.dir=one")
    assert answer.code == 0, answer.err
    answer = shell("build", "-m", *run, "seed=1,2", "hydra.sweep.dir=many", "--json")
    assert answer.code == 0, answer.err
    assert [point["status"] for point in answer.json["points"]] == ["ok", "ok"]
    assert (shell.folder / "many" / "1" / "record.json").exists()
    assert not list(shell.folder.glob("many/*/many"))


def test_what_hydra_shows(own):
    job = own("build", "--cfg", "job", "-p", "workload", "--config-dir", "mine", "workload=short")
    assert "prompt: 16" in job.out
    assert "mine" in own("build", "--info", "searchpath", "--config-dir", "mine").out
    assert "InProcessLauncher" in own("build", "--info", "plugins").out
    assert "cluster: none" in own("build", "--cfg", "hydra", "-p", "hydra.runtime.choices").out
    assert all(name.startswith("mine") for name in own.left())


def test_a_folder_that_is_not_there_is_one_message(shell):
    for arguments in (("hydra.searchpath=[file://nope]",), ("--config-dir", "nope")):
        answer = shell("build", "bench=none", *arguments)
        assert answer.code == 2
        assert "nope" in answer.err
        assert answer.err.startswith("archlab: ")
        assert answer.err.count("\n") == 1
    assert shell.left() == []


def test_a_model_named_like_a_number_wants_quotes(own):
    answer = own("build", "--config-dir", "mine", "model=7", "bench=none")
    assert answer.code == 2
    assert "as a name it goes in quotes, 'model=\"7\"'" in answer.err


def test_a_reader_that_has_seen_enough_is_no_error(shell):
    """As of `archlab build --info | head`: Hydra writes on into a pipe that is closed."""
    command = f"{sys.executable} -m archlab build --info all | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=shell.folder, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("0", "")


def test_a_name_is_shown_and_compared_without_its_quotes(shell):
    """However it was quoted: the sheet, the effects and the groups have the name itself."""
    names = ["o'ne, two", '"7"', "a=b", "模 型"]
    values = [value for name in names for value in (quoted(name), in_quotes(name))]
    sweep = ("build", "-m", f"model.name={','.join(values)}", "model.n_layers=1", "bench=none", "hydra.sweep.dir=out")
    assert shell(*sweep).code == 0
    with io.StringIO(shell("results", "out", "--format", "csv").out) as text:
        assert [row["model.name"] for row in csv.DictReader(text)] == [name for name in names for _ in "ab"]
    by = shell("results", "out", "--group-by", "model.name", "--json").json["summary"]["tables"]["groups"]["rows"]
    assert [(row["model.name"], row["points"]) for row in by] == [(name, 2) for name in names]
    effects = shell("results", "out", "--json").json["summary"]["tables"]["effects"]["rows"]
    assert [(row["choice"], row["against"]) for row in effects] == [(name, names[0]) for name in names[1:]]
