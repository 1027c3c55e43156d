"""How others bring theirs: a choice by `archlab.component`, a place for choices by `archlab.place`.

    @archlab.component("norm", "dyt", summary="tanh(alpha x), scaled and shifted", source="arXiv 2503.10622")
    class DynamicTanh(nn.Module):
        def __init__(self, features: int, *, alpha: float = 0.5) -> None: ...

docs/own-choice.md says what a module of each axis is given and has to give.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from archlab.components.attention.base import Attention
from archlab.components.block.spec import Block
from archlab.components.counted.costs import counted_costs
from archlab.components.ffn.spec import FFN
from archlab.components.head.spec import Head
from archlab.components.norm.spec import Norm
from archlab.components.placed import NONE, Placed
from archlab.components.position.spec import Position
from archlab.components.signature import options_from
from archlab.errors import ConfigError, nearest
from archlab.frozen import fields_of
from archlab.options import Spec
from archlab.registry import PARTS, Fixed, Place, axes, implements, places, register, register_place
from archlab.yaml_text import WORDS

if TYPE_CHECKING:
    from torch import nn

M = TypeVar("M", bound="type[nn.Module]")

BASES: dict[str, type[Spec]] = {
    "norm": Norm,
    "position": Position,
    "attention": Attention,
    "ffn": FFN,
    "head": Head,
    "block": Block,
}
"""What the spec of a choice is, by axis; at a place it is Placed."""

HANDED = {
    "norm": ("features", "heads"),
    "position": ("head_dim", "context", "d_model", "n_heads"),
    "attention": ("norm", "dropout"),
    "ffn": ("dropout",),
    "head": ("vocab_size",),
    "block": ("norm", "width", "attention", "ffn"),
}
"""What a module's constructor may ask for, beside `spec` and the spec's fields."""

RESERVED = (
    *("name", "about", "family", "d_model", "n_layers", "vocab_size", "vocab_multiple", "context", "layers", "repeat"),
    *("embedding", "positions", "norms", "lm_head", "other"),
    *("attention_norm", "attention_post_norm", "ffn_norm", "ffn_post_norm"),
)
"""What a place cannot be called: settings and parts of a model, and what a layer owns."""

NAME = re.compile(r"[a-z][a-z0-9_]*")
VALUES = (*WORDS, "null", "nan", "inf")
"""What reads like a name, and is a value in YAML or on Hydra's command line."""
COUNTED = "counted on the module"
"""The formula of parameters that nobody wrote down."""


def component(
    axis: str,
    name: str,
    *,
    summary: str,
    source: str = "",
    formula: str = "",
    spec: type[Spec] | None = None,
    fixed: Fixed | None = None,
) -> Callable[[M], M]:
    """Class decorator: this nn.Module is the choice `name` of an axis.

    summary: one line on what it is; source: the paper it is from; formula: its parameters, in the design's words. spec:
    what it costs on paper, and its options; what that leaves out is counted on the module, and without one the options
    are the constructor's keyword-only arguments. fixed: options of the spec that this choice fixes. Raises ConfigError
    for what cannot be such a choice.
    """

    def bind(module: M) -> M:
        try:
            _check(axis, name, module, spec)
            made = _spec_of(axis, module, spec)
        except ConfigError as error:
            raise ConfigError("", f"{axis}/{name}: {error}") from error
        origin = origin_of(module.__module__)
        text = formula or (COUNTED if "parameters" in counted_costs(made) else "")
        register(axis, name, made, summary=summary, formula=text, fixed=fixed, source=source, origin=origin)
        from archlab.components.hosted import maker

        implements(made)(maker(module, axis))
        module.spec_class = made  # type: ignore[attr-defined]
        return module

    return bind


def place(name: str, *, before: str | None = None, after: str | None = None) -> None:
    """Register an axis of one's own: its choices stand before or after `attention` or `ffn` in every layer.

    Until another is chosen it has `none`. Raises ConfigError where the name is taken, or says nothing of where.
    """
    if (before is None) == (after is None):
        raise ConfigError("", f"place {name}: say before=PART or after=PART", valid=PARTS)
    check_name(name, "place")
    if name in RESERVED or hasattr(_module_base("block"), name):
        raise ConfigError("", f"place {name}: a part or a setting of every model is called so; choose another name")
    origin = origin_of(sys._getframe(1).f_globals["__name__"])
    register_place(Place(name, str(before or after), before is not None, origin))
    none = type("Nothing", (Placed,), {})
    register(name, NONE["choice"], none, summary="nothing", formula="0", origin=origin)


def origin_of(module: str) -> str:
    """The file of a module, or its name where it has none, as of a notebook."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return str(Path(file).resolve()) if file else module


# --- what a choice has to be ------------------------------------------------------------------------------------------


def _check(axis: str, name: str, module: Any, spec: type[Spec] | None) -> None:
    """Raise ConfigError for what is no class of a module, or of the spec, of such an axis."""
    known = (*BASES, *places())
    if axis not in known:
        problem = "has no modules: it is rates" if axis in axes() else "is no axis"
        raise ConfigError("", f"{axis} {problem}", valid=known, nearest=nearest(axis, known))
    check_name(name, "choice")
    wanted = _module_base(axis)
    if not isinstance(module, type) or not issubclass(module, wanted):
        found = module.__name__ if isinstance(module, type) else repr(module)
        raise ConfigError("", f"{found} is no subclass of {wanted.__module__}.{wanted.__qualname__}")
    base = BASES.get(axis, Placed)
    if spec is not None and not issubclass(spec, base):
        raise ConfigError("", f"{spec.__name__} is no subclass of {base.__module__}.{base.__name__}")


def check_name(name: str, what: str) -> None:
    """Raise ConfigError for what cannot be typed as the name of a choice or of a place."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError("", f"{name!r} is no name of a {what}: small letters, digits and _, a letter first")
    if name in VALUES:
        raise ConfigError("", f"{name!r} is no name of a {what}: in a config it is a value; choose another name")


def _module_base(axis: str) -> type:
    from torch import nn

    if axis == "position":
        from archlab.components.position.module import NoPosition

        return NoPosition
    if axis == "block":
        from archlab.components.block.module import Block as BlockModule

        return BlockModule
    return nn.Module


def _spec_of(axis: str, module: type[nn.Module], spec: type[Spec] | None) -> type[Spec]:
    """The spec class of a module: its own or one of its arguments, and what is counted behind it."""
    from archlab.components.counted.axes import COUNTED as COUNTED_SPECS
    from archlab.components.counted.axes import CountedPlaced

    counted = COUNTED_SPECS.get(axis, CountedPlaced)
    bases = (counted,) if spec is None else (spec, counted)
    offered = {"spec", *HANDED.get(axis, ("norm",)), *(name for base in bases for name in fields_of(base))}
    options = options_from(module, offered - {"axis", "choice"})
    if spec is not None and options:
        raise ConfigError("", f"{module.__name__} asks for {', '.join(options)}, which {spec.__name__} lacks")
    body: dict[str, Any] = {
        "__annotations__": {name: hint for name, (hint, _) in options.items()},
        "__doc__": module.__doc__,
        "__module__": module.__module__,
        "__qualname__": f"{module.__qualname__}.spec_class",
    }
    if axis == "head" and spec is None:  # a plain attribute, which torch.compile can read
        body["last_token_only"] = bool(getattr(module, "last_token_only", False))
    fields = {name: made for name, (_, made) in options.items()}
    return type(f"{module.__name__}Spec", bases, {**body, **fields})
