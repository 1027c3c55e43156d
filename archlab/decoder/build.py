"""From a spec to a module with weights."""

from __future__ import annotations

from collections.abc import Collection, Container

import torch

from archlab.components.block.module import Block
from archlab.components.hosted import copy_own, is_hosted, made_again, own_tensors
from archlab.cost.params import parts
from archlab.decoder.dtype import torch_dtype
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError, RequestError

INIT_STD = 0.02
RESIDUAL_OUTPUTS = ("attention.o.weight", "ffn.down.weight", "ffn.experts.down", "ffn.shared.down.weight")


def build(
    spec: DecoderSpec,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = torch.float32,
    seed: int | None = 0,
) -> Decoder:
    """The module of a spec, in training mode as torch builds modules, with random weights (see `init_weights`).

    device: `meta` gives shapes without storage. dtype: a torch dtype or its name (`bf16`, `fp32`, ..). seed: of the
    draw, None to leave the weights unset; torch's global random state is left as it was. Raises RequestError.
    """
    if seed is not None and (type(seed) is not int or not 0 <= seed < 2**63):
        raise ConfigError("seed", f"{seed!r} is not a whole number from 0 to 2^63 - 1", value=seed)
    target = _device(device)
    with torch.device("meta"):
        decoder = Decoder(spec)
    decoder.to(torch_dtype(dtype))
    if target.type != "meta":
        # as `to_empty` does, whose `empty_like` of a meta tensor imports sympy: 0.6 s and 25 MiB
        decoder._apply(lambda held: torch.empty(held.shape, dtype=held.dtype, device=target))
        begin_hosted(decoder, 0 if seed is None else seed)
        if seed is not None:
            init_weights(decoder, seed)
    return decoder


def _device(device: str | torch.device) -> torch.device:
    try:
        target = torch.device(device)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError) as error:
        raise RequestError(f"device {str(device)!r} is not available: {str(error).splitlines()[0]}") from None
    return target


def begin_hosted(decoder: Decoder, seed: int) -> None:
    """Give modules of others what their constructors begin with: those here were made without storage."""
    like = decoder.embedding.weight
    hosted = [path for path, module in decoder.named_modules() if is_hosted(module)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for path in hosted:
            module = decoder.get_submodule(path)
            fresh = made_again(module).to(like.device, like.dtype)
            if isinstance(module, Block):  # it holds others, which stay
                copy_own(fresh, module)
            else:
                owner, _, name = path.rpartition(".")
                setattr(decoder.get_submodule(owner), name, fresh)


@torch.no_grad()
def init_weights(decoder: Decoder, seed: int = 0, names: Collection[str] | None = None) -> None:
    """Weights as GPT-2 has them: normal with standard deviation 0.02, biases 0, norms the identity.

    The projections that write to the residual stream have 0.02 / sqrt(2 layers). Radford et al. 2019, section 2.3.
    Modules of others keep what their constructors gave them. names: only these tensors, norms whole; None for all.
    """
    generator = torch.Generator(decoder.embedding.weight.device).manual_seed(seed)
    others = {
        id(tensor) for module in decoder.modules() if is_hosted(module) for tensor in own_tensors(module).values()
    }
    for name, parameter in decoder.named_parameters():
        if id(parameter) in others or (names is not None and name not in names):
            continue
        if parameter.dim() > 1 and not name.endswith("bias"):  # experts' biases are stacked
            shrink = (2 * decoder.spec.n_layers) ** -0.5 if name.endswith(RESIDUAL_OUTPUTS) else 1.0
            parameter.normal_(0.0, INIT_STD * shrink, generator=generator)
        else:
            parameter.zero_()
    for name, module in decoder.named_modules():
        mine = names is None or any(f"{name}.{own}" in names for own, _ in module.named_parameters(recurse=False))
        if mine and name.endswith("norm") and hasattr(module, "reset_parameters"):
            module.reset_parameters()


def parameters_by_part(decoder: Decoder) -> dict[str, int]:
    """Parameters of the built module, each once, under the parts of `archlab.cost.params`."""
    counts = dict.fromkeys(parts(decoder.spec), 0)
    for name, parameter in decoder.named_parameters():
        counts[_part(name, counts)] += parameter.numel()
    return counts


OUTER = {"embedding": "embedding", "positions": "positions", "head": "lm_head"}
"""Modules around the layers, and the parts that they are."""


def _part(name: str, known: Container[str]) -> str:
    """The part of a parameter by its path; norms are one of the model, of a layer and of its attention."""
    owners = name.split(".")[:-1]
    if owners[0] in OUTER:
        return OUTER[owners[0]]
    inner = owners[2] if owners[0] == "layers" and len(owners) > 2 else ""
    if inner in known and inner != "attention":
        return inner
    if any(owner.endswith("norm") for owner in owners):
        return "norms"
    return inner if inner in known else "other"
