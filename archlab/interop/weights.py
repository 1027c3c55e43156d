"""Weights from safetensors and to it, under a family's names or archlab's own; never pickle."""

from __future__ import annotations

import fnmatch
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from archlab.errors import RequestError
from archlab.interop.families import HOME, family
from archlab.interop.files import DTYPES, TensorFiles
from archlab.interop.layout import Layout
from archlab.interop.views import HubTensor, hub_tensors, own_tensors

if TYPE_CHECKING:
    from archlab.decoder.module import Decoder

SHOWN = 12
_PREFIX = re.compile(r"^((language_model|model|transformer|decoder|gpt_neox)\.)+")
_NESTED = re.compile(r"(^|\.)language_model\.")
"""Where a model of several parts, which sees or hears, has its language model."""


@dataclass(frozen=True)
class Naming:
    """The tensors of a decoder under one set of names, and the layout that these come from; None for archlab's own.

    ignored: patterns of names that a file may have beside these.
    """

    tensors: Mapping[str, HubTensor]
    layout: Layout | None
    ignored: tuple[str, ...] = ()


@torch.no_grad()
def load_weights(decoder: Decoder, path: str | Path) -> list[str]:
    """Fill the decoder from a safetensors file, a sharded index, or a folder that holds either.

    Tensors are named as the family of the spec names them, or as archlab does. Raises RequestError, before anything is
    changed, that lists every tensor that is missing, left over, of another shape or of a dtype that is not loaded.
    Returns the tensors of parts beside the language model, which are let lie.
    """
    files = TensorFiles(Path(path))
    naming = max(namings(decoder), key=lambda one: sum(name in files.shapes for name in _renamed(one, files).values()))
    names = _renamed(naming, files)
    others = _others(names, files)
    _check_fit(naming, names, files, others)
    _check_tie(decoder, naming, names, files)
    if not decoder.embedding.weight.is_meta:
        for name, tensor in naming.tensors.items():
            tensor.load(files.tensor(names[name]))
    return others


def beside(names: Sequence[str]) -> str:
    """What was let lie, in a line: `27 tensors of vision_tower (25), multi_modal_projector (2) are not loaded`."""
    parts = Counter(name.removeprefix("model.").split(".")[0] for name in names)
    return f"{len(names)} tensors of {', '.join(f'{part} ({n})' for part, n in parts.items())} are not loaded"


def _others(names: Mapping[str, str], files: TensorFiles) -> list[str]:
    """Tensors outside the language model, where the file says which that is."""
    used = set(names.values())
    if not any(_NESTED.search(name) for name in used):
        return []
    return [name for name in files.shapes if name not in used and not _NESTED.search(name)]


def save_weights(decoder: Decoder, path: str | Path) -> None:
    """Write one safetensors file, named as the family of the spec names tensors, else as archlab does.

    A tied head is the embedding and is not written. The file is whole or not there at all.
    """
    from safetensors.torch import save_file

    tensors = {name: tensor.save() for name, tensor in next(namings(decoder)).tensors.items()}
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, temporary, metadata={"format": "pt"})
        os.replace(temporary, target)
    except OSError as error:
        raise RequestError(f"{target}: cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def namings(decoder: Decoder) -> Iterator[Naming]:
    """The family's names, where they cover all that this decoder has, and archlab's own."""
    own = Naming(own_tensors(decoder), None)
    layout = family(decoder.spec.family).layout if decoder.spec.family in HOME else None
    while layout is not None:
        ignored = tuple(pattern.format(n=decoder.spec.n_layers) for pattern in layout.ignored)
        named = Naming(hub_tensors(decoder, layout), layout, (*ignored, f"*{layout.head}.weight"))
        if _elements(named) == _elements(own) and layout.fits(decoder.spec):
            yield named
        layout = layout.also
    yield own


def _elements(naming: Naming) -> int:
    return sum(tensor.elements for tensor in naming.tensors.values())


def _renamed(naming: Naming, files: TensorFiles) -> dict[str, str]:
    """Each tensor's name in the file, which may lack the trunk's prefix or have another one before it."""
    if naming.layout is None:
        return {name: name for name in naming.tensors}
    bare = {_PREFIX.sub("", name): name for name in files.shapes}
    return {name: name if name in files.shapes else bare.get(_PREFIX.sub("", name), name) for name in naming.tensors}


def _check_fit(naming: Naming, names: Mapping[str, str], files: TensorFiles, others: Sequence[str]) -> None:
    wanted = {names[name]: tensor.shape for name, tensor in naming.tensors.items()}
    known = {*wanted, *others}
    problems = {
        "missing": [name for name in wanted if name not in files.shapes],
        "of another shape": [
            f"{name} {list(files.shapes[name])}, not {list(shape)}"
            for name, shape in wanted.items()
            if files.shapes.get(name, shape) != shape
        ],
        f"of a dtype other than {', '.join(DTYPES)}": [
            f"{name} {files.dtypes[name]}" for name in wanted if files.dtypes.get(name, DTYPES[0]) not in DTYPES
        ],
        "not used": [name for name in files.shapes if name not in known and not _matches(name, naming.ignored)],
    }
    found = [f"{len(tensors)} {what}: {_list(tensors)}" for what, tensors in problems.items() if tensors]
    if found:
        raise RequestError(f"{files.path}: these weights do not fit the model; tensors " + "; ".join(found))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _list(names: list[str]) -> str:
    """All; where there are many, names that differ in numbers only are counted together, what is said of them whole."""
    if len(names) <= SHOWN:
        return ", ".join(names)
    told = (line.partition(" ") for line in names)
    kinds = Counter(re.sub(r"\d+", "*", name) + space + said for name, space, said in told)
    shown = [kind if count == 1 else f"{kind} ({count})" for kind, count in kinds.items()]
    return ", ".join(shown[:SHOWN]) + (f" and {len(shown) - SHOWN} more kinds" if len(shown) > SHOWN else "")


def _check_tie(decoder: Decoder, naming: Naming, names: Mapping[str, str], files: TensorFiles) -> None:
    """A file may hold a copy of a tied head; it must be the embedding."""
    if naming.layout is None or not decoder.spec.head.tied:
        return
    head = next((name for name in files.shapes if _matches(name, (f"*{naming.layout.head}.weight",))), None)
    embedding = next(hub for hub, ours in naming.layout.outside.items() if ours == "embedding")
    if head is None:
        return
    if not torch.equal(files.tensor(head), files.tensor(names[f"{naming.layout.prefix}{embedding}.weight"])):
        raise RequestError(f"{files.path}: {head} differs from the embedding, but the model ties them")
