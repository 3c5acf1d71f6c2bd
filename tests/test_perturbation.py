"""A perturbation file at a budget: what it does, what it is called, and what it refuses."""

from dataclasses import replace

import pytest
import torch

from aspect.attacks.file import PerturbationFile
from aspect.data.features import dense
from aspect.data.graph import LabelledGraph
from aspect.data.splits import make_splits
from aspect.errors import CheckpointError, FileError, GraphError, RunError, SettingsError
from aspect.perturbation import FilePerturbation
from aspect.settings import PerturbedBy
from experiment.robustness.poisoned import Place, changed, cut


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place.make(tmp_path_factory.mktemp("place"))


@pytest.fixture
def file(place, tmp_path):
    """A file that a test may damage."""
    path = tmp_path / "own.safetensors"
    path.write_bytes(place.flips(1).read_bytes())
    return path


def read(path, budget=None, **changes):
    return FilePerturbation.read(PerturbedBy(file=str(path), budget=budget, **changes))


def test_a_budget_does_what_the_trace_does(place):
    labelled, path = place.labelled, place.flips(1)
    found = read(path, 0.1)
    expected = PerturbationFile.read(path).apply(labelled, 0.1)
    assert torch.equal(found.apply(labelled).edge_index, expected.edge_index)
    assert torch.equal(dense(found.apply(labelled).features), dense(expected.features))
    assert found.num_flips == round(0.1 * labelled.graph.num_edges)
    assert found.sha256 == PerturbationFile.read(path).digest(0.1)


def test_edges_alone_leave_the_features(place):
    labelled = place.labelled
    perturbed = read(place.flips(1), 0.1, features=False).apply(labelled)
    assert torch.equal(dense(perturbed.features), dense(labelled.graph.features))
    assert perturbed.num_edges != labelled.graph.num_edges


def test_without_a_budget_all_flips_are_applied(place):
    trace = PerturbationFile.read(place.flips(1))
    found = read(place.flips(1))
    assert found.num_flips == len(trace.keys) == 40
    assert found.budget == trace.reached
    assert found.described.budget == trace.reached  # it stays when the attack goes on


def test_a_smaller_budget_is_a_prefix(place, tmp_path):
    labelled = place.labelled
    long = read(place.flips(1), 0.1)
    short = read(cut(place.flips(1), long.num_flips, tmp_path / "short.safetensors"), 0.1)
    assert short.sha256 == long.sha256
    assert torch.equal(short.apply(labelled).edge_index, long.apply(labelled).edge_index)


def test_its_split_is_that_of_the_file(place):
    labelled = place.labelled
    expected = make_splits("random", labelled.labels, labelled.num_classes)[1]
    assert torch.equal(read(place.flips(1)).split_of(labelled).test, expected.test)


def test_names_tell_all_that_differs(place):
    found = read(place.flips(1), 0.1)
    assert found.name == "random-random-1-0.1"
    assert read(place.flips(1), 0.1, features=False).name == "random-random-1-0.1-edges"
    assert read(place.flips(1, kind="dice"), 0.05).name == "dice-random-1-0.05"
    assert found.title == f"random, random split 1, 10% ({found.num_flips} flips)"
    attacked = place.flips(1, kind="metattack", flips=4)
    assert read(attacked).title.startswith("metattack (implicit), random split 1, ")


def test_what_is_described_reads_back_to_the_same(place):
    found = read(place.flips(1), 0.1, features=False)
    again = FilePerturbation.read(found.described)
    assert (again.sha256, again.budget, again.features) == (found.sha256, 0.1, False)
    assert found.described.file == str(place.flips(1).absolute())


@pytest.mark.parametrize(
    ("budget", "words"), [(0.9, "run a longer attack"), (1e-4, "allows no flip of")]
)
def test_a_budget_that_the_file_cannot_serve(place, budget, words):
    with pytest.raises(SettingsError, match=rf"small-random-1.safetensors: .*{words}"):
        read(place.flips(1), budget)


def test_an_attack_that_is_not_complete_needs_a_budget(file):
    changed(file, complete=False, wanted=50)
    with pytest.raises(SettingsError, match=r"not complete \(40 of 50 flips\)") as caught:
        read(file)
    offered = str(caught.value).rpartition("--budget, up to ")[2].removesuffix(".")
    assert read(file, float(offered)).num_flips == 40


def test_more_flips_than_edges_need_a_budget(place):
    edges = place.labelled.graph.num_edges
    path = place.flips(2, flips=edges + 1, name="many.safetensors")
    with pytest.raises(SettingsError, match="more than the"):
        read(path)
    assert read(path, 1.0).num_flips == edges


def test_a_file_that_changed_or_is_gone(file):
    before = read(file, 0.1).described
    changed(file, mask_seed=5)
    with pytest.raises(RunError, match=r"is not the file that these settings were made with"):
        FilePerturbation.read(before)
    file.unlink()
    with pytest.raises(FileError, match="no perturbation file"):
        FilePerturbation.read(before)


@pytest.mark.parametrize("solver", ["../../etc", "a b", "A", "-"])
def test_a_solver_that_would_leave_its_folder(file, solver):
    changed(file, solver=solver)
    with pytest.raises(CheckpointError, match="impossible solver"):
        read(file)


def test_another_graph_is_refused_be_it_by_a_label(place):
    labelled = place.labelled
    other = labelled.labels.clone()
    other[0] = (other[0] + 1) % labelled.num_classes
    found = read(place.flips(1), 0.1)
    with pytest.raises(GraphError, match=r"small-random-1.safetensors: .* belongs to the graph"):
        found.apply(replace(labelled, labels=other))


def test_other_published_splits_are_refused(place, file):
    changed(file, splits="published", splits_sha256="0" * 64)
    labelled = place.labelled
    nodes = torch.arange(labelled.graph.num_nodes)
    masks = {name: (nodes % 3 == k)[None] for k, name in enumerate(("train", "validation", "test"))}
    published = LabelledGraph(labelled.graph, labelled.labels, labelled.class_names, masks)
    with pytest.raises(GraphError, match="published splits of this graph are not those"):
        read(file, 0.1).check(published)
