"""`aspect bench` with attacks: files made first and once, found elsewhere, refused, resumed."""

import shutil
import subprocess

import pytest

from aspect import mixed_graph
from aspect.attacks.file import PerturbationFile
from aspect.data.archives import write_npz
from aspect.experiment.store import read_details, read_records

from .conftest import command, environment
from .test_bench import ALONE, DEADLINE_SECONDS, OPTIONS, Running, wait_until_gone

PLAN = """
entries:
  - {name: aspect, title: ASPECT}
  - {name: raw}
graphs: [small.npz]
num_splits: 2
set: {epochs: 3, width: 8, gate_width: 4, order: 2}
perturbations:
  - none
  - {kind: metattack, solver: implicit, budgets: [0.05, 0.1]}
  - {kind: metattack, solver: implicit, mode: evade, budgets: [0.1]}
details: [aspect]
"""
CELLS = 2 * (1 + 2 * 2 + 1)
# Long enough to be killed in the middle, in one file of two.
LONG = """
entries: [raw]
graphs: [larger.npz]
num_splits: 1
perturbations:
  - {kind: dice, budgets: [0.1]}
  - {kind: metattack, solver: unrolled, budgets: [0.75]}
"""
FILES = [f"small-metattack-implicit-random-{split}.safetensors" for split in (0, 1)]


def prepare(folder):
    (folder / "tiny.yaml").write_text(PLAN)
    write_npz(folder / "small.npz", mixed_graph(60, degree=4.0, num_features=6, seed=0))
    return folder


def bench(cwd, *arguments):
    return subprocess.run(
        command("bench", "tiny.yaml", *OPTIONS, *arguments),
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A bench that had to attack first: its working directory, and what it said."""
    cwd = prepare(tmp_path_factory.mktemp("attacked"))
    return cwd, bench(cwd)


@pytest.fixture
def here(whole, tmp_path, monkeypatch):
    """A copy of it that may be changed."""
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stamps(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.*") if path.is_file()}


def test_files_are_made_before_the_cells(whole):
    cwd, said = whole
    assert said.returncode == 0, said.stderr
    assert "2 perturbation files must be made first, into runs/tiny/perturbations." in said.stderr
    folder = cwd / "runs/tiny/perturbations"
    assert sorted(path.name for path in folder.iterdir()) == FILES
    events = [line.split()[1] for line in (cwd / "runs/tiny/log.txt").read_text().splitlines()]
    assert sorted(events[:4]) == ["attacked", "attacked", "attacks", "attacks"]
    assert "attacks" not in events[4:]


def test_every_record_is_bound_to_its_flips(whole):
    cwd, said = whole
    records = read_records(cwd / "runs/tiny")
    assert [record.status for record in records] == ["done"] * CELLS, said.stdout
    traces = [PerturbationFile.read(cwd / "runs/tiny/perturbations" / name) for name in FILES]
    for record in records:
        work = record.cell.spec
        if work.perturbation is None:
            assert work.perturbation_sha256 is None
            continue
        digests = [traces[split].digest(work.perturbation.budget) for split in work.split_numbers]
        assert list(work.perturbation_sha256) == digests
        assert record.attack.flips == round(work.perturbation.budget * record.graph.edges)
    assert "ASPECT, metattack (implicit) 10% evade" in said.stdout


def test_details_tell_of_the_attack(whole):
    (details,) = read_details(whole[0] / "runs/tiny")
    assert [each.label for each in details.attacked] == ["metattack (implicit) 10%"]


def test_again_does_nothing(here, cli):
    before = stamps(here / "runs/tiny/perturbations") | stamps(here / "runs/tiny/cells")
    found = cli("bench", here / "tiny.yaml", "--out", here / "runs/tiny", "--json").json
    assert (found["kept"], found["done"]) == (CELLS, CELLS)
    assert found["perturbations"] == {"found": 2, "made": 0, "failed": 0}
    assert stamps(here / "runs/tiny/perturbations") | stamps(here / "runs/tiny/cells") == before


@pytest.mark.parametrize(
    ("place", "options"), [("elsewhere", ["--perturbations", "elsewhere"]), ("results", [])]
)
def test_files_found_elsewhere_serve_the_same_records(here, place, options, cli, monkeypatch):
    folder = here / place / "perturbations" if place == "results" else here / place
    folder.parent.mkdir(exist_ok=True)
    (here / "runs/tiny/perturbations").rename(folder)
    before = stamps(folder)
    monkeypatch.chdir(here)
    listed = cli("bench", "tiny.yaml", "--list", *options, "--json").json
    assert (listed["done"], listed["perturbations"]) == (CELLS, {"found": 2, "missing": 0})
    found = cli("bench", "tiny.yaml", *options, "--json").json
    assert (found["kept"], found["perturbations"]["made"]) == (CELLS, 0)
    assert stamps(folder) == before
    assert not (here / "runs/tiny/perturbations").exists()


def test_the_list_attacks_nothing(cli):
    prepare(cli.cwd)
    outcome = cli("bench", "tiny.yaml", "--list")
    assert f"0 of {CELLS} runs are done" in outcome.out
    assert "2 perturbation files are not there yet." in outcome.out
    assert not (cli.cwd / "runs").exists()


def test_files_of_another_graph_are_refused_and_nothing_is_written(here, cli, monkeypatch):
    (here / "runs/tiny/perturbations").rename(here / "flips")
    write_npz(here / "small.npz", mixed_graph(60, degree=4.0, seed=1), overwrite=True)
    monkeypatch.chdir(here)
    options = ("--out", "new", "--perturbations", "flips")
    cli("bench", "tiny.yaml", *options).refused("belongs to another graph", "--perturbations")
    assert not (here / "new").exists()


def test_an_attack_that_fails_costs_its_own_cells_alone(here, cli, monkeypatch):
    """A folder in the place of a file: it cannot be written, whatever the worker tries."""
    monkeypatch.chdir(here)
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
    assert {record.cell.spec.split_numbers for record in failed} == {(1,), (0, 1)}
    assert len(records) - len(failed) == 1 + 2
    assert all("attack for split 1 failed" in record.error for record in failed)
    assert "could not be made" in outcome.err
    again = cli("bench", "tiny.yaml", *options)
    assert '"failed": 1}' in again.out
    assert "must be made" not in again.err, "what failed is not tried again by itself"
    blocked.rmdir()
    mended = cli("bench", "tiny.yaml", *options, "--retry-failed").json
    assert (mended["done"], mended["failed"]) == (CELLS // 2, 0)
    assert mended["perturbations"] == {"found": 1, "made": 1, "failed": 0}


def is_begun(path):
    return path.exists() and not PerturbationFile.read(path).facts.complete


def test_killed_while_it_attacks_and_gone_on_with(tmp_path, monkeypatch, cli):
    (tmp_path / "tiny.yaml").write_text(LONG)
    # Some ten seconds of attack on a fast machine, of which the first two are written down.
    write_npz(tmp_path / "larger.npz", mixed_graph(400, degree=20.0, num_features=16, seed=0))
    running = Running(tmp_path, done=0)
    folder = tmp_path / "runs/tiny/perturbations"
    drawn = folder / "larger-dice-random-0.safetensors"
    found = folder / "larger-metattack-unrolled-random-0.safetensors"
    try:
        running.wait_for(lambda: is_begun(found) and drawn.exists())
    finally:
        running.stop()
    wait_until_gone(running.workers)
    partial, before = PerturbationFile.read(found), stamps(folder)
    assert not partial.facts.complete
    assert 0 < len(partial.keys) < partial.facts.wanted
    monkeypatch.chdir(tmp_path)
    content = cli("bench", "tiny.yaml", "--json", *ALONE).json
    assert content["perturbations"] == {"found": 1, "made": 1, "failed": 0}
    assert content["done"] == content["cells"] == 2
    whole = PerturbationFile.read(found)
    assert whole.facts.complete
    assert whole.keys[: len(partial.keys)].tolist() == partial.keys.tolist()
    assert whole.facts.seconds > partial.facts.seconds
    assert stamps(folder)[drawn.name] == before[drawn.name], "nothing is done twice"
