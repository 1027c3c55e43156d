"""A record as it lies on the disk: what is written can be read again, every field of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archlab.frozen import values_of
from archlab.record import _FIGURE, KINDS, STATUSES, Figure, Record, load, no_figure, write_atomically

NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
FIGURES = st.builds(
    Figure,
    value=st.none() | NUMBERS,
    unit=st.text(),
    kind=st.sampled_from(KINDS),
    how=st.text(),
    low=st.none() | NUMBERS,
    high=st.none() | NUMBERS,
    repeats=st.none() | st.integers(1, 99),
    status=st.sampled_from(STATUSES),
    reason=st.none() | st.text(),
    facts=st.none() | st.dictionaries(st.text(), st.text()),
)
CONFIGS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"model": st.fixed_dictionaries({"name": st.text()})}
)


def test_each_field_of_a_figure_can_be_read() -> None:
    assert set(_FIGURE) == set(values_of(Figure(1, "", "exact", "")))


@given(config=CONFIGS, figures=st.dictionaries(st.text(), FIGURES, max_size=3), notes=st.lists(st.text()))
def test_what_is_saved_is_loaded(
    tmp_path_factory: Any, config: dict[str, Any], figures: dict[str, Figure], notes: list[str]
) -> None:
    record = Record(config, figures=figures, notes=notes)
    folder: Path = tmp_path_factory.mktemp("record")
    read = load(record.save(folder))
    assert (read.config, read.notes) == (config, notes)
    assert list(read.figures) == list(figures)
    for name, figure in figures.items():
        for field, value in values_of(figure).items():
            again = getattr(read.figures[name], field)
            assert again == value or (isinstance(value, float) and math.isclose(again, value)), (name, field)


def test_an_error_names_the_file_that_was_to_be_written_not_its_temporary(tmp_path, monkeypatch):
    def denied(path, *rest, **named):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(PermissionError) as caught:
        write_atomically(tmp_path / "mine.txt", "text")
    assert caught.value.filename == str(tmp_path / "mine.txt")


def test_a_title_keeps_what_stands_in_quotes() -> None:
    """Hydra puts backslashes before what it sweeps over; in quotes, as in a name, they are the user's."""
    record = Record({"model": {"name": r"a\(b"}}, [r"model.about=one\ $\{seed\}", r"weights='C:\\a\, b'"])
    assert record.title == r"a\(b model.about=one ${seed} weights='C:\\a\, b'"


def test_a_phase_that_is_timed_lacks_only_the_figure() -> None:
    known = ["params", "prefill_tok_s", "prefill_mfu"]
    assert str(no_figure("sort", "prefill_mfus", known)) == (
        "sort: no figure 'prefill_mfus'; did you mean prefill_mfu?; valid: params, prefill_tok_s, prefill_mfu"
    )
    assert "decode is not timed" in str(no_figure("sort", "decode_mfu", known))
    assert "did you mean decode.flops?" in str(no_figure("explain", "decode_flops", ["train.flops", "decode.flops"]))
    assert "not timed" not in str(no_figure("sort", "kv_bytes", known))
