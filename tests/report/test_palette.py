"""Colours: the page's own in its light theme, a shade a number, and one for each value in every picture of a report."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archlab import pictures
from archlab.document import Chart, Document
from archlab.overview import Asked
from archlab.record import Record
from archlab.report import drawn, png
from archlab.report.palette import MARKS, SCALE, SERIES, key_of, shades
from archlab.results import find, read

STYLE = Path(png.__file__).parent / "html" / "style.css"


def test_they_are_the_pages_in_its_light_theme() -> None:
    light = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", STYLE.read_text().split("@media")[0]))
    assert [light[f"series-{number}"] for number in range(1, 9)] == list(SERIES)
    assert [light[f"scale-{name}"] for name in ("low", "middle", "high")] == list(SCALE)


def test_texts_have_a_colour_each_in_their_order_and_numbers_a_shade_by_size() -> None:
    assert key_of("a", ["mqa", "mha", "mqa", ""]).looks == {
        "mqa": (SERIES[0], MARKS[0]),
        "mha": (SERIES[1], MARKS[1]),
        "": (SERIES[2], MARKS[2]),
    }
    sizes = key_of("n", ["16", "2", "4.0", "4"])
    assert [sizes.colour(text) for text in ("2", "4", "4.0", "16")] == [SCALE[0], SCALE[1], SCALE[1], SCALE[2]]
    assert key_of("n", ["2", "two"]).colour("two") == SERIES[1]
    assert shades(1) == [SCALE[1]]
    # halfway between #9dbdd8 and #4f93c4: (157 + 79) / 2 = 118, (189 + 147) / 2 = 168, (216 + 196) / 2 = 206
    assert shades(5)[1] == "#76a8ce"


# --- the same in every picture ----------------------------------------------------------------------------------------


@pytest.fixture
def kept_drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been saved as pictures."""
    pytest.importorskip("matplotlib", reason="what draws pictures is not installed: archlab[report]")
    made: list[Any] = []
    for module in (pictures, drawn):
        monkeypatch.setattr(module, "save", lambda one, file: made.append(one) or file)
    return made


def axes(one: Any) -> Any:
    figure = png.figure(one)
    figure.canvas.draw()
    return figure.axes[0]


def hexed(colour: Any) -> str:
    from matplotlib.colors import to_hex

    return str(to_hex(colour))


def colours_of(one: Any) -> dict[str, str]:
    """Each value's colour in a picture, taken from what matplotlib drew."""
    made = axes(one)
    if isinstance(one, png.Cloud):
        clouds = made.collections[: len(one.groups)]
        return dict(zip(one.groups, (hexed(cloud.get_facecolor()[0][:3]) for cloud in clouds), strict=True))
    found = [hexed(artist.get_facecolor()) for artist in made.patches] if isinstance(one, png.Bars) else []
    found = found or [hexed(line.get_color()) for line in made.lines]
    pairs = set(zip(one.of, found, strict=True))
    assert len(pairs) == len(set(one.of))  # one colour a value
    return dict(pairs)


def swept(folder: Path, make: Callable[..., Record], values: list[tuple[str, int]], key: str) -> Any:
    """Points of which the first failed and the fastest is the last, so that each picture has them in another order."""
    for index, (value, heads) in enumerate(values):
        held = make([f"{key}={value}"], 1.0 + index, attention={"n_kv_heads": heads})
        if index == 0:
            held.status = "failed"
        held.save(folder / str(index))
    return read(find([str(folder)]))


@pytest.mark.parametrize(
    ("key", "names"), [("model/attention", ["mqa", "gqa", "mha"]), ("model.attention.n_kv_heads", ["8", "2", "1"])]
)
def test_a_choice_has_one_colour_in_all_pictures(
    tmp_path: Path, make: Any, kept_drawn: list[Any], key: str, names: list[str]
) -> None:
    heads = dict(zip(names, (8, 2, 1), strict=True))
    found = swept(tmp_path, make, [(name, heads[name]) for name in (*names, *reversed(names))], key)
    pictures.draw(found, Asked(), str(tmp_path / "figures"))
    assert [type(one) for one in kept_drawn] == [png.Cloud, png.Curves, png.Bars, png.Bars, png.Bars]
    first = colours_of(kept_drawn[0])
    assert len(set(first.values())) == len(names)
    for one in kept_drawn[1:]:
        assert colours_of(one) == first
    wanted = list(SERIES[:3]) if key == "model/attention" else [SCALE[2], SCALE[1], SCALE[0]]
    assert [first[name] for name in names] == wanted


def test_a_colour_stays_where_a_condition_leaves_no_point_of_a_choice_to_draw(
    tmp_path: Path, make: Any, kept_drawn: list[Any]
) -> None:
    """The second choice has its own colour in a picture that the first one is not in."""
    found = swept(tmp_path, make, [("mqa", 1), ("gqa", 2)], "model/attention")
    pictures.draw(found, Asked(), str(tmp_path / "figures"))
    assert colours_of(kept_drawn[0]) == {"gqa": SERIES[1]}


def test_a_curve_of_several_choices_has_the_colour_of_none(tmp_path: Path, make: Any, kept_drawn: list[Any]) -> None:
    for index, norm in enumerate(("rmsnorm", "layernorm", "rmsnorm")):
        heads = 1 if index == 2 else 4
        made = make([f"model/norm={norm}"], norm={"choice": norm}, attention={"n_kv_heads": heads})
        made.save(tmp_path / str(index))
    pictures.draw(read(find([str(tmp_path)])), Asked(), str(tmp_path / "figures"))
    curves = kept_drawn[1]
    assert list(curves.of) == ["rmsnorm", None]
    assert [hexed(line.get_color()) for line in axes(curves).lines] == [SERIES[0], png.MUTED]


def test_curves_of_one_colour_are_told_apart_by_their_dashes(tmp_path: Path, make: Any, kept_drawn: list[Any]) -> None:
    points = [(kind, heads, layers) for kind, heads in (("gqa", 4), ("mqa", 1)) for layers in (2, 4, 6)]
    for index, (kind, heads, layers) in enumerate(points):
        words = [f"model/attention={kind}", f"model.n_layers={layers}"]
        make(words, attention={"n_kv_heads": heads}, n_layers=layers).save(tmp_path / str(index))
    pictures.draw(read(find([str(tmp_path)])), Asked(), str(tmp_path / "figures"))
    looks = [(hexed(line.get_color()), line.get_linestyle()) for line in axes(kept_drawn[1]).lines]
    assert len(looks) == len(set(looks)) == 6


def test_the_charts_of_one_answer_have_their_curves_in_the_same_colours(kept_drawn: list[Any]) -> None:
    line = [(0.0, 1.0), (1.0, 2.0)]
    charts = [Chart("A", "x", "y", {"rope": line, "yarn": line}), Chart("B", "x", "y", {"yarn": line, "none": line})]
    drawn.draw(Document("lab", "m", [], charts=charts), "two.png")
    first, second = (colours_of(one) for one in kept_drawn[0])
    assert first["yarn"] == second["yarn"]
    assert len({*first.values(), *second.values()}) == 3


def test_the_front_is_marked_beside_the_colours(tmp_path: Path, make: Any, kept_drawn: list[Any]) -> None:
    found = swept(tmp_path, make, [("mha", 8), ("mha", 8), ("gqa", 4), ("mqa", 1)], "model/attention")
    pictures.draw(found, Asked(), str(tmp_path / "figures"))
    bars = kept_drawn[2]
    edges = [bar.get_linewidth() > 0 for bar in axes(bars).patches]
    assert edges == list(bars.marked)
    assert any(edges)
    texts = [text.get_text() for text in axes(bars).get_legend().get_texts()]
    assert texts == ["mha", "gqa", "mqa", "on the front"]
