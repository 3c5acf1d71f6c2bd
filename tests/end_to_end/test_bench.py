"""`aspect bench` as a user meets it: attacks first, killed, interrupted, called again, refused."""

import os
import shutil
import signal
import subprocess
from collections import Counter

import pytest

from aspect import mixed_graph
from aspect.attacks.file import PerturbationFile
from aspect.data.archives import write_npz
from aspect.data.files import LEFT_BEHIND
from aspect.experiment.store import read_details, read_records
from aspect.training.health import Health

from .conftest import (
    DEADLINE_SECONDS,
    command,
    environment,
    is_alive,
    wait_for,
    workers_of,
)

PLAN = """
entries:
  - {name: aspect, title: ASPECT}
  - {name: broken, method: aspect, set: {learning_rate: 1.0e+9, layer_order: filter-first}}
  - {name: raw}
graphs: [small.npz]
splits: random
num_splits: 2
set: {epochs: 8, width: 8, gate_width: 4, order: 2}
perturbations:
  - none
  - {kind: random, mode: evade, budgets: [0.2]}
  - {kind: metattack, solver: implicit, budgets: [0.05, 0.1]}
details: [aspect]
"""
BROKEN = 1 + 1 + 2 * 2  # cells of an entry: clean, evaded, and poisoned for each split and budget
DONE = 2 * BROKEN
CELLS = DONE + BROKEN
# Long enough to be killed in the middle of one file of two.
LONG = """
entries: [raw]
graphs: [larger.npz]
num_splits: 1
perturbations:
  - {kind: dice, budgets: [0.1]}
  - {kind: metattack, solver: unrolled, budgets: [0.75]}
"""
FILES = [f"small-metattack-implicit-random-{split}.safetensors" for split in (0, 1)]
ALONE = ["--device", "cpu", "--workers", 1]


def prepare(folder):
    """A plan and its graph in a working directory."""
    (folder / "tiny.yaml").write_text(PLAN)
    write_npz(folder / "small.npz", mixed_graph(60, degree=4.0, num_features=6, seed=0))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A bench that nobody disturbed: its working directory, and what it said."""
    cwd = tmp_path_factory.mktemp("whole")
    prepare(cwd)
    said = subprocess.run(
        command("bench", "tiny.yaml", "--device", "cpu", "--workers", 2),
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return cwd, said


@pytest.fixture
def here(whole, cli):
    """A copy of it that may be changed, as the working directory."""
    shutil.copytree(whole[0], cli.cwd, dirs_exist_ok=True)
    return cli.cwd


@pytest.fixture
def without_records(here):
    """The same with its perturbation files, and nothing run yet."""
    for name in ("cells", "failed", "details", "log.txt"):
        path = here / "runs/tiny" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (here / "runs/tiny/cells").mkdir()
    return here


def start(cwd, workers):
    """A bench in a process of its own."""
    return subprocess.Popen(
        command("bench", "tiny.yaml", "--device", "cpu", "--workers", workers),
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def stop(process):
    process.kill()
    return process.communicate()


def events(cwd):
    """Keys of cells, and files of attacks, by what happened to them."""
    found = {"started": [], "done": [], "failed": []}
    log = cwd / "runs/tiny/log.txt"
    for line in log.read_text().splitlines() if log.exists() else []:
        if not line.startswith(" "):
            _, event, key, *_ = line.split()
            found.setdefault(event, []).append(key)
    return found


def wait_until_gone(pids):
    wait_for(lambda: not any(is_alive(pid) for pid in pids))


def table(folder):
    """All records but for what no two runs share: time and memory."""
    changing = {"seconds", "peak_memory_bytes"}
    return [record.model_dump(exclude=changing) for record in read_records(folder / "runs/tiny")]


def stamps(folder):
    """Content and time of every file."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*.*")
        if path.suffix in (".json", ".npz", ".safetensors")
    }


def test_a_bench_begins_with_the_records_of_another(here, cli):
    done = ["--done", "runs/tiny/records.jsonl", "--done", "runs/tiny"]
    known = [*done, "--perturbations", "runs/tiny/perturbations"]
    result = cli("bench", "tiny.yaml", "--entry", "raw", "--out", "elsewhere", *known, *ALONE)
    assert result.code == 0, result.err
    log = here / "elsewhere/log.txt"
    assert not log.exists() or "started" not in log.read_text()
    earlier = [one for one in read_records(here / "runs/tiny") if one.cell.entry == "raw"]
    assert read_records(here / "elsewhere") == earlier
    cli("bench", "tiny.yaml", "--list", *known).refused("--list shows what --out holds")


def test_a_plan_becomes_perturbation_files_and_records(whole):
    cwd, said = whole
    assert said.returncode == 1, "some cells failed"
    assert "Traceback" not in said.stderr
    assert "2 perturbation files must be made first, into runs/tiny/perturbations." in said.stderr
    folder = cwd / "runs/tiny/perturbations"
    assert sorted(path.name for path in folder.iterdir()) == FILES
    log = (cwd / "runs/tiny/log.txt").read_text()
    order = [line.split()[1] for line in log.splitlines() if not line.startswith(" ")]
    assert sorted(order[:4]) == ["attacked", "attacked", "attacks", "attacks"]
    assert "attacks" not in order[4:]
    assert "Traceback" in log
    records = read_records(cwd / "runs/tiny")
    states = Counter((record.cell.entry, record.status) for record in records)
    assert states["broken", "failed"] == BROKEN
    assert states["aspect", "done"] + states["raw", "done"] == DONE
    assert all("finite" in record.error for record in records if record.status == "failed")


def test_every_record_is_bound_to_its_flips(whole):
    cwd, _ = whole
    folder = cwd / "runs/tiny"
    files = [PerturbationFile.read(folder / "perturbations" / name) for name in FILES]
    attacked = [
        record
        for record in read_records(folder)
        if record.status == "done" and record.cell.spec.perturbation_sha256 is not None
    ]
    assert len(attacked) == 2 * 2 * 2
    for record in attacked:
        work = record.cell.spec
        digests = [files[split].digest(work.perturbation.budget) for split in work.split_numbers]
        assert list(work.perturbation_sha256) == digests
        assert record.attack.flips == round(work.perturbation.budget * record.graph.edges)
    (details,) = read_details(folder)
    assert details.title == "ASPECT"


def test_the_answer_is_a_table_and_the_next_step(whole):
    _, said = whole
    assert "ASPECT, random 20% evade" in said.stdout
    assert "ASPECT, metattack (implicit) 10% poison" in said.stdout
    assert f"{DONE} of {CELLS} runs are done" in said.stdout
    assert f"{BROKEN} runs failed. The first: " in said.stdout
    assert "Next: aspect report runs/tiny --out runs/tiny/report.html" in said.stdout


def test_again_does_nothing(here, cli):
    before = stamps(here / "runs")
    outcome = cli("bench", "tiny.yaml", "--json")
    assert outcome.code == 1, "what failed is not tried again"
    assert f'"kept": {DONE}' in outcome.out
    assert '"perturbations": {"found": 2, "made": 0, "failed": 0}' in outcome.out
    assert "--retry-failed" in outcome.err
    assert stamps(here / "runs") == before
    part = ["bench", "tiny.yaml", "--entry", "raw", "--entry", "aspect"]
    content = cli(*part, "--json").json
    assert (content["cells"], content["done"], content["failed"]) == (DONE, DONE, 0)
    records = read_records(here / "runs/tiny")
    assert len(records) == CELLS, "the rest is still part of the bench"
    health = [Health.from_dict(record.health) for record in records if record.status == "done"]
    assert content["collapsed"] == sum(each.is_collapsed for each in health)


def test_embeddings_close_to_collapse_are_counted(here, cli, monkeypatch):
    monkeypatch.setattr(Health, "is_collapsed", True)
    said = cli("bench", here / "tiny.yaml", "--entry", "raw").out
    assert f"{DONE // 2} runs have an embedding close to representation collapse" in said


@pytest.mark.usefixtures("here")
def test_the_list_says_where_it_stands(cli):
    rows = {row["entry"]: row for row in cli("bench", "tiny.yaml", "--list", "--json").json["rows"]}
    assert rows["raw"] == {"entry": "raw", "graph": "small", "done": 6, "failed": 0, "left": 0}
    assert rows["broken"]["failed"] == BROKEN
    empty = cli("bench", "tiny.yaml", "--list", "--out", "nowhere").out
    assert f"0 of {CELLS} runs are done" in empty
    assert "variant" in empty
    assert "entry" not in empty
    assert "2 perturbation files are not there yet." in empty
    assert not (cli.cwd / "nowhere").exists()


@pytest.mark.parametrize(
    ("place", "options"), [("own", ["--perturbations", "own"]), ("results/perturbations", [])]
)
def test_files_found_elsewhere_serve_the_same_records(here, cli, place, options):
    (here / place).parent.mkdir(exist_ok=True)
    (here / "runs/tiny/perturbations").rename(here / place)
    before = stamps(here / place)
    listed = cli("bench", "tiny.yaml", "--list", *options, "--json").json
    assert (listed["done"], listed["perturbations"]) == (DONE, {"found": 2, "missing": 0})
    content = cli("bench", "tiny.yaml", "--entry", "raw", *options, "--json").json
    assert (content["kept"], content["perturbations"]["made"]) == (DONE // 2, 0)
    assert stamps(here / place) == before
    assert not (here / "runs/tiny/perturbations").exists()


def test_files_of_another_graph_are_refused_and_nothing_is_written(here, cli):
    write_npz(here / "small.npz", mixed_graph(60, degree=4.0, seed=1), overwrite=True)
    options = ("--out", "new", "--perturbations", "runs/tiny/perturbations")
    cli("bench", "tiny.yaml", *options).refused("belongs to another graph", "--perturbations")
    assert not (here / "new").exists()


def test_an_attack_that_fails_costs_its_own_cells_alone(here, cli):
    """A folder in the place of a file: it cannot be written, whatever the worker tries."""
    blocked = here / "out/perturbations" / FILES[1]
    (here / "flips").mkdir()
    shutil.copy(here / "runs/tiny/perturbations" / FILES[0], here / "flips")
    blocked.mkdir(parents=True)
    (here / "out/cells").mkdir()
    shutil.copy(here / "runs/tiny/plan.yaml", here / "out")
    options = ("--out", "out", "--perturbations", "flips", "--entry", "raw", "--json", *ALONE)
    outcome = cli("bench", "tiny.yaml", *options)
    assert outcome.code == 1
    records = read_records(here / "out")
    failed = [record for record in records if record.status == "failed"]
    assert {record.cell.spec.split_numbers for record in failed} == {(1,)}
    assert len(records) - len(failed) == 2 + 2
    assert all("attack for split 1 failed" in record.error for record in failed)
    assert "could not be made" in outcome.err
    again = cli("bench", "tiny.yaml", *options)
    assert '"failed": 1}' in again.out
    assert "must be made" not in again.err, "what failed is not tried again by itself"
    blocked.rmdir()
    mended = cli("bench", "tiny.yaml", *options, "--retry-failed").json
    assert (mended["done"], mended["failed"]) == (DONE // 2, 0)
    assert mended["perturbations"] == {"found": 1, "made": 1, "failed": 0}


def test_killed_and_gone_on_with(whole, without_records, cli):
    here, process = without_records, start(without_records, workers=2)
    try:
        wait_for(lambda: len(events(here)["done"]) >= 2, process)
        os.kill(process.pid, signal.SIGSTOP)  # or it may be through before it is asked
        cli("bench", "tiny.yaml").refused("Another process is using runs/tiny")
        workers = workers_of(process.pid)
    finally:
        stop(process)
    wait_until_gone(workers)
    first = events(here)
    written = (here / "runs/tiny/cells").iterdir()  # one may have been killed at its writing
    kept = {path.stem for path in written if not LEFT_BEHIND.fullmatch(path.name)}
    assert 2 <= len(kept) < DONE, "killed in the middle"
    again = cli("bench", "tiny.yaml", *ALONE)  # how many workers decides nothing
    assert again.code == 1
    assert f"{len(kept)} of {CELLS} runs are done already and kept" in again.err
    repeated = events(here)["started"][len(first["started"]) :]
    assert not kept & set(repeated), "no finished cell is carried out again"
    assert table(here) == table(whole[0])


def test_a_killed_worker_costs_nothing_but_time(whole, without_records):
    here, process = without_records, start(without_records, workers=2)
    try:
        wait_for(lambda: len(events(here)["done"]) >= 1, process)
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        stop(process)
    assert process.returncode == 1, (out, err)
    counts = Counter(events(here)["started"])
    assert len(counts) == CELLS
    assert max(counts.values()) <= 2
    trainings = {record.key: record.spec.training for record in read_records(here / "runs/tiny")}
    assert len({trainings[key] for key, count in counts.items() if count == 2}) <= 1
    assert set(Counter(events(here)["done"]).values()) == {1}
    assert table(here) == table(whole[0])


def test_an_interrupt_says_how_to_go_on(without_records):
    process = start(without_records, workers=1)
    try:
        wait_for(lambda: events(without_records)["done"], process)
        workers = workers_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C on a terminal does
        _, err = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("Interrupted. ")
    assert err.splitlines()[-1].endswith(f"of {CELLS} runs are done. The same command goes on.")
    assert "Traceback" not in err
    wait_until_gone(workers)


def is_begun(path):
    return path.exists() and not PerturbationFile.read(path).facts.complete


def test_killed_while_it_attacks_and_gone_on_with(cli):
    (cli.cwd / "tiny.yaml").write_text(LONG)
    # Some seconds of attack on a fast machine, of which the first two are written down.
    write_npz(cli.cwd / "larger.npz", mixed_graph(300, degree=20.0, num_features=16, seed=0))
    folder = cli.cwd / "runs/tiny/perturbations"
    drawn = folder / "larger-dice-random-0.safetensors"
    searched = folder / "larger-metattack-unrolled-random-0.safetensors"
    process = start(cli.cwd, workers=2)
    try:
        wait_for(lambda: is_begun(searched) and drawn.exists(), process)
        workers = workers_of(process.pid)
    finally:
        stop(process)
    wait_until_gone(workers)
    partial, before = PerturbationFile.read(searched), stamps(folder)
    assert 0 < len(partial.keys) < partial.facts.wanted
    content = cli("bench", "tiny.yaml", "--json", *ALONE).json
    assert content["perturbations"] == {"found": 1, "made": 1, "failed": 0}
    assert content["done"] == content["cells"] == 2
    whole = PerturbationFile.read(searched)
    assert whole.facts.complete
    assert whole.keys[: len(partial.keys)].tolist() == partial.keys.tolist()
    assert whole.facts.seconds > partial.facts.seconds
    assert stamps(folder)[drawn.name] == before[drawn.name], "nothing is done twice"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["small.yaml"], ["cannot be attacked", "allows no flip"]),
        (["lost.yaml"], ["lost.npz", "no such file"]),
        (["typo.yaml"], ["Unknown setting", "'widht'", "Did you mean 'width'?"]),
        (["tiny.yaml", "--out", "taken"], ["not a bench's folder"]),
        (["tiny.yaml", "--list", "--out", "taken"], ["not a bench's folder"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_run_is_refused_and_nothing_is_written(cli, arguments, words):
    prepare(cli.cwd)
    (cli.cwd / "taken").mkdir()
    (cli.cwd / "taken" / "photo.jpg").write_text("")
    (cli.cwd / "lost.yaml").write_text("entries: [raw]\ngraphs: [lost.npz]\n")
    (cli.cwd / "typo.yaml").write_text("entries: [low]\ngraphs: [mixed]\nset: {widht: 8}\n")
    (cli.cwd / "small.yaml").write_text(
        "entries: [raw]\ngraphs: [small.npz]\nperturbations: [{kind: dice, budgets: [0.001]}]\n"
    )
    cli("bench", *arguments, "--device", "cpu").refused(*words)
    assert not (cli.cwd / "runs").exists()
