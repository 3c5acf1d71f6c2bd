"""Perturbation files of one graph: found in folders, of one attack, one for each split."""

import shutil
from dataclasses import replace

import pytest
import torch

from aspect.attacks.file import (
    PerturbationFile,
    check_kind_of_splits,
    common_budgets,
    read_files,
)
from aspect.attacks.perturbation import files_at
from aspect.data.tensors import write_tensors
from aspect.errors import CheckpointError, FileError, GraphError, SettingsError
from attacks.attempts import labelled_graph, plan, run

LABELLED = labelled_graph()


@pytest.fixture
def places(tmp_path):
    for name in ("b-1.safetensors", "a-0.safetensors", "a-1.safetensors", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "inner.safetensors").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("notes.txt", ["notes.txt"]),
        ("", ["a-0.safetensors", "a-1.safetensors", "b-1.safetensors"]),
        ("a-*", ["a-0.safetensors", "a-1.safetensors"]),
        ("?-[1-9].safetensors", ["a-1.safetensors", "b-1.safetensors"]),
    ],
)
def test_what_a_place_stands_for(places, place, names):
    assert [path.name for path in files_at(places / place)] == names


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("missing", "no perturbation file or folder at"),
        ("missing/*", "no perturbation file or folder at"),
        ("c-*", "No file fits the pattern"),
        ("inner.safetensors", "holds no perturbation files"),
        ("nul\0", "no perturbation file or folder at"),
    ],
)
def test_places_without_files(places, place, words):
    with pytest.raises(FileError, match=words):
        files_at(places / place)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    for split in (1, 0):
        run(plan(LABELLED, "random", flips=40, split=split), folder / f"{split}.safetensors")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """Two files of the graph, which a test may change."""
    return shutil.copytree(made, tmp_path / "flips")


def changed(path, keys=None, **facts):
    file = PerturbationFile.read(path)
    facts = file.facts.model_copy(update=facts)
    replace(file, facts=facts, keys=file.keys if keys is None else file.keys[:keys]).write(path)


def names(places):
    return [file.path.name for file in read_files(places, LABELLED)]


def test_files_come_by_split_and_each_once(folder):
    places = [folder / "1.safetensors", folder, folder / "*.safetensors"]
    assert names(places) == ["0.safetensors", "1.safetensors"]
    assert common_budgets(read_files([folder], LABELLED), [0.1, 0.05, 0.1]) == (0.05, 0.1)


def test_a_folder_gives_those_of_the_graph_alone(folder):
    other = plan(labelled_graph(40), "dice", flips=10, split=2)
    run(other, folder / "other.safetensors")
    write_tensors(folder / "model.safetensors", {"w": torch.zeros(2)}, {"kind": "model"})
    assert len(names([folder])) == 2
    with pytest.raises(GraphError, match=r"other.safetensors: .*belongs to the graph"):
        names([folder / "0.safetensors", folder / "other.safetensors"])
    with pytest.raises(CheckpointError, match="not a perturbation but a model"):
        names([folder / "model.safetensors"])
    for name in ("0", "1"):
        (folder / f"{name}.safetensors").unlink()
    with pytest.raises(GraphError, match=r"no perturbation file of this graph.*'small'"):
        names([folder])


def test_a_damaged_file_is_not_overlooked(folder):
    content = bytearray((folder / "0.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "0.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"0.safetensors is damaged"):
        names([folder])


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
def test_two_attacks_make_no_mean(folder, facts, words):
    changed(folder / "1.safetensors", **facts, complete=False)
    with pytest.raises(SettingsError, match=words):
        names([folder])


def test_two_files_for_a_split(folder):
    shutil.copy(folder / "1.safetensors", folder / "again.safetensors")
    with pytest.raises(SettingsError, match=r"Split 1 has .*1.safetensors and .*again.safetensors"):
        names([folder])


def test_files_of_different_length_need_a_budget(folder):
    changed(folder / "1.safetensors", keys=30, wanted=30)
    files = read_files([folder], LABELLED)
    with pytest.raises(SettingsError, match=r"different budgets: .*1.safetensors to 0.\d+"):
        common_budgets(files)
    assert common_budgets(files, [0.1]) == (0.1,)
    with pytest.raises(SettingsError, match=r"1.safetensors: .*run a longer attack"):
        common_budgets(files, [40 / LABELLED.graph.num_edges])


def test_an_unfinished_attack_serves_what_it_reached(folder):
    changed(folder / "1.safetensors", keys=20, complete=False)
    files = read_files([folder], LABELLED)
    with pytest.raises(SettingsError, match="not complete"):
        common_budgets(files)
    assert common_budgets(files, [0.05]) == (0.05,)


def test_other_kinds_of_splits_are_refused(folder):
    files = read_files([folder], LABELLED)
    check_kind_of_splits(files, None)
    check_kind_of_splits(files, "random")
    with pytest.raises(SettingsError, match=r"made for random splits.*Got --splits class-balanced"):
        check_kind_of_splits(files, "class-balanced")
