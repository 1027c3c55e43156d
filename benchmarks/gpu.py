"""How near archlab comes to what a GPU can do, and what each attention costs there as the context grows.

    python benchmarks/gpu.py [--only NAME ...] [--again] [--minutes 9] [--small]

Every experiment is one `archlab bench` with ceilings measured in the same run; those with a goal come first. Writes
benchmarks/results/gpu.json after each and begins with what is not in there yet, so that a call goes on where the last
one stopped: none starts once --minutes are over, and one that runs is ended then. --again begins anew. Exit code 1
where a goal was missed or something is left to do. --small runs all of it with a small model on whatever device is
there, to see that it runs, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results" / "gpu.json"
LARGE, BILLION, CAPPED, SMALL = "llama-3-8b", "llama-3.2-1b", "gemma-2-2b", "gqa"
CONTEXTS = ("128k", "1k", "16k", "64k", "4k")
ATTENTIONS = {"gqa": ("sdpa", "flex"), "mla": ("sdpa",), "mqa": ("sdpa", "flex"), "mha": ("sdpa", "flex")}
"""The backends of each: as a decode step attends, heads of MLA are too wide for flex attention's kernels."""
COMBINED = "combo_kernels"
"""Small kernels that wait for nothing of each other run as one. Tuned, a row's products are kernels of torch's own."""
CLOCK = ("--dtype", "bf16", "--json", "bench.seconds=5")
LABELS = ("model", "dtype", "backend", "batch", "context", "phase")
COLUMNS = (
    "backend",
    "phase",
    "batch",
    "context",
    "tok_s",
    "time",
    "mfu",
    "mbu",
    "of_copy",
    "kv_allocated",
    "peak",
    "why",
)
SMALL_CLOCK = ("--json", "bench.seconds=0.3", "bench.min_repeats=1")


class Experiment(NamedTuple):
    """One run of the clock. goal: the figure of its rows that is to reach so many per cent, None where none is set.

    What is called like one with a goal, and more, is another way to reach it.
    """

    about: str
    model: str
    options: tuple[str, ...]
    goal: tuple[str, float] | None = None


def attention_at(choice: str, context: str) -> Experiment:
    """Decoding after a context with one choice of attention in the large model's shape."""
    options = (f"model/attention={choice}", "--compile", "--phases", "decode", "--context", context)
    return Experiment(f"{choice} after {context}", LARGE, (*options, "--backend", ",".join(ATTENTIONS[choice])))


def compiled_decode(switches: str) -> Experiment:
    """One sequence, with switches of torch's compiler on."""
    options = ("--compile", "--phases", "decode", "--context", "1k", f"bench.inductor=[{switches}]")
    return Experiment(f"one sequence, {switches}", LARGE, options)


EXPERIMENTS = {
    "decode-1": Experiment(
        "one sequence: share of the copy bandwidth",
        LARGE,
        ("--compile", "--phases", "decode", "--context", "1k"),
        ("of_copy", 85),
    ),
    "decode-64": Experiment(
        "64 sequences: share of the copy bandwidth",
        LARGE,
        ("--compile", "--phases", "decode", "--context", "1k", "--batch", "64"),
        ("of_copy", 60),
    ),
    "prefill": Experiment(
        "4 prompts of 2,048 tokens: share of the matmul rate",
        LARGE,
        ("--compile", "--phases", "prefill", "--context", "2k", "--batch", "4"),
        ("mfu", 75),
    ),
    "train": Experiment(
        "a step on 8 x 2,048 tokens: share of the matmul rate",
        BILLION,
        ("--compile", "--phases", "train", "--context", "2k", "--batch", "8"),
        ("mfu", 55),
    ),
    "decode-1-combined": compiled_decode(COMBINED),
    "decode-1-tuned": compiled_decode(f"{COMBINED},coordinate_descent_tuning"),
    "soft-cap": Experiment(
        "capped scores and windows: the explicit softmax and flex attention",
        CAPPED,
        ("--phases", "prefill,decode", "--context", "4k", "--backend", "math,flex"),
    ),
    "decode-1-graphs": Experiment(
        "one sequence, eager, a CUDA graph a step", LARGE, ("--graphs", "--phases", "decode", "--context", "1k")
    ),
    "decode-1-eager": Experiment("one sequence, eager", LARGE, ("--phases", "decode", "--context", "1k")),
    "decode-1-backends": Experiment(
        "one sequence, by what attends",
        LARGE,
        ("--compile", "--phases", "decode", "--context", "1k", "--backend", "flex,cudnn"),
    ),
    **{f"attention-{choice}-{context}": attention_at(choice, context) for context in CONTEXTS for choice in ATTENTIONS},
}


def command_of(experiment: Experiment, small: bool) -> list[str]:
    """What `archlab` is called with."""
    model, options = (
        (SMALL, tuple(map(_shrunk, experiment.options))) if small else (experiment.model, experiment.options)
    )
    return ["bench", model, *options, *(SMALL_CLOCK if small else CLOCK)]


def bench(asked: Sequence[str], limit: float) -> dict[str, Any]:
    """The document of one `archlab bench`, or what it said on its way out; it is ended after `limit` seconds."""
    ended = {}
    with subprocess.Popen([sys.executable, "-m", "archlab", *asked], stdout=subprocess.PIPE, text=True) as running:
        try:
            said, _ = running.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)  # so that it ends its own process on the device, and tells what it has
            said, _ = running.communicate()
            ended = {"error": f"not done after {limit:.0f} s"}
    document = json.loads(said) if said else {"error": f"exit code {running.returncode}"}
    return {"command": " ".join(["archlab", *asked]), **document, **ended}


def _shrunk(option: str) -> str:
    """A context that a small model on a slow device goes through in a moment."""
    return {"128k": "128", "64k": "96", "16k": "64", "4k": "64", "2k": "128", "1k": "64", "64": "8"}.get(option, option)


def rows_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a point: its speed, its memory, and its shares of the ceilings of this device."""
    if "tables" not in document:
        return []
    tables = {name: table["rows"] for name, table in document["tables"].items()}
    points: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name in ("throughput", "roofline", "ceilings", "memory"):
        for part in tables.get(name, []):  # what was not timed, as for want of memory, is in the first alone
            points.setdefault(tuple(part.get(label) for label in LABELS), {}).update(part)
    rows = list(points.values())
    for row in rows:
        mbu, read, copy = (_number(row.get(name)) for name in ("mbu", "read", "copy"))
        row["of_copy"] = mbu * read / copy if copy else None
        row["why"] = None if _number(row.get("tok_s")) else row.get("stopped")
    return rows


def missed(name: str, results: Mapping[str, Any]) -> bool:
    """Whether there is nothing of an experiment, or no way of it reached its goal in all rows."""
    if name not in results or not results[name]["rows"]:
        return True
    goal = EXPERIMENTS[name].goal
    ways = [found["rows"] for each, found in results.items() if each == name or each.startswith(f"{name}-")]
    return goal is not None and not any(
        rows and all(_number(row.get(goal[0])) >= goal[1] for row in rows) for rows in ways
    )


def _number(value: Any) -> float:
    """A figure, 0 for one that has no value."""
    return float(value) if isinstance(value, int | float) else 0.0


def table(name: str, experiment: Experiment, rows: Sequence[Mapping[str, Any]]) -> Table:
    goal = f"; goal: {experiment.goal[0]} >= {experiment.goal[1]} %" if experiment.goal else ""
    shown = Table(title=f"{name}: {experiment.about}{goal}", title_justify="left", box=SIMPLE)
    columns = [column for column in COLUMNS if any(row.get(column) is not None for row in rows)]
    for column in columns:
        shown.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        shown.add_row(*(_text(row.get(column)) for column in columns))
    return shown


def _text(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def stored() -> dict[str, Any]:
    """What earlier calls found."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def store(results: Mapping[str, Any]) -> None:
    """Write all that is known, whole or not at all."""
    RESULTS.parent.mkdir(exist_ok=True)
    fresh = RESULTS.with_suffix(".part")
    fresh.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    fresh.replace(RESULTS)


def is_done(found: Mapping[str, Any] | None, experiment: Experiment) -> bool:
    """Whether an experiment was run as it is asked for now, and gave rows."""
    asked = " ".join(["archlab", *command_of(experiment, False)])
    if found is None or "error" in found["document"]:
        return False
    return bool(found["rows"]) and found["document"]["command"] == asked


def run(names: Sequence[str], results: dict[str, Any], seconds: float, small: bool, console: Console) -> None:
    """Run experiments one by one into `results`, until the time is over."""
    end = time.monotonic() + seconds
    for name in names:
        left = end - time.monotonic()
        if left <= 0:
            return
        experiment = EXPERIMENTS[name]
        document = bench(command_of(experiment, small), left)
        rows = rows_of(document)
        results[name] = {"about": experiment.about, "goal": experiment.goal, "rows": rows, "document": document}
        console.print(table(name, experiment, rows) if rows else f"{name}: {document.get('error')}")
        if not small:
            store(results)


def main() -> None:
    """Run the experiments and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--again", action="store_true", help="also what was found before")
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call")
    parser.add_argument("--small", action="store_true", help="a small model, nothing is written")
    asked = parser.parse_args()
    results: dict[str, Any] = {} if asked.small else stored()
    again = asked.small or asked.again
    names = [name for name in asked.only if again or not is_done(results.get(name), EXPERIMENTS[name])]
    run(names, results, asked.minutes * 60, asked.small, Console(width=120))
    short = [name for name in asked.only if missed(name, results)]
    if short and not asked.small:
        sys.exit(f"not done, or short of their goals: {', '.join(short)}")


if __name__ == "__main__":
    main()
