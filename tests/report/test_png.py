"""Pictures: their size in pixels, and on matplotlib's own artists the points, the labels and the spread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archlab.errors import RequestError
from archlab.report.palette import key_of
from archlab.report.png import Bars, Cloud, Curves, Quantity, Shades, figure, save

PARAMS = Quantity("params", "parameters", "exact")
RATE = Quantity("decode_tok_s", "tok/s", "measured")
CLOUD = Cloud(
    PARAMS,
    RATE,
    {"mha": [(1e6, 10.0), (4e6, 9.0)], "<b>$x$</b>": [(2e6, 30.0)]},
    [(1e6, 10.0), (2e6, 30.0)],
    True,
    key_of("attention", ["mha", "<b>$x$</b>"]),
)


@pytest.fixture(autouse=True)
def _matplotlib() -> None:
    pytest.importorskip("matplotlib", reason="what draws pictures is not installed: archlab[report]")


def axes(drawn: Any) -> Any:
    made = figure(drawn)
    made.canvas.draw()
    return made.axes[0]


def texts(labels: Any) -> list[str]:
    return [label.get_text() for label in labels]


def test_a_picture_is_a_png_of_its_size_with_more_than_one_colour(tmp_path: Path) -> None:
    from PIL import Image

    save(CLOUD, tmp_path / "new" / "scatter.png")
    with Image.open(tmp_path / "new" / "scatter.png") as image:
        assert (image.format, image.size) == ("PNG", (1800, 1140))
        colours = {colour for _, colour in image.convert("RGB").getcolors(2**24)}
    assert {(255, 255, 255), (11, 95, 165)} <= colours  # paper, and the accent of the front
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["scatter.png"]


def test_a_scatter_has_every_point_its_front_and_its_names_as_text() -> None:
    drawn = axes(CLOUD)
    placed = [[tuple(point) for point in cloud.get_offsets()] for cloud in drawn.collections]
    assert placed == [[(1e6, 10.0), (4e6, 9.0)], [(2e6, 30.0)], [(1e6, 10.0), (2e6, 30.0)]]
    (steps,) = drawn.lines
    assert steps.get_drawstyle() == "steps-post"  # with less x wanted, what one point gives holds up to the next
    assert (drawn.get_xlabel(), drawn.get_ylabel()) == ("params (parameters, exact)", "decode_tok_s (tok/s, measured)")
    legend = drawn.get_legend()
    assert (legend.get_title().get_text(), texts(legend.get_texts())) == (
        "attention",
        ["mha", "<b>$x$</b>", "front (2)"],
    )
    assert not any(text.get_parse_math() for text in legend.get_texts())
    assert "2 M" in texts(drawn.get_xticklabels())


def test_bars_reach_from_the_10th_to_the_90th_percentile() -> None:
    drawn = axes(Bars(RATE, ["gqa", "mqa"], [30.0, 20.0], [(28.0, 33.0), None], [True, False]))
    assert [bar.get_width() for bar in drawn.patches] == [30.0, 20.0]
    assert len({bar.get_facecolor() for bar in drawn.patches}) == 2
    (spread,) = [line.get_segments() for line in drawn.collections]
    assert [tuple(end) for end in spread[0]] == [(28.0, 0.0), (33.0, 0.0)]
    assert texts(drawn.get_yticklabels()) == ["gqa", "mqa"]
    low, high = drawn.get_ylim()
    assert low > high  # the first at the top


def test_curves_are_in_binary_units_over_their_contexts() -> None:
    size, at = Quantity("KV cache", "B", "exact", True), Quantity("context", "tokens", "", True)
    drawn = axes(
        Curves(at, size, {"a": [(1024, 2**20), (4096, 2**22)], "b": [(1024, 2**15), (4096, 2**17)]}, [True, False])
    )
    assert [list(line.get_ydata()) for line in drawn.lines] == [[2**20, 2**22], [2**15, 2**17]]
    assert texts(drawn.get_xticklabels()) == ["1,024", "4,096"]
    assert {"1 MiB", "64 KiB"} <= set(texts(drawn.get_yticklabels()))
    assert (drawn.get_xscale(), drawn.get_yscale()) == ("log", "log")


def test_a_file_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(RequestError, match="cannot be written"):
        save(CLOUD, tmp_path / "taken" / "scatter.png")


def test_without_matplotlib_one_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(RequestError, match=r"pip install 'archlab\[report\]'"):
        figure(CLOUD)


def test_several_stand_one_below_the_other_with_their_titles_and_limits() -> None:
    x, y = Quantity("layer", "", ""), Quantity("angle", "", "", True)
    curve = Curves(x, y, {"rope": [(float(n), 1.0 + n) for n in range(20)]}, [True], "Angles", {"seen": 4.0})
    made = figure(curve, Shades("Weights", "key", "query", [[1.0, None], [0.5, 0.5]]))
    made.canvas.draw()
    first, second, *_ = made.axes
    assert (first.get_title(), second.get_title()) == ("Angles", "Weights")
    assert (first.get_xlabel(), first.get_ylabel()) == ("layer", "angle (log)")
    assert texts(first.get_legend().get_texts()) == ["rope", "seen"]
    assert list(first.lines[-1].get_ydata()) == [4.0, 4.0]
    assert len(first.get_xticks()) < 20
    shown = second.images[0].get_array()
    assert shown.tolist()[1] == [0.5, 0.5]
    assert shown.tolist()[0] == [1.0, None]  # masked: left to the background
