"""Perturbations that were found elsewhere: read, compared with the clean graph, kept as files."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch

from aspect.attacks.base import apply_flips
from aspect.attacks.file import PerturbationFile
from aspect.attacks.imported import imported_files, read_flips, read_perturbed
from aspect.attacks.perturbation import Perturbation
from aspect.attacks.registry import IMPORTED, attack_info, attack_names, find_attack
from aspect.data.archives import write_npz
from aspect.data.features import dense
from aspect.errors import FileError, GraphError, SettingsError
from aspect.experiment.perturbations import find_files
from aspect.experiment.plan import Plan, lay_out, read_facts
from aspect.experiment.run import Task, forget_graphs, run_cell
from attacks.attempts import labelled_graph

FLIPS = torch.tensor([[0, 5], [1, 7], [2, 3]])


@pytest.fixture
def labelled():
    return labelled_graph()


@pytest.fixture
def flips(labelled):
    """One pair that is an edge, and two that may be none."""
    edge = labelled.graph.edge_index[:, 0].sort().values
    others = [pair for pair in FLIPS.tolist() if pair != edge.tolist()]
    return torch.tensor([edge.tolist(), *others]).unique(dim=0)


def adjacency(graph):
    ends = graph.edge_index.numpy()
    shape = (graph.num_nodes, graph.num_nodes)
    return scipy.sparse.csr_array((np.ones(ends.shape[1]), tuple(ends)), shape=shape)


def test_the_difference_of_an_adjacency_is_its_flips(tmp_path, labelled, flips):
    matrix = adjacency(apply_flips(labelled.graph, flips))
    matrix.setdiag(1)  # self-loops mean nothing
    scipy.sparse.save_npz(tmp_path / "adj.npz", matrix)
    assert torch.equal(read_perturbed(tmp_path / "adj.npz", labelled.graph), flips)
    halves = scipy.sparse.triu(matrix)
    scipy.sparse.save_npz(tmp_path / "upper.npz", halves)
    assert torch.equal(read_perturbed(tmp_path / "upper.npz", labelled.graph), flips)


@pytest.mark.parametrize("header", ["source,target\n", ""])
def test_an_edge_list_names_nodes_by_id_or_number(tmp_path, labelled, flips, header):
    perturbed = apply_flips(labelled.graph, flips)
    rows = perturbed.edge_index.T[1:].tolist()  # each edge in both directions, but for one
    path = tmp_path / "edges.csv"
    path.write_text(header + "".join(f"{a},{b}\n" for a, b in rows))
    assert torch.equal(read_perturbed(path, labelled.graph), flips)
    ids = tuple(f"n{node}" for node in range(labelled.graph.num_nodes))
    named = replace(labelled.graph, ids=ids)
    path.write_text("u,v,weight\n" + "".join(f"n{a},n{b},1\n" for a, b in rows))
    assert torch.equal(read_perturbed(path, named), flips)


def test_a_first_line_of_two_unknown_names_is_a_header(tmp_path, labelled):
    path = tmp_path / "flips.csv"
    path.write_text("node,neighbour\n9,1\n")
    assert read_flips(path, labelled.graph).tolist() == [[1, 9]]


def test_entries_given_twice_are_added(tmp_path, labelled):
    """As SciPy reads them: a clean edge and minus the same one are none."""
    ends, path = labelled.graph.edge_index.numpy(), tmp_path / "adj.npz"
    a, b = labelled.graph.edge_index[:, 0].tolist()
    removal = scipy.sparse.coo_array(([-1, -1], ([a, b], [b, a])), shape=(60, 60))
    values = np.concatenate([np.ones(ends.shape[1]), removal.data])
    places = np.concatenate([ends, np.stack(removal.coords)], axis=1)
    scipy.sparse.save_npz(path, scipy.sparse.coo_array((values, tuple(places)), shape=(60, 60)))
    assert read_perturbed(path, labelled.graph).tolist() == [[a, b]]


@pytest.mark.parametrize("entry", [-1.0, float("nan"), float("inf")])
def test_an_adjacency_has_no_such_entry(tmp_path, labelled, entry):
    matrix, path = adjacency(labelled.graph), tmp_path / "adj.npz"
    matrix.data[3] = entry
    scipy.sparse.save_npz(path, matrix)
    with pytest.raises(GraphError, match=rf"as finite numbers from 0\. Got {entry}"):
        read_perturbed(path, labelled.graph)


def test_a_list_of_flips_keeps_its_order(tmp_path, labelled):
    path = tmp_path / "flips.tsv"
    path.write_text("source\ttarget\n9\t1\n0\t5\n")
    assert read_flips(path, labelled.graph).tolist() == [[1, 9], [0, 5]]


def test_a_file_does_to_the_graph_what_was_done_elsewhere(tmp_path, labelled, flips):
    source = tmp_path / "adj.npz"
    expected = apply_flips(labelled.graph, flips)
    scipy.sparse.save_npz(source, adjacency(expected))
    (file,) = imported_files(labelled, "small", flips, source=source, splits="random", numbers=[2])
    assert file.facts.file_name == f"small-imported-random-2-{len(flips)}-flips.safetensors"
    file.write(tmp_path / "f.safetensors")
    read = PerturbationFile.read(tmp_path / "f.safetensors")
    assert read.facts.settings["file"] == "adj.npz"
    assert len(read.facts.settings["sha256"]) == 64
    perturbation = read.perturbation()
    assert not perturbation.features, "the features are those of the clean graph"
    after = perturbation.apply(labelled, 2, read)
    assert torch.equal(after.edge_index, expected.edge_index)
    assert torch.equal(dense(after.features), dense(labelled.graph.features))
    assert read.apply(labelled, perturbation.budget).features is labelled.graph.features
    with pytest.raises(SettingsError, match=r"serves .* flips alone"):
        read.flips(1 / labelled.graph.num_edges)


def test_every_split_has_a_file_of_the_same_flips(tmp_path, labelled, flips):
    (tmp_path / "x.csv").write_text("0,1\n")
    files = imported_files(labelled, "small", flips, source=tmp_path / "x.csv", splits="random")
    assert [file.facts.split for file in files] == list(range(10))
    with pytest.raises(SettingsError, match=r"Split must be from 0 to 9, .* Got 10"):
        imported_files(
            labelled, "a", flips, source=tmp_path / "x.csv", splits="random", numbers=[10]
        )


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.npz", "no archive", r"must be an adjacency of scipy\.sparse\.save_npz"),
        ("a.xlsx", "", r"is read from \.npz, \.csv, \.tsv, \.txt\. Got the name 'a\.xlsx'"),
        ("a.csv", "a,b,c\n1,2,3\n", "must have two columns, or name them source and target"),
        ("a.csv", "source,target\n0,999\n", r"not in the graph: '999' \(1 in all\)"),
        ("a.csv", "0,999\n1,2\n", r"not in the graph: '999' \(1 in all\)"),
        ("a.csv", "998,999\n1,2\n", r"not in the graph: '998', '999' \(2 in all\)"),
        ("a.csv", "source,target\n0,5,1\n1,7,1\n", "Cannot read .* Expected 2 fields in line 2"),
        ("a.csv", "source,target\n", "holds no pairs"),
        ("a.csv", "", "Cannot read"),
    ],
)
def test_wrong_files_are_refused(tmp_path, labelled, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises((FileError, GraphError), match=sentence):
        read_perturbed(tmp_path / name, labelled.graph)


def test_wrong_content_is_refused(tmp_path, labelled):
    graph, path = labelled.graph, tmp_path / "a.npz"
    scipy.sparse.save_npz(path, adjacency(graph))
    with pytest.raises(GraphError, match="holds the edges of the clean graph"):
        read_perturbed(path, graph)
    scipy.sparse.save_npz(path, adjacency(graph)[:5, :5])
    with pytest.raises(GraphError, match=r"Got the shape \[5, 5\]\. Many publish the largest"):
        read_perturbed(path, graph)
    with pytest.raises(FileError, match="there is no such file"):
        read_perturbed(tmp_path / "none.npz", graph)
    table = tmp_path / "flips.csv"
    table.write_text("source,target\n1,1\n")
    with pytest.raises(GraphError, match="must list pairs of two nodes"):
        read_flips(table, graph)
    table.write_text("1,1\n0,5\n")  # nor in the first line, where there is no header
    with pytest.raises(GraphError, match="must list pairs of two nodes"):
        read_flips(table, graph)
    table.write_text("source,target\n1,2\n2,1\n")
    with pytest.raises(GraphError, match="must list each pair once"):
        read_flips(table, graph)


def test_another_graph_is_no_perturbation(tmp_path, labelled):
    (tmp_path / "x.csv").write_text("0,1\n")
    many = torch.combinations(torch.arange(30))[: labelled.graph.num_edges + 1]
    with pytest.raises(GraphError, match=r"more than the graph's .* edges\. Are these nodes those"):
        imported_files(labelled, "a", many, source=tmp_path / "x.csv", splits="random")


def test_the_kind_is_known_and_cannot_be_searched_for():
    assert IMPORTED not in attack_names()
    assert not attack_info(IMPORTED).nested
    assert Perturbation(kind=IMPORTED).features is False
    with pytest.raises(SettingsError, match="aspect attack GRAPH --from FILE"):
        find_attack(IMPORTED)


def test_a_plan_takes_imported_files_from_its_folder(tmp_path, monkeypatch, labelled, flips):
    monkeypatch.chdir(tmp_path)
    forget_graphs()  # of other tests, which have that name as well
    write_npz("small.npz", labelled)
    budget = len(flips) / labelled.graph.num_edges
    plan = Plan(
        entries=("raw",),
        graphs=("small.npz",),
        num_splits=1,
        perturbations=({"kind": IMPORTED, "budgets": [budget]},),
    )
    facts = dict(read_facts(plan, None))
    files, missing = find_files(facts["small.npz"].files, tmp_path, tmp_path / "made")
    assert len(missing) == 1
    (tmp_path / "x.csv").write_text("0,1\n")
    (file,) = imported_files(
        labelled, "small", flips, source=tmp_path / "x.csv", splits="random", numbers=[0]
    )
    file.write(tmp_path / file.facts.file_name)
    files, missing = find_files(facts["small.npz"].files, tmp_path, tmp_path / "made")
    assert not missing
    (cell,) = lay_out(plan, facts, "cpu", files)
    perturbed = files.perturbed("small.npz", cell.spec.perturbation, (0,))
    record = run_cell(Task(cell, perturbed)).record
    assert record.status == "done", record.error
    assert record.attack.flips == len(flips)
