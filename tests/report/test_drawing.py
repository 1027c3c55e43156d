"""Drawings keep their columns when a terminal has no more than ASCII."""

from __future__ import annotations

import io

from rich.console import Console

from archlab.document import Drawing
from archlab.report.drawing import PLAIN, show_drawing, shown


def test_each_character_has_one_plain_one_in_its_place() -> None:
    for special, plain in PLAIN.items():
        assert not chr(special).isascii()
        assert len(plain if isinstance(plain, str) else chr(plain)) == 1
        assert str(plain if isinstance(plain, str) else chr(plain)).isascii()


def test_a_line_as_it_is_and_in_plain() -> None:
    line = "x ─┬─> gqa ──+ ─> y  ■□· →↗↑↖←↙↓↘"
    assert shown(line, plain=False) == line
    assert shown(line, plain=True) == "x -+-> gqa --+ -> y  #o. >/^\\</v\\"


def test_a_drawing_is_never_wrapped() -> None:
    out = io.StringIO()
    wide = "■ " * 50
    show_drawing(Drawing("Mask", [wide], "of two"), Console(file=out, width=40))
    assert out.getvalue() == f"\nMask  of two\n  {wide.rstrip()}\n"
