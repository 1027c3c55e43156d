"""Modules of others in the places of archlab's own: their constructors are handed what they ask for, by name.

A module is built without storage first, as all of a model is, and so has no values to begin with; `made_again` makes
it a second time, for real.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archlab.components.block.module import Block
from archlab.components.dropout.spec import Dropout
from archlab.components.norm.module import make_norm
from archlab.errors import ArchlabError, ConfigError, in_short
from archlab.options import Spec
from archlab.registry import module_class

MARK = "_made_again"
"""The attribute of a module of others that holds what makes it again."""

Made = Callable[..., nn.Module]


def maker(kind: type[nn.Module], axis: str) -> Made:
    """What builds this class for a choice of an axis, called as archlab's own modules of the axis are."""
    own: dict[str, Callable[..., nn.Module]] = {
        "norm": _norm,
        "position": _position,
        "attention": _attention,
        "ffn": _ffn,
        "head": _plain,
        "block": _block,
    }
    return functools.partial(own.get(axis, _place), kind)


def _norm(kind: type[nn.Module], spec: Any, width: int, heads: int | None = None) -> nn.Module:
    """The norm over `width` features; heads: of inputs [.., heads, width], each with its own weights."""
    if heads is None or "heads" in asked_of(kind):
        return _made(kind, spec, features=width, heads=heads)
    return _marked(functools.partial(PerHead, kind, spec, width, heads))


class PerHead(nn.Module):
    """A norm a head, for inputs [.., heads, width]."""

    def __init__(self, kind: type[nn.Module], spec: Any, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(_build(kind, spec, {"features": width}) for _ in range(heads))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([norm(head) for norm, head in zip(self.norms, x.unbind(-2), strict=True)], -2)


def _position(kind: type[nn.Module], spec: Any, head_dim: int, context: int) -> nn.Module:
    return _made(kind, spec, head_dim=head_dim, context=context)


def _attention(kind: type[nn.Module], spec: Any, dropout: Dropout) -> nn.Module:
    norm = functools.partial(make_norm, spec.norm)
    return _marked(functools.partial(_dropping, kind, spec, dropout.residual, {"dropout": dropout, "norm": norm}))


def _ffn(kind: type[nn.Module], spec: Any, dropout: Dropout) -> nn.Module:
    return _marked(functools.partial(_dropping, kind, spec, dropout.ffn, {"dropout": dropout}))


def _dropping(kind: type[nn.Module], spec: Any, rate: float, handed: Mapping[str, Any]) -> nn.Module:
    """The module; what it puts out is dropped at a rate of which it is not told."""
    module = _build(kind, spec, handed)
    if rate and "dropout" not in asked_of(kind):
        module.register_forward_hook(DropOutput(rate))
    return module


class DropOutput:
    """A forward hook: dropout of what a module puts out, in training."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, module: nn.Module, given: Any, output: Tensor) -> Tensor:
        return F.dropout(output, self.rate, module.training)


def _plain(kind: type[nn.Module], spec: Any) -> nn.Module:
    return _made(kind, spec)


def _place(kind: type[nn.Module], spec: Any) -> nn.Module:
    return _made(kind, spec, norm=functools.partial(make_norm, spec.norm))


def _block(kind: type[nn.Module], spec: Any, norm: Any, width: int, attention: nn.Module, ffn: nn.Module) -> nn.Module:
    handed = {"spec": spec, "norm": norm, "width": width}
    made = _build(kind, spec, {**handed, "attention": attention, "ffn": ffn})
    again = functools.partial(_build, kind, spec, {**handed, "attention": nn.Identity(), "ffn": nn.Identity()})
    setattr(made, MARK, again)
    return made


# --- building ---------------------------------------------------------------------------------------------------------


def asked_of(kind: Any) -> tuple[str, ...]:
    """The names that a class's constructor asks for."""
    named = inspect.signature(kind).parameters.values()
    return tuple(one.name for one in named if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD))


def _made(kind: type[nn.Module], spec: Any, **handed: Any) -> nn.Module:
    return _marked(functools.partial(_build, kind, spec, handed))


def _marked(make: Callable[[], nn.Module]) -> nn.Module:
    module = make()
    setattr(module, MARK, make)
    return module


def _build(kind: type[nn.Module], spec: Spec, handed: Mapping[str, Any]) -> nn.Module:
    """The module of a spec. Raises ConfigError for what its constructor raises."""
    known = {"spec": spec, **handed}
    given = {name: known[name] if name in known else _bare(getattr(spec, name)) for name in asked_of(kind)}
    try:
        return kind(**given)
    except ArchlabError:
        raise
    except Exception as error:
        problem = f"{spec.choice}: {kind.__name__} cannot be made: {in_short(error)}"
        raise ConfigError(f"model/{spec.axis}", problem) from error


def _bare(value: Any) -> Any:
    """A plain number, also of one that remembers its arithmetic."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def kind_of(spec: Spec) -> type[nn.Module]:
    """The class of others that a spec's module is of."""
    kind: type[nn.Module] = module_class(spec.axis, spec).args[0]
    return kind


def is_hosted(module: nn.Module) -> bool:
    """Whether a module is of others."""
    return hasattr(module, MARK)


def made_again(module: nn.Module) -> nn.Module:
    """The same module anew."""
    return _marked(getattr(module, MARK))


def own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of a module by name; of a block without those of the norms and parts that it holds."""
    held = (
        {"attention", "ffn", *module.norm_names, *(place.name for place in module.places)}
        if isinstance(module, Block)
        else ()
    )
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor for name, tensor in tensors.items() if name.split(".")[0] not in held}


@torch.no_grad()
def copy_own(source: nn.Module, target: nn.Module) -> None:
    """Copy the values of what is a block's own."""
    values = own_tensors(source)
    for name, tensor in own_tensors(target).items():
        tensor.copy_(values[name])
