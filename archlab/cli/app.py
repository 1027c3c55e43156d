"""The application: its commands, loaded as they are asked for, and what an error becomes."""

from __future__ import annotations

import errno
import gc
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import archlab
from archlab import stdout
from archlab.cli.options import Plugins, print_json
from archlab.errors import EMPTY, ArchlabError, RequestError, UnknownFlag, in_short, shortened
from archlab.interrupt import exit_code, take_ends

app = typer.Typer(
    name="archlab",
    help="Compose a decoder-only language model from swappable parts; see what it costs, build it, time it.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)
COMMANDS = {
    "build": "build",
    "bench": "bench",
    "resume": "results",
    "results": "results",
    "report": "report",
    "compare": "build",
    "components": "catalog",
    "models": "catalog",
    "import": "interop",
    "export": "interop",
    "flops": "paper",
    "kv": "paper",
    "memory": "paper",
    "hardware": "device",
    "roofline": "device",
    "fit": "device",
    "diff": "paper",
    "size": "size",
    "explain": "explain",
    "shapes": "inside",
    "verify": "inside",
    "lab": "lab",
    "new": "new",
}
"""Each command and the module of this folder that holds it, in the order of the help."""
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP)
"""What is wrong with a path that was named, wherever it is found out."""
CTRL_C = 130
"""What Typer makes of every KeyboardInterrupt, whichever signal it was."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"archlab {archlab.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    plugins: Plugins = None,
) -> None:
    """archlab answers: if I choose this norm, these positions, this attention, this FFN: what does it cost?"""


def _load(arguments: Sequence[str]) -> None:
    """Register the commands of the module that the first word needs; of all, where it is none of them.

    Typer makes a parser for each command that it knows, whichever is called: 3 ms each.
    """
    first = next((word for word in arguments if not word.startswith("-")), "")
    wanted = [COMMANDS[first]] if first in COMMANDS else COMMANDS.values()
    for name in dict.fromkeys(wanted):
        if name not in _loaded:
            _loaded.add(name)
            importlib.import_module(f"archlab.cli.{name}").register(app)


_loaded: set[str] = set()


def parser() -> Any:
    """Typer's own parser of every command, for who wants to read what there is."""
    _load(())
    return typer.main.get_command(app)


def main() -> None:
    """Run the command line; every error is one message and an exit code."""
    arguments = sys.argv[1:]
    gc.set_threshold(50_000, 20, 100)  # imports make many objects and little garbage: a tenth of a short command
    sys.stdout = stdout.keep()
    take_ends()
    sys.exit(run(lambda: _written(answer(arguments)), arguments))


def _written(code: int) -> int:
    """The exit code, once all that was shown is out."""
    sys.stdout.flush()
    return code


def answer(arguments: list[str]) -> int:
    """Run one command line; its exit code."""
    _load(arguments)

    def call() -> Any:
        _refuse_empty(arguments)
        code = app(args=arguments, prog_name="archlab", standalone_mode=False)
        return exit_code() if code == CTRL_C else code

    return run(call, arguments)


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Raise RequestError for an empty text: it names no file, no figure and no choice, and some take it for none."""
    for before, word in zip(("archlab", *arguments), arguments, strict=False):
        option, joined, value = word.partition("=") if word.startswith("-") else (before, "=", word)
        if joined and not value.strip():
            raise RequestError(f"{option if option.startswith('-') else f'after {option}'}: {EMPTY}")


def run(call: Callable[[], Any], arguments: list[str]) -> int:
    """The exit code of a call: 0 fine, 1 not ok, 2 a wrong request, 128 + a signal (130 Ctrl-C). Prints the error."""
    try:
        result = call()
    except UnknownFlag as error:
        return _refuse(error.among(_flags(arguments)), arguments)
    except ArchlabError as error:
        return _refuse(error, arguments)
    except SystemExit as stop:
        return _ended(stop.code, arguments)
    except KeyboardInterrupt:
        return exit_code()
    except BrokenPipeError:
        stdout.drop()
        return 0
    except OSError as error:
        return _closed(error, arguments)
    except Exception as error:
        if isinstance(error, typer.Abort):
            return exit_code()
        if hasattr(error, "format_message"):  # a usage error of Typer's own parser, which it does not export
            return _refuse(RequestError(_once(error.format_message())), arguments)
        return _unforeseen(error, arguments)
    return result if isinstance(result, int) else 0


def _closed(error: OSError, arguments: list[str]) -> int:
    """The exit code where the system did not let a file be read or written, stdout among them."""
    if error.filename is None and error.errno in NO_ROOM:  # else it is a file's
        stdout.drop()
        stdout.say(f"archlab: standard output cannot be written: {error.strerror}")
        return exit_code(otherwise=1)
    if error.filename is None and error.errno == errno.ENOENT:  # of the system's calls that take no path
        return _refuse(RequestError("the folder that this was started in is no longer there"), arguments)
    if error.filename is not None and error.errno in CLOSED:
        problem = f"{shortened(str(error.filename))}: cannot be read or written: {error.strerror}"
        return _refuse(RequestError(problem), arguments)
    return _unforeseen(error, arguments)


def _unforeseen(error: Exception, arguments: list[str]) -> int:
    where = "" if "--debug" in arguments else "; --debug shows where"
    return _refuse(ArchlabError(f"{in_short(error)}{where}"), arguments)


def _ended(code: str | int | None, arguments: list[str]) -> int:
    """The exit code where a library ended the process."""
    if code == 2:  # Hydra's own parser, which has said why
        return _refuse(RequestError("Hydra refused the command line"), arguments)
    if code in (0, 1, None):  # 1 is rich at a pipe that was closed
        return 0
    return code if isinstance(code, int) else 1  # it was told to end, as Ray's workers are


def _flags(arguments: Sequence[str]) -> list[str]:
    """The flags that the command has of its own."""
    commands = getattr(typer.main.get_command(app), "commands", {})
    command = next((commands[word] for word in arguments if word in commands), None)
    return [flag for param in getattr(command, "params", ()) for flag in param.opts if flag.startswith("--")]


def _once(message: str) -> str:
    """A usage error whose suggestion both Typer and click have added."""
    return " Did you mean ".join(dict.fromkeys(message.split(" Did you mean ")))


def _refuse(error: ArchlabError, arguments: list[str]) -> int:
    if "--debug" in arguments:
        import traceback

        traceback.print_exc()
    if "--json" in arguments:
        print_json({"error": error.as_dict()})
    else:
        stdout.say(f"archlab: {error}")
    return error.exit_code
