"""A server of processes that may be killed; started at its first use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import aspect

SOURCES = Path(aspect.__file__).parent.parent


class Child:
    """One task in a process of its own."""

    def __init__(self, server: Server, pid: int) -> None:
        self.server, self.pid = server, pid
        self.status: int | None = None

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        if self.status is None:
            self.status = int(self.server.answer())
        return self.status

    @property
    def words(self) -> str:
        """What the task said when it was refused."""
        return self.server.errors.read_text()


class Server:
    def __init__(self, errors: Path) -> None:
        self.errors = errors
        environment = {**os.environ, "PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "child.py"), str(errors)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def answer(self) -> str:
        line = self.process.stdout.readline()
        assert line, "the server of child processes has died"
        return line

    def start(self, task: str, **arguments: object) -> Child:
        self.errors.write_text("")
        request = {"task": task, **{name: _plain(value) for name, value in arguments.items()}}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return Child(self, int(self.answer()))

    def run(self, task: str, **arguments: object) -> Child:
        child = self.start(task, **arguments)
        child.wait()
        return child


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("server") / "errors.txt")
    yield running
    running.process.stdin.close()
    assert running.process.wait(timeout=30) == 0
