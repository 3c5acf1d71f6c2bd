"""`aspect bench` as a user meets it: killed, interrupted, called again, and with wrong plans."""

import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from aspect import mixed_graph
from aspect.cli.main import run
from aspect.data.archives import write_npz
from aspect.experiment.store import read_details, read_records
from aspect.training.health import Health

from .conftest import command, environment

PLAN = """
entries:
  - {name: aspect, title: ASPECT}
  - {name: broken, method: aspect, set: {learning_rate: 1.0e+9}}
  - {name: raw, seeds: 1}
graphs: [small.npz]
splits: random
num_splits: 2
seeds: 2
set: {epochs: 15, width: 8, gate_width: 4, order: 2}
perturbations:
  - none
  - {kind: random, budgets: [0.2]}
  - {kind: random, mode: evade, budgets: [0.2]}
details: [aspect]
"""
CELLS = 2 * (2 + 2 + 1) + 4
BROKEN = 5
DEADLINE_SECONDS = 120
OPTIONS = ["--device", "cpu", "--workers", 2]
ALONE = ["--device", "cpu", "--workers", 1]


def prepare(folder):
    """A plan and its graph in a working directory."""
    (folder / "tiny.yaml").write_text(PLAN)
    write_npz(folder / "small.npz", mixed_graph(60, degree=4.0, num_features=6, seed=0))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A bench that nobody disturbed: its working directory, and what it said."""
    cwd = prepare(tmp_path_factory.mktemp("whole"))
    said = subprocess.run(
        command("bench", "tiny.yaml", *OPTIONS),
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return cwd, said


@pytest.fixture
def here(tmp_path):
    return prepare(tmp_path)


class Running:
    """A bench in a process of its own, of which some runs are done."""

    def __init__(self, cwd, done, options=OPTIONS):
        self.log = cwd / "runs" / "tiny" / "log.txt"
        self.process = subprocess.Popen(
            command("bench", "tiny.yaml", *options),
            cwd=cwd,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            self.wait_for(lambda: len(events(self.log)["done"]) >= done)
        except BaseException:
            self.stop()
            raise
        self.workers = workers_of(self.process.pid)

    def wait_for(self, condition):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, "the bench takes too long"
            time.sleep(0.01)

    def stop(self):
        self.process.kill()
        return self.process.communicate()


@pytest.fixture
def running(here):
    started = Running(here, done=2)
    yield started
    started.stop()


def events(log):
    """Keys of cells, and files of attacks, by what happened to them."""
    found = {"started": [], "done": [], "failed": []}
    for line in log.read_text().splitlines() if log.exists() else []:
        if not line.startswith(" "):
            _, event, key, *_ = line.split()
            found.setdefault(event, []).append(key)
    return found


def workers_of(parent):
    """Process ids of a bench's workers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat, words = (folder / "stat").read_text(), (folder / "cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, owner = stat.rpartition(")")[2].split()[:2]
        if int(owner) == parent and state not in "ZX" and "spawn_main" in words:
            found.append(int(folder.name))
    return found


def wait_until_gone(pids):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"processes {alive} outlive the bench"
        time.sleep(0.01)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def table(folder):
    """All records but for what no two runs share: time and memory."""
    changing = {"seconds", "peak_memory_bytes"}
    return [record.model_dump(exclude=changing) for record in read_records(folder / "runs/tiny")]


def files(folder):
    """Content and time of every record and detail."""
    parts = ("cells", "failed", "details")
    every = [path for part in parts for path in sorted((folder / "runs/tiny" / part).iterdir())]
    return {
        path.name: (path.parent.name, path.read_bytes(), path.stat().st_mtime_ns) for path in every
    }


def go_on(cwd, monkeypatch):
    monkeypatch.chdir(cwd)
    return run(["bench", "tiny.yaml", *map(str, ALONE)])  # how many decides nothing


def test_a_plan_becomes_records(whole):
    cwd, said = whole
    assert said.returncode == 1, "some cells failed"
    records = read_records(cwd / "runs/tiny")
    assert Counter(record.status for record in records) == {
        "done": CELLS - BROKEN,
        "failed": BROKEN,
    }
    assert {record.cell.entry for record in records if record.status == "failed"} == {"broken"}
    assert all("finite" in record.error for record in records if record.status == "failed")
    assert "Traceback" in (cwd / "runs/tiny/log.txt").read_text()
    assert [each.title for each in read_details(cwd / "runs/tiny")] == ["ASPECT"]
    assert "Traceback" not in said.stderr


def test_the_answer_is_a_table_and_the_next_step(whole):
    _, said = whole
    assert "ASPECT, random 20% poison" in said.stdout
    assert "ASPECT, random 20% evade" in said.stdout
    assert f"{CELLS - BROKEN} of {CELLS} runs are done" in said.stdout
    assert f"{BROKEN} runs failed. The first: " in said.stdout
    assert "Next: aspect report runs/tiny --out runs/tiny/report.html" in said.stdout


def test_again_does_nothing(whole, cli, monkeypatch):
    cwd, _ = whole
    before = files(cwd)
    monkeypatch.chdir(cwd)
    outcome = cli("bench", "tiny.yaml", "--json")
    assert outcome.code == 1, "what failed is not tried again"
    assert f'"kept": {CELLS - BROKEN}' in outcome.out
    assert "--retry-failed" in outcome.err
    assert files(cwd) == before
    part = cli("bench", "tiny.yaml", "--entry", "raw", "--entry", "aspect", "--json").json
    assert (part["cells"], part["done"], part["failed"]) == (CELLS - BROKEN, CELLS - BROKEN, 0)
    assert len(read_records(cwd / "runs/tiny")) == CELLS, "the rest is still part of the bench"


def test_embeddings_close_to_collapse_are_counted(whole, cli, monkeypatch):
    cwd, _ = whole
    monkeypatch.chdir(cwd)
    part = ["bench", "tiny.yaml", "--entry", "raw", "--entry", "aspect"]
    healthy = [Health.from_dict(each.health) for each in done_records(cwd)]
    assert len(healthy) == CELLS - BROKEN
    told = cli(*part, "--json").json
    assert told["collapsed"] == sum(health.is_collapsed for health in healthy)
    monkeypatch.setattr(Health, "is_collapsed", True)
    said = cli(*part).out
    assert f"{CELLS - BROKEN} runs have an embedding close to representation collapse" in said


def done_records(cwd):
    return [each for each in read_records(cwd / "runs/tiny") if each.status == "done"]


def test_the_list_says_where_it_stands(whole, cli, monkeypatch):
    cwd, _ = whole
    monkeypatch.chdir(cwd)
    rows = {row["entry"]: row for row in cli("bench", "tiny.yaml", "--list", "--json").json["rows"]}
    assert rows["raw"] == {"entry": "raw", "graph": "small", "done": 4, "failed": 0, "left": 0}
    assert rows["broken"]["failed"] == BROKEN
    empty = cli("bench", "tiny.yaml", "--list", "--out", "nowhere")
    assert f"0 of {CELLS} runs are done" in empty.out
    assert not (cwd / "nowhere").exists()


def test_killed_and_gone_on_with(whole, running, here, monkeypatch, capfd):
    monkeypatch.chdir(here)
    assert run(["bench", "tiny.yaml"]) == 2
    assert "Another process is using runs/tiny" in capfd.readouterr().err
    running.stop()
    wait_until_gone(running.workers)
    first = events(running.log)
    kept = {path.stem for path in (here / "runs/tiny/cells").iterdir()}
    assert 2 <= len(kept) < CELLS - BROKEN, "killed in the middle"
    assert go_on(here, monkeypatch) == 1
    assert f"{len(kept)} of {CELLS} runs are done already and kept" in capfd.readouterr().err
    again = events(running.log)["started"][len(first["started"]) :]
    assert not kept & set(again), "no finished cell is carried out again"
    assert table(here) == table(whole[0])


def test_a_killed_worker_costs_nothing_but_time(whole, running, here):
    os.kill(running.workers[0], signal.SIGKILL)
    out, err = running.process.communicate(timeout=DEADLINE_SECONDS)
    assert running.process.returncode == 1, (out, err)
    counts = Counter(events(running.log)["started"])
    assert sorted(counts.values()) in ([1] * CELLS, [1] * (CELLS - 1) + [2])
    assert set(Counter(events(running.log)["done"]).values()) == {1}
    assert table(here) == table(whole[0])


def test_an_interrupt_says_how_to_go_on(here):
    running = Running(here, done=1, options=ALONE)
    try:
        os.killpg(running.process.pid, signal.SIGINT)  # as Ctrl-C on a terminal does
        _, err = running.process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        running.process.kill()
    assert running.process.returncode == 130
    assert err.splitlines()[-1].startswith("Interrupted. ")
    assert err.splitlines()[-1].endswith(f"of {CELLS} runs are done. The same command goes on.")
    assert "Traceback" not in err
    wait_until_gone(running.workers)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["smok"], ["Unknown plan or file 'smok'", "Did you mean 'smoke'?"]),
        (["none.yaml"], ["none.yaml", "no such file"]),
        (["tiny.yaml", "--entry", "aspct"], ["Unknown entry", "Did you mean 'aspect'?"]),
        (["tiny.yaml", "--graph", "small"], ["Unknown graph", "small.npz"]),
        (["tiny.yaml", "--redo", "aspct"], ["Unknown entry", "Did you mean 'aspect'?"]),
        (["tiny.yaml", "--workers", "0"], ["--workers"]),
        (["tiny.yaml", "--perturbations", "none"], ["--perturbations must be a folder", "'none'"]),
        (["vague.yaml"], ["metattack must name its solver"]),
        (["small.yaml"], ["cannot be attacked", "allows no flip"]),
        (["tiny.yaml", "--out", "taken"], ["not a bench's folder"]),
        (["lost.yaml"], ["lost.npz", "no such file"]),
        (["tiny.yaml", "--list", "--out", "taken"], ["not a bench's folder"]),
        (["typo.yaml"], ["Unknown setting", "'widht'", "Did you mean 'width'?"]),
        (["odd.yaml"], ["Unknown setting 'entires'", "Did you mean 'entries'?"]),
        (["broken.yaml"], ["not valid YAML"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_calls_are_answered_in_one_line(cli, arguments, words):
    folder = prepare(cli.cwd)
    (folder / "taken").mkdir()
    (folder / "taken" / "photo.jpg").write_text("")
    (folder / "lost.yaml").write_text("entries: [raw]\ngraphs: [lost.npz]\n")
    (folder / "odd.yaml").write_text("entires: [raw]\ngraphs: [mixed]\n")
    (folder / "typo.yaml").write_text("entries: [low]\ngraphs: [mixed]\nset: {widht: 8}\n")
    (folder / "broken.yaml").write_text("entries: [raw\n")
    head = "entries: [raw]\ngraphs: [small.npz]\nperturbations: "
    (folder / "vague.yaml").write_text(head + "[{kind: metattack}]\n")
    (folder / "small.yaml").write_text(head + "[{kind: dice, budgets: [0.001]}]\n")
    cli("bench", *arguments, "--device", "cpu").refused(*words)
    assert not (folder / "runs").exists()
