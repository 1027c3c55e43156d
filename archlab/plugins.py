"""Code of others that brings choices: named by the user (`--plugin`), or installed (entry points `archlab.components`).

Only what is named on a command line or called from Python is run, and what is installed: a config or a record that
names a plugin does not run it. Other processes are told what this one was (`named`), and check that it is the same.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from archlab import registry
from archlab.errors import ArchlabError, RequestError, in_short
from archlab.frozen import Frozen, values_of

GROUP = "archlab.components"
"""The group of the entry points."""

TOLD = "ARCHLAB_TOLD_OF_PLUGINS"
"""The variable by which a process knows that another has told of a broken package."""


class Plugin(Frozen):
    """One that was named. word: a path or the name of a module; file: where its code begins.

    sha256: of all of its code. home: the folder that the name of a module is looked up in.
    """

    word: str
    file: str
    sha256: str
    home: str = ""

    @property
    def short(self) -> str:
        return f"{Path(self.word).name} (sha256 {self.sha256[:12]})"


_named: dict[str, Plugin] = {}
_installed: dict[str, str] = {}
_looked = [False]


def named() -> list[dict[str, Any]]:
    """The plugins that were named, as plain data: for another process, and for a record."""
    return [values_of(plugin) for plugin in _named.values()]


def described() -> list[dict[str, Any]]:
    """All that brought choices into this process, for a record: those that were named, and installed packages."""
    return [*named(), *({"word": name, "version": version} for name, version in _installed.items())]


def load(word: str | Path) -> Plugin:
    """Run a Python file, a folder with an __init__.py, or a module by its name. Raises RequestError."""
    word = str(word)
    path = Path(word).absolute()
    is_path = path.suffix == ".py" or "/" in word or path.exists()
    plugin = _of_path(path) if is_path else _of_module(word)
    if _named.get(plugin.file) != plugin:
        _run(plugin)
        _named[plugin.file] = plugin
    return plugin


def load_again(plugins: Iterable[Mapping[str, Any]]) -> None:
    """Load what another process, or this one before, had. Raises RequestError where it is not the same any more."""
    for told in plugins:
        before = Plugin(**told)
        if before.home and before.home not in sys.path:
            sys.path.append(before.home)
        check_same(before, load(before.word))


def check_same(before: Plugin, now: Plugin) -> None:
    """Raise RequestError where a plugin's code is other than it was."""
    if before.sha256 != now.sha256:
        raise RequestError(f"plugin {now.word} has changed: it was {before.short} and is {now.short}")


def require(recorded: Iterable[Mapping[str, Any]], where: str) -> None:
    """Raise RequestError where a record was made with plugins that are not named now: reading one runs no code.

    One of the same name with other code is told of on stderr.
    """
    made_with = [Plugin(**told) for told in recorded if "sha256" in told]  # the others are installed packages
    now = {Path(plugin.word).name: plugin for plugin in _named.values()}
    missing = [plugin for plugin in made_with if Path(plugin.word).name not in now]
    if missing:
        flags = " ".join(f"--plugin {shlex.quote(plugin.word)}" for plugin in missing)
        names = ", ".join(plugin.short for plugin in missing)
        raise RequestError(f"{where}: it was made with {names}, whose code is run where it is named again: {flags}")
    for before in made_with:
        named = now[Path(before.word).name]
        if named.sha256 != before.sha256:
            print(f"note: {where}: was made with {before.short}; this is {named.short}", file=sys.stderr)


# --- finding and running ----------------------------------------------------------------------------------------------


def _of_path(path: Path) -> Plugin:
    file = path / "__init__.py" if path.is_dir() else path
    if not file.is_file():
        problem = "has no __init__.py" if path.is_dir() else "there is no such file"
        raise RequestError(f"plugin {path}: {problem}")
    if file.suffix != ".py":
        raise RequestError(f"plugin {path}: is no Python file: its name does not end in .py")
    return Plugin(str(path), str(file.resolve()), _checksum(file))


def _of_module(name: str) -> Plugin:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise RequestError(f"plugin {name}: cannot be imported: {in_short(error)}") from error
    if found is None or not found.origin or not Path(found.origin).is_file():
        raise RequestError(
            f"plugin {name}: no module of that name is installed; a file is named by its path, as ./{name}.py"
        )
    file = Path(found.origin).resolve()
    levels = name.count(".") + (found.submodule_search_locations is not None)
    return Plugin(name, str(file), _checksum(file), str(file.parents[levels]))


def _checksum(file: Path) -> str:
    """Of a file, or of every Python file of the package that begins with it."""
    files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    import hashlib  # it loads OpenSSL, 10 ms

    whole = hashlib.sha256()
    for one in files:
        whole.update(one.relative_to(file.parent).as_posix().encode() + b"\0" + one.read_bytes() + b"\0")
    return whole.hexdigest()


def _run(plugin: Plugin) -> None:
    """Import a plugin; it has to register something. What it prints goes to stderr."""
    before = registry.origins()
    with _told(f"plugin {plugin.word}", plugin.file), contextlib.redirect_stdout(sys.stderr):
        _import_file(plugin) if plugin.home == "" else importlib.import_module(plugin.word)
    code = Path(plugin.file)
    own = code.parent if code.name == "__init__.py" else code
    brought = registry.origins()
    if brought == before and not any(Path(origin).is_relative_to(own) for origin in brought.values()):
        problem = "it registers no choice; @archlab.component(AXIS, NAME, summary=..) over a class does"
        raise RequestError(f"plugin {plugin.word}: {problem}")


def _import_file(plugin: Plugin) -> ModuleType:
    """The module of a file, under a name of its own, so that two files may be called the same."""
    file = Path(plugin.file)
    name = f"archlab_plugin_{file.parent.name if file.name == '__init__.py' else file.stem}_{plugin.sha256[:8]}"
    places = [str(file.parent)] if file.name == "__init__.py" else None
    found = importlib.util.spec_from_file_location(name, file, submodule_search_locations=places)
    assert found is not None
    assert found.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def _told(what: str, file: str) -> Any:
    """Turn whatever somebody else's code raises into one message, with the line that it came from."""
    try:
        yield
    except ArchlabError as error:
        raise RequestError(f"{what}: {error}") from error
    except (Exception, SystemExit) as error:
        import traceback

        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        at = f" (line {lines[-1]})" if lines else ""
        raise RequestError(f"{what}: cannot be imported: {in_short(error)}{at}") from error


# --- installed packages -----------------------------------------------------------------------------------------------


def load_installed() -> None:
    """Import what installed packages bring, once. One that is broken is told of on stderr, and let be."""
    if _looked[0]:
        return
    _looked[0] = True
    if not _is_any_installed():
        return
    from importlib import metadata

    for point in metadata.entry_points(group=GROUP):
        package = point.dist.name if point.dist is not None else point.value
        try:
            with _told(f"package {package}, entry point {point.name}", ""), contextlib.redirect_stdout(sys.stderr):
                point.load()
        except RequestError as error:
            if TOLD not in os.environ:  # once, not in each process that this one starts
                print(f"archlab: {error}; its choices are not there", file=sys.stderr)
            os.environ[TOLD] = "1"
        else:
            _installed[package] = point.dist.version if point.dist is not None else ""


def _is_any_installed() -> bool:
    """Whether some package has such an entry point: importlib.metadata alone takes 30 ms to import."""
    files = (file for folder in sys.path for file in Path(folder).glob("*.*-info/entry_points.txt"))
    return any(f"[{GROUP}]" in file.read_text(encoding="utf-8", errors="replace") for file in files)
