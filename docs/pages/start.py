"""The first page: the README, its links seen from here."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)]+)\)")


def pages() -> dict[str, str]:
    return {"start": LINK.sub(seen_from_docs, (ROOT / "README.md").read_text(encoding="utf-8"))}


def seen_from_docs(link: re.Match[str]) -> str:
    """`](docs/sweeps.md)` as `](sweeps.md)`, what is not in docs/ from its parent."""
    return f"]({link[1].removeprefix('docs/') if link[1].startswith('docs/') else f'../{link[1]}'})"
