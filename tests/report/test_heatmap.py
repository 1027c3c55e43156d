"""Shades in the terminal: which stands for what, what is hidden, and plain ASCII."""

from __future__ import annotations

import io

from rich.console import Console

from archlab.document import Document, Heatmap, Table
from archlab.report.heatmap import show_heatmap

DRAWN = Heatmap("weights", "Weights", "key", "query", [[1.0, None, None], [0.3, 0.7, None], [0.0, 0.05, 0.95]])


def text(width: int = 80, encoding: str = "utf-8", drawn: Heatmap = DRAWN) -> list[str]:
    written = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show_heatmap(drawn, Console(file=written, width=width, color_system=None))
    written.seek(0)
    return written.read().splitlines()


def test_a_row_of_shades_by_the_root_of_their_share() -> None:
    """Five shades; sqrt(0.3) = 0.55 is in the third fifth, sqrt(0.7) = 0.84 in the last, sqrt(0.05) = 0.22."""
    blank, title, *rows, legend = text()
    assert (blank, title) == ("", "Weights  query down, key across")
    assert [row.strip() for row in rows] == ["0│██", "1│▒▒██", "2│··░░██"]
    assert legend.strip() == ("· <0.04, ░ <0.16, ▒ <0.36, ▓ <0.64, █ <=1.000, blank: hidden")


def test_plain_ascii_and_narrow_cells() -> None:
    wide = Heatmap("w", "Wide", "key", "query", [[1.0] * 60])
    assert text(encoding="ascii", drawn=wide)[2].strip() == "0|" + "@" * 60
    assert all(line.isascii() for line in text(encoding="ascii"))


def test_nothing_but_zeros() -> None:
    assert text(drawn=Heatmap("w", "Zeros", "key", "query", [[0.0, 0.0]]))[2].strip() == "0│····"


def test_its_numbers_are_in_the_json_document() -> None:
    made = Document("lab", "mine", [Table("t", "T", (), [])], charts=[DRAWN]).as_dict()
    assert made["heatmaps"]["weights"]["rows"][1] == [0.3, 0.7, None]
    assert "heatmaps" not in Document("lab", "mine", []).as_dict()
