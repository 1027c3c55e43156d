"""The mixture alone against transformers' own modules, weights copied, over random small configs.

Some of them score in float32 whatever the model's dtype. For the float64 comparison, float64 takes the place of
float32 while they run, so that both sides are held to the last digits.
"""

from __future__ import annotations

import importlib
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from archlab.components.ffn.module import MixtureOfExperts
from archlab.decoder.build import build
from archlab.decoder.resolve import resolve

pytestmark = pytest.mark.slow  # live, beside transformers

CLASSES = {
    "mixtral": ("MixtralConfig", "MixtralSparseMoeBlock"),
    "qwen2_moe": ("Qwen2MoeConfig", "Qwen2MoeSparseMoeBlock"),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeSparseMoeBlock"),
    "olmoe": ("OlmoeConfig", "OlmoeSparseMoeBlock"),
    "deepseek_v2": ("DeepseekV2Config", "DeepseekV2Moe"),
    "deepseek_v3": ("DeepseekV3Config", "DeepseekV3MoE"),
    "gpt_oss": ("GptOssConfig", "GptOssMLP"),
}
CASES = [(family, seed) for family in CLASSES for seed in range(4)]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def config_fields(family: str, seed: int) -> dict[str, Any]:
    """A random small config of the family; the seed's last two bits switch what it can switch."""
    draw, one, other = random.Random(f"{family}-{seed}"), bool(seed & 1), bool(seed & 2)
    groups = draw.choice([2, 3, 4])
    fields = {
        "hidden_size": draw.choice([8, 12, 20]),
        "num_attention_heads": 4,
        "intermediate_size": draw.choice([4, 6, 10]),
        "moe_intermediate_size": draw.choice([4, 6, 10]),
        "num_experts_per_tok": draw.randint(1, 4),
        "norm_topk_prob": one,
        "hidden_act": draw.choice(["silu", "gelu"]) if family in ("qwen3_moe", "olmoe") else "silu",
    }
    if family.startswith("deepseek"):
        limited = {"topk_method": "group_limited_greedy" if other else "greedy"} if family == "deepseek_v2" else {}
        fields |= {"n_routed_experts": 4 * groups, "n_shared_experts": draw.randint(1, 3), **limited}
        fields |= {
            "n_group": groups,
            "topk_group": draw.randint(1, groups),
            "routed_scaling_factor": draw.uniform(1, 9),
        }
    elif family in ("mixtral", "gpt_oss"):
        fields |= {"num_local_experts": draw.randint(4, 9)}
    else:
        fields |= {"num_experts": draw.randint(4, 9), "shared_expert_intermediate_size": draw.choice([5, 14])}
    return fields | ({"swiglu_limit": draw.uniform(0.5, 2)} if family == "gpt_oss" else {})


def ours(family: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The same as options of `ffn=moe`."""
    narrow = (
        fields["intermediate_size"] if family in ("mixtral", "olmoe", "gpt_oss") else fields["moe_intermediate_size"]
    )
    activation = {"silu": "swiglu", "gelu": "geglu"}[fields["hidden_act"]]
    experts = next(fields[key] for key in ("n_routed_experts", "num_local_experts", "num_experts") if key in fields)
    options = {"choice": "moe", "n_experts": experts, "experts_per_token": fields["num_experts_per_tok"]}
    options |= {"expert": {"choice": activation, "d_ff": narrow}, "normalise": fields["norm_topk_prob"]}
    if family in ("mixtral", "gpt_oss"):
        options["normalise"] = True
    if family == "gpt_oss":
        options["expert"] = {"choice": "swiglu_clamped", "d_ff": narrow, "bias": True, "limit": fields["swiglu_limit"]}
        options["router_bias"] = True
    if family == "qwen2_moe":
        options |= {"shared_d_ff": fields["shared_expert_intermediate_size"], "shared_gate": True}
    if family.startswith("deepseek"):
        options |= {"n_shared": fields["n_shared_experts"], "scaling": fields["routed_scaling_factor"]}
        options |= {"n_groups": fields["n_group"], "groups_per_token": fields["topk_group"]}
    if family == "deepseek_v3":
        options |= {"scoring": "sigmoid", "group_score": "top2", "balance_bias": True}
    if family == "deepseek_v2":  # transformers reads norm_topk_prob of this family and does not use it
        options |= {"normalise": False}
        options |= {"n_groups": 1, "groups_per_token": None} if fields["topk_method"] == "greedy" else {}
    return options


def theirs(family: str, fields: dict[str, Any]) -> nn.Module:
    """transformers' module with weights of about unit gain, in float64."""
    library = importlib.import_module(f"transformers.models.{family}")
    config = getattr(library, CLASSES[family][0])(**fields)
    config._experts_implementation = "eager"
    modeling = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    block: nn.Module = getattr(modeling, CLASSES[family][1])(config).double()
    generator = torch.Generator().manual_seed(1)
    for tensor in (*block.parameters(), *block.buffers()):
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        tensor.data.copy_(noise / fields["hidden_size"] ** 0.5)
    return block


NAMES = {
    "gate.weight": "router.weight",
    "gate.e_score_correction_bias": "router.balance_bias",
    "experts.gate_up_proj": "experts.gate_up",
    "experts.gate_up_proj_bias": "experts.gate_up_bias",
    "experts.down_proj": "experts.down",
    "experts.down_proj_bias": "experts.down_bias",
    "shared_expert_gate.weight": "shared_gate.weight",
}


def our_weights(family: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their state dict under our names and in our layout."""
    state = {name.replace("shared_experts.", "shared_expert."): tensor for name, tensor in state.items()}
    if "shared_expert.gate_proj.weight" in state:
        halves = [state.pop(f"shared_expert.{name}_proj.weight") for name in ("gate", "up")]
        state |= {"shared.gate_up.weight": torch.cat(halves)}
        state |= {"shared.down.weight": state.pop("shared_expert.down_proj.weight")}
    if family == "gpt_oss":  # [experts, inputs, outputs], gate and up in turn
        for name in ("experts.gate_up_proj", "experts.down_proj"):
            state[name] = state[name].mT
        for name in ("experts.gate_up_proj", "experts.gate_up_proj_bias"):
            state[name] = torch.cat([state[name][:, ::2], state[name][:, 1::2]], 1)
    return {NAMES.get(name, name): tensor for name, tensor in state.items()}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("family", "seed"), CASES)
@torch.no_grad()
def test_the_mixture_is_theirs(family: str, seed: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = config_fields(family, seed)
    block = theirs(family, fields).to(dtype)
    made = mixture(fields["hidden_size"], ours(family, fields)).to(dtype)
    made.load_state_dict(our_weights(family, block.state_dict()))
    x = torch.randn(3, 11, fields["hidden_size"], dtype=dtype, generator=torch.Generator().manual_seed(2))
    given = made(x)
    with monkeypatch.context() as patch:
        if dtype == torch.float64:
            patch.setattr(torch, "float32", torch.float64)
            patch.setattr(torch, "float", torch.float64)
            patch.setattr(Tensor, "float", Tensor.double)
        wanted = block(x)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    assert (given - wanted).abs().max() <= TOLERANCE[dtype] * max(1.0, wanted.abs().max().item())
    assert wanted.abs().max() > 1e-2


def mixture(d_model: int, options: dict[str, Any]) -> MixtureOfExperts:
    model = {
        "d_model": d_model,
        "n_layers": 1,
        "vocab_size": 2,
        "context": 2,
        "attention": {"choice": "mha", "n_heads": 1},
        "ffn": options,
    }
    rest = {"norm": "rmsnorm", "position": "none", "dropout": "none", "head": "tied", "block": "pre_norm"}
    spec = resolve(model | {axis: {"choice": choice} for axis, choice in rest.items()}).spec
    block: MixtureOfExperts = build(spec).layers[0].ffn
    return block


def test_each_familys_switches_are_both_ways() -> None:
    for family in CLASSES:
        drawn = [ours(family, config_fields(family, seed)) for f, seed in CASES if f == family]
        assert len({options["experts_per_token"] for options in drawn}) > 1
        if family in ("qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v3"):
            assert {options["normalise"] for options in drawn} == {False, True}
        if family.startswith("deepseek"):
            assert any(options["groups_per_token"] not in (None, options["n_groups"]) for options in drawn)
