"""One experiment after the other, in this process."""

from __future__ import annotations

import pytest
from asked import Lab, printed


@pytest.fixture
def lab() -> Lab:
    return printed
