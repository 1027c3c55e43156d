"""The site's settings. `sphinx-build -W docs build/site` builds it, without a network; a warning fails it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "archlab"
extensions = ["myst_parser"]
exclude_patterns = ["pages"]
myst_heading_anchors = 3
nitpicky = True
smartquotes = False  # of `--json` they make a dash
html_theme = "furo"
html_title = "archlab"
html_copy_source = False
html_show_search_summary = False  # it is fetched, which a page that is opened as a file may not
html_show_copyright = False
html_show_sphinx = False


def write(app: Any) -> None:
    """Write the pages that are made from archlab itself, those that changed."""
    from pages import axes, commands, start

    for name, text in {**start.pages(), **axes.pages(), **commands.pages()}.items():
        file = HERE / f"{name}.md"
        file.parent.mkdir(exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    app.connect("builder-inited", write)
