"""What is read of a graph before a bench begins."""

from dataclasses import replace

import pytest
import torch

from aspect.data.archives import content_sha256, write_npz
from aspect.data.source import GraphSource
from aspect.errors import GraphError
from aspect.experiment.facts import graph_facts, read_facts
from experiment.grids import make_plan


def test_facts_are_those_of_the_file(tmp_path, small_graph):
    path = tmp_path / "small.npz"
    write_npz(path, small_graph)
    ((name, facts),) = read_facts(make_plan(graphs=[str(path)]), None)
    assert name == str(path)
    assert facts.sha256 == content_sha256(small_graph)
    assert facts.num_splits == 10
    assert (facts.nodes, facts.edges) == (30, small_graph.graph.num_edges)


def test_a_graph_without_the_splits_asked_for_is_refused(tmp_path, small_graph):
    path = tmp_path / "small.npz"
    write_npz(path, small_graph)
    plan = make_plan(graphs=[str(path)], splits="published")
    with pytest.raises(GraphError, match=r"small\.npz' cannot be split.*No masks"):
        list(read_facts(plan, None))


def test_published_splits_are_counted(tmp_path, small_graph):
    masks = {
        part: torch.arange(30).remainder(3).eq(place).expand(4, 30).clone()
        for place, part in enumerate(("train", "validation", "test"))
    }
    path = tmp_path / "small.npz"
    write_npz(path, replace(small_graph, masks=masks))
    plan = make_plan(graphs=[str(path)], splits="published")
    ((_, facts),) = read_facts(plan, None)
    assert facts.num_splits == 4
    masks["train"][3, 0], masks["test"][3, 0] = False, True
    write_npz(path, replace(small_graph, masks=masks), overwrite=True)
    ((_, moved),) = read_facts(plan, None)
    assert moved.sha256 == facts.sha256
    assert moved.splits_sha256 != facts.splits_sha256
    ((_, drawn),) = read_facts(make_plan(graphs=[str(path)]), None)
    assert drawn.splits_sha256 is None


def test_homophily_counts_edges_between_labelled_nodes(small_graph):
    source, known = GraphSource(), small_graph.labels.clone()
    known[:10] = -1
    ends = known[small_graph.graph.edge_index]
    counted = ends[:, (ends != -1).all(dim=0)]
    expected = float((counted[0] == counted[1]).float().mean())
    found = graph_facts(source, replace(small_graph, labels=known)).homophily
    assert found == pytest.approx(expected)
    unknown = replace(small_graph, labels=torch.full((30,), -1))
    assert graph_facts(source, unknown).homophily is None
