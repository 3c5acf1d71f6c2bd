"""Masks, views, draws, subgraphs, and the adaptive drop probabilities of GCA."""

import networkx
import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import dense
from aspect.data.graph import Graph, edge_keys
from aspect.data.sparse import SparseMatrix
from aspect.nn.augmentations import (
    ViewSource,
    column_importance,
    draw_batches,
    draw_near,
    draw_others,
    draw_pairs,
    drop_nodes,
    drop_probabilities,
    eigenvector_centrality,
    exact_mask,
    grow_subgraph,
    induced_subgraph,
    keep_mask,
    pagerank_centrality,
    rewire_edges,
)
from reference.graphs import path_graph, random_graph


@pytest.mark.parametrize("rate", [0.1, 0.9])
def test_a_rate_is_dropped_and_the_rest_weighs_one(rate):
    weights = keep_mask(20_000, rate, torch.Generator().manual_seed(0), torch.float64)
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    deviation = (rate * (1 - rate) / len(weights)) ** 0.5
    assert abs(float((weights == 0).double().mean()) - rate) < 5 * deviation


@pytest.mark.parametrize(
    ("count", "rate", "zeros"), [(10, 0.2, 2), (11, 0.2, 2), (7, 0.0, 0), (5, 1.0, 5), (3, 0.3, 0)]
)
def test_exact_masks_have_exactly_so_many_zeros(count, rate, zeros):
    for seed in range(5):
        mask = exact_mask(count, rate, torch.Generator().manual_seed(seed), torch.float64)
        assert int((mask == 0).sum()) == zeros
        assert int((mask == 1).sum()) == count - zeros


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(40, 150, 12, isolated=1, density=request.param)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_probabilities_of_zero_change_and_draw_nothing(graph):
    source, draws = ViewSource(graph), generator()
    before = draws.get_state()
    view = source.corrupted(0.0, 0.0, draws)
    assert view.features is source.features
    assert view.operator is source.clean.operator
    assert torch.equal(draws.get_state(), before)


@pytest.mark.parametrize("shape", [(6,), (5, 6)])
def test_others_are_uniform_over_the_rest(shape):
    nodes = torch.arange(6).expand(shape)
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([draw_others(nodes, 6, generator) for _ in range(3000)])
    assert draws.shape[1:] == shape
    assert not bool((draws == nodes).any())
    counts = torch.nn.functional.one_hot(draws.reshape(-1, 6), 6).double().mean(0)
    expected = (1 - torch.eye(6)) / 5
    assert float((counts - expected).abs().max()) < 5 * (0.2 * 0.8 / 3000) ** 0.5


def test_pairs_are_uniform_over_two_nodes_that_differ():
    one, other = draw_pairs(20_000, 4, torch.Generator().manual_seed(0))
    counts = torch.zeros(4, 4).index_put((one, other), torch.ones(20_000), accumulate=True)
    expected = (1 - torch.eye(4)) / 12
    assert float((counts / 20_000 - expected).abs().max()) < 5 * (11 / 144 / 20_000) ** 0.5


def test_batches_hold_every_node_once():
    batches = draw_batches(23, 10, torch.Generator().manual_seed(0))
    assert [len(batch) for batch in batches] == [10, 10, 3]
    assert sorted(torch.cat(batches).tolist()) == list(range(23))
    assert torch.cat(batches).tolist() != list(range(23))


@pytest.mark.parametrize("size", [None, 23, 99])
def test_one_batch_of_all_is_not_drawn(size):
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert draw_batches(23, size, generator) is None
    assert torch.equal(generator.get_state(), before)


class TestNear:
    @pytest.mark.parametrize("hops", [0, 1, 3])
    def test_the_whole_list_holds_every_seeds_neighbourhood(self, hops):
        graph = path_graph(9)
        drawn = draw_near(graph, 1, hops, 99, torch.Generator().manual_seed(2))
        (seed,) = draw_near(graph, 1, 0, 99, torch.Generator().manual_seed(2)).tolist()
        assert sorted(drawn.tolist()) == [node for node in range(9) if abs(node - seed) <= hops]

    def test_nodes_near_to_several_seeds_come_several_times(self):
        graph = path_graph(5)
        drawn = draw_near(graph, 5, 1, 99, torch.Generator().manual_seed(0))
        counts = torch.bincount(drawn, minlength=5)
        assert counts.tolist() == [2, 3, 3, 3, 2]

    def test_the_size_is_bounded_and_seeds_are_no_more_than_nodes(self):
        graph = random_graph(isolated=2)
        assert len(draw_near(graph, 10, 2, 7, torch.Generator().manual_seed(0))) == 7
        everyone = draw_near(graph, 999, 0, 999, torch.Generator().manual_seed(0))
        assert sorted(everyone.tolist()) == list(range(20))


def adjacency(subgraphs_graph):
    matrix = torch.zeros(subgraphs_graph.num_nodes, subgraphs_graph.num_nodes)
    matrix[tuple(subgraphs_graph.edge_index)] = 1
    return matrix


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def subgraphs_graph(request):
    return random_graph(num_nodes=40, num_edges=90, num_features=12, density=request.param)


def check_induced(found, subgraphs_graph):
    assert_close(adjacency(found.graph), adjacency(subgraphs_graph)[found.nodes][:, found.nodes])
    assert_close(dense(found.graph.features), dense(subgraphs_graph.features)[found.nodes])
    keys = found.graph.edge_index[0] * found.graph.num_nodes + found.graph.edge_index[1]
    assert bool((keys.diff() > 0).all())  # sorted, as operators expect
    assert isinstance(found.graph.features, SparseMatrix) == isinstance(
        subgraphs_graph.features, SparseMatrix
    )


def test_induced(subgraphs_graph):
    found = induced_subgraph(subgraphs_graph, torch.tensor([30, 2, 17, 5, 39, 0, 11]))
    assert found.nodes.tolist() == [0, 2, 5, 11, 17, 30, 39]
    check_induced(found, subgraphs_graph)


@pytest.mark.parametrize(("ratio", "left"), [(0.2, 32), (0.1, 36), (0.0, 40), (0.99, 1)])
def test_nodes_are_dropped_by_count(subgraphs_graph, ratio, left):
    found = drop_nodes(subgraphs_graph, ratio, generator())
    assert found.graph.num_nodes == left
    check_induced(found, subgraphs_graph)


def as_networkx(subgraphs_graph):
    made = networkx.Graph()
    made.add_nodes_from(range(subgraphs_graph.num_nodes))
    made.add_edges_from(subgraphs_graph.edge_index.t().tolist())
    return made


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("ratio", [0.2, 0.7])
def test_grown_subgraphs_are_connected(ratio, seed):
    subgraphs_graph = path_graph(30)
    found = grow_subgraph(subgraphs_graph, ratio, generator(seed))
    assert found.graph.num_nodes == int((1 - ratio) * 30)
    assert networkx.is_connected(as_networkx(found.graph))
    check_induced(found, subgraphs_graph)


def test_growth_ends_with_its_component():
    edges = torch.tensor([[0, 1, 3], [1, 2, 4]])
    subgraphs_graph = Graph.build(torch.ones(6, 1), edges)
    sizes = {
        tuple(grow_subgraph(subgraphs_graph, 0.0, generator(seed)).nodes.tolist())
        for seed in range(40)
    }
    assert sizes == {(0, 1, 2), (3, 4), (5,)}


@pytest.mark.parametrize("ratio", [0.2, 1.0])
def test_rewiring_moves_a_quarter_of_the_share(ratio):
    subgraphs_graph = random_graph(num_nodes=60, num_edges=400)
    moved = int(subgraphs_graph.num_edges * ratio / 2 / 2)
    found = rewire_edges(subgraphs_graph, ratio, generator())
    before, after = set(edge_keys(subgraphs_graph).tolist()), set(edge_keys(found).tolist())
    assert subgraphs_graph.num_edges - moved <= found.num_edges <= subgraphs_graph.num_edges
    assert len(before - after) <= moved
    assert len(before - after) > 0.8 * moved
    assert 0 < len(after - before) <= moved
    dense_after = adjacency(found)
    assert_close(dense_after, dense_after.t())
    assert not bool(dense_after.diagonal().any())
    assert found.features is subgraphs_graph.features


@pytest.fixture
def centrality_graph():
    return random_graph(isolated=1)


def ring(nodes=8):
    number = torch.arange(nodes)
    features = torch.ones(nodes, 2, dtype=torch.float64)
    return Graph.build(features, torch.stack([number, (number + 1) % nodes]))


@pytest.mark.parametrize("steps", [1, 10])
def test_pagerank_equals_the_loop(centrality_graph, steps):
    x = [1.0] * centrality_graph.num_nodes
    degrees = centrality_graph.degrees().tolist()
    for _ in range(steps):
        y = [0.15 * value for value in x]
        for source, target in centrality_graph.edge_index.t().tolist():
            y[target] += 0.85 * x[source] / degrees[source]
        x = y
    assert_close(pagerank_centrality(centrality_graph, steps), torch.tensor(x, dtype=torch.float64))


@pytest.mark.parametrize("make", [lambda: random_graph(isolated=1), lambda: path_graph(7)])
def test_the_eigenvector_is_that_of_the_dense_matrix(make):
    centrality_graph = make()
    adjacency = torch.zeros(
        centrality_graph.num_nodes, centrality_graph.num_nodes, dtype=torch.float64
    )
    adjacency[tuple(centrality_graph.edge_index)] = 1
    leading = torch.linalg.eigh(adjacency)[1][:, -1].abs()
    assert_close(eigenvector_centrality(centrality_graph), leading, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("by_size", [False, True])
@pytest.mark.parametrize("compress", [False, True])
def test_a_column_matters_as_its_carriers(compress, by_size):
    features = torch.tensor([[0.5, 0.0, 0.0], [-2.0, 1.0, 0.0]], dtype=torch.float64)
    centrality = torch.tensor([3.0, 5.0], dtype=torch.float64)
    given = SparseMatrix.from_dense(features) if compress else features
    found = column_importance(given, centrality, by_size=by_size)
    sums = [11.5, 5.0, 0.0] if by_size else [8.0, 5.0, 0.0]
    assert_close(found, torch.tensor(sums, dtype=torch.float64).log())


def edge_importance(centrality_graph, centrality=None):
    centrality = (
        centrality_graph.degrees().to(centrality_graph.dtype) if centrality is None else centrality
    )
    return centrality[centrality_graph.edge_index[0]].log()


class TestProbabilities:
    @pytest.mark.parametrize("centrality", [pagerank_centrality, eigenvector_centrality])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_regular_graph_is_dropped_uniformly(self, centrality, dtype):
        centrality_graph = ring().to(dtype)
        found = drop_probabilities(
            edge_importance(centrality_graph, centrality(centrality_graph)), 0.3
        )
        assert_close(found, torch.full_like(found, 0.3))
