"""Immutable values: what a dataclass that is frozen does, these do."""

import copy
import dataclasses
import os
import pickle
import subprocess
import sys

import pytest

from archlab.components.norm.spec import RMSNorm
from archlab.frozen import Frozen, derived, field, fields_of, remembered, replace, values_of


class Point(Frozen):
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)


class Point3(Point):
    z: int = 3

    def __post_init__(self) -> None:
        if self.z < 0:
            raise ValueError("below the ground")

    @property
    def height(self) -> int:
        return self.z


@dataclasses.dataclass(frozen=True)
class Plain:
    x: int
    y: int = 2
    tags: list[str] = dataclasses.field(default_factory=list)


@pytest.mark.parametrize("given", [(1,), (1, 5), (1, 5, ["a"])])
def test_positions_names_and_defaults_are_those_of_a_dataclass(given):
    assert values_of(Point(*given)) == dataclasses.asdict(Plain(*given))
    names = dict(zip(("x", "y", "tags"), given, strict=False))
    assert Point(**names) == Point(*given)
    assert repr(Point(*given)) == repr(Plain(*given)).replace("Plain", "Point")


@pytest.mark.parametrize(
    ("given", "named"), [((), {}), ((), {"y": 1}), ((1, 2, [], 4), {}), ((1,), {"w": 1}), ((), {"x": 1, "w": 1})]
)
def test_wrong_arguments_are_type_errors_as_of_a_dataclass(given, named):
    for kind in (Point, Plain):
        with pytest.raises(TypeError):
            kind(*given, **named)


def test_nothing_changes_and_each_value_has_its_own_list():
    point = Point(1)
    for change in (lambda: setattr(point, "x", 2), lambda: setattr(point, "w", 2), lambda: delattr(point, "x")):
        with pytest.raises(AttributeError):
            change()
    assert Point(1).tags is not Point(1).tags
    assert Point.y == 2


def test_a_subclass_adds_its_fields_after_and_is_another_value():
    assert list(fields_of(Point3)) == ["x", "y", "tags", "z"]
    assert Point3(1).height == 3
    assert Point3(1) != Point(1)
    assert replace(Point3(1), z=4).z == 4
    for wrong in (lambda: replace(Point3(1), z=-1), lambda: Point3(1, z=-1)):
        with pytest.raises(ValueError, match="ground"):
            wrong()
    with pytest.raises(TypeError):
        replace(Point3(1), w=1)


def test_equal_values_are_one_key():
    class Key(Frozen):
        a: int
        b: tuple[int, ...] = ()

    assert len({Key(1, (2,)), Key(a=1, b=(2,)), Key(1)}) == 2


def test_copies_and_pickles_are_equal():
    point = Point3(1, tags=["a"])
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point


def test_a_value_that_was_a_key_here_is_one_in_another_process():
    spec = (
        "from archlab.components.norm.spec import RMSNorm; n = RMSNorm(axis='norm', choice='rmsnorm', eps=1e-6,"
        " eps_place='inside', weight=True, unit_offset=False); hash(n)"
    )
    there = {**os.environ, "PYTHONHASHSEED": "1"}
    code = f"import pickle, sys; {spec}; sys.stdout.buffer.write(pickle.dumps(n))"
    pickled = subprocess.run([sys.executable, "-c", code], env=there, capture_output=True, check=True).stdout
    here = RMSNorm(axis="norm", choice="rmsnorm", eps=1e-6, eps_place="inside", weight=True, unit_offset=False)
    assert {pickle.loads(pickled): 1}[here] == 1


def test_what_is_remembered_belongs_to_the_value_itself_and_to_the_other_arguments():
    asked = []

    @remembered
    def scaled(point: Point, by: int = 1) -> list[int]:
        asked.append((point, by))
        return [by * point.x]

    one, equal = Point(1), Point(1)
    assert scaled(one, 2) is scaled(one, 2)
    assert scaled(one, 2) is not scaled(equal, 2)  # equal is not the same: an int may know more than its number
    assert (scaled(one, 3), scaled(one, by=3), scaled(one)) == ([3], [3], [1])
    assert len(asked) == 5
    assert one == equal
    assert "_remembered" not in pickle.loads(pickle.dumps(one)).__dict__


def test_what_is_derived_is_worked_out_once_and_is_no_part_of_the_value():
    asked = []

    class Square(Frozen):
        side: int

        @derived
        def area(self) -> int:
            """Of the square."""
            asked.append(self.side)
            return self.side**2

    one = Square(3)
    assert (one.area, one.area, asked) == (9, 9, [3])
    assert one == Square(3)
    assert "area" not in copy.copy(one).__dict__
    assert replace(one, side=4).area == 16
    assert Square.area.__doc__ == "Of the square."
