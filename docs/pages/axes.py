"""The page of each axis, from the registry and from what `archlab explain` answers."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console

from archlab.compose import preset_users
from archlab.document import Chart, Document
from archlab.frozen import replace
from archlab.meaning import AXIS, meaning
from archlab.paper.explain import document
from archlab.paper.explain.asked import DEFAULT_MODEL, Asked
from archlab.papers import Paper
from archlab.registry import AXES
from archlab.report.catalog import SYMBOLS, components_data
from archlab.report.chart import show_chart
from archlab.report.document import md_table
from archlab.report.formats import md_escape
from archlab.report.text import value_text
from pages.markdown import block, code, table, titled

Data = Mapping[str, Any]
"""A choice, or an option of one, as `archlab components --json` has it."""


def pages() -> dict[str, str]:
    """Every page by its name: one of all axes, and one for each."""
    return {"axes/index": overview(), **{f"axes/{axis}": page(axis) for axis in AXES}}


def overview() -> str:
    """What the axes are, and their choices."""
    rows = [
        [f"[{axis}]({axis}.md)", md_escape(meaning(axis, AXIS).what), ", ".join(map(code, choices(axis)))]
        for axis in AXES
    ]
    return "\n\n".join(
        [
            "# The axes",
            "An axis is one place where a choice is made. `model/AXIS=CHOICE` makes it, `model.AXIS.OPTION=VALUE` sets "
            "an option of it. Each page is what `archlab components AXIS` and `archlab explain` say, "
            f"with the numbers of the preset `{DEFAULT_MODEL}`; both say it of any other model too.",
            table(["axis", "what it is", "choices"], rows),
            block([":hidden:", "", *AXES], "{toctree}"),
        ]
    )


def page(axis: str) -> str:
    """All about an axis: what it is for, its choices side by side, each of them, their options."""
    made, said = document(axis, Asked()), meaning(axis, AXIS)
    known = choices(axis)
    parts = [
        f"# {axis}",
        *words(made),
        papers(said.sources),
        "## Choices",
        side_by_side(known),
        *shown(made),
        *(text for name, data in known.items() for text in about(axis, name, data)),
        "## Options",
        options(known),
    ]
    return "\n\n".join(filter(None, parts))


def choices(axis: str) -> Mapping[str, Data]:
    found: Mapping[str, Data] = components_data(axis, preset_users())["axes"][axis]
    return found


# --- parts of a page --------------------------------------------------------------------------------------------------


def words(made: Document) -> Iterator[str]:
    """What it is, why, and its formula."""
    yield from (md_escape(made.texts[title]) for title in ("what", "why") if title in made.texts)
    if "formula" in made.texts:
        yield block(made.texts["formula"].split("; "))


def papers(sources: Iterable[Paper]) -> str:
    return "; ".join(map(cited, sources))


def cited(paper: Paper) -> str:
    """`Su et al. 2021, RoFormer .., eq. 34`, linked where it has a number at arXiv."""
    title = md_escape(f"{paper.authors} {paper.year}, {paper.title}")
    linked = f"[{title}](https://arxiv.org/abs/{paper.arxiv})" if paper.arxiv else title
    return linked + (f", {md_escape(paper.place)}" if paper.place else "")


def side_by_side(known: Mapping[str, Data]) -> str:
    """The choices with what the parameters of each are, and what the letters stand for."""
    rows = [
        [f"[{code(name)}](#{name})", md_escape(data["summary"]), code(data["params"])] for name, data in known.items()
    ]
    letters = {word for data in known.values() for word in re.findall("[A-Za-z]+", data["params"])}
    legend = ", ".join(f"{code(letter)} {md_escape(word)}" for letter, word in SYMBOLS.items() if letter in letters)
    return table(["choice", "what", "parameters"], rows) + (f"\n\nwhere {legend}" if legend else "")


def about(axis: str, name: str, data: Data) -> Iterator[str]:
    """One choice: in words, what it costs, who uses it."""
    made = document(f"{axis}/{name}", Asked())
    yield f"## {name}"
    yield from words(made)
    yield papers(meaning(axis, name).sources)
    yield " ".join(placed(axis, name, data))
    if "changes" in made.texts:
        yield f"In `{DEFAULT_MODEL}`, {md_escape(made.texts['here'])}: {md_escape(made.texts['changes'])}."
    yield from shown(made)
    yield formulas(made)


def placed(axis: str, name: str, data: Data) -> Iterator[str]:
    """How to choose it, what it fixes, and which presets make the choice."""
    yield f"{code(f'model/{axis}={name}')} chooses it."
    fixed = {key: "by a rule" if value is None else value_text(value) for key, value in data["fixed"].items()}
    if fixed:
        yield "It fixes " + ", ".join(f"{code(key)} {value}" for key, value in fixed.items()) + "."
    users = data["used_by"]
    count = {0: "No preset uses it", 1: "One preset uses it: "}.get(len(users), f"{len(users)} presets use it: ")
    yield f"{count}{', '.join(map(code, users))}."


def shown(made: Document) -> Iterator[str]:
    """Drawings, tables and charts; of a choice that is put in another's place, not what changes part by part."""
    for drawing in made.drawings:
        yield titled(drawing.title, drawing.about)
        yield block(line.rstrip() for line in drawing.lines)
    own = made.tables if made.subject in AXES else itertools.takewhile(lambda one: one.name != "choices", made.tables)
    for one in own:
        yield titled(one.title, f"in {DEFAULT_MODEL}: {one.about}" if one.about else f"in {DEFAULT_MODEL}")
        columns = [column for column in one.columns if column.name != "what"]  # said in the first table of the page
        yield md_table(replace(one, columns=columns))
    for chart in made.charts:
        yield titled(chart.title, f"{chart.y} over {chart.x}")
        yield block(drawn(chart))


def drawn(chart: Chart) -> list[str]:
    """A chart as the terminal has it, without its title."""
    out = io.StringIO()
    show_chart(chart, Console(file=out, width=76, color_system=None, highlight=False, markup=False, emoji=False))
    return [line.rstrip() for line in out.getvalue().strip("\n").splitlines()[1:]]


def formulas(made: Document) -> str:
    """How each figure of the choice is got."""
    rows = [
        [code(one.figure), code(one.formula), one.worked, md_escape("; ".join(one.assumptions))]
        for one in made.explanations
    ]
    return table(["figure", "formula", f"in {DEFAULT_MODEL}", "counted"], rows) if rows else ""


def options(known: Mapping[str, Data]) -> str:
    """Each option with its default or rule, what it does, its valid values, and the choices that have it."""
    owners: dict[str, tuple[str, Data, list[str]]] = {}
    for name, data in known.items():
        for key, option in data["options"].items():
            owners.setdefault(f"{key} {option}", (key, option, []))[2].append(name)
    rows = [
        [
            code(key),
            default(option),
            md_escape(option["help"]),
            md_escape(option["values"]),
            ", ".join(map(code, names)),
        ]
        for key, option, names in owners.values()
    ]
    return table(["option", "default", "what it does", "values", "of"], rows) if rows else "None of them has any."


def default(option: Data) -> str:
    """The default, or the rule that gives it."""
    if option["required"]:
        return "required"
    return f"by rule: {md_escape(option['rule'])}" if "rule" in option else code(value_text(option.get("default")))
