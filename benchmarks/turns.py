"""How often a model beside itself is inside the interval that `archlab bench --interleave` gives their ratio: 95 %?

    python benchmarks/turns.py [RUNS]

Each run times a small model twice, in turns, and has a ratio for each phase, which is 1. Prints a row for each run and
writes benchmarks/results/turns.json.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "turns.json"
SIZES = ((32, 1, 8), (64, 2, 16), (128, 2, 32), (96, 1, 64), (256, 2, 32), (32, 4, 8))
"""d_model, n_layers and context, one after another."""


def measured(d_model: int, n_layers: int, context: int) -> list[dict[str, Any]]:
    """The ratios of one run, in a process of its own."""
    model = [f"model.d_model={d_model}", f"model.n_layers={n_layers}", "model.vocab_size=256"]
    words = ["gqa", *model, "model.attention.n_heads=4", "workload.new=16", "bench.ceilings=false"]
    asked = [*words, *words, "--interleave", "--context", str(context), "--json"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "archlab", "bench", *asked]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    kept = ("phase", "ratio", "low", "high", "p10", "p90", "processes", "rounds")
    size = {"d_model": d_model, "n_layers": n_layers, "context": context}
    rows = json.loads(done.stdout)["tables"]["ratios"]["rows"]
    return [size | {name: row[name] for name in kept} for row in rows]


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    found: list[dict[str, Any]] = []
    for size in itertools.islice(itertools.cycle(SIZES), runs):
        found += measured(*size)
        print(
            *(f"{row['phase']} {row['low']:.3f} {row['ratio']:.3f} {row['high']:.3f} " for row in found[-3:]),
            flush=True,
        )
        inside = sum(row["low"] <= 1 <= row["high"] for row in found)
        about = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
        RESULTS.write_text(
            json.dumps({**about, "ratios": len(found), "inside": inside, "rows": found}, indent=1) + "\n"
        )
    print(f"{inside} of {len(found)} ratios of a model to itself are inside their 95 % interval")


if __name__ == "__main__":
    main()
