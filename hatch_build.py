"""Compile the package where it is installed in place: a wheel's installer does so, an editable one does not."""

import compileall
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileHook(BuildHookInterface):
    """Short commands start a fifth faster, also where Python is told to write no bytecode itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            compileall.compile_dir(f"{self.root}/archlab", quiet=2)
