"""Standard output is what is shown and nothing else, whatever code of others writes and whichever way."""

import json
import os
import stat
import subprocess
import sys
import threading

import pytest

from archlab.cli.app import parser
from archlab.stdout import is_named

LOUD = """
import ctypes, os
import torch
from torch import nn
import archlab

def shout(where):
    print("print", where)
    os.write(1, f"descriptor {where}\\n".encode())
    ctypes.CDLL(None).printf(f"c library {where}\\n".encode())  # kept back, where no terminal reads it, until the end
    os.system(f"echo process {where}")

shout("import")

@archlab.component("norm", "loud", summary="says what it does")
class Loud(nn.Module):
    def __init__(self, features):
        shout("constructor")
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        shout("forward")
        return x * self.weight
"""
SMALL = ("model.d_model=32", "model.n_layers=1", "model.vocab_size=64", "model.context=32", "model.attention.n_heads=4",
         "model.attention.head_dim=8", "model/norm=loud")  # fmt: skip
TIMED = ("bench.phases=[decode]", "bench.seconds=0.05", "bench.ceilings=false", "workload.prompt=8", "workload.new=2")
GQA = ("gqa", *SMALL)
COMMANDS = {
    "build": (*SMALL, "bench=none"),
    "compare": GQA,
    "kv": GQA,
    "memory": (*GQA, "--train"),
    "flops": GQA,
    "roofline": (*GQA, "hardware=h100-sxm"),
    "fit": (*GQA, "hardware=h100-sxm"),
    "diff": GQA,
    "size": ("gqa", "model/norm=loud", "params=20M", "solve=n_layers"),
    "shapes": GQA,
    "verify": GQA,
    "explain": ("norm/loud", "model=gqa", *SMALL),
    "components": ("norm",),
    "models": (),
    "hardware": None,  # it makes nothing of a model
    "lab": ("residual", "model=gqa", *SMALL),
    "bench": (*GQA, *TIMED),
    "resume": None,  # a test of its own, for it needs a sweep
}
"""What each command is asked for; it is told of the plugin beside that."""
QUICK = ("build", "compare")


@pytest.fixture
def loud(shell):
    (shell.folder / "loud.py").write_text(LOUD)
    return shell


def commands(*options):
    """The commands that take all of these options."""
    known = parser().commands
    return [name for name in known if set(options) <= {flag for param in known[name].params for flag in param.opts}]


def heard(answer, *places):
    """Whether what was written at these places came out on stderr, each way of writing."""
    return all(f"{way} {place}" in answer.err for way in ("descriptor", "c library", "process") for place in places)


def test_every_command_that_code_of_others_runs_in_is_tried_here():
    assert set(commands("--plugin", "--json")) <= set(COMMANDS)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name, words in COMMANDS.items()
        if words is not None
    ],
)
def test_json_is_one_document_whatever_a_plugin_writes(loud, command):
    answer = loud(command, *COMMANDS[command], "--plugin", "loud.py", "--json")
    assert answer.code == 0, answer.err
    assert "error" not in answer.json
    assert heard(answer, "import")


def test_what_modules_write_is_on_stderr(loud):
    answer = loud("compare", *GQA, "--plugin", "loud.py", "--format", "csv")
    assert answer.code == 0, answer.err
    assert [line.split(",")[0] for line in answer.out.splitlines()] == ["name", "gqa"]
    assert heard(answer, "import", "constructor", "forward")


@pytest.mark.slow
def test_a_sweep_and_what_goes_on_with_it(loud):
    sweep = ("build", "-m", *SMALL[:1], "model.n_layers=1,2", *SMALL[2:], "bench=none", "hydra.sweep.dir=sweep")
    assert len(loud(*sweep, "--plugin", "loud.py", "--json").json["points"]) == 2
    (loud.folder / "sweep" / "1" / "record.json").unlink()
    assert len(loud("resume", "sweep", "--json").json["points"]) == 2
    assert len(loud("resume", "sweep", "--json").json["points"]) == 2  # which runs nothing, and explains all


# --- files that mean standard output, or are none ---------------------------------------------------------------------


@pytest.fixture
def run(shell):
    """A shell with a run in `run`."""
    answer = shell("build", *SMALL[:-1], "bench=none", "verify=false", "hydra.run.dir=run")
    assert answer.code == 0, answer.err
    return shell


def test_its_names():
    assert is_named("/dev/stdout")  # not tried below: what would replace it takes it from all others here
    assert not is_named(None)


@pytest.mark.parametrize("name", ["/proc/self/fd/1", "/dev/fd/1"])
def test_a_file_that_is_standard_output(run, name):
    answer = run("results", "run", "--format", "csv", "-o", name)
    assert (answer.code, answer.out) == (0, run("results", "run", "--format", "csv").out)
    assert run("export", "gqa", "-o", name).out == run("export", "gqa").out


@pytest.mark.parametrize(
    "words", [("results", "run", "--format", "csv"), ("export", "gqa"), ("results", "run", "--format", "parquet")]
)
def test_a_pipe_is_written_into_and_not_replaced(run, words):
    if "parquet" in words:
        pytest.importorskip("pyarrow", reason="archlab[parquet] is not installed")
    pipe, read = run.folder / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    answer = run(*words, "-o", "pipe")
    assert answer.code == 0, answer.err
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    reader.join(10)
    assert read[0][:4] in (b"name", b"{\n  ", b"PAR1")


def test_a_link_is_followed(run):
    (run.folder / "link.csv").symlink_to("real.csv")
    assert run("results", "run", "--format", "csv", "-o", "link.csv").code == 0
    assert (run.folder / "link.csv").is_symlink()
    assert (run.folder / "real.csv").read_text().startswith("name,")


# --- no room, and nobody there ----------------------------------------------------------------------------------------

CLOSED = """
import os, sys
for descriptor in sys.argv.pop(1).split(","):
    os.close(int(descriptor))
os.execv(sys.executable, [sys.executable, "-m", "archlab", *sys.argv[1:]])
"""


def without(shell, descriptors, *words):
    """The answer of a command that begins with these descriptors closed."""
    command = [sys.executable, "-c", CLOSED, descriptors, *words]
    return subprocess.run(command, cwd=shell.folder, capture_output=True, check=False)


def test_without_stderr_nothing_more_is_on_stdout(loud):
    done = without(loud, "2", "kv", *GQA, "--plugin", "loud.py", "--json")
    assert (done.returncode, json.loads(done.stdout)["command"]) == (0, "kv")
    refused = without(loud, "2", "kv", "gpa")  # of which the message is not shown in its place
    assert (refused.returncode, refused.stdout) == (2, b"")


@pytest.mark.parametrize("descriptors", ["1", "1,2", "0,1,2"])
def test_without_stdout_a_command_does_what_it_does(shell, descriptors):
    done = without(shell, descriptors, "build", *SMALL[:-1], "bench=none", "verify=false", "hydra.run.dir=run")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert json.loads((shell.folder / "run" / "record.json").read_text())["status"] == "ok"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [("models",), ("models", "--json"), ("kv", "gqa", "--json"), ("kv", "gpa", "--json")])
def test_a_full_disk_is_one_message(shell, words):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "archlab", *words]
        done = subprocess.run(command, cwd=shell.folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "archlab: standard output cannot be written: No space left on device\n"


def test_a_file_that_may_not_grow_is_no_traceback(shell):
    command = f"ulimit -f 1; {sys.executable} -m archlab models --json > models.json"
    done = subprocess.run(["bash", "-c", command], cwd=shell.folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "archlab: standard output cannot be written: File too large\n")
