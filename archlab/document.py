"""The answer of a command on paper: tables of numbers, each with its kind, the assumptions, charts, explanations.

Plain data, torch-free, that knows no width and no format; `report/document.py` draws and writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from archlab.frozen import Frozen, field
from archlab.record import SCHEMA

Row = Mapping[str, Any]
"""A table's row by column name. A number is a figure, text names what the row is about, None is `-`."""


class Column(Frozen):
    """One column of a table. unit: `B`, `FLOP`, `tok/s`, `tokens`, ..; kind: exact, measured, estimated or bound.

    how: the formula or the definition, in a line. A column without a unit holds words.
    """

    name: str
    unit: str = ""
    kind: str = ""
    how: str = ""

    def as_dict(self) -> dict[str, Any]:
        shown = {"unit": self.unit, "kind": self.kind, "how": self.how}
        return {name: text for name, text in shown.items() if text}


class Table(Frozen):
    """Rows under a title. name: its key in the JSON document; about: what holds for all of it, after the title."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    about: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {"columns": {column.name: column.as_dict() for column in self.columns}, "rows": list(self.rows)}


class Chart(Frozen):
    """Curves over one x. series: by name, (x, y) points in rising x; ceilings: by name, a y to draw a line at.

    joined: whether the points of a series are one curve; those that are not may stand in any order, and the last series
    is the one to look at. unit, x_unit: of y and of x.
    """

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    ceilings: Mapping[str, float] = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False
    unit: str = ""
    x_unit: str = ""
    joined: bool = True


class Drawing(Frozen):
    """A small picture of characters, at most 76 columns wide. about: what holds for it, after the title.

    Lines may be drawn with the characters of `report/drawing.py`, which has a plain one for each.
    """

    title: str
    lines: Sequence[str]
    about: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {"title": self.title, "about": self.about, "lines": list(self.lines)}


class Heatmap(Frozen):
    """Numbers of 0 or more in rows and columns, drawn as shades. rows: from the top, None where nothing is to be seen.

    name: its key in the JSON document; x, y: what columns and rows are, numbered from 0.
    """

    name: str
    title: str
    x: str
    y: str
    rows: Sequence[Sequence[float | None]]

    def as_dict(self) -> dict[str, Any]:
        return {"x": self.x, "y": self.y, "rows": [list(row) for row in self.rows]}


class Explanation(Frozen):
    """How a figure was got. formula: in symbols; worked: the same with this model's numbers and the result.

    model: whose figure it is, where an answer is about several.
    """

    figure: str
    kind: str
    formula: str
    worked: str
    assumptions: Sequence[str] = ()
    model: str = ""

    def as_dict(self) -> dict[str, Any]:
        shown = {"kind": self.kind, "formula": self.formula, "worked": self.worked}
        return {**shown, "assumptions": list(self.assumptions)}


class Later(Iterable[Explanation]):
    """Explanations that are made when they are read, which most answers never are."""

    def __init__(self, make: Callable[[], Iterable[Explanation]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self._make())


class Document(Frozen):
    """What a command answers. verdict: the answer in a sentence; assumptions: all that the numbers rest on, by name.

    subject: what it is about, where that is not the model. texts: what there is to read before the tables, by title.
    worked: whether the explanations are part of the answer, to be shown with it.
    """

    command: str
    model: str
    tables: Sequence[Table]
    verdict: str = ""
    assumptions: Mapping[str, Any] = field(default_factory=dict)
    charts: Sequence[Chart | Heatmap] = ()
    notes: Sequence[str] = ()
    explanations: Iterable[Explanation] = ()
    subject: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    drawings: Sequence[Drawing] = ()
    worked: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON data: its fields but for charts; tables and explanations by name, these by model where several.

        Heatmaps, where there are some, by name: no table has their numbers.
        """
        heatmaps = {drawn.name: drawn.as_dict() for drawn in self.charts if isinstance(drawn, Heatmap)}
        return {
            "schema": SCHEMA,
            "command": self.command,
            **({"subject": self.subject} if self.subject else {}),
            "model": self.model,
            "verdict": self.verdict,
            **({"texts": dict(self.texts)} if self.texts else {}),
            "assumptions": dict(self.assumptions),
            "tables": {table.name: table.as_dict() for table in self.tables},
            **({"drawings": [drawing.as_dict() for drawing in self.drawings]} if self.drawings else {}),
            **({"heatmaps": heatmaps} if heatmaps else {}),
            "explanations": self._explanations(),
            "notes": list(self.notes),
        }

    def _explanations(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for made in self.explanations:
            own = found.setdefault(made.model, {}) if made.model else found
            own[made.figure] = made.as_dict()
        return found
