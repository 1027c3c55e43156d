"""The page in a headless Chromium: a click, a filter and a sort show what the records hold, and nothing leaves it."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from archlab import pictures
from archlab.overview import Asked, labelled, overview, short
from archlab.record import Figure, Record
from archlab.report.html.page import page as html_page
from archlab.results import Results, effects, find, front, read

pytest.importorskip("plotly", reason="the page's plotting library is not installed: archlab[report]")
pytestmark = pytest.mark.browser

HOSTILE = '</script><img src=x onerror="window.hurt=1"> <b>it\'s</b> "模型" $\\alpha$ %{x}'
BUDGET = 40_000_000


def save(folder: Path, make: Callable[..., Record], failed: Callable[..., Record]) -> None:
    """Twelve points that were timed, one with a name that is markup, one that ran out of memory."""
    made = [
        (["model/attention=" + kind, f"model.n_layers={layers}"], {"n_layers": layers, "attention": heads}, speed)
        for kind, heads, speed in (("gqa", {}, 1.0), ("mqa", {"n_kv_heads": 1}, 1.4), ("full", {"n_kv_heads": 8}, 0.7))
        for layers in (2, 4, 8, 16)
    ]
    for index, (overrides, changes, speed) in enumerate(made):
        held = make(overrides, speed * 8 / changes["n_layers"] + index % 3 * 0.01, **changes)
        held.save(folder / str(index))
    hostile = make([f"model/attention={HOSTILE}", "model.n_layers=3"], 3.0, n_layers=3)
    hostile.notes.append(HOSTILE)
    hostile.save(folder / "12")
    failed(["model/attention=gqa", "model.n_layers=64"]).save(folder / "13")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: Any, make: Callable[..., Record], failed: Callable[..., Record]) -> tuple[Path, Results]:
    folder = tmp_path_factory.mktemp("swept")
    save(folder / "sweep", make, failed)
    results = read(find([str(folder / "sweep")]))
    (folder / "report.html").write_text(html_page(overview(results, Asked(), ["sweep"])), encoding="utf-8")
    return folder, results


class Opened:
    """A page in a tab, with what it has said and asked for."""

    def __init__(self, browser: Any, file: Path, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.tab = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.tab.on("console", lambda message: message.type == "error" and self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.file = file
        self.tab.goto(file.as_uri())
        self.tab.wait_for_selector("html[data-ready]", timeout=60_000)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tab, name)

    def column(self, name: str) -> list[str]:
        """The cells of a column of the table, as they stand."""
        heads = self.tab.locator("#table thead th")
        at = [heads.nth(i).get_attribute("data-column") for i in range(heads.count())].index(name)
        return self.tab.locator(f"#table tbody tr[data-row] td:nth-child({at + 1})").all_inner_texts()

    def type(self, name: str, text: str) -> None:
        """Type a filter under a column's head, and wait until the page has taken it."""
        self.tab.fill(f"#table th[data-column='{name}'] input", text)
        self.tab.wait_for_timeout(400)


@pytest.fixture
def opened(browser: Any, swept: tuple[Path, Results]) -> Iterator[Opened]:
    shown = Opened(browser, swept[0] / "report.html")
    yield shown
    assert shown.said == []  # no test leaves an error on the console, nor has the page asked for anything
    assert set(shown.asked) <= {shown.file.as_uri(), "data:,"}
    shown.context.close()


def ok(results: Results) -> list[Any]:
    return [row for row in results.rows if row.ok]


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_it_opens_without_an_error_and_without_a_request(opened: Opened) -> None:
    assert opened.title() == "sweep · archlab"
    assert opened.inner_text("#shown") == "14 of 14 points"
    assert "13 ok, 1 oom" in opened.inner_text("#facts")


def test_a_request_would_be_refused(browser: Any, swept: tuple[Path, Results]) -> None:
    """That none is made is no luck: the page's own policy lets none through, of data or of code."""
    shown = Opened(browser, swept[0] / "report.html")
    blocked = shown.evaluate("fetch('data:text/plain,x').then(() => false, () => true)")
    ran = shown.evaluate(
        "() => { const made = document.createElement('script'); made.textContent = 'window.ran = 1';"
        " document.body.append(made); return window.ran ?? 0; }"
    )
    shown.context.close()
    assert (blocked, ran) == (True, 0)


def test_a_click_on_a_point_shows_its_config(opened: Opened, swept: tuple[Path, Results]) -> None:
    folder, _ = swept
    place = opened.evaluate(
        """() => {
          const plot = document.getElementById('scatter');
          const trace = plot.data.find((t) => t.customdata && t.customdata.includes(7));
          const at = trace.customdata.indexOf(7), box = plot.getBoundingClientRect();
          const { xaxis, yaxis } = plot._fullLayout;
          return [box.left + xaxis._offset + xaxis.d2p(trace.x[at]), box.top + yaxis._offset + yaxis.d2p(trace.y[at])];
        }"""
    )
    opened.mouse.move(*place)
    opened.wait_for_selector("#tip:not([hidden])")
    assert "attention mqa · n_layers 16" in opened.inner_text("#tip")
    opened.mouse.click(*place)
    opened.wait_for_selector("#point:not([hidden])")
    record = json.loads((folder / "sweep" / "7" / "record.json").read_text())
    assert yaml.safe_load(opened.inner_text("#config")) == record["config"]
    assert "archlab build --from" in opened.inner_text("#point")
    opened.keyboard.press("Escape")
    assert opened.is_hidden("#point")


def test_every_record_is_in_the_page_whole(opened: Opened, swept: tuple[Path, Results]) -> None:
    folder, results = swept
    for index in range(len(results.rows)):
        opened.click(f"#table tr[data-row='{index}']")
        opened.click("#point details:last-of-type summary")
        opened.wait_for_function("document.getElementById('record').textContent")
        assert json.loads(opened.text_content("#record")) == json.loads(
            (folder / "sweep" / f"{index}" / "record.json").read_text()
        )


def test_a_filter_filters_and_says_so(opened: Opened, swept: tuple[Path, Results]) -> None:
    wanted = [row for row in ok(swept[1]) if row.values["params"] < BUDGET]
    opened.type("figure:params", "<40M")
    assert sorted(map(number, opened.column("figure:params"))) == sorted(row.values["params"] for row in wanted)
    assert opened.inner_text("#shown") == f"{len(wanted)} of 14 points"
    assert "params <40M" in opened.inner_text("#chips")
    opened.type("label:attention", "=gqa")
    assert set(opened.column("label:attention")) == {"gqa"}
    opened.type("label:n_layers", "2..4")
    assert opened.column("label:n_layers") == ["2", "4"]
    opened.click("#chips >> text=show all")
    assert opened.inner_text("#shown") == "14 of 14 points"


def test_a_filter_in_bytes_and_one_that_cannot_be_read(opened: Opened, swept: tuple[Path, Results]) -> None:
    wanted = sum(row.values["kv_bytes_per_token"] >= 8 * 1024 for row in ok(swept[1]))
    assert 0 < wanted < 13
    opened.type("figure:kv_bytes_per_token", ">=8KiB")
    assert opened.inner_text("#shown") == f"{wanted} of 14 points"
    opened.type("figure:kv_bytes_per_token", ">=8 apples")
    assert opened.get_attribute("th[data-column='figure:kv_bytes_per_token'] input", "aria-invalid") == "true"
    assert opened.inner_text("#shown") == "14 of 14 points"


def test_a_head_sorts_the_better_first_then_the_other_way(opened: Opened, swept: tuple[Path, Results]) -> None:
    rates = sorted((row.values["decode_tok_s"] for row in ok(swept[1])), reverse=True)
    head = "#table th[data-column='figure:decode_tok_s'] button"
    opened.click(head)
    assert [number(text) for text in opened.column("figure:decode_tok_s")[:-1]] == pytest.approx(rates, rel=1e-3)
    assert opened.column("figure:decode_tok_s")[-1] == "–"  # what has none comes last, either way
    opened.click(head)
    assert [number(text) for text in opened.column("figure:decode_tok_s")[:-1]] == pytest.approx(rates[::-1], rel=1e-3)
    assert opened.column("figure:decode_tok_s")[-1] == "–"


def listed(opened: Opened) -> list[list[float]]:
    rows = opened.locator("#front-list tbody tr")
    return [[number(t) for t in rows.nth(i).locator("td.number").all_inner_texts()] for i in range(rows.count())]


def rounded(rows: list[Any], names: list[str]) -> list[list[Any]]:
    return [[pytest.approx(row.values[name], rel=1e-3) for name in names] for row in rows]


@pytest.mark.parametrize(
    ("x", "y"), [("params", "decode_tok_s"), ("kv_bytes_per_token", "prefill_tok_s"), ("params", "kv_bytes_per_token")]
)
def test_the_front_of_any_two_axes_is_that_of_results(
    opened: Opened, swept: tuple[Path, Results], x: str, y: str
) -> None:
    opened.select_option("#scatter-controls select >> nth=0", x)
    opened.select_option("#scatter-controls select >> nth=2", y)
    wanted = sorted(front(swept[1], [x, y]), key=lambda row: row.values[x])
    assert listed(opened) == rounded(wanted, [x, y])


def test_the_front_within_a_budget_is_that_of_the_points_that_are_left(
    opened: Opened, swept: tuple[Path, Results]
) -> None:
    names = ["params", "kv_bytes_per_token", "decode_tok_s"]
    opened.select_option("#scatter-controls select >> nth=5", "sweep")
    assert listed(opened) == rounded(sorted(front(swept[1], names), key=lambda row: row.values["params"]), names)
    opened.type("figure:kv_bytes_per_token", "<=4KiB")
    left = swept[1].where("kv<=4KiB")
    assert listed(opened) == rounded(sorted(front(left, names), key=lambda row: row.values["params"]), names)


def swept_widely(folder: Path) -> Results:
    """A grid of which a third is missing, with twelve values on one axis, a figure that some lack, and failures."""
    drawn = random.Random(6)
    units = {"params": "parameters", "kv_bytes_per_token": "B/token", "decode_tok_s": "tok/s"}
    grid = itertools.product(("mha", "gqa", "'it, s'"), ("a", "b"), range(1, 13))
    for index, (attention, norm, layers) in enumerate(grid):
        if drawn.random() < 0.33:
            continue
        values = {"params": drawn.randrange(1, 99), "kv_bytes_per_token": drawn.choice((0, 64, 100)), "decode_tok_s": 1}
        made = {name: Figure(value, units[name], "exact", "by hand") for name, value in values.items()}
        made = {name: made[name] for name in made if name != "decode_tok_s" or drawn.random() < 0.8}
        overrides = [f"model/attention={attention}", f"model.n_layers={layers}"]
        overrides += [f"model/norm={norm}"] if norm == "a" else []  # the others have none
        status = "failed" if drawn.random() < 0.05 else "ok"
        Record({"model": {"name": "m"}}, overrides, figures=made, status=status).save(folder / str(index))
    return read(find([str(folder)]))


def effects_shown(opened: Opened) -> list[list[str]]:
    """The table of the effects, the axis in each row."""
    rows = opened.locator("#effects-table tbody tr")
    cells = [[cell.strip() for cell in rows.nth(i).locator("td").all_inner_texts()] for i in range(rows.count())]
    for before, after in itertools.pairwise(cells):
        after[0] = after[0] or before[0]
    return cells


def percent(text: str) -> Any:
    return (
        None if text == "–" else pytest.approx(float(text.rstrip(" %").replace(",", "").replace("−", "-")), abs=0.051)
    )


def test_effects_are_those_of_the_points_that_are_shown(browser: Any, tmp_path: Path) -> None:
    results = swept_widely(tmp_path / "sweep")
    file = tmp_path / "report.html"
    file.write_text(html_page(overview(results, Asked(chart="params,kv"), ["wide"])), encoding="utf-8")
    shown = Opened(browser, file)
    check_effects(shown, results)
    shown.type("label:attention", "!=gqa")
    check_effects(shown, results.where("attention!=gqa"))
    shown.type("figure:params", "<=60")
    shown.type("label:n_layers", "2..11")
    left = results.where("attention!=gqa and params<=60 and n_layers>=2 and n_layers<=11")
    check_effects(shown, left)
    shown.type("figure:params", "<2")
    check_effects(shown, left.where("params<2"))
    assert "No two of the " in shown.inner_text("#effects-note")
    shown.click("#chips >> text=show all")
    check_effects(shown, results)
    assert shown.said == []
    shown.context.close()


def check_effects(shown: Opened, left: Results) -> None:
    """The effects in the page are those of the points that are left."""
    names = left.front_names(None)
    table = effects(left, names)
    wanted = [] if table is None else table.rows
    found = effects_shown(shown)
    assert [row[:4] for row in found] == [
        [short(row["axis"]), row["choice"], row["against"], str(row["pairs"])] for row in wanted
    ]
    told = [name for name in names if any(row[name] is not None for row in wanted)]
    assert [[row[name] for name in told] for row in wanted] == [[percent(text) for text in row[4:]] for row in found]
    assert f"{len(left.rows)} point" in shown.inner_text("#effects-note")


def test_what_breaks_a_constraint_is_on_no_front_and_no_best(browser: Any, tmp_path: Path) -> None:
    units = {"params": "parameters", "kv_bytes_per_token": "B/token"}
    for index, (params, kv) in enumerate([(1, 9), (2, 8), (3, 7), (4, 7)]):
        made = {"params": Figure(params, units["params"], "exact", "by hand")}
        made["kv_bytes_per_token"] = Figure(kv, units["kv_bytes_per_token"], "exact", "by hand")
        config = {"model": {"name": "m"}, "constraints": ["params>=2"], "objective": ["params"]}
        Record(config, [f"model.n_layers={params}"], figures=made).save(tmp_path / str(index))
    results = read(find([str(tmp_path)]))
    file = tmp_path / "report.html"
    file.write_text(html_page(overview(results, Asked(), ["limited"])), encoding="utf-8")
    shown = Opened(browser, file)
    names = ["params", "kv_bytes_per_token"]
    assert listed(shown) == [[row.values[name] for name in names] for row in front(results, names)] == [[2, 8], [3, 7]]
    assert shown.column("mark:breaks") == ["params>=2", "–", "–", "–"]
    assert shown.locator("#table td.best").all_inner_texts() == ["2", "7", "7"]
    shown.context.close()


def test_bars_have_the_spread_and_curves_the_bytes_of_the_records(opened: Opened, swept: tuple[Path, Results]) -> None:
    bars = opened.evaluate(
        "(({ data: [t] }) => [t.customdata, [...t.x], t.error_x.array, t.error_x.arrayminus])"
        "(document.getElementById('bars-plot'))"
    )
    for row, value, up, down in zip(*bars, strict=True):
        record = json.loads(swept[1].rows[row].file.read_text())["figures"]["decode_tok_s"]
        assert (value, value + up, value - down) == pytest.approx((record["value"], record["high"], record["low"]))
    curves = opened.evaluate("document.getElementById('curves-plot').data.map((t) => [[...t.x], [...t.y]])")
    held = {tuple(row.values[f"kv_bytes.{n}"] for n in (576, 2048, 32768)) for row in ok(swept[1])}
    assert {tuple(y) for _, y in curves} == held
    assert all(x == [576, 2048, 32768] for x, _ in curves)


COLOURS = """() => {
  const points = document.getElementById('scatter').data.filter((t) => t.customdata);
  const clouds = points.filter((t) => t.marker.symbol !== 'circle-open'); // which are rings
  const scatter = clouds.flatMap((t) => t.customdata.map((row) => [row, t.marker.color]));
  const [bars] = document.getElementById('bars-plot').data;
  const curves = document.getElementById('curves-plot');
  const traces = [...curves.data].reverse();
  return {
    scatter, bars: bars.customdata.map((row, at) => [row, bars.marker.color[at]]),
    curves: curves.groups.map((group, at) => [group.rows, traces[at].line.color]),
  };
}"""


def pictured(results: Results, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """The colour of each row in the pictures of the same records."""
    drawn: list[Any] = []
    monkeypatch.setattr(pictures, "save", lambda made, file: drawn.append(made) or file)
    pictures.draw(results, Asked(), str(folder / "figures"))
    key = drawn[0].key
    column = labelled(results)[key.by]
    return {row: key.colour(value) for row, value in enumerate(column)}


@pytest.mark.parametrize("by", ["attention", "n_layers"])
def test_a_choice_has_its_colour_in_every_plot_and_in_the_pictures(
    by: str, browser: Any, tmp_path: Path, make: Any, failed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("full", "gqa", "mqa") if by == "attention" else ("gqa",)
    points = [(kind, layers) for kind in kinds for layers in (7, 2, 5)]
    failed([f"model/attention={kinds[0]}", "model.n_layers=2"]).save(tmp_path / "sweep" / "0")
    for index, (kind, layers) in enumerate(points, 1):
        held = {"n_layers": layers, "attention": {"n_kv_heads": {"full": 8, "gqa": 4, "mqa": 1}[kind]}}
        words = [f"model/attention={kind}", f"model.n_layers={layers}"]
        make(words, float(index), **held).save(tmp_path / "sweep" / str(index))
    results = read(find([str(tmp_path / "sweep")]))
    file = tmp_path / "report.html"
    file.write_text(html_page(overview(results, Asked(), ["sweep"])), encoding="utf-8")
    shown = Opened(browser, file)
    found = shown.evaluate(COLOURS)
    shown.context.close()
    wanted = pictured(results, tmp_path, monkeypatch)
    assert len(found["scatter"]) == len(found["bars"]) == len(points)
    assert {row: hexed(colour) for row, colour in found["scatter"]} == {row: wanted[row] for row, _ in found["scatter"]}
    assert {row: hexed(colour) for row, colour in found["bars"]} == {row: wanted[row] for row, _ in found["bars"]}
    for rows, colour in found["curves"]:
        (one,) = {wanted[row] for row in rows}
        assert hexed(colour) == one


def hexed(colour: str) -> str:
    """`rgb(1,2,3)` as `#010203`."""
    numbers = re.findall(r"\d+", colour) if colour.startswith("rgb") else []
    return "#" + "".join(f"{int(number):02x}" for number in numbers) if numbers else colour


def test_a_brush_on_a_parallel_axis_leaves_what_lies_in_it(opened: Opened, swept: tuple[Path, Results]) -> None:
    labels = opened.evaluate("document.getElementById('parallel-plot').data[0].dimensions.map((d) => d.label)")
    assert labels == ["attention", "n_layers", "params", "kv_bytes_per_token", "decode_tok_s"]
    opened.evaluate("Plotly.restyle('parallel-plot', {'dimensions[1].constraintrange': [[-0.2, 1.2]]}, [0])")
    assert sorted(map(int, opened.column("label:n_layers"))) == [2, 2, 2, 3]
    assert "n_layers brushed" in opened.inner_text("#chips")
    opened.click("#theme")
    assert opened.inner_text("#shown") == "4 of 14 points"  # colours are no reason to let go of it
    brush = opened.evaluate("document.getElementById('parallel-plot').data[0].dimensions[1].constraintrange")
    assert brush == [[-0.2, 1.2]]
    opened.click("#chips button")
    assert opened.inner_text("#shown") == "14 of 14 points"


def test_what_is_not_ok_stands_with_its_reason(opened: Opened) -> None:
    assert "needs 14.00 GiB, there are 8.00" in opened.inner_text("#failed")
    opened.click("#failed button >> text=n_layers 64")
    assert "oom" in opened.inner_text("#point")


def test_markup_in_names_is_text(opened: Opened) -> None:
    assert HOSTILE in opened.inner_text("#legend")
    assert HOSTILE in opened.column("label:attention")
    opened.click("#table tr[data-row='12']")
    assert HOSTILE in opened.inner_text("#point")
    drawn = opened.evaluate("[...document.querySelectorAll('svg text')].map((t) => t.textContent).join('|')")
    assert "</script><img src=x" in drawn
    assert "&lt;" not in drawn
    assert opened.evaluate("[window.hurt ?? 0, document.querySelectorAll('img, b b, a[href^=javascript]').length]") == [
        0,
        0,
    ]


def background(opened: Opened) -> str:
    return opened.evaluate("getComputedStyle(document.body).backgroundColor")


def test_light_and_dark_follow_the_system_and_the_button(browser: Any, swept: tuple[Path, Results]) -> None:
    light, dark = (Opened(browser, swept[0] / "report.html", scheme=scheme) for scheme in ("light", "dark"))
    white, black = background(light), background(dark)
    assert white != black
    light.click("#theme")
    assert background(light) == black
    light.reload()
    light.wait_for_selector("html[data-ready]")
    assert background(light) == black  # it was chosen, and stays
    assert light.said == dark.said == []
    light.context.close()
    dark.context.close()


@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_is_no_wider_than_the_window(browser: Any, swept: tuple[Path, Results], width: int) -> None:
    shown = Opened(browser, swept[0] / "report.html", width)
    assert shown.evaluate("document.documentElement.scrollWidth") == width
    shown.click("#table tr[data-row='1'] td >> nth=1")
    shown.wait_for_timeout(300)
    assert shown.evaluate("document.documentElement.scrollWidth") == width
    over = "[...document.querySelectorAll('.panel')].filter((p) => [...p.querySelectorAll('.main-svg')].some((s) => "
    over += "!s.closest('.wide') && s.getBoundingClientRect().right > p.getBoundingClientRect().right + 1)).length"
    assert shown.evaluate(over) == 0  # plots shrink with their panels
    shown.context.close()


@pytest.mark.parametrize(("index", "says"), [("13", "1 oom"), ("3", "1 ok")])
def test_a_page_of_one_point_has_what_there_is(
    browser: Any, swept: tuple[Path, Results], tmp_path: Path, index: str, says: str
) -> None:
    results = read(find([str(swept[0] / "sweep" / index)]))
    (tmp_path / "one.html").write_text(html_page(overview(results, Asked(), ["one"])), encoding="utf-8")
    shown = Opened(browser, tmp_path / "one.html")
    shown.click("#table tr[data-row='0']")
    assert f"1 point: {says}" in shown.inner_text("#facts")
    assert says[2:] in shown.inner_text("#point .badge >> nth=0")
    assert shown.said == []
    shown.context.close()


def test_of_very_many_points_the_drawing_is_thinned_and_the_table_is_not(browser: Any, tmp_path: Path) -> None:
    count = 6000
    for index in range(count):
        values = {
            "params": 1000 + index % 83 * 7,
            "kv_bytes_per_token": 64 + index // 83,
            "decode_tok_s": 9 + index % 7,
        }
        units = {"params": "parameters", "kv_bytes_per_token": "B/token", "decode_tok_s": "tok/s"}
        made = {name: Figure(value, units[name], "exact", "by hand") for name, value in values.items()}
        Record({"model": {"name": "m"}}, [f"model.n_layers={index}"], figures=made).save(
            tmp_path / str(index), flush=False
        )
    results = read(find([str(tmp_path)]))
    file = tmp_path / "report.html"
    file.write_text(html_page(overview(results, Asked(chart="params,kv"), ["many"])), encoding="utf-8")
    shown = Opened(browser, file)
    drawn = shown.evaluate("document.querySelectorAll('#scatter .scatterlayer .trace .point').length")
    note = shown.inner_text("#scatter-note")
    assert 500 < drawn < 3200
    assert "6,000 points, " in note
    hidden = int(note.split(" lie on one that is drawn")[0].split("; ")[-1].replace(",", ""))
    told = int(note.split(" drawn")[0].split(", ")[-1].replace(",", ""))
    assert told + hidden == count
    shown.evaluate("document.getElementById('rows').scrollTop = 1e9")
    shown.wait_for_selector(f"#table tr[data-row='{count - 1}']")
    assert len(shown.column("label:n_layers")) < 100  # what is out of view is not in the document, but in the table
    assert shown.get_attribute("#table", "aria-rowcount") == str(count + 1)
    assert shown.said == []
    shown.context.close()
