"""Numbers of a command's tables."""

import pytest

from archlab.document import Column
from archlab.report.document import number_text


@pytest.mark.parametrize(
    ("percent", "text"),
    [(0, "0.0"), (-75.0, "-75.0"), (1001.66, "1,001.7"), (-0.0206, "-0.02"), (0.049, "0.05"), (0.06, "0.1")],
)
def test_a_change_is_no_zero_that_is_none(percent: float, text: str) -> None:
    assert number_text(percent, Column("params", "%")) == text
