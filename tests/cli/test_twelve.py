"""Twelve points, among them one that cannot be, one that crashes, one out of memory and one that hangs: twelve rows."""

import json

import pytest

FAULTS = """
import os, signal, sys, time
from contextlib import contextmanager
from archlab.bench import phases, run
whole = phases.PHASES["decode"]

@contextmanager
def broken(decoder, workload, seed):
    if seed == 101:
        os.kill(os.getpid(), signal.SIGSEGV)
    if seed == 102:
        raise MemoryError("needs 14.00 GiB")
    if seed == 103:
        time.sleep(600)
    with whole(decoder, workload, seed) as timed:
        yield timed

phases.PHASES["decode"] = broken
"""
PROGRAM = """
import sys
from archlab.bench import child
before, after = child.START.split("from archlab.worker")
child.START = before + "\\n" + {faults!r}.replace("{{", "{{{{").replace("}}", "}}}}") + "\\nfrom archlab.worker" + after
from archlab.cli.app import answer
sys.exit(answer({arguments!r}))
"""
"""The child that times a point meets a fault that its seed names."""

TINY = (
    *("model.d_model=32", "model.n_layers=1", "model.vocab_size=64", "model.attention.n_heads=4", "model.context=64"),
    *("workload.prompt=4", "workload.new=2", "bench.phases=[decode]", "bench.seconds=0.02", "bench.max_repeats=3"),
)


@pytest.mark.slow
def test_i01_twelve_points_are_twelve_rows_whatever_befalls_them(shell):
    sweep = ("model.attention.n_kv_heads=2,3", "seed=1,2,3,101,102,103", "bench.timeout=25", *TINY)
    arguments = ["build", "-m", *sweep, "hydra.sweep.dir=out"]
    answer = shell._run(["-c", PROGRAM.format(faults=FAULTS, arguments=arguments)], None, 560)
    assert answer.code == 1, answer.err
    files = [shell.folder / "out" / str(number) / "record.json" for number in range(12)]
    statuses = [json.loads(file.read_text())["status"] for file in files]
    assert statuses == [*["ok"] * 3, "failed", "oom", "timeout", *["invalid"] * 6]
    assert answer.out.count("3 does not divide") == 6
    for said in ("SIGSEGV", "25 s", "12 records, 9 not ok"):
        assert said in answer.out
    rows = [line for line in answer.out.splitlines() if line.split()[:1] in (["2"], ["3"])]
    assert len(rows) == 12
