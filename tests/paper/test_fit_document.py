"""What archlab fit says: one table for the question, what it rests on, and devices in the order of their memory."""

import io
import re

import pytest
from rich.console import Console

from archlab.compose import request
from archlab.cost.fit import Fit, Serving
from archlab.cost.kv import Engine, valid_tp
from archlab.cost.roofline import Setting
from archlab.hardware import hardware, names
from archlab.paper.fit import document
from archlab.report.document import show_document


def answer(model="llama-3.1-8b", device="rtx-4090", context=None, batch=1, **serving):
    return document(request(model, batch=batch), hardware(device) if device else None, Serving(**serving), context)


def rows(made, table):
    found = next(found for found in made.tables if found.name == table)
    return {row[found.columns[0].name]: row for row in found.rows}


def last_number(text):
    return float(re.findall(r"-?[0-9][0-9,]*", text)[-1].replace(",", ""))


def test_j04_one_answer_has_all_that_is_asked_of_a_sizing_tool():
    made = answer(context=8192, batch=2)
    memory, points = rows(made, "memory"), rows(made, "points")
    assert {"weights", "cache", "activations", "logits", "budget", "left"} <= memory.keys()
    assert {"asked", "largest context", "largest batch", "smallest tp"} == points.keys()
    assert all(row["prefill"] and row["decode"] for row in points.values())
    assert made.assumptions["reserve"] == "1.00 GiB"
    assert made.verdict.startswith("fits: 2 x 8,192 tokens on NVIDIA GeForce RTX 4090 24GB")
    assert memory["cache"]["bytes"] == 2 * 8192 * 131_072


def test_j06_every_assumption_is_echoed():
    setting = Setting("bf16", "int8", "fp8")
    made = answer(setting=setting, utilisation=0.95, reserve=2**31, engine=Engine("full_pages", 32), chunk=2048)
    said = made.assumptions
    assert (said["utilisation"], said["reserve"], said["block"]) == (0.95, "2.00 GiB", 32)
    assert said["weights"].startswith("int8")
    assert said["cache"].startswith("fp8")
    assert "window" in said["engine"]
    assert said["prefill step"] == "2,048 tokens at most"


def test_short_by_how_much_is_an_answer():
    made = answer("llama-3.1-70b", "h200", context=131_072)
    memory = rows(made, "memory")
    short = memory["short by"]["bytes"]
    needed = sum(memory[part]["bytes"] for part in ("weights", "cache", "activations", "logits"))
    assert short == needed - memory["budget"]["bytes"] > 0
    assert made.verdict.startswith("does not fit")
    assert f"{short / 2**30:,.2f} GiB" in made.verdict
    assert rows(made, "points")["smallest tp"]["tp"] == 2


def test_the_answers_are_the_last_that_fit():
    made, fit = answer(context=4096, batch=3), Fit(request("llama-3.1-8b").spec, Serving(), hardware("rtx-4090"))
    points = rows(made, "points")
    most, many = points["largest context"]["context"], points["largest batch"]["batch"]
    assert fit.left(most, 3) >= 0 > fit.left(most + 1, 3)
    assert fit.left(4096, many) >= 0 > fit.left(4096, many + 1)


@pytest.mark.parametrize(("device", "tp"), [("rtx-4090", 1), ("a100-sxm-40gb", 4)])
def test_every_part_is_explained_with_its_own_value(device, tp):
    made = answer(device=device, context=8192, batch=2, setting=Setting(tp=tp))
    explained = {explanation.figure: explanation.worked for explanation in made.explanations}
    for part, row in rows(made, "memory").items():
        assert last_number(explained[part]) == row["bytes"]
    asked = rows(made, "points")["asked"]
    assert last_number(explained["needed"]) == asked["needed"]
    assert last_number(explained["left"]) == asked["left"]
    for point in ("largest context", "largest batch"):
        answered = rows(made, "points")[point][point.split()[1]]
        assert f"{answered:,}: " in explained[point.replace(" ", "_")]


@pytest.mark.parametrize(("weights", "said"), [("bf16", False), ("fp8", True)])
def test_what_is_not_quantised_is_said_where_weights_are_explained(weights, said):
    made = answer(context=4096, setting=Setting(weights=weights))
    explained = next(each for each in made.explanations if each.figure == "weights")
    assert ("embedding, positions, norms, biases, router and head stay in bf16" in explained.assumptions) is said


def test_the_smallest_device_by_trying_all():
    context, spec = 32_768, request("mixtral-8x7b").spec
    made = answer("mixtral-8x7b", None, context)
    found = []
    for name in names():
        if hardware(name).memory is None:
            continue
        fit = Fit(spec, Serving(), hardware(name))
        held = [tp for tp in valid_tp(spec) if fit.at(tp).left(context, 1) >= 0]
        if held:
            found.append((held[0] * hardware(name).memory, held[0], name))
    assert list(rows(made, "devices")) == [name for *_, name in sorted(found, key=lambda device: device[:2])]
    assert [row["tp"] for row in rows(made, "devices").values()] == [
        tp for _, tp, _ in sorted(found, key=lambda d: d[:2])
    ]


def test_devices_that_cannot_hold_it_are_named():
    made = answer("deepseek-v3", None, 4096)
    assert "t4" in next(note for note in made.notes if note.startswith("too small"))
    assert "t4" not in rows(made, "devices")


@pytest.mark.parametrize(
    ("model", "device", "context", "note"),
    [
        ("mistral-7b-v0.1", "h200", 4096, "memory sets no end"),
        ("llama-3-8b", "h200", 8192, "the model was made for 8,192 tokens"),
        ("llama-3-8b", "h200", 10_000, "beyond the model's context of 8,192"),
        ("deepseek-v3", "h200", 1024, "not even one token"),
        ("llama-3.1-70b", "rtx-3090", 4096, "the interconnect joins 2 of these devices"),
    ],
)
def test_what_an_answer_leaves_out_is_said(model, device, context, note):
    assert any(note in said for said in answer(model, device, context).notes)


def test_i05_bytes_are_shown_in_binary_units():
    """8,030,261,248 parameters in bf16 are 16.06 GB, and 14.96 GiB."""
    shown = io.StringIO()
    show_document(answer("llama-3-8b"), Console(file=shown, width=120, color_system=None))
    assert "14.96 GiB" in shown.getvalue()
    assert " GB " not in shown.getvalue()


@pytest.mark.parametrize("device", ["h200", None])
@pytest.mark.parametrize("width", [60, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_stands_in_its_width(device, width, encoding):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    show_document(answer("gpt2", device), Console(file=file, width=width, color_system=None))
    file.flush()
    assert max(map(len, raw.getvalue().decode(encoding).splitlines())) <= width
