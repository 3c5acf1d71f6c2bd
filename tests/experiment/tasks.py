"""Work for worker processes, which import it by its name."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from aspect.errors import GraphError
from aspect.experiment.executor import LocalProcesses

DEADLINE_SECONDS = 30


def double(number):
    return 2 * number


def process_and_threads(_):
    loaded = "torch" in sys.modules
    return os.getpid(), os.environ["OMP_NUM_THREADS"], os.environ.get("PLACE"), loaded


def fail(task):
    if task == "ours":
        raise GraphError("The graph is wrong.")
    if task == "theirs":
        raise ZeroDivisionError("none left")
    return task


def note_and_die(task):
    """Leave a line per attempt; die by kill -9 as often as the task says."""
    path, deaths = task
    attempts = Path(path).read_text().count("\n") if Path(path).exists() else 0
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")
    if attempts < deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def note_and_hold(path):
    """Leave the process id, then do not end by oneself."""
    Path(path).with_suffix(".part").write_text(str(os.getpid()))
    Path(path).with_suffix(".part").rename(path)
    time.sleep(600)


def wait_for(condition):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not come to pass"
        time.sleep(0.01)


def is_alive(pid):
    """Whether a process runs; one that has ended but was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


if __name__ == "__main__":  # a parent that is to be killed while its workers work
    for _ in LocalProcesses(2).run(note_and_hold, sys.argv[1:]):
        pass
