"""Commands of `aspect` for scripts, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["CommandFailedError", "positive", "run_command"]

SOURCE = Path(__file__).parents[1] / "src"


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


def positive(text: str) -> int:
    """Read a whole number from a script's command line: how many at a time."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"it must be 1 or more. Got {number}.")
    return number
