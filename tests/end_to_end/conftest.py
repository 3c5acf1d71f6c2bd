"""The command line as a user meets it, in this process where that is enough."""

import csv
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import aspect
from aspect.cli.answers import ANSWERS, schema_of
from aspect.errors import harmless

SOURCES = Path(aspect.__file__).parent.parent
DEADLINE_SECONDS = 120  # of what takes seconds
TINY = ["--set", "epochs=2", "--set", "width=8", "--set", "gate_width=4"]


@dataclass
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        assert self.code == 0, self.err
        return answer_of(self.out)

    def refused(self, *words):
        """One line on standard error, exit code 2; with --json the same on standard output."""
        assert self.code == 2, (self.code, self.out, self.err)
        errors = [line for line in self.err.splitlines() if line.startswith("Error: ")]
        assert errors == self.err.splitlines()[-1:], self.err
        assert "Traceback" not in self.err
        if self.out:
            answer = answer_of(self.out)
            assert harmless(f"Error: {answer['error']['message']}") == errors[0]
            assert answer["exit_code"] == self.code
        for word in words:
            assert word in errors[0], errors[0]
        return errors[0]


def answer_of(text):
    """The object that a command printed; it must be one that its schema allows."""
    content = json.loads(text)
    name = content["schema"].split("/")[1]
    assert content["schema"] == schema_of(name)
    ANSWERS[name].model_validate({key: content[key] for key in content if key != "schema"})
    return content


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

    def call(*arguments, preexec=None, timeout=DEADLINE_SECONDS, **changes):
        done = subprocess.run(
            command(*arguments),
            capture_output=True,
            text=True,
            timeout=timeout,
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


def run(*arguments):
    """Run a command that must succeed."""
    from aspect.cli.main import run

    assert run([str(argument) for argument in arguments]) == 0


@pytest.fixture(scope="session")
def inputs(tables):
    """The small tables as words of a command."""
    return [tables / "edges.csv", "--nodes", tables / "nodes.csv", "--device", "cpu"]


# Runs and perturbation files on the small tables, made once; tests must not change them.


@pytest.fixture(scope="session")
def trained(inputs, tmp_path_factory):
    """A complete run."""
    out = tmp_path_factory.mktemp("trained") / "run"
    run("train", *inputs, *TINY, "--out", out)
    return out


@pytest.fixture(scope="session")
def raw_run(inputs, tmp_path_factory):
    """A run of a method without weights and without a gate."""
    out = tmp_path_factory.mktemp("raw") / "run"
    run("train", *inputs, "--method", "raw", "--out", out)
    return out


@pytest.fixture(scope="session")
def unlabelled(tmp_path_factory):
    """A run on a graph without labels, with its tables in `tables` beside it."""
    folder = tmp_path_factory.mktemp("unlabelled")
    (folder / "tables").mkdir()
    write_tables(folder / "tables", count=30, label=False)
    graph = [folder / "tables" / "edges.csv", "--nodes", folder / "tables" / "nodes.csv"]
    run("train", *graph, *TINY, "--out", folder / "run")
    return folder / "run"


@pytest.fixture(scope="session")
def flips(inputs, tmp_path_factory):
    """Metattack for class-balanced splits 0 and 2."""
    out = tmp_path_factory.mktemp("flips")
    run("attack", *inputs, "--budget", 0.2, "--split", 0, "--split", 2, "--out", out)
    return out


@pytest.fixture(scope="session")
def file(flips):
    """Of them, that for split 2."""
    return flips / "edges-metattack-implicit-class-balanced-2.safetensors"


@pytest.fixture(scope="session")
def poisoned(inputs, file, tmp_path_factory):
    """A run on the graph after all flips of the file."""
    out = tmp_path_factory.mktemp("poisoned") / "run"
    run("train", *inputs, *TINY, "--perturbation", file, "--out", out)
    return out


def snapshot(folder):
    """Content of every file in a folder."""
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


# Processes that are stopped from outside


def wait_for(condition, process=None):
    """Wait until something comes to pass, while a process runs."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it does not come to pass"
        time.sleep(0.02)


def workers_of(parent):
    """Ids of the processes that a command has started for its work."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat, words = (folder / "stat").read_text(), (folder / "cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        state, owner = stat.rpartition(")")[2].split()[:2]
        if int(owner) == parent and state not in "ZX" and "spawn_main" in words:
            found.append(int(folder.name))
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
