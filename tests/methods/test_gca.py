import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.methods.gca import GCA, GCAConfig
from aspect.methods.grace import GRACE, GRACEConfig
from aspect.nn.augmentations import (
    column_importance,
    eigenvector_centrality,
    pagerank_centrality,
)
from aspect.nn.mlp import MEAN_SLOPE
from methods.building import build, generator, step
from reference.graphs import random_graph

SMALL = {"width": 6, "projection_width": 5, "activation": "prelu", "temperature": 0.5}
RATES = {
    "first_edge_drop": 0.3,
    "second_edge_drop": 0.1,
    "first_column_mask": 0.2,
    "second_column_mask": 0.0,
}
# For edges and for columns.
CENTRALITIES = {
    "degree": lambda graph: (graph.degrees().double(),) * 2,
    "pagerank": lambda graph: (pagerank_centrality(graph, 200), pagerank_centrality(graph, 10)),
    "eigenvector": lambda graph: (
        eigenvector_centrality(graph) + 1e-8,
        eigenvector_centrality(graph),
    ),
}


@pytest.fixture(params=[0.15, 0.8], ids=["sparse", "dense"])
def graph(request):
    return random_graph(
        num_nodes=40, num_edges=80, num_features=9, isolated=1, density=request.param
    )


def make(graph, kind=GCA, config=GCAConfig, **settings):
    return build(kind, config(**(SMALL | RATES | settings)), graph)


def ring(nodes=8, features=None):
    number = torch.arange(nodes)
    if features is None:
        features = torch.ones(nodes, 4, dtype=torch.float64)
    return Graph.build(features, torch.stack([number, (number + 1) % nodes]))


def plain_probabilities(scores, rate):
    """The weights of the paper over the scores that are finite."""
    weights = (scores.max() - scores) / (scores.max() - scores.mean())
    return (rate * weights / weights.mean()).clamp(max=0.7)


def test_probabilities_equal_the_formula(graph):
    found = make(graph).drops(graph)
    degrees = graph.degrees().double()
    edges = degrees[graph.edge_index[0]].log()
    columns = ((dense(graph.features) != 0).double() * degrees[:, None]).sum(0).log()
    assert bool(torch.isfinite(columns).all())
    for (edge_drops, column_drops), edge_drop, column_mask in zip(
        found, (0.3, 0.1), (0.2, 0.0), strict=True
    ):
        assert_close(edge_drops, plain_probabilities(edges, edge_drop))
        assert_close(column_drops, plain_probabilities(columns, column_mask))


def test_views_are_drawn_by_the_probabilities(graph):
    method, drawn = make(graph), generator()
    views, clean = method.corrupted(graph, generator()), method.source(graph).features
    for view, (edge_drops, column_drops) in zip(views, method.drops(graph), strict=True):
        kept = torch.bernoulli(1 - edge_drops, generator=drawn)
        columns = torch.bernoulli(1 - column_drops, generator=drawn)
        assert_close(dense(view.features), dense(clean) * columns)
        matrix = torch.eye(graph.num_nodes, dtype=graph.dtype)
        matrix[tuple(graph.edge_index)] = kept
        root = matrix.sum(1) ** -0.5
        assert_close(view.operator.dense(), root[:, None] * matrix * root)


@pytest.mark.parametrize("centrality", CENTRALITIES)
def test_probabilities_have_the_rate_as_mean_and_keep_the_most_important(graph, centrality):
    method = make(graph, centrality=centrality, first_edge_drop=0.1, first_column_mask=0.1)
    edge_drops, column_drops = method.drops(graph)[0]
    for_edges, for_columns = CENTRALITIES[centrality](graph)
    for drop, scores in (
        (edge_drops, for_edges[graph.edge_index[0]].log()),
        (column_drops, column_importance(graph.features, for_columns)),
    ):
        assert bool(((drop >= 0) & (drop <= 0.7)).all())
        capped = bool((drop > 0.6999).any())
        assert float(drop.mean()) <= 0.1 + 1e-9
        assert capped or float(drop.mean()) == pytest.approx(0.1)
        assert float(drop[scores.argmax()]) == 0
        assert bool((drop[scores.argsort()].diff() <= 1e-9).all())


@pytest.mark.parametrize("highest", [0.5, 0.7])
def test_a_high_rate_is_cut_off(graph, highest):
    rates = {"first_edge_drop": 0.8, "first_column_mask": 0.8}
    for found in make(graph, highest_drop=highest, **rates).drops(graph)[0]:
        assert float(found.max()) == pytest.approx(highest)
        assert float(found.mean()) < 0.8


def test_a_regular_graph_with_equal_columns_is_grace():
    graph = ring()
    one = make(graph).loss_terms(graph, step())
    other = make(graph, GRACE, GRACEConfig).loss_terms(graph, step())
    # Probabilities of zero are drawn too, but the last drawn are the last view's columns.
    assert_close(one, other)


class TestEmptyColumns:
    @pytest.fixture
    def graph(self):
        whole = random_graph(num_nodes=20, num_features=9, density=0.6)
        features = dense(whole.features).clone()
        features[:, 4] = 0
        return Graph.build(features, whole.edge_index)

    def test_they_spoil_nothing(self, graph):
        _, drop = make(graph, first_column_mask=0.1).drops(graph)[0]
        assert bool(torch.isfinite(drop).all())
        full = torch.arange(9) != 4
        assert float(drop[full].max()) < 0.7
        assert float(drop[full].mean()) == pytest.approx(0.1)

    def test_the_official_code_masks_all_columns(self, graph):
        for _, column_drops in make(graph, official_nan=True).drops(graph):
            assert_close(column_drops, torch.full_like(column_drops, 0.7))


def test_columns_may_be_weighed_by_their_sizes():
    graph = random_graph(num_features=9)
    degrees = graph.degrees().double()
    _, found = make(graph, weigh_by_size=True).drops(graph)[0]
    scores = (graph.features.abs() * degrees[:, None]).sum(0).log()
    assert_close(found, plain_probabilities(scores, 0.2))


def test_rrelu_is_one_slope_in_training_and_evaluation(graph):
    method = make(graph, activation="rrelu")
    assert pytest.approx(11 / 48) == MEAN_SLOPE
    view = method.source(graph).clean
    trained, evaluated = method.train().encode(view), method.eval().encode(view)
    assert_close(trained, evaluated, rtol=0, atol=0)
    pieces = view.operator(dense(view.features) @ method.encoder.weights[0])
    hidden = torch.nn.functional.leaky_relu(pieces + method.encoder.biases[0], 11 / 48)
    pieces = view.operator(hidden @ method.encoder.weights[1]) + method.encoder.biases[1]
    assert_close(trained, torch.nn.functional.leaky_relu(pieces, 11 / 48))
