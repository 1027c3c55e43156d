"""The page: a template, a style, a script, the plotting library and the data, all in one file that asks nobody."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from archlab.errors import RequestError
from archlab.record import finite
from archlab.report.text import clean

HERE = Path(__file__).parent
SCRIPTS = (
    *("data", "numbers", "front", "state", "plot", "scatter", "effects", "parallel", "curves", "bars"),
    *("table", "point", "main"),
)
"""The parts of the page's script in the order in which they are read."""

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "script-src 'unsafe-eval' {hashes}"
)
"""What the page may do: run the scripts that are known by their hashes and no other, and ask no address for anything.

The library compiles its shaders' callers, hence `unsafe-eval`; nothing of the data is ever given to it as code.
"""


def page(data: Mapping[str, Any]) -> str:
    """The HTML file of a report's data, see `overview.py`. Raises RequestError without the plotting library."""
    scripts = {
        "theme": _read("script/theme.js"),
        "plotly": _plotly(),
        "script": "(() => {\n'use strict';\n" + "\n".join(_read(f"script/{name}.js") for name in SCRIPTS) + "})();\n",
    }
    policy = POLICY.format(hashes=" ".join(map(_hash, scripts.values())))
    title = html.escape(clean(data["title"]))
    return Template(_read("page.html")).substitute(
        scripts, policy=policy, title=title, style=_read("style.css"), data=script_json(data)
    )


def script_json(data: Any) -> str:
    """JSON that may stand in a script element: in ASCII, and with nothing in it that could end the element."""
    try:
        text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    except ValueError:  # a float that JSON cannot hold: rare, and seconds of a long sweep to look for
        text = json.dumps(finite(data), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise RequestError("the page needs plotly, which is not installed: pip install 'archlab[report]'") from None
    return str(get_plotlyjs())


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
