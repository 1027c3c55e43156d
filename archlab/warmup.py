"""Import torch, once, in a way that a Ctrl-C during the import is not lost."""

from __future__ import annotations

import importlib
import warnings

from archlab.interrupt import held_back


def import_torch(*more: str) -> None:
    """Import torch and `more`. Raises KeyboardInterrupt afterwards, where Ctrl-C came meanwhile."""
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch runs without it, and says so
    with held_back():  # torch catches whatever is raised while some of its parts are imported, and goes on
        for name in ("torch", *more):
            importlib.import_module(name)
