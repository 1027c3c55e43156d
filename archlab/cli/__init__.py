"""The command line: parse, call, print. A module for commands that belong together; `app.py` loads what is asked."""

from archlab.cli.app import answer, main, run

__all__ = ["answer", "main", "run"]
