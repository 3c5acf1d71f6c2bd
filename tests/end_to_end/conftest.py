"""The command line as a user meets it, in this process where that is enough."""

import csv
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import aspect

SOURCES = Path(aspect.__file__).parent.parent
TINY = ["--set", "epochs=3", "--set", "width=8", "--set", "gate_width=4"]


@dataclass
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        assert self.code == 0, self.err
        return json.loads(self.out)

    def refused(self, *words):
        """One line on standard error, nothing on standard output, exit code 2."""
        assert self.code == 2, (self.code, self.out, self.err)
        assert self.out == ""
        errors = [line for line in self.err.splitlines() if line.startswith("Error: ")]
        assert errors == self.err.splitlines()[-1:], self.err
        assert "Traceback" not in self.err
        for word in words:
            assert word in errors[0], errors[0]
        return errors[0]


def command(*arguments):
    return [sys.executable, "-m", "aspect", *map(str, arguments)]


def environment(**changes):
    base = {**os.environ, "PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1", **changes}
    return {name: value for name, value in base.items() if value is not None}


@pytest.fixture
def cli(capfd, tmp_path, monkeypatch):
    """Run a command in this process, in an empty working directory."""
    from aspect.cli.main import run

    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        return Outcome(code, *capfd.readouterr())

    call.cwd = tmp_path
    return call


@pytest.fixture
def process(tmp_path):
    """Run a command in a process of its own."""

    def call(*arguments, preexec=None, **changes):
        done = subprocess.run(
            command(*arguments),
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env=environment(**changes),
            preexec_fn=preexec,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """Thirty people in two groups, as an edge table and a node table with names for ids."""
    return write_tables(tmp_path_factory.mktemp("tables"), count=30)


def write_tables(folder, *, count, label=True, shift=0.0):
    random = np.random.default_rng(0)
    names = [f"person {k:02d}/ä" for k in range(count)]
    groups = np.arange(count) % 2
    features = random.normal(size=(count, 4)) + groups[:, None] + shift
    pairs = [(a, b) for a in range(count) for b in range(a) if random.random() < 0.15]
    with (folder / "edges.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target"])
        writer.writerows((names[a], names[b]) for a, b in pairs)
    with (folder / "nodes.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "a", "b", "c", "d", *(["label"] if label else [])])
        for name, row, group in zip(names, features, groups, strict=True):
            extra = [f"group {group}"] if label else []
            writer.writerow([name, *map(float, row), *extra])
    return folder


@pytest.fixture(scope="session")
def trained(tables, tmp_path_factory):
    """A complete run on the small tables; tests must not change it."""
    from aspect.cli.main import run

    out = tmp_path_factory.mktemp("trained") / "run"
    arguments = ["train", tables / "edges.csv", "--nodes", tables / "nodes.csv", *TINY]
    assert run([*map(str, arguments), "--out", str(out)]) == 0
    return out
