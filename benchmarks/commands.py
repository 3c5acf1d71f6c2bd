"""What several scripts share: work in other processes, tables of rows, the command line."""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import fields
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter

from aspect.errors import AspectError, FileError
from aspect.experiment.executor import Finished, LocalProcesses, Lost
from aspect.workspace import write_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Row = TypeVar("Row", bound=DataclassInstance)

__all__ = ["json_of", "markdown", "positive", "read_rows", "run_all", "told_in_a_line"]
__all__ += ["verdict", "write_rows"]

SOURCE = Path(__file__).parents[1] / "src"

Task = TypeVar("Task")
Result = TypeVar("Result")
Main = Callable[[Sequence[str] | None], int]


def json_of(name: str, words: Sequence[str], threads: int = 1) -> Any:  # noqa: ANN401 - of JSON
    """What Python prints as JSON in a process of its own; `name` is what an error calls it."""
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    threaded = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, *words],
        env={**os.environ, **threaded},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise AspectError(f"{name}: {lines[-1] if lines else f'exit code {done.returncode}.'}")
    return json.loads(done.stdout)


def run_all(
    work: Callable[[Task], Result],
    tasks: Iterable[Task],
    workers: int,
    keep: Callable[[Task, Result], object],
) -> int:
    """Do all tasks, several at a time; each result is kept as soon as it is there.

    Returns:
        How many tasks were lost; why is printed.
    """
    lost = 0
    with closing(LocalProcesses(workers).run(partial(_quietly, work), tasks)) as events:
        for event in events:
            if isinstance(event, Finished):
                keep(event.task, event.result)
            elif isinstance(event, Lost):
                print(f"{event.task}: {event.reason}", file=sys.stderr, flush=True)
                lost += 1
    return lost


def _quietly(work: Callable[[Task], Result], task: Task) -> Result:
    """In a worker, without the warnings of each training."""
    logging.getLogger("aspect").setLevel(logging.ERROR)
    return work(task)


def read_rows(path: Path, kind: type[Row], command: str) -> list[Row]:
    """The rows of a table that a command wrote; none without a file."""
    import pandas as pd  # here: it would count in the memory of a process that is measured

    if not path.exists():
        return []
    try:
        table = pd.read_csv(path, comment="#", dtype=str, keep_default_na=False)
        if list(table) != [field.name for field in fields(kind)]:
            raise ValueError("other columns")
        return TypeAdapter(list[kind]).validate_python(table.to_dict("records"))  # type: ignore[valid-type] # known when called
    except ValueError as error:
        raise FileError(f"{str(path)!r} must be a file of `{command}`: remove it.") from error


def write_rows(path: Path, kind: type[Row], rows: Iterable[dict[str, Any]], note: str) -> None:
    """The fields of a kind of rows below a note, whole or not at all."""
    import pandas as pd

    table = pd.DataFrame(rows, columns=[field.name for field in fields(kind)])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, f"# {note}\n" + table.to_csv(index=False, lineterminator="\n"))


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], rule: str = "---") -> str:
    """A table, without a line break at its end; `rule` aligns all columns but the first."""
    rules = ["---", *[rule] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rules, *rows))


def verdict(reached: bool | None) -> str:
    """Whether a target was reached, for a table of rich; nothing where that is not known."""
    if reached is None:
        return ""
    return "[green]reached[/]" if reached else "[red]missed[/]"


def told_in_a_line(main: Main) -> Main:
    """What goes wrong and Ctrl-C end a script with a sentence and an exit code, no traceback."""

    @wraps(main)
    def telling(arguments: Sequence[str] | None = None) -> int:
        try:
            return main(arguments)
        except AspectError as error:
            print(error, file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("Interrupted. The same command goes on.", file=sys.stderr)
            return 130

    return telling


def positive(text: str) -> int:
    """Read a whole number from a script's command line: how many at a time."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"it must be 1 or more. Got {number}.")
    return number
