"""The whole bench on a tiny model: its figures, and what becomes of a phase that cannot be timed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
import torch

from archlab.bench import phases
from archlab.bench import run as bench
from archlab.bench.ceilings import Ceilings
from archlab.bench.compiled import compile_in_place
from archlab.bench.device import Cpu, pick
from archlab.bench.listener import Listener
from archlab.bench.phases import PHASES, Run
from archlab.components.ffn.spec import FFN, FeedForward
from archlab.cost.kv import kv_cache
from archlab.cost.params import parameters
from archlab.decoder.build import build
from archlab.decoder.cache import KVCache
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError, RequestError
from archlab.frozen import replace, values_of
from archlab.record import Figure
from archlab.subjects import meant
from archlab.units import show_bytes
from archlab.workload import BenchOptions, Workload

ALLOCATION_MESSAGE = (
    "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "1099511627776 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.fixture(scope="module")
def figures(spec: DecoderSpec, workload: Workload, options: BenchOptions) -> dict[str, Figure]:
    return bench.run(spec, workload, replace(options, seconds=0.1, ceilings=True), "cpu")[0]


def test_every_phase_has_its_figures(figures: dict[str, Figure]) -> None:
    assert set(figures) == {
        *("prefill_tok_s", "prefill_seconds", "prefill_warmup_seconds", "prefill_peak_bytes"),
        *("decode_tok_s", "decode_seconds_per_token", "decode_warmup_seconds", "decode_peak_bytes"),
        *("train_tok_s", "train_seconds_per_step", "train_warmup_seconds", "train_peak_bytes"),
        *(f"{phase}_{what}" for phase in PHASES for what in ("bound_tok_s", "mfu", "mbu")),
        *(f"ceiling_{what}.{phase}" for phase in PHASES for what in ("read", "copy")),
        *("kv_allocated_bytes", "ceiling_matmul"),
    }
    for name, figure in figures.items():
        kind = "bound" if name.endswith("bound_tok_s") else "measured"
        assert (figure.kind, figure.status, figure.reason) == (kind, "ok", None)
        assert figure.value is not None
        assert figure.value > 0


def test_every_figure_that_a_run_leaves_is_explained(figures: dict[str, Figure]) -> None:
    for name in figures:
        key = meant(name)
        assert key is not None, name
        assert name.endswith(key) or name.startswith(key)


class Silent(FeedForward):
    """A choice of a third party that does not say what training keeps."""

    on_tape = FFN.on_tape


def silent(spec: DecoderSpec) -> DecoderSpec:
    """The spec with such an FFN in every layer."""
    ffn = Silent(**values_of(spec.layers[0].ffn))
    return replace(spec, layers=(replace(spec.layers[0], ffn=ffn),) * spec.n_layers)


def test_a_choice_that_does_not_say_what_it_keeps_is_timed_without_an_estimate(
    spec: DecoderSpec, workload: Workload, options: BenchOptions, pretend: Any
) -> None:
    made, _ = bench.run(silent(spec), workload, options, pretend(seconds=0.5))
    assert {made[f"{phase}_tok_s"].status for phase in PHASES} == {"ok"}


def test_spreads_are_in_order(figures: dict[str, Figure], options: BenchOptions) -> None:
    for name, figure in figures.items():
        if name.endswith(("tok_s", "_seconds", "per_token", "per_step")) and not re.search("warmup|bound", name):
            assert None not in (figure.low, figure.high)
            assert figure.low <= figure.value <= figure.high, name
            assert 1 <= figure.repeats <= options.max_repeats  # fewer than wanted where the machine is busy
            assert all(words in figure.how for words in ("fp32 on cpu", "to warm up", "stopped:", "2 x "))


def test_what_was_found_out_while_it_ran_stands_by_name_and_in_words(figures: dict[str, Figure]) -> None:
    known = {f"{phase}_tok_s": {"products", "attention", "stopped"} for phase in PHASES}
    known |= {f"{phase}_bound_tok_s": {"binds"} for phase in PHASES}
    known |= {f"ceiling_{what}.{phase}": {"what"} for phase in PHASES for what in ("read", "copy")}
    for name, facts in (known | {"ceiling_matmul": {"what"}}).items():
        assert set(figures[name].facts or {}) == facts
        assert all(fact in figures[name].how for fact in (figures[name].facts or {}).values())


def test_g03_rates_are_tokens_not_sequences(
    spec: DecoderSpec, workload: Workload, options: BenchOptions, pretend: Any
) -> None:
    figures, _ = bench.run(spec, workload, options, pretend(seconds=0.5))
    rates = {phase: figures[f"{phase}_tok_s"].value for phase in PHASES}
    assert rates == {"prefill": 2 * 12 / 0.5, "decode": 2 * 5 / 0.5, "train": 2 * 12 / 0.5}
    assert figures["prefill_seconds"].value == 0.5
    assert figures["decode_seconds_per_token"].value == 0.5 / 5
    assert figures["train_seconds_per_step"].value == 0.5


def test_the_cache_is_as_large_as_on_paper(figures: dict[str, Figure], spec: DecoderSpec, workload: Workload) -> None:
    assert figures["kv_allocated_bytes"].value == kv_cache(spec, 2, 17, "fp32").bytes


@pytest.mark.parametrize("phases", [("decode",), ("train", "prefill"), ()])
def test_only_the_phases_asked_for_are_timed(
    phases: tuple[str, ...], spec: DecoderSpec, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not phases:
        monkeypatch.setattr(bench, "build", lambda *args, **kwargs: pytest.fail("nothing was to be built"))
    figures, _ = bench.run(
        spec, workload, BenchOptions(phases=phases, seconds=0.1, max_repeats=1, min_repeats=1, ceilings=False), "cpu"
    )
    assert {name.split("_")[0] for name in figures} - {"kv", "ceiling"} == set(phases)
    assert ("kv_allocated_bytes" in figures) == bool({"prefill", "decode"} & set(phases))


def test_graphs_are_for_cuda(spec: DecoderSpec, workload: Workload, options: BenchOptions, pretend: Any) -> None:
    figures, _ = bench.run(spec, workload, replace(options, graphs=True), pretend(seconds=0.5))
    assert {phase: figures[f"{phase}_tok_s"].status for phase in PHASES} == {
        "prefill": "ok", "decode": "invalid", "train": "ok"
    }  # fmt: skip
    assert figures["decode_tok_s"].reason == "CUDA graphs are for cuda, not for cpu"


def test_graphs_are_no_compilers(options: BenchOptions) -> None:
    with pytest.raises(ConfigError, match="graphs: true is given beside compile = true"):
        replace(options, graphs=True, compile=True)


def test_switches_are_for_the_compiler(options: BenchOptions) -> None:
    with pytest.raises(ConfigError, match="inductor: switches are given, and compile is false"):
        replace(options, inductor=("max_autotune",))


@pytest.mark.parametrize(("name", "meant"), [("max_autotun", "max_autotune"), ("max_autotune_gemm_backends", None)])
def test_what_is_no_switch_is_refused_before_anything_is_built(
    name: str, meant: str | None, spec: DecoderSpec, workload: Workload, options: BenchOptions, pretend: Any
) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' is no switch") as refused:
        bench.run(spec, workload, replace(options, compile=True, inductor=("combo_kernels", name)), pretend(0.5))
    assert meant is None or refused.value.nearest == meant


@pytest.mark.parametrize(("kind", "graphs"), [("cpu", {}), ("cuda", {"triton.cudagraphs": True})])
def test_switches_reach_the_compiler(
    kind: str, graphs: dict[str, bool], spec: DecoderSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import compile_fx

    seen: list[dict[str, Any]] = []

    def noted(graph: Any, inputs: Any, config_patches: dict[str, Any], **_: Any) -> Any:
        seen.append(config_patches)
        return graph.forward

    decoder, device = build(spec, dtype="fp32").eval(), Cpu()
    monkeypatch.setattr(compile_fx, "compile_fx", noted)
    monkeypatch.setattr(type(device), "kind", kind)
    compile_in_place(decoder, device, None, ["combo_kernels"])
    with torch.no_grad():
        decoder(torch.zeros(1, 4, dtype=torch.int64))
    assert seen == [{"combo_kernels": True, **graphs}]


@pytest.mark.gpu
def test_a_graph_a_step_is_timed(spec: DecoderSpec, workload: Workload, options: BenchOptions) -> None:
    figures, _ = bench.run(spec, workload, replace(options, graphs=True, phases=("decode",)), "cuda")
    assert figures["decode_tok_s"].status == "ok"
    assert "each step one CUDA graph" in figures["decode_tok_s"].how


def test_progress_names_each_phase_in_turn(spec: DecoderSpec, workload: Workload, options: BenchOptions) -> None:
    seen: list[tuple[str, float]] = []
    listener = Listener()
    listener.progress = lambda phase, share: seen.append((phase, share))
    bench.run(spec, workload, options, "cpu", listener=listener)
    assert list(dict.fromkeys(phase for phase, _ in seen)) == ["build", "prefill", "decode", "train"]
    for phase in PHASES:
        shares = [done for name, done in seen if name == phase]
        assert (shares[0], shares[-1], shares) == (0.0, 1.0, sorted(shares))


@pytest.mark.parametrize("takes_turns", [False, True])
def test_between_turns_a_run_is_made_that_is_not_timed(
    takes_turns: bool, spec: DecoderSpec, workload: Workload, options: BenchOptions, pretend: Any
) -> None:
    listener, device, calls = Listener(), pretend(), []
    listener.takes_turns = takes_turns
    whole = device.time
    device.time = lambda call: calls.append(call) or whole(call)
    options = replace(options, phases=("prefill",), seconds=60.0, precision=1e-9)
    figure = bench.run(spec, workload, options, device, listener=listener)[0]["prefill_tok_s"]
    warm = int(re.search(r"after (\d+) to warm up", figure.how)[1])
    assert figure.repeats == 3
    assert len(calls) == warm + (6 if takes_turns else 3)
    assert ("in turns: each run of up to 1 s after one that is not timed" in figure.how) is takes_turns


class Busied(Ceilings):
    """Ceilings that are far too low until they are forgotten; the working sets that they are asked for."""

    asked: ClassVar[list[int]] = []
    rate = 1.0

    def forget(self) -> None:
        self.rate = 1e18

    def matmul(self, dtype: str) -> Figure:
        return Figure(self.rate, "FLOP/s", "measured", "")

    def read(self, working_set: int) -> Figure:
        self.asked.append(working_set)
        return Figure(self.rate, "B/s", "measured", "")

    copy = read


def test_a_ceiling_that_a_phase_beat_is_measured_once_more_and_the_better_counts(
    spec: DecoderSpec, workload: Workload, options: BenchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "Ceilings", Busied)
    figures, _ = bench.run(spec, workload, replace(options, ceilings=True, phases=("prefill",)), "cpu")
    assert figures["ceiling_matmul"].value == figures["ceiling_read.prefill"].value == 1e18
    assert figures["prefill_mfu"].status == figures["prefill_mbu"].status == "ok"


def test_a_decode_step_goes_through_the_weights_once(
    spec: DecoderSpec, workload: Workload, options: BenchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads are measured over one step's working set: all weights (the head is tied), and a little of a cache."""
    monkeypatch.setattr(bench, "Ceilings", Busied)
    monkeypatch.setattr(Busied, "asked", [])
    bench.run(spec, workload, replace(options, ceilings=True, phases=("decode",)), "cpu")
    weights = 4 * parameters(spec).total
    assert all(weights <= size < 1.5 * weights for size in Busied.asked)
    assert Busied.asked


def test_peaks_are_reset_before_each_phase(
    spec: DecoderSpec, workload: Workload, options: BenchOptions, pretend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = pretend()
    done: list[str] = []
    monkeypatch.setattr(device, "reset_peaks", lambda: done.append("reset"))
    listener = Listener()
    listener.figures = lambda made: done.append(next(iter(made)))
    bench.run(spec, workload, options, device, listener=listener)
    assert done == ["reset", "prefill_tok_s", "reset", "decode_tok_s", "reset", "train_tok_s"]


def test_room_is_asked_for_the_copy_of_a_tied_head_that_may_be_packed(
    make: Callable[..., DecoderSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = Workload(batch=2, prompt=12, new=5, dtype="bf16")
    for head, copied in (("tied", 2 * 61 * 32), ("untied", 0)):
        needed = []
        for has in (True, False):
            monkeypatch.setattr(phases, "has_onednn", lambda dtype, has=has: has)
            needed.append(bench.memory_of("decode", make(head={"choice": head}), workload, Cpu()))
        assert needed[0] - needed[1] == copied


def test_nothing_is_built_where_inference_does_not_fit(
    spec: DecoderSpec, workload: Workload, options: BenchOptions, pretend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "build", lambda *args, **kwargs: pytest.fail("it was to be left unbuilt"))
    figures, _ = bench.run(spec, workload, options, pretend(memory=1000))
    assert len(figures) == 12
    for figure in figures.values():
        assert (figure.value, figure.status) == (None, "too_large")
        assert figure.reason.startswith("needs ")
        assert figure.reason.endswith("cpu has 1,000 B free")


def test_training_alone_may_not_fit(spec: DecoderSpec, workload: Workload, options: BenchOptions, pretend: Any) -> None:
    memory = bench.memory_of("train", spec, workload, Cpu()) - 1
    assert memory > bench.memory_of("prefill", spec, workload, Cpu())
    figures, _ = bench.run(spec, workload, options, pretend(memory=memory))
    status = {phase: figures[f"{phase}_tok_s"].status for phase in PHASES}
    assert status == {"prefill": "ok", "decode": "ok", "train": "too_large"}


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError(ALLOCATION_MESSAGE),
        MemoryError(),
    ],
)
def test_out_of_memory_is_a_row_and_the_next_phase_runs(
    error: BaseException,
    spec: DecoderSpec,
    workload: Workload,
    options: BenchOptions,
    pretend: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(bench.PHASES, "prefill", failing(error))
    device = pretend(memory=2**30)
    needed = show_bytes(bench.memory_of("prefill", spec, workload, device))
    figures, _ = bench.run(spec, workload, options, device)
    for name in ("tok_s", "seconds", "peak_bytes", "warmup_seconds"):
        figure = figures[f"prefill_{name}"]
        assert (figure.value, figure.status) == (None, "oom")
        assert figure.reason.startswith("out of memory")
        assert figure.reason.endswith(f"needs {needed} (estimated), cpu has 1.00 GiB free")
    assert figures["decode_tok_s"].value > 0
    assert figures["train_tok_s"].value > 0
    assert device.releases >= 3


def test_a_real_allocation_that_fails_is_out_of_memory(
    spec: DecoderSpec, workload: Workload, options: BenchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bench.PHASES, "decode", failing(lambda: torch.empty(2**50)))
    figures, _ = bench.run(spec, workload, options, "cpu")
    assert {phase: figures[f"{phase}_tok_s"].status for phase in PHASES} == {
        "prefill": "ok",
        "decode": "oom",
        "train": "ok",
    }


def test_out_of_memory_while_building_is_told_of_every_phase(
    spec: DecoderSpec, workload: Workload, options: BenchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError(ALLOCATION_MESSAGE)

    monkeypatch.setattr(bench, "build", build)
    figures, _ = bench.run(spec, workload, options, "cpu")
    assert {figure.status for figure in figures.values()} == {"oom"}
    assert len(figures) == 12


def test_what_torch_cannot_do_fails_that_phase_alone(
    spec: DecoderSpec, workload: Workload, options: BenchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bench.PHASES, "train", failing(RuntimeError("\"addmm\" not implemented for 'Half'\nmore")))
    figures, _ = bench.run(spec, workload, options, "cpu")
    assert (figures["train_tok_s"].status, figures["train_tok_s"].reason) == (
        "failed",
        "\"addmm\" not implemented for 'Half'",
    )
    assert figures["prefill_tok_s"].status == "ok"


def test_a_mistake_in_the_code_is_not_hidden(
    spec: DecoderSpec, workload: Workload, options: BenchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bench.PHASES, "train", failing(TypeError("a bug")))
    with pytest.raises(TypeError):
        bench.run(spec, workload, options, "cpu")


@pytest.mark.parametrize(("emulated", "dtype"), [(True, "fp32"), (False, "bf16")])
def test_an_open_dtype_is_the_devices_own(
    emulated: bool, dtype: str, spec: DecoderSpec, pretend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretend, "supports", lambda self, asked: not (emulated and asked == "bf16"))
    workload, options = (
        Workload(prompt=6, new=2),
        BenchOptions(seconds=0.1, max_repeats=1, min_repeats=1, phases=("prefill",), ceilings=False),
    )
    figures, environment = bench.run(spec, workload, options, pretend())
    assert f"; {dtype} on cpu;" in figures["prefill_tok_s"].how
    assert environment["timed_dtype"] == dtype
    assert figures["kv_allocated_bytes"].value == kv_cache(spec, 1, 8, dtype).bytes


@pytest.mark.parametrize("head", ["classification", "regression"])
def test_a_task_head_decodes_nothing_and_that_is_no_failure(
    head: str, with_head: Callable[[str], DecoderSpec], workload: Workload, options: BenchOptions
) -> None:
    figures, _ = bench.run(with_head(head), workload, options, "cpu")
    assert figures["prefill_tok_s"].value > 0
    assert figures["train_tok_s"].value > 0
    skipped = figures["decode_tok_s"]
    assert (skipped.value, skipped.status) == (None, "ok")
    assert skipped.reason == f"not timed: a {head} head makes no tokens"


def test_the_environment_names_the_machine(spec: DecoderSpec, workload: Workload) -> None:
    _, environment = bench.run(spec, workload, BenchOptions(phases=()), "cpu")
    assert environment["device"] == "cpu"
    assert environment["torch"] == torch.__version__
    assert environment["threads"] == torch.get_num_threads()
    assert environment["device_name"] == environment["cpu"]
    assert {"python", "os", "cpus", "load_average", "cpus_used_elsewhere", "warning"} <= set(environment)


def test_a_device_that_is_not_there_is_refused(spec: DecoderSpec, workload: Workload, options: BenchOptions) -> None:
    with pytest.raises(RequestError, match="'quantum' is not available here; valid: auto, cpu"):
        bench.run(spec, workload, options, "quantum")


def failing(what: BaseException | Callable[[], object]) -> Any:
    """A phase whose run raises `what`, or calls it."""

    def call() -> object:
        if isinstance(what, BaseException):
            raise what
        return what()

    @contextmanager
    def phase(*args: Any) -> Iterator[Run]:
        yield Run(call, 1, 1, "nothing")

    return phase


@pytest.mark.gpu
@pytest.mark.parametrize("switches", [("combo_kernels",), ("combo_kernels", "coordinate_descent_tuning")])
@torch.no_grad()
def test_a_step_compiled_with_switches_is_the_eager_one(spec: DecoderSpec, switches: tuple[str, ...]) -> None:
    decoder = build(spec, "cuda", "fp32", seed=1).eval()
    ids = torch.arange(16, device="cuda")[None]
    wanted = decoder(ids)
    compile_in_place(decoder, pick("cuda"), None, switches)
    cache = KVCache(spec, 1, 16, device="cuda")
    found = torch.cat([decoder(step, cache).clone() for step in ids.split(1, 1)], 1)
    assert torch.allclose(found, wanted, rtol=0, atol=1e-4)
