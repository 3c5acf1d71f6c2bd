import networkx
import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import dense
from aspect.data.graph import Graph, edge_keys
from aspect.data.sparse import SparseMatrix
from aspect.nn.subgraphs import (
    drop_nodes,
    grow_subgraph,
    induced_subgraph,
    rewire_edges,
    sample_subgraph,
)
from reference.graphs import path_graph, random_graph


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def adjacency(graph):
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes)
    matrix[tuple(graph.edge_index)] = 1
    return matrix


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(num_nodes=40, num_edges=90, num_features=12, density=request.param)


def check_induced(found, graph):
    assert_close(adjacency(found.graph), adjacency(graph)[found.nodes][:, found.nodes])
    assert_close(dense(found.graph.features), dense(graph.features)[found.nodes])
    keys = found.graph.edge_index[0] * found.graph.num_nodes + found.graph.edge_index[1]
    assert bool((keys.diff() > 0).all())  # sorted, as operators expect
    assert isinstance(found.graph.features, SparseMatrix) == isinstance(
        graph.features, SparseMatrix
    )


def test_induced(graph):
    found = induced_subgraph(graph, torch.tensor([30, 2, 17, 5, 39, 0, 11]))
    assert found.nodes.tolist() == [0, 2, 5, 11, 17, 30, 39]
    check_induced(found, graph)


@pytest.mark.parametrize("size", [1, 10, 40, 99])
def test_samples_have_the_size_asked_for(graph, size):
    found = sample_subgraph(graph, size, generator())
    assert found.graph.num_nodes == min(size, 40)
    check_induced(found, graph)


def test_every_node_is_sampled_alike():
    graph, counts, draws = random_graph(num_nodes=10, isolated=3), torch.zeros(10), generator()
    for _ in range(2000):
        counts[sample_subgraph(graph, 4, draws).nodes] += 1
    assert float((counts / 2000 - 0.4).abs().max()) < 5 * (0.24 / 2000) ** 0.5


@pytest.mark.parametrize(("ratio", "left"), [(0.2, 32), (0.1, 36), (0.0, 40), (0.99, 1)])
def test_nodes_are_dropped_by_count(graph, ratio, left):
    found = drop_nodes(graph, ratio, generator())
    assert found.graph.num_nodes == left
    check_induced(found, graph)


def as_networkx(graph):
    made = networkx.Graph()
    made.add_nodes_from(range(graph.num_nodes))
    made.add_edges_from(graph.edge_index.t().tolist())
    return made


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ratio", [0.2, 0.7])
def test_grown_subgraphs_are_connected(ratio, seed):
    graph = path_graph(30)
    found = grow_subgraph(graph, ratio, generator(seed))
    assert found.graph.num_nodes == int((1 - ratio) * 30)
    assert networkx.is_connected(as_networkx(found.graph))
    check_induced(found, graph)


def test_growth_ends_with_its_component():
    edges = torch.tensor([[0, 1, 3], [1, 2, 4]])
    graph = Graph.build(torch.ones(6, 1), edges)
    sizes = {tuple(grow_subgraph(graph, 0.0, generator(seed)).nodes.tolist()) for seed in range(40)}
    assert sizes == {(0, 1, 2), (3, 4), (5,)}


def test_growth_follows_the_order_of_collection():
    # A star: after its centre, all leaves are in the frontier and each is as likely as the next.
    leaves = torch.arange(1, 6)
    star = Graph.build(torch.ones(6, 1), torch.stack([torch.zeros_like(leaves), leaves]))
    counts, runs = torch.zeros(6), 0
    for seed in range(1500):
        nodes = grow_subgraph(star, 0.5, generator(seed)).nodes
        assert 0 in nodes.tolist()
        if len(nodes) == 3:
            counts[nodes] += 1
            runs += 1
    assert runs == 1500
    assert float((counts[1:] / runs - 0.4).abs().max()) < 5 * (0.24 / runs) ** 0.5


@pytest.mark.parametrize("ratio", [0.2, 1.0])
def test_rewiring_moves_a_quarter_of_the_share(ratio):
    graph = random_graph(num_nodes=60, num_edges=400)
    moved = int(graph.num_edges * ratio / 2 / 2)
    found = rewire_edges(graph, ratio, generator())
    before, after = set(edge_keys(graph).tolist()), set(edge_keys(found).tolist())
    assert graph.num_edges - moved <= found.num_edges <= graph.num_edges
    assert len(before - after) <= moved
    assert len(before - after) > 0.8 * moved
    assert 0 < len(after - before) <= moved
    dense_after = adjacency(found)
    assert_close(dense_after, dense_after.t())
    assert not bool(dense_after.diagonal().any())
    assert found.features is graph.features


def test_nothing_is_rewired_at_ratio_zero():
    graph = random_graph()
    assert torch.equal(rewire_edges(graph, 0.0, generator()).edge_index, graph.edge_index)


def test_the_generator_decides(graph):
    for draw in (
        lambda seed: drop_nodes(graph, 0.3, generator(seed)).nodes,
        lambda seed: grow_subgraph(graph, 0.3, generator(seed)).nodes,
        lambda seed: rewire_edges(graph, 0.5, generator(seed)).edge_index,
    ):
        assert torch.equal(draw(1), draw(1))
        assert draw(1).shape != draw(2).shape or not torch.equal(draw(1), draw(2))
