"""archlab's module beside other people's, on this machine's CPU: prefill, decode with a cache, and a training step.

    python benchmarks/peers [--shapes minimind gpt2] [--dtypes float32 bfloat16] [--rounds 5] [--candidates ...]
        [--phases ...]

One process a candidate, one of them running at a time, in turn: A B C, then B C A, ..; medians of the rounds, each also
as a multiple of transformers with a dynamic cache. A sample during which other processes used more than SHARE of the
machine is taken again, at most RETAKES times; how many were kept all the same is in the result. What was measured is
written to benchmarks/results, as JSON and as a table. requirements.txt says what must be installed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import textwrap
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from candidates import CANDIDATES
from rich.console import Console
from rich.table import Table
from shapes import SHAPES
from worker import CONTEXT, INFERENCE, NEW, PHASES, PROMPT, TRAIN, TRAINING

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "peers.json"
BASE = "hf-dynamic"
HEADS = {
    "prefill": ("prefill", "tok_s"),
    "last logits": ("prefill_last", "tok_s"),
    "decode, 1": ("decode_b1", "tok_s"),
    "decode, 8": ("decode_b8", "tok_s"),
    "training": ("train", "tok_s"),
    "MiB, inference": ("decode_b8", "peak_rss_mib"),
    "MiB, training": ("train", "peak_rss_mib"),
}
"""Columns of the summary: the phase and figure of each."""

SHARE, RETAKES = 0.06, 3
LIBRARIES = ("archlab", "torch", "transformers", "litgpt", "x-transformers")


class Worker:
    """A candidate's process. Raises EOFError where it has died."""

    def __init__(self, name: str, shape: str, dtype: str) -> None:
        command = [sys.executable, str(HERE / "worker.py"), name, shape, dtype]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, text=True, **pipes)
        self.parameters = self._answer().get("parameters")

    def _answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "the process ended"}

    def sample(self, phase: str) -> dict[str, Any]:
        """One call, taken again while others disturb it; `disturbed` is their share of the machine."""
        for _ in range(1 + RETAKES):
            before, start = _busy(), time.perf_counter()
            try:
                self.process.stdin.write(phase + "\n")
                self.process.stdin.flush()
            except OSError:
                return {"error": "the process ended"}
            answer = self._answer()
            if "error" in answer:
                return answer
            wall = time.perf_counter() - start
            used = _of(self.process.pid) - getattr(self, "used", 0.0)
            self.used = _of(self.process.pid)
            answer["disturbed"] = max(0.0, (_busy() - before - used) / wall / os.cpu_count())
            if answer["disturbed"] <= SHARE:
                break
        return answer

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def _busy() -> float:
    """Seconds that all processors were busy, of the whole machine."""
    ticks = [int(value) for value in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (sum(ticks[:8]) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _of(pid: int) -> float:
    """Processor seconds of a process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compare(names: list[str], shape: str, dtype: str, asked: Namespace, console: Console) -> dict[str, Any]:
    """The phases of every candidate, by candidate: tok_s of each round, disturbances, peak memory.

    Training has a process a sample: the same code takes up to 15 % longer in one than in the next, as its memory lies.
    """
    found: dict[str, Any] = {name: {} for name in names}
    workers: dict[str, Worker] = {}
    for phase in asked.phases:
        samples: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for turn in range(asked.rounds):
            for name in [*names[turn % len(names) :], *names[: turn % len(names)]]:
                if name not in workers:
                    workers[name] = Worker(name, shape, dtype)
                samples[name].append(workers[name].sample(phase))
                found[name]["parameters"] = workers[name].parameters
                if phase in TRAINING:
                    workers.pop(name).end()
        for name, taken in samples.items():
            found[name][phase] = _summary(taken)
        if phase == INFERENCE[-1]:
            _end(workers)
        console.print(f"  {shape} {dtype} {phase}: done", style="dim")
    _end(workers)
    return found


def _end(workers: dict[str, Worker]) -> None:
    while workers:
        workers.popitem()[1].end()


def _summary(taken: list[dict[str, Any]]) -> dict[str, Any]:
    errors = [sample["error"] for sample in taken if "error" in sample]
    if errors:
        return {"error": errors[0]}
    rates = [sample["tok_s"] for sample in taken]
    return {
        "tok_s": round(statistics.median(rates), 2),
        "rounds": [round(rate, 2) for rate in rates],
        "disturbed": sum(sample["disturbed"] > SHARE for sample in taken),
        "peak_rss_mib": round(max(sample["peak_rss_mib"] for sample in taken)),
    }


def table(title: str, found: dict[str, Any]) -> Table:
    shown = Table(title=title)
    for column in ("candidate", "parameters", *PHASES, "MiB inference", "MiB training"):
        shown.add_column(column, justify="left" if column == "candidate" else "right")
    for name, phases in found.items():
        cells = [_cell(phases.get(phase), found.get(BASE, {}).get(phase, {})) for phase in PHASES]
        memory = [str(phases.get(phase, {}).get("peak_rss_mib", "-")) for phase in ("decode_b8", "train")]
        shown.add_row(name, f"{phases['parameters']:,}", *cells, *memory)
    return shown


def _cell(phase: dict[str, Any] | None, base: dict[str, Any]) -> str:
    if phase is None or "error" in phase:
        return "-"
    ratio = f" ({phase['tok_s'] / base['tok_s']:.2f})" if "tok_s" in base else ""
    spread = (max(phase["rounds"]) - min(phase["rounds"])) / 2 / phase["tok_s"]
    return f"{phase['tok_s']:,.1f}{ratio} ±{spread:.0%}"


def summary(results: dict[str, Any]) -> str:
    """archlab and the best of the others in Markdown: multiples of transformers with a dynamic cache, and least MiB."""
    lines = [f"| | {' | '.join(HEADS)} |", "|---|" + "---:|" * len(HEADS)]
    for cell, found in sorted(results["results"].items(), reverse=True):
        cells = (_beside(found, *figure) for figure in HEADS.values())
        lines.append(f"| {cell} | {' | '.join(cells)} |")
    about = results["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if name != "archlab")
    machine = f"{about['cpu']} with {' '.join(about['flags'])}, {about['cores']} cores; {versions}; {about['work']}"
    return "\n".join([*lines, "", *textwrap.wrap(machine + ".", 120)]) + "\n"


def _beside(found: dict[str, Any], phase: str, kind: str) -> str:
    """archlab's figure / the best of the libraries'."""
    made = {name: phases[phase][kind] for name, phases in found.items() if kind in phases.get(phase, {})}
    others = [value for name, value in made.items() if name not in ("archlab", "by-hand")]
    if kind != "tok_s":
        return f"{made['archlab']:,} / {min(others):,}"
    return f"{made['archlab'] / made[BASE]:.2f} / {max(others) / made[BASE]:.2f}"


def environment() -> dict[str, Any]:
    info = Path("/proc/cpuinfo").read_text()
    cpu = next(line.split(":")[1].strip() for line in info.splitlines() if "model name" in line)
    flags = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f" {flag} " in info]
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
    work = f"prefill 1 x {PROMPT}; decode {NEW} after {CONTEXT}; train {TRAIN[0]} x {TRAIN[1]}, no optimizer"
    return {"cpu": cpu, "cores": os.cpu_count(), "flags": flags, "versions": versions, "work": work}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--dtypes", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES), help="others stay as they were")
    parser.add_argument("--rounds", type=int, default=5)
    asked, console = parser.parse_args(), Console(width=200)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"results": {}}
    for shape in asked.shapes:
        for dtype in asked.dtypes:
            kept = results["results"].get(f"{shape} {dtype}", {})
            made = compare(asked.candidates, shape, dtype, asked, console)
            found = kept | {name: kept.get(name, {}) | phases for name, phases in made.items()}
            results["environment"] = environment()
            results["results"][f"{shape} {dtype}"] = found
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            RESULTS.with_suffix(".md").write_text(summary(results), encoding="utf-8")
            console.print(table(f"{shape} {dtype}: tok/s (multiple of {BASE}) ± half the range", found))


if __name__ == "__main__":
    main()
