"""What all commands share: groups of options, and errors as one line with an exit code."""

from __future__ import annotations

import inspect
import os
import traceback
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from pydantic import Field, PrivateAttr

from aspect.cli.console import Screen
from aspect.cli.grammar import gather, options_of
from aspect.config import Config
from aspect.errors import AspectError, is_out_of_memory
from aspect.plugins import import_plugin

USER_ERROR, OUR_ERROR, INTERRUPTED = 2, 1, 130
# Packages that some commands need, by the extra that installs them.
EXTRAS = {"optuna": "tune", "matplotlib": "report", "jinja2": "report"}


class Session(Config):
    """Options of every command.

    And where one call of it writes.
    """

    as_json: Annotated[bool, typer.Option("--json")] = False
    """Print one JSON object on standard output, and nothing else."""
    device: Annotated[str | None, typer.Option(metavar="NAME")] = None
    """cpu, cuda or cuda:N.  [default: the GPU if there is one]"""
    seed: Annotated[int | None, Field(ge=0)] = None
    """Seed of first weights and of every draw in training."""
    data_dir: Annotated[str | None, typer.Option(metavar="PATH")] = None
    """Folder of data sets: their files, and entries of yours.  [default: $ASPECT_DATA]"""
    imports: Annotated[list[str] | None, typer.Option("--import", metavar="MODULE")] = None
    """Import a module that adds methods, attacks or data sets."""
    debug: bool = False
    """Show the whole traceback of an error."""

    _screen: Screen = PrivateAttr(default_factory=Screen)

    @property
    def screen(self) -> Screen:
        """Where to write."""
        return self._screen


def command(
    function: Callable[..., None] | None = None, *, without: Sequence[str] = ()
) -> Callable[..., Any]:
    """Make a function into a command: its session and its groups of options become options.

    A group is a model: its fields with their types, least values, defaults and docstrings become
    the options. A `typer.Option` in a field's annotation adds a name, a metavar or a computed help.

    Args:
        function: The command, with the session as its first parameter.
        without: Common options that would do nothing, which are not offered.
    """
    if function is None:
        return partial(command, without=without)
    hints = typing.get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]  # the session is first
    groups = {one.name: hints[one.name] for one in own if _is_group(hints[one.name])}

    def call(**values: Any) -> None:  # noqa: ANN401 - what typer parsed
        screen, debug = Screen(function.__name__, as_json=values["as_json"]), values["debug"]
        try:
            session = gather(Session, values)
            session._screen = screen
            for module in session.imports or ():
                import_plugin(module)
            gathered = {name: gather(kind, values) for name, kind in groups.items()}
            with screen.logging(), _data_in(session.data_dir):
                function(session, **gathered, **values)
        except typer.Exit:
            raise  # the command has said what is to be said, and chose the code
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, OSError) and screen.is_answering:
                raise  # standard output is closed or full, which `run` tells
            raise typer.Exit(_complain(error, screen, debug=debug)) from error

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    only, parameters = inspect.Parameter.KEYWORD_ONLY, []
    for one in own:
        hint = hints[one.name]
        parameters += (
            options_of(hint) if one.name in groups else [one.replace(annotation=hint, kind=only)]
        )
    parameters += [one for one in options_of(Session) if one.name not in without]
    vars(call)["__signature__"] = inspect.Signature(parameters)
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


@contextmanager
def _data_in(folder: str | None) -> Iterator[None]:
    """Make the folder the one where names of data sets are looked up, also by workers."""
    before = os.environ.get("ASPECT_DATA")
    if folder is not None:
        os.environ["ASPECT_DATA"] = folder
    try:
        yield
    finally:
        os.environ.pop("ASPECT_DATA", None)
        if before is not None:
            os.environ["ASPECT_DATA"] = before


def _is_group(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Config)


def require(*packages: str) -> None:
    """Refuse at once where an optional package is missing, and not after all the work."""
    for package in packages:
        if find_spec(package) is None:
            raise ModuleNotFoundError(name=package)


def _complain(error: BaseException, screen: Screen, *, debug: bool = False) -> int:
    """Say what went wrong, in one line; return the exit code."""
    if debug and not isinstance(error, KeyboardInterrupt):
        traceback.print_exception(error)
    sentence, code = _explain(error)
    return screen.fail(sentence, type(error).__name__, code)


def _explain(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "Interrupted.", INTERRUPTED
    if isinstance(error, AspectError):
        return f"Error: {error}", USER_ERROR
    missing = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and missing in EXTRAS:
        return (
            f"Error: {missing} is not installed. "
            f"Install it with: pip install 'aspect-gcl[{EXTRAS[missing]}]'.",
            USER_ERROR,
        )
    if is_out_of_memory(error):
        return (
            "Error: Out of memory. A model of smaller width takes less (--set width=128); "
            "or use a machine with more.",
            USER_ERROR,
        )
    what = f"{type(error).__name__}: {error}"
    return f"Error: {what} (unexpected; run again with --debug to see where)", OUR_ERROR
