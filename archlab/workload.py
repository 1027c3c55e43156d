"""What a model is costed and timed at: a workload, and how long the clock may take."""

from __future__ import annotations

from collections.abc import Collection

from archlab.components.tape import RECOMPUTE
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError
from archlab.frozen import Frozen, replace
from archlab.options import option
from archlab.units import DTYPE_BYTES

PHASES = ("prefill", "decode", "train")
BACKENDS = ("sdpa", "flash", "efficient", "cudnn", "math", "flex")
"""What attention may be held to: any of torch's fused ones, one of them, torch's explicit softmax, flex attention."""


class Workload(Frozen):
    """`batch` sequences of `prompt` tokens, then `new` tokens each. A training step runs [batch, prompt] tokens.

    Without a dtype, figures on paper are for bf16, and the clock uses bf16 where the device computes in it and fp32
    where it only emulates it (a CPU without AVX-512 BF16 or AMX is some 50 times slower in bf16).
    """

    batch: int = option(1, "sequences at once", ge=1)
    prompt: int = option(256, "tokens of each prompt, and of each training sequence", ge=1)
    new: int = option(32, "tokens decoded after the prompt", ge=1)
    dtype: str | None = option(
        None, "of weights and arithmetic; null: bf16, timed in fp32 where bf16 is emulated", valid=tuple(DTYPE_BYTES)
    )
    kv_dtype: str | None = option(None, "of the cache; null: that of the weights", valid=tuple(DTYPE_BYTES))
    recompute: str = option(
        "none", "what training works out again: nothing, the attention's scores, or whole layers", valid=RECOMPUTE
    )
    logits: str = option("last", "of a timed prefill: of the last position, or of all", valid=("last", "all"))
    contexts: tuple[int, ...] | None = option(None, "contexts the KV table shows; null: a few up to the model's", ge=1)

    @property
    def weight_dtype(self) -> str:
        return self.dtype or "bf16"

    @property
    def cache_dtype(self) -> str:
        return self.kv_dtype or self.weight_dtype

    def timed_in(self, native: str) -> Workload:
        """The workload as the clock runs it, where `native` is the dtype that the device computes in."""
        return replace(self, dtype=self.dtype or native)

    @property
    def length(self) -> int:
        """Tokens of the whole run: prompt + new."""
        return self.prompt + self.new

    def kv_contexts(self, spec: DecoderSpec) -> tuple[int, ...]:
        """The contexts that the KV table shows."""
        if self.contexts is not None:
            return self.contexts
        return tuple(sorted({min(self.length, spec.reach), *few_contexts(spec)}))

    def check(self, spec: DecoderSpec, phases: Collection[str] = PHASES) -> None:
        """Raise ConfigError where the run is longer than the positions reach. Without decode, no token is new."""
        alone = bool(phases) and "decode" not in phases
        tokens = self.prompt if alone else self.length
        if spec.max_length is not None and tokens > spec.max_length:
            said = "prompt" if alone else f"prompt {self.prompt} + new {self.new} ="
            problem = f"{said} {tokens} tokens, but {spec.position.choice} positions end at {spec.max_length}"
            raise ConfigError("workload.prompt", problem, value=self.prompt)


def few_contexts(spec: DecoderSpec) -> tuple[int, ...]:
    """Contexts that models are named by, up to the model's own."""
    return (*(context for context in (2048, 8192, 32768, 131072) if context < spec.reach), spec.reach)


class BenchOptions(Frozen):
    """Which phases are timed, and when the clock stops: at the precision, or when the seconds are spent."""

    phases: tuple[str, ...] = option(PHASES, "what is timed; [] for nothing", valid=PHASES)
    seconds: float = option(0.6, "time budget of one phase, after warm-up", gt=0)
    warmup: int = option(1, "least runs of the very shape before the clock starts", ge=1)
    min_repeats: int = option(3, "least runs timed, even past the budget", ge=1)
    max_repeats: int = option(30, "most runs timed", ge=1)
    timeout: float = option(900.0, "seconds that a point may take in all; then it is ended and its row says so", gt=0)
    precision: float = option(0.02, "half-width of the median's 95 % interval at which to stop early", gt=0)
    ceilings: bool = option(True, "measure what the device can do at best beside each phase")
    compile: bool = option(False, "torch.compile the model first; its seconds are told apart")
    graphs: bool = option(False, "decode steps replayed as one CUDA graph, with a static KV cache; not with compile")
    inductor: tuple[str, ...] = option(
        (), "switches of torch._inductor.config to turn on where compile is true, such as max_autotune"
    )
    backend: str | None = option(None, "the attention that must run; null: whichever torch chooses", valid=BACKENDS)
    processes: int = option(
        6, "new ones of each point that takes turns, one after another; ratios have an interval over 6 or more", ge=1
    )

    def __post_init__(self) -> None:
        if self.max_repeats < self.min_repeats:
            problem = f"{self.max_repeats} must be >= min_repeats = {self.min_repeats}"
            raise ConfigError("max_repeats", problem, value=self.max_repeats)
        if self.graphs and self.compile:
            raise ConfigError("graphs", "true is given beside compile = true, which makes its own; set one", value=True)
        if self.inductor and not self.compile:
            raise ConfigError("inductor", "switches are given, and compile is false", value=self.inductor)

    def timed(self, spec: DecoderSpec) -> DecoderSpec:
        """The model that the clock runs: flex attention is for the model to say, other backends are for torch."""
        return spec.on_backend("flex") if self.backend == "flex" else spec
