"""archlab report: a page or pictures of what a sweep left, as a user asks for them."""

import pytest

pytestmark = pytest.mark.slow  # a process each

SWEEP = ("build", "-m", "model/attention=mha,gqa,mqa", "model.n_layers=2,4", "bench=none", "hydra.sweep.dir=out")


@pytest.fixture(scope="module")
def swept(tmp_path_factory, shell_in):
    shell = shell_in(tmp_path_factory.mktemp("reported"))
    answer = shell(*SWEEP)
    assert answer.code == 0, answer.err
    return shell


def test_a_page_of_a_sweep_and_of_some_of_its_points(swept):
    pytest.importorskip("plotly", reason="the page's plotting library is not installed: archlab[report]")
    assert "report.html: written, 6 points" in swept("report", "out", "-o", "report.html").out
    answer = swept("report", "out/0", "out/3/record.json", "-o", "two.html", "--chart", "params,kv")
    assert "two.html: written, 2 points" in answer.out
    assert "4 points" in swept("report", "out", "--where", "attention!=mha", "-o", "some.html").out
    assert (swept.folder / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_pictures_into_a_folder_and_one_into_a_file(swept):
    pytest.importorskip("matplotlib", reason="what draws pictures is not installed: archlab[report]")
    answer = swept("report", "out", "--png", "figures")
    assert answer.err == ""
    assert sorted(path.name for path in (swept.folder / "figures").iterdir()) == ["kv_cache.png", "scatter.png"]
    assert swept("report", "out", "--png", "one.png", "--chart", "params,kv").out == "one.png: written\n"
    assert (swept.folder / "one.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "-o report.html, or --png"),
        (("-o", "x.html", "--where", "prams<3"), "did you mean params?"),
        (("-o", "x.html", "--where", "params<1"), "none of 6 points"),
        (("-o", "x.html", "--chart", "params"), "two different figures"),
        (("-o", "x.html", "--pareto", "parms"), "did you mean params?"),
        (("--png", "x.pdf"), "pictures are PNG"),
        (("-o", "out/0/record.json/x.html"), "cannot be written"),
    ],
)
def test_a_wrong_wish_is_one_message_and_no_file(swept, arguments, says):
    pytest.importorskip("plotly", reason="the page's plotting library is not installed: archlab[report]")
    answer = swept("report", "out", *arguments)
    assert answer.code == 2
    assert says in answer.err
    assert "Traceback" not in answer.err
    assert not [name for name in swept.left() if "x." in name]


def test_a_folder_without_records(shell):
    assert shell("report", "nowhere", "-o", "x.html").code == 2
