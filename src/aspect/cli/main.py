"""The command `aspect`: which commands there are, and what becomes of wrong usage."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from pydantic import ValidationError

from aspect import __version__
from aspect.cli.attack import attack
from aspect.cli.bench import bench
from aspect.cli.check import check
from aspect.cli.cluster import cluster
from aspect.cli.console import Screen
from aspect.cli.datasets import datasets
from aspect.cli.demo import demo
from aspect.cli.embed import embed
from aspect.cli.evaluate import evaluate
from aspect.cli.generate import generate
from aspect.cli.grammar import SectionedCommand, SectionedGroup
from aspect.cli.inspect import inspect
from aspect.cli.methods import methods
from aspect.cli.neighbours import neighbours
from aspect.cli.plan import plan
from aspect.cli.report import report
from aspect.cli.session import INTERRUPTED, OUR_ERROR, USER_ERROR
from aspect.cli.stability import stability
from aspect.cli.store import store
from aspect.cli.theory import theory
from aspect.cli.train import train
from aspect.cli.tune import tune
from aspect.config import wrong_value
from aspect.errors import reason
from aspect.methods.registry import method_names, setting_names

# The base of all that typer raises about wrong usage; it has no public name of its own.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="aspect",
    help="Node embeddings without labels: every node has gate weights of its own for its low-pass "
    "and its high-pass band.",
    cls=SectionedGroup,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"aspect {__version__}")
        raise typer.Exit


@app.callback()
def _callback(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


SECTIONS = {
    "Your graph": (check, train, embed, evaluate, neighbours),
    "What a model does": (inspect, attack, stability),
    "Comparisons": (bench, tune, report),
    "Large graphs": (plan, generate, store, cluster),
    "Lists and examples": (datasets, methods, demo, theory),
}
commands = tuple(function for functions in SECTIONS.values() for function in functions)
for section, functions in SECTIONS.items():
    for function in functions:
        app.command(cls=SectionedCommand, rich_help_panel=section)(function)


NAMES = {function.__name__ for function in commands}


def run(arguments: Sequence[str]) -> int:
    """Run one command; return the exit code. Wrong usage is one line.

    No word at all asks for help.
    """
    try:
        code = typer.main.get_command(app).main(
            args=list(arguments) or ["--help"], prog_name="aspect", standalone_mode=False
        )
    except UsageError as error:
        command = next((word for word in arguments if word in NAMES), "")
        screen = Screen(command, as_json="--json" in arguments)
        return screen.fail(f"Error: {_usage(error)}", "UsageError", USER_ERROR)
    except typer.Abort:
        return INTERRUPTED
    except OSError as error:
        if error.filename is not None:  # those of --install-completion
            return Screen().fail(
                f"Error: Cannot write {str(error.filename)!r}: {reason(error)}.",
                "OSError",
                USER_ERROR,
            )
        # Of standard output alone; Python must not write there when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # whoever reads (`| head`) has seen enough
            sys.stderr.write(f"Error: Cannot write to standard output: {reason(error)}.\n")
        return OUR_ERROR
    return code if isinstance(code, int) else 0


def _usage(error: Exception) -> str:
    format_message = getattr(error, "format_message", None)
    message = str(format_message() if format_message else error)
    if isinstance(error.__cause__, ValidationError):
        name = message.removeprefix("Invalid value for ").partition(":")[0]
        return wrong_value(name.strip("'"), error.__cause__.errors()[0])
    message = message if message.endswith((".", "?")) else f"{message}."
    return f"{message}{_setting_advice(error)}"


def _setting_advice(error: Exception) -> str:
    """Where an unknown option may be meant as a setting of the method: how those are given."""
    name, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if name is None or context is None:
        return ""
    takes_settings = any("--set" in option.opts for option in context.command.params)
    setting = str(name).lstrip("-").replace("-", "_")
    is_setting = any(setting in setting_names(method) for method in method_names())
    if not takes_settings or (getattr(error, "possibilities", None) and not is_setting):
        return ""
    return f" A setting of the method is given by --set {setting}=..."


def main() -> None:
    """The entry point: exit with the code of the command."""
    # On a busy machine torch's threads would otherwise burn the time of those they wait for; this
    # is read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell (`>&-`): it swallows all
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        # A terminal that cannot show a letter shows a question mark rather than a traceback.
        getattr(getattr(sys, name), "reconfigure", lambda **_: None)(errors="replace")
    sys.exit(run(sys.argv[1:]))
