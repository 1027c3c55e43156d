"""What archlab roofline says: every figure explained, what is not known said so."""

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from strategies import specs

from archlab.compose import request
from archlab.cost.roofline import Setting
from archlab.cost.shards import valid_split
from archlab.frozen import replace
from archlab.hardware import Hardware, hardware
from archlab.paper.roofline import document
from archlab.report.document import show_document

ROOT = request("gqa")


def answer(model="llama-3-8b", device="h100-sxm", context=2048, batch=1, **setting):
    device = device if isinstance(device, Hardware) else hardware(device)
    return document(request(model, prompt=context, batch=batch), device, Setting(**setting))


def rows(made, table):
    """A table's rows by their first column."""
    found = next(found for found in made.tables if found.name == table)
    return {row[found.columns[0].name]: row for row in found.rows}


def last_number(text):
    return float(re.findall(r"[0-9][0-9,]*(?:\.[0-9]+)?(?:e-?[0-9]+)?", text)[-1].replace(",", ""))


@pytest.mark.parametrize(
    ("model", "setting"), [("llama-3-8b", {}), ("mixtral-8x7b", {"tp": 2}), ("gemma-3-1b", {"weights": "int4"})]
)
def test_every_figure_is_explained_with_its_own_value(model, setting):
    made = answer(model, **setting)
    explained = {explanation.figure: explanation for explanation in made.explanations}
    for name, row in rows(made, "bounds").items():
        for figure in row.keys() - {"pass", "counted", "binds"}:
            worked = last_number(explained[f"{name}.{figure}"].worked)
            assert worked == pytest.approx(row[figure], rel=2e-3, abs=1), (name, figure)
    assert last_number(explained["ridge"].worked) == pytest.approx(
        rows(made, "ceilings")["NVIDIA H100 SXM5 80GB"]["ridge"], rel=1e-3
    )


@settings(max_examples=40)
@given(specs(), st.integers(1, 3), st.integers(1, 12), st.sampled_from(["h100-sxm", "m3-max"]), st.data())
def test_explanations_give_the_tables_numbers(spec, batch, context, device, data):
    """The worked line, computed anew from its own text, is the figure that the table shows."""
    kept, tp = data.draw(st.sampled_from(["bf16", "int4"])), data.draw(st.sampled_from(valid_split(spec)))
    asked = replace(ROOT, spec=spec, workload=replace(ROOT.workload, prompt=context, batch=batch))
    made = document(asked, hardware(device), Setting(weights=kept, tp=tp))
    table, explained = rows(made, "bounds"), {why.figure: why.worked for why in made.explanations}
    for name, row in table.items():
        for figure in row.keys() - {"pass", "counted", "binds"}:
            if row[figure] is None:
                assert f"{name}.{figure}" not in explained
            else:
                assert computed(explained[f"{name}.{figure}"]) == pytest.approx(row[figure], rel=2e-3, abs=1e-9), figure


def computed(worked):
    """What stands left of `=`, evaluated; seconds as ms, and tokens a ms as tokens a second."""
    left, _, right = worked.rpartition(" = ")
    scale = 1e3 if ("/s" in left and right.endswith(" ms")) or right.endswith("tok/s") else 1
    plain = re.sub(r"(?<=\d),(?=\d{3})| (FLOP/s|B/s|FLOP|B|ms|devices)\b", "", left).replace(" x ", " * ")
    return scale * eval(plain.replace("^", "**"), {"max": lambda *times: max(times)})


def test_the_parts_of_what_is_moved_add_up():
    made = answer("mixtral-8x7b", batch=4)
    moved = rows(made, "moved")
    for name, row in rows(made, "bounds").items():
        if "full" not in name:
            assert moved["total"][name] == row["moved"]
            assert sum(part[name] or 0 for part in moved.values()) == pytest.approx(2 * row["moved"])


def test_bytes_of_experts_are_an_estimate_and_those_of_a_dense_model_exact():
    kinds = {model: answer(model).tables[0].columns[2].kind for model in ("mixtral-8x7b", "llama-3-8b")}
    assert kinds == {"mixtral-8x7b": "estimated", "llama-3-8b": "exact"}


def test_every_rate_is_labelled_a_bound():
    for column in answer().tables[0].columns:
        if column.unit in ("tok/s", "ms"):
            assert column.kind == "bound"
    assert "no prediction" in answer().tables[0].about


@pytest.mark.parametrize(
    ("device", "setting", "note"),
    [
        ("m3-max", {}, "no compute ceiling: no dense bf16 peak of Apple M3 Max is known"),
        (
            "a10",
            {"dtype": "fp8", "weights": "fp8"},
            "no compute ceiling: no dense fp8 peak of NVIDIA A10 24GB is known",
        ),
        ("mi250x", {"tp": 2}, "no link ceiling"),
        ("l4", {"weights": "fp32"}, "do not fit"),
        ("h100-sxm", {"weights": "int4"}, "kept in int4 are multiplied in bf16"),
    ],
)
def test_what_is_not_known_or_does_not_fit_is_said(device, setting, note):
    assert any(note in said for said in answer(device=device, **setting).notes)


def test_g04_an_unknown_device_has_no_rate_at_all():
    made = answer(device=Hardware("unknown", memory=2**36))
    assert all(row["rate"] is None and row["bound"] is None for row in rows(made, "bounds").values())
    assert "no ceiling of this device is known" in made.verdict
    assert all(not points for chart in made.charts for points in chart.series.values())


def test_the_curve_over_batch_ends_where_memory_does_and_lies_under_its_ceilings():
    made = answer("llama-3-8b", "rtx-4090", context=8192)
    batches, contexts = made.charts
    points = batches.series["bound"]
    held = 24564 * 2**20 - 16_060_522_496
    assert max(batch for batch, _ in points) <= held / (8192 * 131_072) < 2 * max(batch for batch, _ in points)
    assert all(rate <= min(batches.ceilings.values()) for _, rate in points)
    assert [rate for _, rate in points] == sorted(rate for _, rate in points)
    assert all(rate <= contexts.ceilings["weights alone"] * (1 + 1e-9) for _, rate in contexts.series["bound"])
    assert [rate for _, rate in contexts.series["bound"]] == sorted(
        (r for _, r in contexts.series["bound"]), reverse=True
    )


def test_at_the_positions_end_the_last_token_is_decoded():
    made = answer("gpt2", context=1024)
    assert made.assumptions["decoded after"] == "1,023 cached tokens"


def test_a_head_that_makes_no_tokens_decodes_none():
    made = document(request("gpt2", ["model/head=classification"], prompt=64), hardware("h200"), Setting())
    assert "decode" not in rows(made, "bounds")
    assert not made.charts


@pytest.mark.parametrize("width", [60, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_stands_in_its_width(width, encoding):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    show_document(answer(), Console(file=file, width=width, color_system=None))
    file.flush()
    shown = raw.getvalue().decode(encoding).splitlines()
    assert max(map(len, shown)) <= width
    assert any("219.3" in line for line in shown)
