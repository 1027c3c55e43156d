"""What a sweep that measures nothing costs a point, records and all: 100, 1,000 and 10,000 points, a process each.

    python benchmarks/sweep.py [POINTS ...]

Prints a row for each size and writes benchmarks/results/sweep.json. Wall time is the whole command's, from its start to
its table; CPU time (user + system) is what it took of a machine that others use too.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "sweep.json"
CHOICES = ("model/attention=mha,gqa", "model/norm=layernorm,rmsnorm", "model/ffn=gelu,swiglu", "model.d_model=256,512")
COMBINATIONS = 2**4


def measured(points: int) -> dict[str, Any]:
    """One sweep over choices and values, in an empty folder and a process of its own."""
    layers = ",".join(str(n + 1) for n in range(-(-points // COMBINATIONS)))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "archlab", "build", "-m", *CHOICES, f"model.n_layers={layers}", "bench=none"]
        start = time.perf_counter()
        process = subprocess.Popen(
            [*command, "hydra.sweep.dir=sweep"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        left = sum(1 for _ in Path(folder).rglob("record.json"))
    cpu = used.ru_utime + used.ru_stime
    return {
        "points": left,
        "exit_code": os.waitstatus_to_exitcode(status),
        "wall_s": round(wall, 2),
        "user_s": round(used.ru_utime, 2),
        "system_s": round(used.ru_stime, 2),
        "wall_ms_a_point": round(1e3 * wall / left, 2),
        "cpu_ms_a_point": round(1e3 * cpu / left, 2),
        "peak_rss_mib": round(used.ru_maxrss / 1024, 1),
    }


def main() -> None:
    """Measure each size and write the results."""
    sizes = [int(word) for word in sys.argv[1:]] or [100, 1_000, 10_000]
    rows = []
    for size in sizes:
        rows.append(measured(size))
        print(json.dumps(rows[-1]), flush=True)
    machine = {"cores": os.cpu_count(), "load": os.getloadavg(), "python": platform.python_version()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": machine, "sweeps": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
