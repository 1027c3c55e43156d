"""How numbers are kept: bits an element, and the scales that a quantised tensor has beside them.

Two tables: what a KV cache may be kept in, and what weights may. Plain dtypes are those of `units.DTYPE_BYTES`.
"""

from __future__ import annotations

from collections.abc import Mapping

from archlab.components.attention.base import Attention, is_norm
from archlab.components.ffn.spec import FFN
from archlab.cost.params import parameters
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError, nearest
from archlab.frozen import Frozen
from archlab.units import DTYPE_ALIASES, DTYPE_BYTES


class Storage(Frozen):
    """One way to keep a tensor, whose rows (a head's features of a token, a matrix' inputs) are quantised in groups.

    bits: of an element. group: elements of a row that share scales; None: all of the row. shared: bits of the scale
    and the zero point of a group; 0 where there are none, or only one for the whole tensor. about: that, in words.
    """

    name: str
    bits: int
    group: int | None = None
    shared: int = 0
    about: str = ""

    @property
    def plain(self) -> bool:
        """Whether each element is a number of its own, without scales."""
        return self.name in DTYPE_BYTES

    def bytes(self, elements: int, row: int) -> int:
        """Bytes of so many elements in rows of `row`; a row's last group has its scales even where it is smaller."""
        groups = -(-row // self.group) if self.group else 1
        return -(-(elements * self.bits + elements // row * groups * self.shared) // 8)


def _table(*quantised: Storage) -> dict[str, Storage]:
    plain = [Storage(name, 8 * width) for name, width in DTYPE_BYTES.items()]
    return {storage.name: storage for storage in (*plain, *quantised)}


KV_STORAGE: Mapping[str, Storage] = _table(
    Storage("fp8", 8, about="one scale a tensor, not counted"),
    Storage("int8", 8, shared=16, about="an fp16 scale for each head and token"),
    Storage("int4", 4, 32, 32, "an fp16 scale and an fp16 zero point for each 32 elements of a head and token"),
)
"""What a cache may be kept in.

fp8 as vLLM keeps it by default (one k_scale and one v_scale a layer); int8 symmetric by token and head, as vLLM's
int8_per_token_head (there the scale is fp32); int4 in groups of 32 along the head, the 20 bytes of llama.cpp's q4_1,
and of values in KIVI (Liu et al. 2024, section 4).
"""

WEIGHT_STORAGE: Mapping[str, Storage] = _table(
    Storage("fp8", 8, about="one scale a tensor, not counted"),
    Storage("int8", 8, shared=16, about="an fp16 scale for each output row"),
    Storage("int4", 4, 128, 20, "an fp16 scale and a 4-bit zero point for each 128 inputs of a row"),
)
"""What weights may be kept in.

int8 by output row (Dettmers et al. 2022, LLM.int8(), section 2.1); int4 in groups of 128 as GPTQ (Frantar et al. 2022)
and AWQ (Lin et al. 2023) files have them: qweight, fp16 scales, zeros packed like the weights.
"""

KEPT = KV_STORAGE["bf16"]
"""How a quantised model's other tensors are kept."""

UNROUNDED = ("router", "shared.gate")
"""Matrices that quantised checkpoints leave alone: which expert is chosen hangs on small differences."""


def kv_storage(name: str, key: str = "dtype") -> Storage:
    """How a cache is kept, by name. Raises ConfigError under `key`."""
    return _find(name, key, KV_STORAGE, "a KV cache is kept in")


def weight_storage(name: str, key: str = "dtype") -> Storage:
    """How weights are kept, by name. Raises ConfigError under `key`."""
    return _find(name, key, WEIGHT_STORAGE, "weights are kept in")


def _find(name: str, key: str, table: Mapping[str, Storage], what: str) -> Storage:
    found = table.get(DTYPE_ALIASES.get(str(name).removeprefix("torch."), str(name)))
    if found is None:
        near = nearest(str(name), [*table, *DTYPE_ALIASES])
        raise ConfigError(key, f"{name!r} is nothing that {what}", value=name, valid=table, nearest=near)
    return found


STAYS = "embedding, positions, norms, biases, router and head stay in bf16"
"""Where weights are quantised: see `weight_bytes_by_part`."""


def weight_bytes(spec: DecoderSpec, storage: Storage) -> int:
    """Bytes of all weights: see `weight_bytes_by_part`."""
    return sum(weight_bytes_by_part(spec, storage).values())


def weight_bytes_by_part(spec: DecoderSpec, storage: Storage) -> dict[str, int]:
    """Bytes of the weights by part, unique tensors once, as `parameters` counts them.

    A plain dtype holds for all. A quantised one holds for the matrices of attention and FFN in the layers, experts
    too; embedding, positions, norms, biases, router and head stay in bf16, as in published GPTQ, AWQ and FP8
    checkpoints (their `modules_to_not_convert`, or `ignore`: lm_head and the routers; a tied head is the embedding).
    """
    outer = storage if storage.plain else KEPT
    found = {part: outer.bytes(count, 1) for part, count in parameters(spec).by_part.items()}
    if not storage.plain:
        found |= {"attention": 0, "ffn": 0}
        for layer, indices in spec.layer_kinds:
            for part, choice in (("attention", layer.attention), ("ffn", layer.ffn)):
                kept = {name: size for name, size in tensor_bytes(choice, storage).items() if not is_norm(name)}
                found[part] += len(indices) * sum(kept.values())
    return found


def tensor_bytes(choice: Attention | FFN, storage: Storage) -> dict[str, int]:
    """Bytes of one layer's attention or FFN by tensor, under the names of its `params`."""
    inputs = choice.fan_in()
    other = storage if storage.plain else KEPT
    return {
        name: other.bytes(count, 1) if name not in inputs or name in UNROUNDED else storage.bytes(count, inputs[name])
        for name, count in choice.params().items()
    }
