"""Shared by all tests; it also puts this folder on the path, for `strategies`."""

from __future__ import annotations

import sys

import pytest
from hypothesis import settings

settings.register_profile("archlab", deadline=None, print_blob=True)
settings.load_profile("archlab")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Models this small lose time to a second thread. Sessions without torch are not made to import it."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
