"""What a device holds of the parameters in training: weights, gradients, optimizer state, by recipe and ZeRO stage."""

from __future__ import annotations

from collections import Counter

from archlab.cost.optimizers import Rates
from archlab.cost.parallel import Split, Stage
from archlab.decoder.spec import DecoderSpec, LayerSpec
from archlab.frozen import Frozen
from archlab.written import named

EXPERTS = "experts."
"""How the names of routed experts' tensors start."""

Roles = Counter[tuple[str, bool]]
"""Parameters by role, those of routed experts apart."""


class Held(Frozen):
    """Parameters of one kind on a device. role: `matrices`, `tables` or `vectors`, see `optimizers.Rates`.

    ranks: of data parallelism that hold the same ones, which ZeRO can shard them over.
    """

    role: str
    count: int
    ranks: int

    def here(self, sharded: bool) -> int:
        """Those of a rank, which are its share where they are sharded."""
        return -(-self.count // self.ranks) if sharded and self.ranks > 1 else self.count


def state(stage: Stage, split: Split, rates: Rates) -> dict[str, int]:
    """Bytes of the weights, of the gradients and of the optimizer's state on a device."""
    groups = held(stage, split)
    return {
        "weights": sum(rates.weights * group.here(split.zero >= 3) for group in groups),
        "gradients": sum(rates.gradients * group.here(split.zero >= 2) for group in groups),
        "optimizer": sum(rates.of_optimizer(group.role, group.here(split.zero >= 1)) for group in groups),
    }


def held(stage: Stage, split: Split) -> list[Held]:
    """The parameters of a device of this stage."""
    counts = outer_roles(stage)
    for layer, times in stage.spec.layer_counts:
        for kind, count in layer_roles(layer).items():
            counts[kind] += count * times
    ranks = {False: split.dp, True: split.dp // split.ep}
    return [
        Held(role, named(count, f"expert_{role}" if routed else role), ranks[routed])
        for (role, routed), count in counts.items()
        if count
    ]


def outer_roles(stage: Stage) -> Roles:
    """Of what stands around the layers."""
    spec = stage.spec
    head = spec.head.params()
    tables = {
        "embedding": spec.vocab_size * spec.d_model,
        "positions": sum(sum(position.params().values()) for position, _ in spec.position_kinds),
        "lm_head": head.get("weight", 0),
    }
    norms = (spec.block.final_norm + spec.block.embedding_norm) * sum(spec.norm.params(spec.d_model).values())
    counts: Roles = Counter()
    counts["tables", False] = sum(count for part, count in tables.items() if stage.has(part))
    counts["vectors", False] = norms + (head.get("bias", 0) if stage.has("lm_head") else 0)
    return counts


def layer_roles(layer: LayerSpec) -> Roles:
    """Of one layer."""
    counts: Roles = Counter()
    counts["vectors", False] = len(layer.block.norm_names) * sum(layer.norm.params(layer.attention.d_model).values())
    for choice in (layer.attention, layer.ffn, *layer.beside.values()):
        matrices = choice.fan_in()
        for tensor, count in choice.params().items():
            counts["matrices" if tensor in matrices else "vectors", tensor.startswith(EXPERTS)] += count
    return counts


def gathered(spec: DecoderSpec, split: Split, rates: Rates) -> int:
    """What ZeRO puts together while the largest layer runs: its gradients (2 and 3), and its weights (3)."""
    if split.dp == 1:
        return 0
    largest = max(sum(layer_roles(layer).values()) for layer, _ in spec.layer_kinds)
    return largest * (rates.gradients * (split.zero >= 2) + rates.weights * (split.zero >= 3))
