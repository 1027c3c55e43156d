"""The attention that ran is the one a profiler saw; a named one that cannot do it is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from archlab.bench import run as bench
from archlab.bench.backends import Unable, check, seen
from archlab.decoder.spec import DecoderSpec
from archlab.frozen import replace
from archlab.workload import BenchOptions, Workload

LATENT = {"attention": {"choice": "mla", "n_heads": 4, "kv_rank": 256, "nope_dim": 64, "rope_dim": 32}}
WORKLOAD = Workload(batch=1, prompt=12, new=2, dtype="fp32")


def timed(spec: DecoderSpec, backend: str | None, phases: tuple[str, ...] = ("prefill",)) -> Any:
    options = BenchOptions(phases, seconds=0.01, min_repeats=1, max_repeats=1, backend=backend, ceilings=False)
    return bench.run(spec, WORKLOAD, options, "cpu")


def attention(**options: Any) -> dict[str, Any]:
    return {"attention": {"choice": "gqa", "n_heads": 4, "n_kv_heads": 2, **options}}


@pytest.mark.parametrize(
    ("asked", "changes", "ran", "evidence"),
    [
        (None, {}, "flash", "aten::_scaled_dot_product_flash_attention_for_cpu"),
        ("sdpa", {}, "flash", "aten::_scaled_dot_product_flash_attention_for_cpu"),
        ("flash", attention(window=5), "flash", "aten::_scaled_dot_product_flash_attention_for_cpu"),
        ("math", {}, "math", "aten::_scaled_dot_product_attention_math"),
        (None, attention(logit_cap=50.0), "math", "aten::_softmax"),
        ("math", attention(logit_cap=50.0), "math", "aten::_softmax"),
        (None, {"position": {"choice": "alibi"}}, "flash", "aten::_scaled_dot_product_flash_attention_for_cpu"),
        ("flash", {"position": {"choice": "t5"}}, "flash", "aten::_scaled_dot_product_flash_attention_for_cpu"),
        ("flash", attention(sinks=True), "flash", "aten::_scaled_dot_product_flash_attention_for_cpu"),
        ("flex", {}, "flex", "VmappedVmappedVmappedVmappedModIndex"),
        ("flex", attention(window=5, sinks=True, logit_cap=50.0), "flex", "VmappedVmappedVmappedVmappedModIndex"),
        ("flex", {"position": {"choice": "t5"}}, "flex", "VmappedVmappedVmappedVmappedModIndex"),
        (None, attention(backend="flex"), "flex", "VmappedVmappedVmappedVmappedModIndex"),
    ],
)
def test_the_backend_told_is_the_one_that_ran(
    asked: str | None, changes: dict[str, Any], ran: str, evidence: str, make: Callable[..., DecoderSpec]
) -> None:
    figures, environment = timed(make(**changes), asked)
    assert environment["attention"] == {"prefill": ran}
    assert f"attention: {ran} ({evidence})" in figures["prefill_tok_s"].how


def test_every_phase_tells_of_its_own(make: Callable[..., DecoderSpec]) -> None:
    phases, plain = ("prefill", "decode", "train"), make(dropout={"choice": "none"})
    assert timed(plain, None, phases)[1]["attention"] == dict.fromkeys(phases, "flash")


def test_dropout_on_the_weights_trains_on_another_backend(make: Callable[..., DecoderSpec]) -> None:
    """torch's fused attention for the CPU drops nothing; it hands over without a word."""
    dropped = make(dropout={"choice": "classic", "p": 0.1})
    assert timed(dropped, None, ("prefill", "train"))[1]["attention"] == {"prefill": "flash", "train": "math"}
    refused = timed(dropped, "flash", ("prefill", "train"))[0]
    assert refused["prefill_tok_s"].status == "ok"
    assert refused["train_tok_s"].status == "invalid"


@pytest.mark.parametrize(
    ("changes", "ran"),
    [
        ({"position": {"choice": "alibi"}}, "flash"),
        ({"position": {"choice": "t5"}}, "math"),
        (attention(sinks=True), "math"),
    ],
)
def test_a_mask_that_is_learned_trains_on_the_explicit_softmax(
    changes: dict[str, Any], ran: str, make: Callable[..., DecoderSpec]
) -> None:
    """torch's fused attention for the CPU gives a mask no gradient; one that wants none is as good as none."""
    composed = make(dropout={"choice": "none"}, **changes)
    assert timed(composed, None, ("train",))[1]["attention"] == {"train": ran}
    refused = timed(composed, "flash", ("train",))[0]["train_tok_s"]
    assert (refused.status == "invalid") == (ran == "math")


def test_layers_that_differ_are_told_apart(make: Callable[..., DecoderSpec]) -> None:
    mixed = make(layers=[{}, {"attention": {"logit_cap": 50.0}}])
    assert timed(mixed, None)[1]["attention"] == {"prefill": "flash, math"}


@pytest.mark.parametrize(
    ("asked", "changes", "reason"),
    [
        ("flash", attention(logit_cap=50.0), "flash attention cannot stand in for the explicit softmax: logit_cap 50"),
        ("sdpa", attention(logit_cap=50.0), "sdpa attention cannot stand in"),
        ("sdpa", attention(backend="math"), "model.attention.backend=math asks for it"),
        (
            "sdpa",
            attention(backend="flex"),
            "sdpa attention cannot stand in for flex attention: model.attention.backend=",
        ),
        (
            "math",
            attention(backend="flex"),
            "math attention cannot stand in for flex attention: model.attention.backend=",
        ),
        ("efficient", {}, "efficient attention runs on CUDA only, not on cpu"),
        ("cudnn", {}, "cudnn attention runs on CUDA only"),
    ],
)
def test_d10_a_named_backend_that_cannot_do_it_is_refused_with_the_reason(
    asked: str, changes: dict[str, Any], reason: str, make: Callable[..., DecoderSpec]
) -> None:
    figure = timed(make(**changes), asked)[0]["prefill_tok_s"]
    assert (figure.value, figure.status) == (None, "invalid")
    assert figure.reason.startswith(reason) or reason in figure.reason


def test_flex_attention_that_was_named_does_not_train_on_a_cpu(make: Callable[..., DecoderSpec]) -> None:
    plain = make(dropout={"choice": "none"})
    figures = timed(plain, "flex", ("prefill", "decode", "train"))[0]
    assert [figures[f"{phase}_tok_s"].status for phase in ("prefill", "decode", "train")] == ["ok", "ok", "invalid"]
    assert figures["train_tok_s"].reason == "flex attention cannot do this: it has no backward pass on cpu"
    unnamed = make(dropout={"choice": "none"}, **attention(backend="flex"))
    assert timed(unnamed, None, ("prefill", "train"))[1]["attention"] == {"prefill": "flex", "train": "math"}


@pytest.mark.parametrize(
    ("phase", "changes", "options", "reason"),
    [
        ("train", {}, {}, None),
        ("train", {"dropout": {"choice": "classic", "p": 0.1}}, {}, "it drops no weights"),
        ("prefill", {"dropout": {"choice": "classic", "p": 0.1}}, {}, None),
        ("decode", {"d_model": 32}, {}, "its kernels take heads of 16 to 256 features, not of 8 and 8"),
        ("prefill", LATENT, {}, None),
        ("train", LATENT, {"compile": True}, None),
        ("decode", LATENT, {}, "its kernels take heads of 16 to 256 features, not of 288 and 256"),
        ("prefill", LATENT, {"compile": True}, None),
        ("decode", {"attention": {**LATENT["attention"], "cache": "expanded"}}, {}, None),
    ],
)
def test_what_flex_attention_cannot_do_on_cuda_is_known_beforehand(
    phase: str, changes: dict[str, Any], options: dict[str, Any], reason: str | None, make: Callable[..., DecoderSpec]
) -> None:
    spec = make(**{"d_model": 256, "dropout": {"choice": "none"}, **changes}).on_backend("flex")
    with pytest.raises(Unable, match=reason) if reason else nullcontext():
        check(phase, spec, BenchOptions(backend="flex", **options), "bf16", "cuda:0")


def test_cuda_kernels_give_a_backend_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are called where no operator is left to see: older ones of torch on an H100, and CUDA graphs."""
    kernels = {
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>": "flash",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)": "efficient",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x128": "cudnn",
        "triton_tem_fused_flex_attention_0": "flex",
    }
    for name, backend in kernels.items():
        with monkeypatch.context() as patched:
            patched.setattr("archlab.bench.backends.profile", lambda name=name, **_: Profiled(name))
            assert seen(lambda: None, 1) == {backend: name}


class Profiled:
    def __init__(self, name: str) -> None:
        self.name = name
        self.kineto_results = self

    def __enter__(self) -> Profiled:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def events(self) -> list[Any]:
        return [type("Event", (), {"name": lambda _: self.name})()]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["flash", "math"])
def test_a_compiled_pass_runs_the_backend_that_was_named_whatever_was_compiled_before(
    first: str, make: Callable[..., DecoderSpec]
) -> None:
    """torch keeps what it compiled on the disk, for any process, under names that do not hold the backend."""
    options = BenchOptions(("prefill",), seconds=0.01, min_repeats=1, max_repeats=1, compile=True)
    workload = Workload(batch=1, prompt=16, new=2, dtype="fp32")
    shows = {"flash": {"prefill": "flash"}, "math": {"prefill": "not seen"}}  # compiled, its softmax has another name
    for backend in (first, *({"flash", "math"} - {first})):
        torch._dynamo.reset()  # as in a process of its own
        figures, found = bench.run(make(), workload, replace(options, backend=backend), "cpu")
        assert figures["prefill_tok_s"].status == "ok"
        assert found["attention"] == shows[backend]


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["flash", "efficient", "cudnn", "math", "flex"])
def test_each_backend_runs_where_it_was_named_on_a_gpu(backend: str, make: Callable[..., DecoderSpec]) -> None:
    spec = make(d_model=256, attention={"choice": "gqa", "n_heads": 4, "n_kv_heads": 4})
    options = BenchOptions(("prefill",), seconds=0.01, min_repeats=1, max_repeats=1, backend=backend)
    workload = Workload(batch=1, prompt=32, new=2, dtype="bf16")
    assert bench.run(spec, workload, options, "cuda")[1]["attention"] == {"prefill": backend}


@pytest.mark.gpu
def test_d10_flash_takes_no_mask_on_a_gpu(make: Callable[..., DecoderSpec]) -> None:
    spec = make(d_model=256, attention={"choice": "gqa", "n_heads": 4, "n_kv_heads": 4, "window": 5})
    options = BenchOptions(("prefill",), seconds=0.01, min_repeats=1, max_repeats=1, backend="flash")
    figures, _ = bench.run(spec, Workload(batch=1, prompt=32, new=2, dtype="bf16"), options, "cuda")
    assert figures["prefill_tok_s"].status == "invalid"
    assert "mask" in figures["prefill_tok_s"].reason
    assert torch.cuda.is_available()
