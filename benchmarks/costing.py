"""How fast compositions are costed on one core: composed, their parameters, KV cache, FLOPs and bound in closed form.

    python benchmarks/costing.py [--quick]

Prints what it measured and writes it to benchmarks/results/costing.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import archlab
from archlab.cost.roofline import Passes, bound
from archlab.hardware import hardware

CHUNK = 400
"""Compositions between two looks at the clock."""

RESULTS = Path(__file__).parent / "results" / "costing.json"

FFNS = ["swiglu", "geglu", "reglu", "geglu_tanh", "gelu", "gelu_tanh", "relu", "relu2", "silu", "swiglu_clamped"]
SWEEPS: dict[str, tuple[str, dict[str, Iterable[Any]]]] = {
    "attention, ffn, norm, width and depth of the small model": (
        "gqa",
        {
            "model/attention": ["mha", "gqa", "mqa", "mla"],
            "model/ffn": FFNS,
            "model/norm": ["rmsnorm", "layernorm"],
            "model.ffn.d_ff": range(512, 2112, 64),
            "model.n_layers": range(1, 51),
        },
    ),
    "the same of layers of two kinds, five with a window and one without": (
        "gemma-3-1b",
        {
            "model/ffn": FFNS,
            "model/norm": ["rmsnorm", "layernorm"],
            "model.ffn.d_ff": range(512, 5632, 64),
            "model.n_layers": range(6, 66, 6),
        },
    ),
    "mixtures of experts": (
        "minimind-moe",
        {
            "model.ffn.n_experts": [4, 8, 16, 32],
            "model.ffn.experts_per_token": [1, 2, 4],
            "model.ffn.expert.d_ff": range(128, 2688, 64),
            "model.n_layers": range(1, 21),
        },
    ),
}


DEVICE = hardware("h200")


def cost(spec: Any) -> tuple[int, int, int, float | None]:
    """Parameters, KV bytes of a full context in bf16, FLOPs of a prompt of 1,024 tokens and one token after it.

    And what the device bounds decoding after that prompt by, in tokens a second.
    """
    parameters = archlab.parameters(spec).total
    cache = archlab.kv_cache(spec, batch=1, context=spec.context, dtype="bf16").bytes
    count = archlab.flops(spec, batch=1, prompt=1024, new=1).total
    return parameters, cache, count, bound(Passes(spec).decode(batch=1, context=1024), DEVICE).tok_s


def measure(source: str, choices: Mapping[str, Iterable[Any]]) -> dict[str, Any]:
    """Cost every combination once, none of it read before.

    Seconds by the clock and of the processor, in all and each; `quickest` is the chunk that others on the machine
    disturbed least.
    """
    points = archlab.sweep(source, choices)
    costs: list[tuple[int, int, int, float | None]] = []
    wall, cpu = time.perf_counter(), [time.process_time()]
    while chunk := [cost(point.spec) for point in itertools.islice(points, CHUNK)]:
        costs += chunk
        cpu.append(time.process_time())
    wall, count = time.perf_counter() - wall, len(costs)
    quickest = min(end - start for start, end in itertools.pairwise(cpu[: count // CHUNK + 1])) / CHUNK
    return {
        "source": source,
        "compositions": count,
        "different_costs": len(set(costs)),
        "wall_seconds": round(wall, 2),
        "cpu_seconds": round(cpu[-1] - cpu[0], 2),
        "wall_us_each": round(wall / count * 1e6, 1),
        "cpu_us_each": round((cpu[-1] - cpu[0]) / count * 1e6, 1),
        "cpu_us_each_quickest": round(quickest * 1e6, 1),
    }


def environment() -> dict[str, Any]:
    cpu = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    load = [round(value, 2) for value in os.getloadavg()]
    return {"python": platform.python_version(), "archlab": archlab.__version__, "cpu": cpu[0], "load_average": load}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one value in ten of the last key; nothing is written")
    quick = parser.parse_args().quick
    archlab.load("gqa")  # imports
    results: dict[str, Any] = {"environment": environment(), "sweeps": {}}
    for name, (source, choices) in SWEEPS.items():
        if quick:
            *_, last = choices
            choices = {**choices, last: [*choices[last]][::10]}
        found = results["sweeps"][name] = measure(source, choices)
        print(f"{source}: {name}")
        print(f"  {found['compositions']:,} compositions in {found['wall_seconds']:.2f} s,", end=" ")
        print(f"{found['wall_us_each']} us each; of the processor {found['cpu_us_each']} us,", end=" ")
        print(f"{found['cpu_us_each_quickest']} us in the quickest {CHUNK}")
    if not quick:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
