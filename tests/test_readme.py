"""The README gives what it says: its Python example, and what was measured."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_comparison_with_others_is_what_was_measured():
    shown = re.search(r"<!-- peers -->\n(.*?)<!-- end peers -->", README, re.DOTALL)[1]
    assert shown == (ROOT / "benchmarks" / "results" / "peers.md").read_text(encoding="utf-8")


def test_the_python_example_gives_the_values_in_its_comments():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    names = {}
    checked = 0
    for line in code.splitlines():
        statement, _, said = line.partition("#")
        try:
            value = eval(statement, names) if statement.strip() else None
        except SyntaxError:
            exec(statement, names)
            continue
        if said.strip():
            assert str(value) == said.strip()
            checked += 1
    assert checked == 7
