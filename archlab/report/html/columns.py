"""Many JSON values that are much alike, as columns: what repeats is written once, and nothing is lost.

A column is a node of plain JSON data:

    {"all": v}               every row has v
    {"each": [v, ..]}        a value a row
    {"of": [v, ..], "at": [i, ..]}   row r has of[at[r]]; at[r] = -1: nothing of this node itself
    {"in": {key: node}}      a row's object has these keys, each where its node has a value; beside the others where
                             some rows have an object and some have none
"""

from __future__ import annotations

import json
from typing import Any


class Columns:
    """Rows that are added one by one, of which only the columns are held."""

    def __init__(self) -> None:
        self._root, self.count = _Node(), 0

    def add(self, row: Any) -> None:
        """Add JSON data as the next row."""
        self._root.add(self.count, row)
        self.count += 1

    def as_dict(self) -> dict[str, Any]:
        """The columns as JSON data."""
        return self._root.as_dict(self.count)


_PLAIN = {str, int, float, bool, type(None)}


class _Node:
    """One place of the rows: its distinct values, which row has which, and the nodes in it."""

    __slots__ = ("at", "inside", "of", "places")

    def __init__(self) -> None:
        self.at: list[int] = []
        self.of: list[Any] = []
        self.places: dict[Any, int] = {}
        self.inside: dict[str, _Node] = {}

    def add(self, row: int, value: Any) -> None:
        if type(value) is dict and value:
            for key, item in value.items():
                node = self.inside.get(key)
                if node is None:
                    node = self.inside[key] = _Node()
                node.add(row, item)
            return
        if len(self.at) < row:
            self._fill(row)
        kind = type(value)
        key = (kind, value) if kind in _PLAIN else json.dumps(value)  # 1, 1.0 and true are not the same
        place = self.places.get(key)
        if place is None:
            place = self.places[key] = len(self.of)
            self.of.append(value)
        self.at.append(place)

    def _fill(self, rows: int) -> None:
        self.at.extend([-1] * (rows - len(self.at)))

    def as_dict(self, rows: int) -> dict[str, Any]:
        node: dict[str, Any] = {}
        if self.of:
            self._fill(rows)
            node = self._own(rows)
        if self.inside:
            node["in"] = {key: inside.as_dict(rows) for key, inside in self.inside.items()}
        return node

    def _own(self, rows: int) -> dict[str, Any]:
        whole = -1 not in self.at
        if whole and len(self.of) == 1:
            return {"all": self.of[0]}
        if whole and len(self.of) > rows // 2:
            return {"each": [self.of[place] for place in self.at]}
        return {"of": self.of, "at": self.at}
