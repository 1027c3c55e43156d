"""An end from outside while a phase stands still: an FFN that does so at its first decode step, if a file says so."""

import os
import signal
import subprocess
import sys
import time

PLUGIN = """
import pathlib, time
import torch
from torch import nn
import archlab

@archlab.component("ffn", "stalls", summary="stands still at its first decode step, while a file asks it to")
class Stalls(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        if type(x) is torch.Tensor and x.device.type == "cpu" and x.shape[-2] == 1 and pathlib.Path("stall").exists():
            pathlib.Path("stalled").touch()
            time.sleep(600)
        return x * self.weight
"""
MODEL = ("--plugin", "stalls.py", "model.d_model=32", "model.n_layers=1", "model.vocab_size=61")
TIMED = (
    *("workload.prompt=8", "workload.new=2", "bench.phases=[prefill,decode]", "bench.seconds=0.05"),
    *("bench.ceilings=false", "verify=false"),
)


def install(shell):
    """The plugin, and the file that makes it stand still."""
    (shell.folder / "stalls.py").write_text(PLUGIN)
    (shell.folder / "stall").touch()


def interrupted(shell, *arguments, end=signal.SIGINT):
    """Start a command and end it once it stands still; its exit code, stdout and stderr."""
    process = subprocess.Popen(
        [sys.executable, "-m", "archlab", *arguments], cwd=shell.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 120
    while not (shell.folder / "stalled").exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.5)  # what was told before is heard
    if process.poll() is None:
        os.killpg(process.pid, end)
    out, err = process.communicate(timeout=60)
    (shell.folder / "stalled").unlink(missing_ok=True)
    return process.returncode, out, err
