"""safetensors on disk: one file, the shards of an index, or a folder with either. Nothing is unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from archlab.errors import RequestError, is_folder
from archlab.interop.reader import read_json, show

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
MAX_INDEX = 64 << 20
DTYPES = ("F64", "F32", "F16", "BF16")


class TensorFiles:
    """The tensors of a checkpoint by name, read one by one. shapes and dtypes come from the headers alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        self._handles: dict[str, Any] = {}
        for file, listed in _find(path).items():
            self._open(file, listed)

    def tensor(self, name: str) -> Tensor:
        try:
            tensor: Tensor = self._handles[name].get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise RequestError(f"{self.path}: {name} cannot be read: {error}") from None
        return tensor

    def _open(self, file: Path, listed: list[str] | None) -> None:
        """Read a file's header. listed: the tensors that an index says are in it; None for all."""
        if file.suffix in PICKLES:
            raise RequestError(f"{file}: is a pickle, which could run code; archlab loads safetensors only")
        try:
            handle = safe_open(file, "pt")
            names = list(handle.keys())
            wanted = set(names if listed is None else listed)
            slices = {name: handle.get_slice(name) for name in names if name in wanted}
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
        except (SafetensorError, OSError) as error:
            raise RequestError(f"{file}: is not a safetensors file: {error}") from None
        absent = [name for name in listed or () if name not in shapes]
        if absent:
            raise RequestError(f"{file}: lacks {show(absent[0])}, which the index says is in it")
        self.shapes |= shapes
        self.dtypes |= {name: part.get_dtype() for name, part in slices.items()}
        self._handles |= dict.fromkeys(shapes, handle)


def _find(path: Path) -> dict[Path, list[str] | None]:
    """The files to read, and which of their tensors an index lists."""
    file = _in_folder(path) if is_folder(path) else path
    if not file.is_file():
        raise RequestError(f"{file}: no such file")
    return _shards(file) if file.suffix == ".json" else {file: None}


def _in_folder(folder: Path) -> Path:
    for name in (INDEX, SINGLE):
        if (folder / name).is_file():
            return folder / name
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found[0]
    if found:
        raise RequestError(f"{folder}: {len(found)} safetensors files and no {INDEX} to say which")
    pickles = sorted(file.name for file in folder.iterdir() if file.suffix in PICKLES)
    what = f"; {pickles[0]} is a pickle, which could run code" if pickles else ""
    raise RequestError(f"{folder}: no safetensors file in this folder{what}")


def _shards(index: Path) -> dict[Path, list[str] | None]:
    """The shards of an index; each must lie beside it."""
    listed = read_json(index, MAX_INDEX).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise RequestError(f"{index}: has no weight_map, so it is no index of safetensors files")
    shards: dict[Path, list[str] | None] = {}
    for name, file in listed.items():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise RequestError(f"{index}: {show(file)} is not the name of a safetensors file beside it")
        names = shards.setdefault(index.parent / file, [])
        assert names is not None
        names.append(name)
    absent = [file.name for file in shards if not file.is_file()]
    if absent:
        raise RequestError(f"{index}: {len(absent)} of its {len(shards)} files are not there: {', '.join(absent)}")
    return shards
