"""docs/own-choice.md says what there is: what each axis hands over, and commands that exist."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from archlab.cli import app as cli
from archlab.components.own import BASES, HANDED
from archlab.frozen import fields_of

TEXT = (Path(__file__).parent.parent / "docs" / "own-choice.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("axis", BASES)
def test_the_table_has_what_a_constructor_may_ask_for(axis):
    row = re.search(rf"^\| `{axis}` \|(.*?)\|", TEXT, re.MULTILINE)[1]
    said = set(re.findall(r"`(\w+)`", row))
    sizes = set(fields_of(BASES[axis])) & {"d_model", "n_heads"}
    assert set(HANDED[axis]) <= said
    assert said <= {"spec", *HANDED[axis], *sizes}


def test_its_commands_and_files_are_there():
    cli._load([])
    known = get_command(cli.app).commands
    words = re.findall(r"archlab (\w+) (?:--|norm|llama)", TEXT)
    assert len(words) >= 5
    assert set(words) <= set(known)
    for name in re.findall(r"\]\(\.\./(examples/\w+\.py)\)", TEXT):
        assert (Path(__file__).parent.parent / name).is_file()
    lines = len((Path(__file__).parent.parent / "examples" / "dyt.py").read_text().splitlines())
    assert f"a norm in {lines} lines" in TEXT
