"""Commands of `aspect` for scripts, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from aspect.errors import AspectError

__all__ = ["CommandFailedError", "positive", "run_command", "run_several", "told_in_a_line"]

SOURCE = Path(__file__).parents[1] / "src"

Job = TypeVar("Job")
Main = Callable[[Sequence[str] | None], int]


class CommandFailedError(Exception):
    """A command ended without its result; the message is its own."""


def run_command(words: Sequence[str], options: Sequence[str]) -> dict[str, Any]:
    """What a command says of itself with `--json`; `words` are those to name it by."""
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "aspect", *words, *options, "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        why = lines[-1] if lines else f"it ended with exit code {done.returncode}."
        raise CommandFailedError(f"aspect {' '.join(words)}: {why}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run_several(
    jobs: Sequence[Job], run: Callable[[Job], dict[str, Any]], workers: int
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """All jobs, several at a time, each as soon as those before it are done.

    After a failure or Ctrl-C those under way come to their end and no further one is begun.
    """
    with ThreadPoolExecutor(workers) as pool:
        yield from zip(jobs, pool.map(run, jobs), strict=True)  # map gives up what has not begun


def told_in_a_line(main: Main) -> Main:
    """What goes wrong and Ctrl-C end a script with a sentence and an exit code, no traceback."""

    @wraps(main)
    def telling(arguments: Sequence[str] | None = None) -> int:
        try:
            return main(arguments)
        except (CommandFailedError, AspectError) as error:
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
