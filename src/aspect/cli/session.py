"""What all commands share: groups of options, and errors as one line with an exit code."""

from __future__ import annotations

import inspect
import sys
import traceback
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from aspect.cli.console import Screen, harmless
from aspect.cli.options import CommonOptions
from aspect.config import Config, make_config
from aspect.errors import AspectError

__all__ = ["INTERRUPTED", "OUR_ERROR", "USER_ERROR", "Session", "command", "complain"]

USER_ERROR, OUR_ERROR, INTERRUPTED = 2, 1, 130


@dataclass(frozen=True)
class Session:
    """One call of a command: what the common options say, and where to write."""

    options: CommonOptions
    screen: Screen

    @property
    def device(self) -> str | None:
        """The device asked for."""
        return self.options.device

    @property
    def seed(self) -> int | None:
        """The seed asked for."""
        return self.options.seed

    @property
    def data_dir(self) -> str | None:
        """The folder asked for."""
        return None if self.options.data_dir is None else str(self.options.data_dir)


def command(
    function: Callable[..., None] | None = None, *, without: Sequence[str] = ()
) -> Callable[..., Any]:
    """Make a function into a command: its session and its groups of options become options.

    A group is a NamedTuple whose fields are annotated as typer wants them, or a model of the
    library: its fields with their types, defaults and docstrings become the options.

    Args:
        function: The command, with the session as its first parameter.
        without: Common options that would do nothing, which are not offered.
    """
    if function is None:
        return partial(command, without=without)
    hints = typing.get_type_hints(function, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if _is_group(kind)}

    def call(**values: Any) -> None:  # noqa: ANN401 - what typer parsed
        common = _gather(CommonOptions, values)
        screen = Screen(as_json=common.as_json)
        try:
            gathered = {name: _gather(kind, values) for name, kind in groups.items()}
            with screen.logging():
                function(Session(common, screen), **gathered, **values)
        except typer.Exit:
            raise  # the command has said what is to be said, and chose the code
        except (Exception, KeyboardInterrupt) as error:
            raise typer.Exit(complain(error, debug=common.debug)) from error

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    parameters = [one for one in _parameters(function, hints) if one.name not in without]
    vars(call)["__signature__"] = inspect.Signature(parameters)
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Config)


def _is_group(kind: object) -> bool:
    return _is_model(kind) or (isinstance(kind, type) and hasattr(kind, "_field_defaults"))


def _gather(kind: Any, values: dict[str, Any]) -> Any:  # noqa: ANN401 - a group
    """Take the fields of a group out of what was parsed."""
    names = kind.model_fields if _is_model(kind) else kind._fields
    taken = {name: values.pop(name) for name in names if name in values}
    return make_config(kind, taken, owner="the command") if _is_model(kind) else kind(**taken)


def _parameters(function: Callable[..., None], hints: dict[str, Any]) -> list[inspect.Parameter]:
    """The function's own parameters with groups spread out, and the common options last."""
    parameters: list[inspect.Parameter] = []
    for each in list(inspect.signature(function).parameters.values())[1:]:  # the session is first
        kind = hints[each.name]
        own = [each.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY)]
        parameters += _fields_of(kind) if _is_group(kind) else own
    return parameters + _fields_of(CommonOptions)


def _fields_of(group: Any) -> list[inspect.Parameter]:  # noqa: ANN401 - a group
    only = inspect.Parameter.KEYWORD_ONLY
    if _is_model(group):
        return [
            inspect.Parameter(name, only, default=field.default, annotation=_option(name, field))
            for name, field in group.model_fields.items()
        ]
    hints = typing.get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(name, only, default=default, annotation=hints[name])
        for name, default in group._field_defaults.items()
    ]


def _option(name: str, field: FieldInfo) -> Any:  # noqa: ANN401 - an annotation
    """A model's field as typer wants it: `graph_path` is --graph-path."""
    text = (field.description or "").rstrip(".").replace("\n", " ")
    return Annotated[field.annotation, typer.Option(f"--{name.replace('_', '-')}", help=f"{text}.")]


def complain(error: BaseException, *, debug: bool = False) -> int:
    """Say on standard error what went wrong, in one line; return the exit code."""
    if debug and not isinstance(error, KeyboardInterrupt):
        traceback.print_exception(error)
    sentence, code = _explain(error)
    sys.stderr.write(f"{harmless(sentence)}\n")
    return code


def _explain(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "Interrupted.", INTERRUPTED
    if isinstance(error, AspectError):
        return f"Error: {error}", USER_ERROR
    if _is_out_of_memory(error):
        return (
            "Error: Out of memory. A model of smaller width takes less (--set width=128); "
            "or use a machine with more.",
            USER_ERROR,
        )
    what = f"{type(error).__name__}: {error}"
    return f"Error: {what} (unexpected; run again with --debug to see where)", OUR_ERROR


def _is_out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")  # if it is not there, it has not raised
    kinds = (MemoryError,) if torch is None else (MemoryError, torch.OutOfMemoryError)
    # On the CPU torch has no type of its own for it.
    return isinstance(error, kinds) or "allocate memory" in str(error)
