"""archlab's own launcher and sweepers as Hydra's plugins: `hydra/launcher=inproc`, `hydra/sweeper=grid` and `optuna`.

Hydra takes plugins from a top-level package `hydra_plugins` only, which many distributions share; `register` puts the
classes there without shipping one. They build on Hydra's basic ones, and hand to these whatever is not plain.
"""

from __future__ import annotations

import importlib.util
import sys
import types

from archlab.multirun.basic import plugins
from archlab.multirun.launcher import InProcessLauncher
from archlab.multirun.search import SearchSweeper
from archlab.multirun.sweeper import GridSweeper


def register() -> None:
    """Make the plugins known to Hydra."""
    home = _module("hydra_plugins.archlab")
    if importlib.util.find_spec("hydra_plugins") is None:
        _module("hydra_plugins").__path__ = []  # no other plugin is installed, which would bring the package
    for made in (InProcessLauncher, GridSweeper, SearchSweeper):
        made.__module__ = home.__name__
        setattr(home, made.__name__, made)
        plugins.register(made)


def _module(name: str) -> types.ModuleType:
    return sys.modules.setdefault(name, types.ModuleType(name))
