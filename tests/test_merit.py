"""Which way is better: by the unit, and as a sweep was told."""

from archlab.merit import agreed, direction, wishes


def test_costs_are_better_low_and_rates_high() -> None:
    assert [direction(unit) for unit in ("parameters", "B", "B/token", "FLOP/token", "s", "s/token")] == [-1] * 6
    assert [direction(unit) for unit in ("tok/s", "FLOP/s")] == [1, 1]
    assert direction("layers") == 0


def test_a_direction_is_of_the_objective_at_its_place() -> None:
    told = wishes({"objective": ["params", "kv"], "direction": ["maximize", "minimize"]})
    assert told == {"params": 1, "kv_bytes_per_token": -1}
    assert wishes({"direction": ["maximize"]}) == {"params": 1}  # the objective where none is named
    assert wishes({"objective": ["params"], "direction": []}) == wishes({}) == {}


def test_sweeps_that_want_otherwise_agree_on_what_they_share() -> None:
    assert agreed([{"params": 1, "kv": -1}, {"params": -1, "kv": -1}]) == {"kv": -1}
    assert agreed([{"params": 1}, {}]) == agreed([]) == {}
