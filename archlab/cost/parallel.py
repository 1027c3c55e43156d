"""One model on many devices: what each degree divides, and what one device holds, which is a smaller model.

dp   data parallel: each rank runs micro-batches of its own. It divides nothing, unless ZeRO shards over it:
     1 the optimizer's state, 2 the gradients too, 3 the weights too (Rajbhandari et al. 2020).
tp   tensor parallel: heads, FFN widths and the vocabulary (Shoeybi et al. 2019). Norms, the residual stream and a
     latent's down projections are on every device; with sequence parallelism each has its share of the stream's tokens
     (Korthikanti et al. 2022, section 4.2.2).
pp   pipeline parallel: runs of as many layers. With the schedule 1F1B the first stage holds the activations of as many
     micro-batches as there are stages, the last stage those of one (Narayanan et al. 2021).
ep   expert parallel: routed experts, over ranks of dp that hold the same of all else (Lepikhin et al. 2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from archlab.components.attention.base import divisors
from archlab.components.ffn.spec import MixtureOfExperts
from archlab.cost.shards import check_split, valid_split
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.errors import ConfigError, check_whole
from archlab.frozen import Frozen, replace

ZERO = (0, 1, 2, 3)


class Split(Frozen):
    """The degrees. sequence: whether tensor-parallel devices share the residual stream's tokens."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    zero: int = 0
    sequence: bool = False

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "pp", "ep"):
            check_whole(name, getattr(self, name))
        if self.zero not in ZERO:
            raise ConfigError("zero", f"there is no ZeRO stage {self.zero!r}", value=self.zero, valid=ZERO)

    @property
    def devices(self) -> int:
        return self.dp * self.tp * self.pp

    @property
    def ways(self) -> int:
        """Devices that share the tokens of the residual stream."""
        return self.tp if self.sequence else 1

    def check(self, spec: DecoderSpec, tokens: int) -> None:
        """Raise ConfigError where a degree does not split the model, or the `tokens` of a sequence, evenly."""
        kinds = [layer for layer, _ in spec.layer_kinds]
        experts = [layer.ffn.n_experts for layer in kinds if isinstance(layer.ffn, MixtureOfExperts)]
        check_split(spec, self.tp)
        if self.sequence:
            even = [tp for tp in valid_split(spec) if tokens % tp == 0]
            _check("tp", self.tp, {f"context = {tokens:,}": tokens}, even)
        _check("pp", self.pp, {f"n_layers = {spec.n_layers}": spec.n_layers}, divisors(spec.n_layers))
        if parted := _parted(spec, self.pp):
            whole = [pp for pp in divisors(spec.n_layers) if not _parted(spec, pp)]
            problem = f"{self.pp} stages part layer {parted[0]} from layer {parted[1]}, whose keys and values it reads"
            raise ConfigError("pp", problem, value=self.pp, valid=whole)
        if self.ep > 1 and not experts:
            raise ConfigError("ep", f"{spec.name} has no routed experts to share", value=self.ep, valid=[1])
        shared = {f"dp = {self.dp}": self.dp, f"n_experts = {math.gcd(*experts)}": math.gcd(*experts)}
        _check("ep", self.ep, shared, divisors(math.gcd(*shared.values())))

    def stages(self, spec: DecoderSpec) -> list[Stage]:
        """What a device of each pipeline stage holds."""
        each = spec.n_layers // self.pp
        held = {id(layer): layer.share(self.tp, self.ep) for layer, _ in spec.layer_kinds}
        layers = [held[id(layer)] for layer in spec.layers]
        position, head = spec.position.share(self.tp), spec.head.share(self.tp)
        vocab_size = -(-spec.vocab_size // self.tp) if self.tp > 1 else spec.vocab_size
        outer = replace(spec, position=position, head=head, vocab_size=vocab_size)
        runs = [tuple(layers[start : start + each]) for start in range(0, spec.n_layers, each)]
        return [Stage(_run(outer, run, index, self.pp), index, self.pp) for index, run in enumerate(runs)]


def _run(spec: DecoderSpec, layers: tuple[LayerSpec, ...], index: int, count: int) -> DecoderSpec:
    """The model of these layers only; the norms around all layers are the first stage's and the last one's."""
    block = spec.block
    entry, exit_ = block.embedding_norm and index == 0, block.final_norm and index == count - 1
    return replace(spec, layers=layers, block=replace(block, embedding_norm=entry, final_norm=exit_))


def _parted(spec: DecoderSpec, pp: int) -> tuple[int, int] | None:
    """A layer that reads another's keys and values across two of `pp` stages, and that one."""
    each = spec.n_layers // pp
    pairs = enumerate(spec.kv_sources)
    return next(((index, source) for index, source in pairs if index // each != source // each), None)


def _check(name: str, value: int, sizes: dict[str, int], valid: Iterable[int]) -> None:
    for what, size in sizes.items():
        if size % value:
            raise ConfigError(name, f"{value} does not divide {what}", value=value, valid=valid)


class Stage(Frozen):
    """What a device of one pipeline stage holds, as a smaller model: the embedding is the first stage's, the head the

    last one's.
    """

    spec: DecoderSpec
    index: int
    count: int

    @property
    def first(self) -> bool:
        return self.index == 0

    @property
    def last(self) -> bool:
        return self.index == self.count - 1

    def has(self, part: str) -> bool:
        """Whether it holds parameters of a part; a tied head on a stage of its own has a copy of the embedding."""
        if part == "embedding":
            return self.first or (self.last and self.spec.head.tied)
        if part == "positions":
            return self.first or self.spec.position.biases
        return self.last or part != "lm_head"

    @property
    def in_flight(self) -> int:
        """Micro-batches whose activations are held at once."""
        return self.count - self.index
