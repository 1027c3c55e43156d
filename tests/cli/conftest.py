"""The command line as a user runs it: a process of its own, in an empty folder."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self):
        """stdout as the one JSON document that it must be."""
        return json.loads(self.out)


@dataclass
class Shell:
    folder: Path

    def __call__(self, *arguments, env=None, timeout=120):
        return self._run(["-m", "archlab", *arguments], env, timeout)

    def python(self, code):
        """The answer of a program."""
        return self._run(["-c", code], None, 120)

    def _run(self, arguments, env, timeout):
        environment = {**os.environ, **(env or {})}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def left(self):
        """Every file under the folder."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture(scope="session")
def shell_in():
    """A shell in a folder that is there."""
    return Shell


@pytest.fixture
def shell(tmp_path):
    folder = tmp_path / "somewhere else"
    folder.mkdir()
    return Shell(folder)
