"""Hydra's basic launcher and sweeper, which archlab's own build on, imported as Hydra's plugins have to be."""

from hydra.core.plugins import Plugins

plugins = Plugins.instance()  # its scan executes Hydra's own plugins anew; classes imported before would be others

from hydra._internal.core_plugins.basic_launcher import BasicLauncher  # noqa: E402
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper  # noqa: E402

__all__ = ["BasicLauncher", "BasicSweeper", "plugins"]
