"""What the README shows of commands on paper is what they print: a paragraph may be left out, none is otherwise."""

import itertools
import re
import shlex
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
CODE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TIMED = ("build", "bench", "lab")


def shown():
    """Each block of text with the commands on paper that may have printed it: its own, or those of the block before."""
    blocks = CODE.findall(README)
    for (_, before), (kind, text) in itertools.pairwise(blocks):
        if kind != "text":
            continue
        for part in re.split(r"^(?=\$ )", text, flags=re.MULTILINE):
            own = re.match(r"\$ (.*)\n", part)
            commands = [own[1]] if own else re.findall(r"^archlab .*", before, re.MULTILINE)
            words = [shlex.split(command, comments=True)[1:] for command in commands]
            paper = [each for each in words if each[0] not in TIMED]
            if paper and part.strip():
                yield pytest.param(paper, part[own.end() :] if own else part, id=" ".join(paper[0]))


@pytest.mark.parametrize(("commands", "text"), list(shown()))
def test_it_is_what_is_printed(commands, text, shell):
    wanted = [paragraph.strip("\n") for paragraph in text.split("\n\n")]
    for words in commands:
        printed = "\n".join(map(str.rstrip, shell(*words).out.splitlines()))
        if all(paragraph in printed for paragraph in wanted):
            return
    pytest.fail(f"none of {commands} prints\n{text}")


def test_there_are_some():
    assert len(list(shown())) >= 6
