"""The command reference, from Typer's own parser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from archlab.cli.app import COMMANDS, parser
from archlab.report.formats import md_escape
from pages.markdown import block, code, table

HEAD = """# Commands

What `archlab COMMAND --help` says, of every command. MODEL is a preset (`archlab models`), an archlab YAML, a Hugging
Face `config.json`, or the folder of a run; what is to change of it follows it: `model/AXIS=CHOICE`,
`model.AXIS.OPTION=VALUE`. Exit codes: 0 fine, 1 the run or a point of a sweep is not ok, 2 the request was wrong, 130
Ctrl-C, 143 SIGTERM, 129 SIGHUP; these three keep what is finished."""


def pages() -> dict[str, str]:
    return {"commands": page()}


def page() -> str:
    """A section for each command, in the order of the help."""
    root = parser()
    return "\n\n".join([HEAD, *(text for name in COMMANDS for text in section(root.commands[name]))])


def section(command: Any) -> Iterator[str]:
    """A command: what it does, how it is called, examples, arguments, options."""
    context = command.make_context(f"archlab {command.name}", [], resilient_parsing=True)
    told, examples = helped(command)
    yield f"## {command.name}"
    yield from map(md_escape, told)
    yield block([command.get_usage(context).removeprefix("Usage: "), *([""] if examples else []), *examples])
    for kind in ("argument", "option"):
        records = [param.get_help_record(context) for param in command.params if param.param_type_name == kind]
        rows = [[code(name), md_escape(said)] for name, said in filter(None, records)]
        if rows:
            yield table([kind, "what"], rows)
    if command.epilog:
        yield md_escape(command.epilog)


def helped(command: Any) -> tuple[list[str], list[str]]:
    """The paragraphs of the help, and those of them that are commands to type."""
    paragraphs = [" ".join(part.split()) for part in command.help.split("\n\n")]
    examples = [part for part in paragraphs if part.startswith("archlab ")]
    return [part for part in paragraphs if part not in examples], examples
