"""Shared by all tests; it also puts this folder on the path, for `strategies`."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Of torch, here and in the processes that tests start: models this small lose time to a second thread, and threads
that wait for each other stand still while tests beside them have the cores."""

settings.register_profile("archlab", deadline=None, print_blob=True)
settings.load_profile("archlab")
