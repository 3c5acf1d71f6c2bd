"""Perturbation files of a bench: found by name, refused if they are of something else."""

from dataclasses import replace

import pytest
import torch

from aspect.attacks.file import PerturbationFile
from aspect.attacks.run import AttackRequest, plan_attacks, run_attack
from aspect.data.archives import read_npz
from aspect.errors import CheckpointError, GraphError, SettingsError
from aspect.experiment.flips import Flips, FlipsFile, Slot
from aspect.experiment.perturbation import Perturbation
from experiment.attacked import IMPLICIT, Prepared, attacked_plan, write_graph

PLAN = {"kind": "dice", "budgets": [0.1, 0.2]}  # drawn, hence quick
RIDGE = {"solver": "implicit", "ridge": 0.1}
FLIPS = {"solver": "implicit", "flips_per_gradient": 3}
UNROLLED = {"solver": "unrolled", "inner_steps": 2}


@pytest.fixture
def path(tmp_path):
    return write_graph(tmp_path / "small.npz")


@pytest.fixture
def given(tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    return folder


def attack(path, folder, split=0, name=None, budget=0.2, **request):
    """What `aspect attack` would write."""
    values = {"kind": "dice", "splits": "random", **request}
    wanted = AttackRequest(budget=budget, **values)
    (planned,) = plan_attacks(read_npz(path), "small", wanted, [split], torch.device("cpu"))
    file = folder / (name or planned.facts.file_name)
    return run_attack(planned, PerturbationFile.open(file, planned.facts, overwrite=True))


def names(files):
    return [each.facts.file_name for each in files]


def test_files_are_found_by_the_name_that_attack_gives_them(path, given, tmp_path):
    traces = [attack(path, given, split) for split in (0, 1)]
    found = Prepared(attacked_plan(path, PLAN), tmp_path / "out", given)
    assert found.missing == []
    assert [each.path for each in found.flips.files.values()] == sorted(given.iterdir())
    for trace, file in zip(traces, found.flips.files.values(), strict=True):
        assert file.sha256 == {budget: trace.digest(budget) for budget in (0.1, 0.2)}
    assert not (tmp_path / "out").exists(), "nothing is written"


def test_longer_files_serve_smaller_budgets_with_the_same_digest(path, given, tmp_path):
    attack(path, given, budget=0.5)
    longer = Prepared(attacked_plan(path, PLAN, num_splits=1), tmp_path / "out", given)
    attack(path, given, budget=0.2)
    exact = Prepared(attacked_plan(path, PLAN, num_splits=1), tmp_path / "out", given)
    assert longer.flips == exact.flips
    assert longer.missing == []


def test_what_is_missing_or_too_short_is_left_to_be_made(path, given, tmp_path):
    attack(path, given, split=1, budget=0.1)
    found = Prepared(attacked_plan(path, PLAN, num_splits=3), tmp_path / "out", given)
    assert names(found.missing) == [f"small-dice-random-{k}.safetensors" for k in (0, 1, 2)]
    assert found.flips.files == {}


def test_the_given_folder_comes_first_and_the_benchs_own_fills_its_gaps(path, given, tmp_path):
    own = tmp_path / "out" / "perturbations"
    own.mkdir(parents=True)
    attack(path, given, split=0)
    for split in (0, 1):
        attack(path, own, split)
    found = Prepared(attacked_plan(path, PLAN), tmp_path / "out", given)
    assert [each.path.parent for each in found.flips.files.values()] == [given, own]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": RIDGE}, "its setting ridge must be 0.005. Got 0.1."),
        ({"settings": FLIPS}, "its setting flips_per_gradient must be 1. Got 3."),
        ({"settings": UNROLLED}, "its solver must be 'implicit'. Got 'unrolled'."),
        ({"kind": "dice"}, "its kind must be 'metattack'. Got 'dice'."),
        ({"seed": 3}, "its seed must be 0. Got 3."),
        ({"splits": "class-balanced"}, "its splits must be 'random'. Got 'class-balanced'."),
        ({"split": 1}, "its split must be 0. Got 1."),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_files_of_another_attack_are_refused_by_what_differs(path, given, changes, words):
    name = "small-metattack-implicit-random-0.safetensors"
    wanted = {"kind": "metattack", "settings": {"solver": "implicit"}, **changes}
    if wanted["kind"] == "dice":
        del wanted["settings"]
    attack(path, given, name=name, budget=0.01, **wanted)
    with pytest.raises(SettingsError, match="holds another attack than the plan's") as caught:
        Prepared(attacked_plan(path, IMPLICIT), given.parent / "out", given)
    assert words in str(caught.value)
    assert str(caught.value).endswith("with --perturbations, or move the file away.")


def test_files_of_another_graph_are_refused(path, given, tmp_path):
    attack(path, given)
    write_graph(path, seed=1)
    with pytest.raises(GraphError, match=r"belongs to another graph than .*sha256 must be"):
        Prepared(attacked_plan(path, PLAN), tmp_path / "out", given)
    own = tmp_path / "out" / "perturbations"
    own.parent.mkdir()
    given.rename(own)
    with pytest.raises(GraphError, match="Remove it, or choose another --out"):
        Prepared(attacked_plan(path, PLAN), tmp_path / "out")


def test_damage_is_named(path, given, tmp_path):
    attack(path, given)
    (file,) = given.iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match=r"damaged.*--perturbations"):
        Prepared(attacked_plan(path, PLAN), tmp_path / "out", given)


def key(path, given, tmp_path):
    plan = attacked_plan(path, {"kind": "dice", "budgets": [0.1]}, num_splits=1)
    (cell,) = Prepared(plan, tmp_path / "out", given).cells
    return cell.key


def test_a_key_changes_with_a_flip_and_not_with_the_files_place(path, given, tmp_path):
    trace = attack(path, given)
    first = key(path, given, tmp_path)
    assert key(path, given.rename(tmp_path / "moved"), tmp_path) == first
    (file,) = (tmp_path / "moved").iterdir()
    within = round(0.1 * trace.facts.graph.edges)
    beyond = torch.cat([trace.keys[:within], trace.keys[within:].flip(0)])
    replace(trace, keys=beyond).write(file)
    assert key(path, file.parent, tmp_path) == first, "flips beyond the budget do not count"
    turned = torch.cat([trace.keys[:within].flip(0), trace.keys[within:]])
    replace(trace, keys=turned).write(file)
    assert key(path, file.parent, tmp_path) != first
    other = trace.facts.model_copy(update={"versions": {"aspect": "9"}, "seconds": 1.0})
    PerturbationFile(other, trace.keys).write(file)
    assert key(path, file.parent, tmp_path) == first


def test_a_cell_of_several_splits_is_known_when_all_files_are():
    evade = Perturbation(kind="metattack", solver="implicit", mode="evade")
    slots = [Slot("g", "metattack", "implicit", split) for split in (0, 1)]
    flips = Flips({slots[0]: FlipsFile("0", {0.1: "a"})})
    assert flips.sha256("g", evade, (0,)) == ("a",)
    assert flips.sha256("g", evade, (0, 1)) is None
    flips.files[slots[1]] = FlipsFile("1", {0.1: "b"})
    assert flips.sha256("g", evade, (0, 1)) == ("a", "b")
    assert flips.sha256("other", evade, (0, 1)) is None
    assert flips.sha256("g", Perturbation(kind="random"), (0,)) is None
    assert flips.sha256("g", None, (0,)) is None
