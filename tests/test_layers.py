"""Imports point downward, as docs/architecture.md draws them; paper needs no torch; there are no circles."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "archlab"
FLOORS = [
    {"errors", "frozen", "interrupt", "host", "written", "quotes", "stdout"},
    {"units", "options", "record", "presets", "warmup", "yaml_text", "papers"},
    {"document", "hardware", "registry", "plan", "where", "merit"},
    {"meaning"},
    {"components", "plugins"},
    {"decoder"},
    {"workload", "sizes", "constraints"},
    {"cost"},
    {"interop"},
    {"model", "budget", "starts"},
    {"request", "bench", "verify", "report"},
    {"overrides", "hydra_errors", "subjects", "lab"},
    {"compose", "completion", "worker"},
    {"point", "sources", "landing", "paper", "inside", "explained", "variants", "repeat", "results", "progress", "new"},
    {"scatter"},
    {"summary", "timing", "overview"},
    {"pictures"},
    {"multirun"},
    {"launch"},
    {"cli"},
    {"__main__"},
]
# build.py counts parameters by the parts that cost names: the one arrow up, and it takes a constant
EXCEPT = {("decoder", "cost")}


def floor(room):
    return next(index for index, rooms in enumerate(FLOORS) if room in rooms)


def imports(file):
    """The archlab modules that a file imports, by their first name below archlab; lazy imports too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "archlab":
            parts = node.module.split(".")[1:]
            yield from [parts[0]] if parts else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("archlab."))


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_downward(file):
    room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room == "__init__":
        return
    for other in imports(file):
        if other != room and (room, other) not in EXCEPT:
            assert floor(other) < floor(room), f"{room} imports {other}"


@pytest.mark.parametrize(
    "module",
    [
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        for file in sorted(PACKAGE.rglob("*.py"))
        if file.parent.name == "cost" or file.name in ("spec.py", "explain.py", "resolve.py", "describe.py")
        if file.parent.name != "cli"
    ],
)
def test_paper_imports_neither_torch_nor_hydra(module):
    code = f"import sys, {module}; print({{'torch', 'hydra', 'omegaconf', 'rich'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_no_file_is_longer_than_400_lines():
    assert not [file for file in PACKAGE.rglob("*.py") if len(file.read_text().splitlines()) > 400]
