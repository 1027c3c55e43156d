"""Shared by all tests; it also puts this folder on the path, for `strategies`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Of torch, here and in the processes that tests start: models this small lose time to a second thread, and threads
that wait for each other stand still while tests beside them have the cores."""

settings.register_profile("archlab", deadline=None, print_blob=True)
settings.load_profile("archlab")


@pytest.fixture
def own_choices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone after it."""
    from archlab import plugins, registry

    monkeypatch.setattr(registry, "_choices", {axis: dict(known) for axis, known in registry._choices.items()})
    monkeypatch.setattr(registry, "_places", dict(registry._places))
    monkeypatch.setattr(plugins, "_named", dict(plugins._named))
    monkeypatch.setattr(plugins, "_installed", dict(plugins._installed))
    monkeypatch.setattr(plugins, "_looked", list(plugins._looked))
    yield
    monkeypatch.undo()
    registry.forget_reads()
