"""What the spec refuses, said by the field of the file that it came from: `rms_norm_eps`, not `model.norm.eps`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from archlab.errors import ConfigError
from archlab.interop.reader import ALIASES, Fields, show

NAMES = {
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "context": "max_position_embeddings",
    "norm.eps": "rms_norm_eps layer_norm_eps",
    "position.base": "rope_theta rotary_emb_base rope_local_base_freq",
    "position.fraction": "partial_rotary_factor rotary_pct rotary_dim qk_rope_head_dim head_dim num_attention_heads",
    "position.original_context": "original_max_position_embeddings",
    "attention.n_heads": "num_attention_heads",
    "attention.n_kv_heads": "num_key_value_heads",
    "attention.scale": "query_pre_attn_scalar attention_multiplier softmax_scale",
    "ffn.d_ff": "intermediate_size",
    "ffn.experts_per_token": "num_experts_per_tok num_experts",
    "ffn.n_experts": "num_experts",
    "ffn.n_groups": "n_group num_experts",
    "ffn.groups_per_token": "topk_group n_group",
    "ffn.group_score": "n_group num_experts",
    "ffn.scaling": "routed_scaling_factor",
    "ffn.shared_d_ff": "shared_expert_intermediate_size n_shared_experts",
    "ffn.expert.d_ff": "moe_intermediate_size intermediate_size",
    "ffn.expert.limit": "swiglu_limit",
    "head.logit_scale": "logit_scale logits_scaling",
    "block.branch_scale": "residual_multiplier",
    "block.embedding_scale": "embedding_multiplier",
}
"""An option of archlab, and the fields that it may come from. One that is not here has its own name there."""


def by_field(error: ConfigError, raw: Mapping[str, Any]) -> ConfigError:
    """The error with the key and the value that the file has. raw: the config of the language model."""
    option = re.sub(r"^model\.(layers\[\d+\]\.)?", "", error.key)
    names = NAMES.get(option, option.rpartition(".")[2]).split()
    found = [(block, key) for block in _blocks(Fields(raw)) for key in _present(block, names)]
    if not found:
        return ConfigError(names[0], error.problem, value=error.value, valid=error.valid)
    block, key = next((one for one in found if one[0].raw[one[1]] == error.value), found[0])
    problem = error.problem
    if block.raw[key] == error.value:
        problem = problem.replace(str(error.value), show(block.raw[key]), 1)
    return block.wrong(key, problem, value=block.raw[key], valid=error.valid)


def _present(block: Fields, names: list[str]) -> list[str]:
    return [key for name in names for key in (name, *ALIASES.get(name, ())) if block.raw.get(key) is not None]


def _blocks(fields: Fields) -> Iterator[Fields]:
    """These fields, and those that stand under a name."""
    yield fields
    for key, value in fields.raw.items():
        if isinstance(value, dict):
            yield from _blocks(Fields(value, fields.path(key)))
