import math

import pytest
import torch
from torch.testing import assert_close
from torch_geometric.nn import GCNConv

from aspect.data.features import dense
from aspect.data.sparse import SparseMatrix
from aspect.nn.augmentations import keep_mask
from aspect.nn.gcn import GCNStack
from aspect.nn.mlp import MEAN_SLOPE, Activation, RandomLeaky
from aspect.nn.propagation import SymmetricPropagation
from reference.graphs import random_graph
from reference.metattack import dense_adjacency, normalised


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    graph = random_graph(isolated=1, num_features=12, density=request.param)
    assert isinstance(graph.features, SparseMatrix) == (request.param == 0.1)
    return graph


def stack(*widths, **options):
    torch.manual_seed(0)
    return GCNStack(widths, **options).double()


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class TestActivations:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("relu", 0.0),
            ("prelu", -0.25),
            ("rrelu", -11 / 48),
            ("leaky-relu", -0.01),
            ("elu", math.exp(-1) - 1),
            ("none", -1.0),
        ],
    )
    def test_what_becomes_of_minus_one(self, name, expected):
        activation = Activation(name)
        for mode in (True, False):
            found = activation.train(mode)(torch.tensor([-1.0, 2.0]))
            assert_close(found, torch.tensor([expected, 2.0]))

    def test_random_slopes_are_uniform_and_the_generators(self):
        x = torch.full((20_000,), -1.0)
        first, again, other = (RandomLeaky()(x, generator(seed)) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert float(first.min()) >= -1 / 3
        assert float(first.max()) <= -1 / 8
        assert float(first.mean()) == pytest.approx(-MEAN_SLOPE, abs=5 * 0.06 / 20_000**0.5)
        assert torch.equal(RandomLeaky()(-x, generator()), -x)


class TestAgainstPyg:
    def test_two_layers(self, graph):
        ours = stack(12, 8, 5, activation="relu")
        with torch.no_grad():
            for bias in ours.biases:
                bias.normal_()
        x, row_column = dense(graph.features), graph.edge_index
        for weight, bias in zip(ours.weights, ours.biases, strict=True):
            layer = GCNConv(*weight.shape).double()
            layer.lin.weight.data, layer.bias.data = weight.t(), bias
            x = layer(x, row_column).relu()
        assert_close(ours(graph.features, SymmetricPropagation(graph).smoothing()), x)

    def test_edges_dropped_per_direction(self, graph):
        kept = keep_mask(graph.edge_index.shape[1], 0.4, generator(), graph.dtype)
        ours = stack(12, 5, activation="none")
        layer = GCNConv(12, 5).double()
        layer.lin.weight.data = ours.weights[0].t()
        edges = graph.edge_index[:, kept.bool()].flip(0)  # from column to row
        operator = SymmetricPropagation(graph).smoothing(kept)
        assert_close(ours(graph.features, operator), layer(dense(graph.features), edges))


class TestStart:
    def test_glorot(self):
        ours = stack(100, 80)
        bound = math.sqrt(6 / 180)
        largest = float(ours.weights[0].detach().abs().max())
        assert 0.98 * bound < largest <= bound
        assert not bool(ours.biases[0].any())

    def test_uniform_goes_by_the_output_width(self):
        ours = stack(100, 400, start="uniform")
        for parameter in (ours.weights[0], ours.biases[0]):
            assert 0.95 / 20 < float(parameter.detach().abs().max()) <= 1 / 20


class TestLayers:
    def test_a_shared_slope_serves_every_layer(self, graph):
        operator = SymmetricPropagation(graph).smoothing()
        shared, apart = stack(12, 6, 5, shared_activation=True), stack(12, 6, 5)
        apart.load_state_dict(
            {**shared.state_dict(), "activations.1.function.weight": torch.tensor([0.25])}
        )
        assert_close(shared(graph.features, operator), apart(graph.features, operator))
        shared.activations[0].function.weight.data.fill_(0.7)
        for activation in apart.activations:
            activation.function.weight.data.fill_(0.7)
        assert_close(shared(graph.features, operator), apart(graph.features, operator))

    def test_nothing_follows_a_last_layer_that_is_not_activated(self, graph):
        operator = SymmetricPropagation(graph).smoothing()
        linear = stack(12, 5, activation="relu", activate_last=False)
        linear.biases[0].data.normal_()
        at = [linear(take_scaled(graph.features, scale), operator) for scale in (0.0, 1.0, 3.0)]
        assert_close(at[2] - at[0], 3 * (at[1] - at[0]))  # linear but for the bias

    def test_norms_stand_before_activations(self, graph):
        operator = SymmetricPropagation(graph).smoothing()
        ours = stack(12, 8, 5, activation="relu", batch_norm=True, activate_last=False)
        assert [len(norm.weight) for norm in ours.norms] == [8]
        hidden = operator(dense(graph.features) @ ours.weights[0])
        hidden = (hidden - hidden.mean(0)) / (hidden.var(0, correction=0) + 1e-5).sqrt()
        expected = operator(hidden.relu() @ ours.weights[1])
        assert_close(ours(graph.features, operator), expected)
        assert len(stack(12, 8, 5, batch_norm=True).norms) == 2
        assert len(stack(12, 8, 5, norm_momentum=0.99).norms) == 0

    def test_momentum_is_the_rate_of_the_newest_batch(self, graph):
        options = {"batch_norm": True, "norm_statistics": "running", "norm_momentum": 0.99}
        ours = stack(12, 5, activation="none", **options)
        before = SymmetricPropagation(graph).smoothing()(dense(graph.features) @ ours.weights[0])
        ours(graph.features, SymmetricPropagation(graph).smoothing())
        assert_close(ours.norms[0].running_mean, 0.99 * before.mean(0, keepdim=True))

    def test_a_dense_operator_serves_too(self, graph):
        smoothing, ours = normalised(dense_adjacency(graph)), stack(12, 8, 5)
        expected = ours(graph.features, SymmetricPropagation(graph).smoothing())
        assert_close(ours(graph.features, lambda x: smoothing @ x), expected)

    @pytest.mark.parametrize("widths", [(5,), (), (5, 0)])
    def test_impossible_widths_are_refused(self, widths):
        with pytest.raises(ValueError, match="Widths must be at least two integers >= 1"):
            GCNStack(widths)


class TestDropout:
    def outputs(self, graph, seeds, **options):
        ours, operator = stack(12, 8, 5, activation="relu", **options), SymmetricPropagation(graph)
        return [ours(graph.features, operator.smoothing(), g) for g in seeds]

    @pytest.mark.parametrize("options", [{"input_dropout": 0.5}, {"dropout": 0.5}])
    def test_only_a_generator_drops(self, graph, options):
        seeds = (None, None, generator(1), generator(1), generator(2))
        none, still, first, again, other = self.outputs(graph, seeds, **options)
        assert torch.equal(none, still)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert not torch.equal(first, none)

    def test_what_the_last_layer_gives_is_dropped_where_asked(self, graph):
        (kept,) = self.outputs(graph, [generator()], dropout=0.5)
        (dropped,) = self.outputs(graph, [generator()], dropout=0.5, drop_last=True)
        ratio = (dropped / kept)[kept > 0]
        assert set(ratio.round(decimals=9).tolist()) == {0.0, 2.0}


def take_scaled(features, scale):
    if isinstance(features, SparseMatrix):
        return features.with_values(scale * features.values)
    return scale * features
