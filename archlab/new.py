"""A start for a choice of one's own: a file with a module that works, and a test of its contract beside it."""

from __future__ import annotations

import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from archlab.components.own import BASES, check_name
from archlab.errors import ConfigError, RequestError, nearest
from archlab.record import write_atomically
from archlab.registry import choices, is_axis

STARTS = Path(__file__).with_name("starts")
PLACE = "place"
"""What asks for an axis of its own."""
SHIFT = "shift"
"""The choice that the start of a place has."""

TEST = '''"""The contract of {title}: what it costs is what it has, cached = full, causal, all of it is trained."""

from pathlib import Path

import archlab


def test_it_keeps_its_contract() -> None:
    archlab.load_plugin(Path(__file__).with_name("{name}.py"))
    archlab.check_component("{axis}", "{choice}")
'''


def write_start(axis: str, name: str, folder: Path) -> list[Path]:
    """Write NAME.py and test_NAME.py. Raises ConfigError for a wrong name, RequestError where a file is there."""
    _check(axis, name)
    in_class = "".join(word.capitalize() for word in name.split("_"))
    text = (STARTS / f"{axis}.py").read_text(encoding="utf-8")
    text = re.sub(r"\bStart\b", in_class, re.sub(r"\bstart\b", name, text))
    at, chosen = (name, SHIFT) if axis == PLACE else (axis, name)
    test = TEST.format(title=f"{at}/{chosen}", name=name, axis=at, choice=chosen)
    files = {folder / f"{name}.py": text, folder / f"test_{name}.py": test}
    for file in files:
        if file.exists():
            raise RequestError(f"{file}: is there already; nothing was written")
    try:
        return [write_atomically(file, body) for file, body in files.items()]
    except OSError as error:
        raise RequestError(f"{error.filename}: cannot be written: {error.strerror}") from None


def _check(axis: str, name: str) -> None:
    """Raise ConfigError for an axis without a start, and for a name that is none or is taken."""
    known = [*BASES, PLACE]
    if axis not in known:
        problem = "has no modules: it is rates" if axis == "dropout" else "has no start"
        raise ConfigError("", f"{axis} {problem}", valid=known, nearest=nearest(axis, known))
    check_name(name, "place" if axis == PLACE else "choice")
    if is_axis(name) if axis == PLACE else name in choices(axis):
        raise ConfigError("", f"there is {name} already; choose another name", value=name)
    if _is_importable(name):
        problem = f"{name}.py would hide the module {name} from all that runs in its folder, its own test too"
        raise ConfigError("", f"{problem}; choose another name", value=name)


def _is_importable(name: str) -> bool:
    """Whether a module of Python's, of an installed package or of pytest's is called so; one in this folder is not."""
    elsewhere = [folder for folder in sys.path if Path(folder).resolve() != Path.cwd()]
    found = PathFinder.find_spec(name, elsewhere)
    known = name in sys.modules or name in sys.stdlib_module_names or name == "conftest"
    return known or (found is not None and found.origin is not None)  # a folder without code has none
