import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.data.features import dense, row_normalise
from aspect.methods.dgi import DGI, DGIConfig
from aspect.methods.graphcl import GraphCL, GraphCLConfig, draw_view
from methods.building import assert_same_with_gradients, build, generator, step
from reference.graphs import path_graph, random_graph

KINDS = ["node", "subgraph", "mask", "edge"]


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(40, 90, 12, isolated=1, density=request.param)


def make(graph, **settings):
    return build(GraphCL, GraphCLConfig(width=5, **settings), graph, seed=0)


def loss_of(method, graph, seed=5):
    return method.loss_terms(graph, step(seed))["discrimination"]


def adjacency(graph):
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    matrix[tuple(graph.edge_index)] = 1
    return matrix


def smoothing(adjacency):
    looped = adjacency + torch.eye(len(adjacency), dtype=torch.float64)
    scale = looped.sum(1).rsqrt()
    return scale[:, None] * looped * scale


class TestViews:
    def test_dropped_nodes_take_their_edges_along(self, graph):
        view = draw_view(graph, "node", 0.23, generator())
        assert len(view.nodes) == 40 - 9
        assert bool((view.nodes.diff() > 0).all())
        left = adjacency(graph)[view.nodes][:, view.nodes]
        assert_close(view.operator.dense(), smoothing(left))
        assert bool((view.present == 1).all())

    def test_blanked_rows_are_counted_exactly(self, graph):
        view = draw_view(graph, "mask", 0.23, generator())
        assert view.nodes.tolist() == list(range(40))
        assert sorted(view.present.tolist()) == [0.0] * 9 + [1.0] * 31
        assert_close(view.operator.dense(), smoothing(adjacency(graph)))

    @pytest.mark.parametrize("kind", KINDS)
    def test_they_stay_through_a_training_and_change_with_the_seed(self, graph, kind):
        method, other = make(graph, augmentation=kind), make(graph, augmentation=kind)
        method.prepare(graph)
        first = method._views(graph)
        loss_of(method, graph, seed=1)
        method.embed(graph)
        assert method._views(graph) is first
        for view, again in zip(first, other._views(graph), strict=True):
            assert is_same(view, again)
        assert not is_same(*first)
        torch.manual_seed(1)
        stranger = GraphCL(method.config, graph.num_features).double()
        assert not is_same(stranger._views(graph)[0], first[0])

    def test_the_seed_is_saved_with_the_weights(self, graph):
        method = make(graph)
        torch.manual_seed(5)
        loaded = GraphCL(method.config, graph.num_features).double()
        loaded.prepare(graph)  # with views by a seed that is about to be replaced
        loaded.load_state_dict(method.state_dict())
        assert_close(loss_of(loaded, graph), loss_of(method, graph), rtol=0, atol=0)


def is_same(one, other):
    """Whether two views agree bit by bit."""

    def parts(view):
        matrix = view.operator
        return view.nodes, view.present, matrix.pattern.columns, matrix.values

    return all(map(torch.equal, parts(one), parts(other)))


def plain_loss(method, graph, order):
    """Both views embedded on their own, from features and edges as they are there."""
    x, scorer = dense(row_normalise(graph.features)), method.scorer
    (weight,), (bias,) = method.encoder.weights, method.encoder.biases
    slope = method.encoder.activations[0].function.weight

    def encode(x, matrix):
        return nn.functional.prelu(matrix @ x @ weight + bias, slope)

    logits = []
    for nodes in (x, x[order]):
        left = encode(nodes, smoothing(adjacency(graph)))
        total = 0.0
        for view in method._views(graph):
            seen = x[view.nodes] * view.present[:, None]
            summary = encode(seen, view.operator.dense()).mean(0).sigmoid()
            repeated = summary.expand_as(left).contiguous()
            total = total + nn.functional.bilinear(
                left, repeated, scorer.matrix[None], scorer.bias[None]
            )
        logits.append(total)
    real, corrupted = logits
    both = torch.cat([nn.functional.softplus(-real), nn.functional.softplus(corrupted)])
    return both.mean()


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients_are_those_of_the_formula(graph, kind):
    method = make(graph, augmentation=kind)
    method.scorer.bias.data.fill_(0.3)
    found = loss_of(method, graph)
    order = torch.randperm(graph.num_nodes, generator=generator())
    expected = plain_loss(method, graph, order)
    assert_same_with_gradients(found, expected, method)


@pytest.mark.parametrize("kind", KINDS)
def test_views_of_the_whole_graph_make_it_dgi_with_a_scorer_of_twice_the_size(graph, kind):
    if kind == "subgraph":  # which would end at the component's border
        graph = path_graph(20, 12)
    method = make(graph, augmentation=kind, ratio=0.0)
    method.scorer.bias.data.fill_(0.3)
    twin = DGI(DGIConfig(width=5), graph.num_features).double()
    weights = {key: value for key, value in method.state_dict().items() if key != "view_seed"}
    doubled = {key: 2 * value for key, value in weights.items() if key.startswith("scorer.")}
    twin.load_state_dict(weights | doubled)
    assert_close(loss_of(method, graph), loss_of(twin, graph))
    assert torch.equal(method.embed(graph), twin.embed(graph))
