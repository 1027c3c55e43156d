"""What archlab knows of one family of Hugging Face models."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from archlab.frozen import Frozen, field
from archlab.interop.layout import Layout
from archlab.interop.parts import Model
from archlab.interop.reader import Fields


class Family(Frozen):
    """model_type: its name in config.json. read: from fields to an archlab model config; layout: its tensors' names.

    harmless: fields of this family alone that change nothing, with the reason. spelling: the family's own names of
    fields that ALIASES knows by another, for writing. architecture: the class that transformers builds.
    """

    model_type: str
    architecture: str
    read: Callable[[Fields], Model]
    layout: Layout
    harmless: Mapping[str, str] = field(default_factory=dict)
    spelling: Mapping[str, str] = field(default_factory=dict)
