"""`show_build`: numbers whole at every width, sections and kinds said, mismatches loud, names never interpreted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from torch import nn

import archlab
from archlab.record import Figure, Record
from archlab.report.build import show_build, telling_options

Make = Callable[..., Record]
Paper = Callable[..., Console]


def shown(record: Record, console: Console) -> str:
    show_build(record, console)
    return console.file.getvalue()


def exact_numbers(record: Record) -> Iterator[str]:
    """Every whole number that the page must hold; parts that are 0 are left out."""
    layer_kinds = sum(name.startswith("params.layers.") for name in record.figures)
    for name, figure in record.figures.items():
        single = name.startswith("params.layers.") and layer_kinds == 1
        if figure.kind == "exact" and figure.value and not single:
            yield f"{int(figure.value):,}"


@pytest.mark.parametrize("width", [None, 20, 40, 60, 80, 120, 200])
def test_every_exact_number_is_whole_at_every_width(make: Make, paper: Paper, width: int | None) -> None:
    record = make(speed=1.0, layers=[{"attention": {"n_kv_heads": 1}, "repeat": 3}, {"attention": {}}])
    text = shown(record, paper(width))
    assert [number for number in exact_numbers(record) if number not in text] == []
    assert "…" not in text


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(make: Make, paper: Paper, width: int) -> None:
    text = shown(make(speed=1.0), paper(width))
    assert max(map(len, text.splitlines())) <= width


def test_a_pipe_is_neither_wrapped_nor_cut(make: Make, paper: Paper) -> None:
    record = make(speed=1.0)
    text = shown(record, paper())
    assert "\x1b" not in text
    lines = text.splitlines()
    assert all(line == line.rstrip() for line in lines)
    for name in ("params", "params_non_embedding"):
        assert any(record.figures[name].how in line and f"{record.value(name):,}" in line for line in lines)


def test_the_sections_come_in_order_and_say_their_kind(make: Make, paper: Paper) -> None:
    text = shown(make(speed=1.0), paper())
    heads = ["minimind  63,912,192 parameters (63.91 M)  ok", "Composition", "Parameters  exact", "KV cache  exact"]
    heads += ["FLOPs per token  exact", "Throughput  measured", "Record  outputs/"]
    places = [text.index(head) for head in heads]
    assert places == sorted(places)


def test_the_facts_of_minimind(make: Make, paper: Paper) -> None:
    lines = shown(make(), paper()).splitlines()

    def row(start: str) -> list[str]:
        return next(line for line in lines if line.strip().startswith(start)).split()

    assert row("per token")[2] == "12,288"
    assert row("2,048 tokens")[2:6] == ["25,165,824", "B", "24.00", "MiB"]
    assert row("lm_head")[1] == "tied"
    assert row("params ")[1:4] == ["63,912,192", "63.91", "M"]
    assert row("attention")[1] == "gqa"
    assert "  closed form = built module: 63,912,192 = 63,912,192 ok" in lines


def test_a14_a_padded_vocabulary_shows_tokens_rows_and_what_is_unused(make: Make, paper: Paper) -> None:
    record = make(vocab_size=50257, vocab_multiple=64)
    assert "vocab_size 50,304" in shown(record, paper())
    assert "50,257 padded to 50,304 (47 rows, 36,096 parameters unused)" in shown(record, paper())
    both = {name: record.composition[name] for name in ("tokenizer_vocab", "vocab_size")}
    assert both == {"tokenizer_vocab": 50257, "vocab_size": 50304}


@pytest.mark.parametrize("multiple", [None, 1, 64])
def test_a_vocabulary_that_needs_no_padding_is_not_said_to_have_some(make: Make, paper: Paper, multiple: Any) -> None:
    assert "padded" not in shown(make(vocab_size=6400, vocab_multiple=multiple), paper())


def test_a_mismatch_is_loud(make: Make, paper: Paper) -> None:
    record = make()
    record.checks[0].update(found=63_912_191, ok=False)
    record.status, record.reason = "failed", "the module has other parameters"
    text = shown(record, paper(120, terminal=True))
    assert "63,912,192 != 63,912,191 MISMATCH" in text
    assert "\x1b[1;31m" in text
    assert record.reason in text


def test_throughput_shows_rate_spread_repeats_times_and_memory(make: Make, paper: Paper) -> None:
    lines = shown(make(speed=1.0), paper()).splitlines()
    prefill = next(line for line in lines if line.strip().startswith("prefill") and "TTFT" in line)
    assert " ".join(prefill.split()) == "prefill 12,346 12,099 12,716 12 TTFT 41.47 ms 310.0 ms 393.24 MiB"
    assert any("TPOT 11.41 ms" in line for line in lines)


def test_a_phase_without_a_value_says_why(make: Make, paper: Paper) -> None:
    record = make(speed=1.0)
    record.figures["decode_tok_s"] = Figure(
        None, "tok/s", "measured", "", status="oom", reason="needs 14 GiB, there are 8"
    )
    for width in (60, None):
        assert "decode: oom: needs 14 GiB, there are 8" in shown(record, paper(width))


def test_a_reason_not_to_trust_the_clock_is_shown(make: Make, paper: Paper) -> None:
    record = make(speed=1.0)
    record.environment["warning"] = "the machine was loaded: other processes used 1.9 of its 2 CPUs"
    assert f"  {record.environment['warning']}\n" in shown(record, paper())


def test_layer_kinds_are_shown_with_what_differs(make: Make, paper: Paper) -> None:
    record = make(layers=[{"attention": {"n_kv_heads": 1}, "repeat": 3}, {"position": {"choice": "none"}}])
    lines = shown(record, paper()).splitlines()
    kinds = [line.split() for line in lines if line.strip().startswith("layers")]
    assert ["layers", "0-2,", "4-6", "as", "above"] in kinds
    assert ["layers", "3,", "7", "attention:", "n_kv_heads", "4;", "position", "none"] in kinds
    assert any(figure.replace(",", "").isdigit() for row in kinds for figure in row)


@pytest.mark.parametrize("choice", ["ntk", "longrope"])
def test_c11_the_position_says_that_its_angles_are_fixed_for_a_run(make: Make, paper: Paper, choice: str) -> None:
    for length, text in ((None, "rope_length of the run, fixed at its start"), (4096, "rope_length 4,096")):
        lines = shown(make(position={"choice": choice, "rope_length": length}), paper()).splitlines()
        assert text in next(line for line in lines if line.split()[:2] == ["position", choice])


def test_one_layer_kind_is_not_listed(make: Make, paper: Paper) -> None:
    assert "layers 0-7" not in shown(make(), paper())


def test_figures_that_no_section_claims_are_shown_with_their_kind(make: Make, paper: Paper) -> None:
    record = make()
    record.figures["decode_guess_tok_s"] = Figure(912.34, "tok/s", "estimated", "bytes moved / bandwidth")
    row = next(line for line in shown(record, paper()).splitlines() if "decode_guess" in line)
    assert row.split("  ")[1:] == ["decode_guess_tok_s", "912.3 tok/s", "estimated", "bytes moved / bandwidth"]


def test_what_was_reached_of_the_ceilings_stands_in_one_row_with_the_bound(make: Make, paper: Paper) -> None:
    record = make(speed=1.0)
    invalid = Figure(None, "%", "measured", "", status="invalid", reason="104.0 % of 312 T FLOP/s cannot be")
    record.figures |= {
        "ceiling_matmul": Figure(180e9, "FLOP/s", "measured", "best of 3 runs on cpu: 1024 x 1024 fp32 product"),
        "ceiling_read.decode": Figure(
            40e9, "B/s", "measured", "best of 3 runs on cpu: torch.sum over 240.00 MiB of fp32"
        ),
        "decode_bound_tok_s": Figure(156.25, "tok/s", "bound", "tokens / max(..)", facts={"binds": "memory"}),
        "decode_mfu": Figure(6.25, "%", "measured", ""),
        "decode_mbu": Figure(56.1, "%", "measured", ""),
        "decode_mfu_datasheet": invalid,
    }
    record.environment["attention"] = {"decode": "flash"}
    lines = shown(record, paper()).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("Against this device's ceilings"))
    assert "matmul 180.0 GFLOP/s" in lines[start]
    row = next(line for line in lines[start:] if line.split()[:1] == ["decode"])
    assert row.split() == ["decode", "156.2", "memory", "6.2", "%", "56.1", "%", "invalid", "40.00", "flash"]
    assert not any("Other figures" in line for line in lines)


def test_notes_are_shown(make: Make, paper: Paper) -> None:
    record = make(attention={"choice": "mqa"})
    assert record.notes
    assert all(note in shown(record, paper()) for note in record.notes)


def test_a_record_that_failed_early_is_shown(failed: Make, paper: Paper) -> None:
    text = shown(failed(["model/norm=x"]), paper(60))
    assert text.splitlines() == ["minimind  oom", "  needs 14.00 GiB, there are 8.00"]


@settings(max_examples=30, deadline=None)
@given(name=st.text(max_size=40))
def test_names_are_text(make: Make, paper: Paper, name: str) -> None:
    record = make(name=name + "[bold red]x[/] :smile: \x1b[31m\n")
    title = shown(record, paper()).splitlines()[0]
    assert "[bold red]x[/] :smile:  [31m" in title
    assert "\x1b" not in title
    assert title.endswith("63,912,192 parameters (63.91 M)  ok")


def test_telling_options_come_first_and_defaults_are_left_out() -> None:
    described = {"choice": "gqa", "q_bias": False, "o_bias": True, "head_dim": 64, "n_heads": 8, "n_kv_heads": 2}
    assert list(telling_options("attention", described)) == ["n_heads", "n_kv_heads", "head_dim", "o_bias"]


def test_options_of_a_choice_that_is_not_installed_are_all_shown() -> None:
    assert telling_options("norm", {"choice": "theirs", "power": 3}) == {"power": 3}


def test_of_a_choice_of_others_all_options_are_shown(own_choices: None) -> None:
    class Theirs(nn.Module):
        def __init__(self, features: int, *, alpha: float = 0.5, shifted: bool = False) -> None:
            super().__init__()

    archlab.component("norm", "theirs", summary="for a test")(Theirs)
    described = {"choice": "theirs", "alpha": 0.5, "shifted": False}
    assert telling_options("norm", described) == {"alpha": 0.5, "shifted": False}
