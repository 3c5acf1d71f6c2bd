"""Several perturbation files: those of the graph, of one attack, one for each split."""

import shutil
from dataclasses import replace

import pytest
import torch

from aspect.attacks.file import PerturbationFile
from aspect.data.tensors import write_tensors
from aspect.errors import CheckpointError, GraphError, SettingsError
from aspect.experiment.robustness.files import check_kind_of_splits, read_perturbations
from attacks.attempts import labelled_graph
from experiment.robustness.poisoned import Place, changed, cut


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place.make(tmp_path_factory.mktemp("place"))


@pytest.fixture
def folder(place, tmp_path):
    """Two files of the graph, which a test may change."""
    folder = tmp_path / "flips"
    folder.mkdir()
    for split in (1, 0):
        shutil.copy(place.flips(split), folder / f"{split}.safetensors")
    return folder


def found(places, place, **options):
    return [
        (each.path.name, each.budget)
        for each in read_perturbations(places, place.labelled, **options)
    ]


def test_budgets_first_then_splits(place, folder):
    expected = [(f"{split}.safetensors", budget) for budget in (0.05, 0.1) for split in (0, 1)]
    assert found([folder], place, budgets=[0.1, 0.05, 0.1]) == expected


def test_a_file_twice_is_one(place, folder):
    places = [folder / "1.safetensors", folder, folder / "*.safetensors"]
    assert len(found(places, place, budgets=[0.1])) == 2


def test_a_folder_gives_those_of_the_graph_alone(place, folder, tmp_path):
    other = Place.make(tmp_path, labelled_graph(40)).flips(2, kind="dice", flips=10)
    shutil.copy(other, folder / "other.safetensors")
    write_tensors(folder / "model.safetensors", {"w": torch.zeros(2)}, {"kind": "model"})
    assert len(found([folder], place)) == 2
    with pytest.raises(GraphError, match=r"other.safetensors: .*belongs to the graph"):
        found([folder / "0.safetensors", folder / "other.safetensors"], place, budgets=[0.1])
    with pytest.raises(CheckpointError, match="not a perturbation but a model"):
        found([folder / "model.safetensors"], place)
    for name in ("0", "1"):
        (folder / f"{name}.safetensors").unlink()
    with pytest.raises(GraphError, match=r"no perturbation file of this graph.*'small'"):
        found([folder], place)


def test_a_damaged_file_is_not_overlooked(place, folder):
    content = bytearray((folder / "0.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "0.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"0.safetensors is damaged"):
        found([folder], place)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"kind": "dice"}, r"of one attack.* is of random, .* of dice.*pattern .*\*-dice-\*"),
        ({"solver": "other"}, r"of one attack.* of random \(other\)"),
        ({"splits": "class-balanced"}, "must have the same splits"),
        ({"settings": {"keep_last_edges": False}}, "same setting keep_last_edges.*True.*False"),
        ({"surrogate": "none"}, "must have the same surrogate"),
    ],
)
def test_two_attacks_make_no_mean(place, folder, facts, words):
    changed(folder / "1.safetensors", **facts, complete=False)
    with pytest.raises(SettingsError, match=words):
        found([folder], place)


def test_two_files_for_a_split(place, folder):
    shutil.copy(folder / "1.safetensors", folder / "again.safetensors")
    with pytest.raises(SettingsError, match=r"Split 1 has .*1.safetensors and .*again.safetensors"):
        found([folder], place, budgets=[0.1])


def test_files_of_different_length_need_a_budget(place, folder):
    path = folder / "1.safetensors"
    cut(path, 30, path)
    with pytest.raises(SettingsError, match=r"different budgets: .*1.safetensors to 0.\d+"):
        found([folder], place)
    assert len(found([folder], place, budgets=[0.1])) == 2
    with pytest.raises(SettingsError, match=r"1.safetensors: .*run a longer attack"):
        found([folder], place, budgets=[40 / place.labelled.graph.num_edges])


def test_an_unfinished_attack_serves_what_it_reached(place, folder):
    path = folder / "1.safetensors"
    trace = PerturbationFile.read(path)
    facts = trace.facts.model_copy(update={"complete": False})
    replace(trace, facts=facts, keys=trace.keys[:20], state={"x": torch.zeros(1)}).write(path)
    with pytest.raises(SettingsError, match="not complete"):
        found([folder], place)
    assert len(found([folder], place, budgets=[0.05])) == 2


def test_only_its_own_kind_of_splits_can_judge(place, folder):
    perturbations = read_perturbations([folder], place.labelled)
    check_kind_of_splits(perturbations, None)
    check_kind_of_splits(perturbations, "random")
    with pytest.raises(SettingsError, match=r"made for random splits.*Got --splits class-balanced"):
        check_kind_of_splits(perturbations, "class-balanced")
