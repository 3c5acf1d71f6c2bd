import pytest
import torch
from torch.testing import assert_close

from aspect.methods.grace import GRACE, GRACEConfig
from methods.building import assert_same_with_gradients, build, step
from reference import contrast, two_views
from reference.graphs import random_graph

SMALL = {"width": 6, "projection_width": 5, "activation": "prelu", "temperature": 0.5}


@pytest.fixture(params=[0.15, 1.0], ids=["sparse", "dense"])
def graph(request):
    return random_graph(num_nodes=20, num_features=9, isolated=1, density=request.param)


def make(graph, **settings):
    return build(GRACE, GRACEConfig(**(SMALL | settings)), graph)


def plain_embedding(method, features, matrix):
    """The two layers written out, one slope for both."""
    hidden = features
    slope = method.encoder.activations[0].function.weight
    for weight, bias in zip(method.encoder.weights, method.encoder.biases, strict=True):
        hidden = torch.nn.functional.prelu(matrix @ (hidden @ weight) + bias, slope)
    return hidden


def plain_projection(method, x):
    first, second = method.projector.layers
    hidden = torch.nn.functional.elu(x @ first.weight.t() + first.bias)
    return hidden @ second.weight.t() + second.bias


def drawn_views(method, graph, seed=5):
    """The same draws as a step's, as dense features and matrices."""
    config, generator = method.config, torch.Generator().manual_seed(seed)
    for rates in (
        (config.first_edge_drop, config.first_column_mask),
        (config.second_edge_drop, config.second_column_mask),
    ):
        yield two_views.corrupted(graph, *rates, generator)


@pytest.mark.parametrize("temperature", [0.3, 0.9])
def test_the_loss_equals_the_formula(graph, temperature):
    method = make(graph, temperature=temperature)
    u, v = (
        plain_projection(method, plain_embedding(method, *view))
        for view in drawn_views(method, graph)
    )
    both = contrast.intra_view(u, v, temperature) + contrast.intra_view(v, u, temperature)
    found = method.loss_terms(graph, step())["contrast"]
    expected = both.mean() / 2
    assert_same_with_gradients(found, expected, method)


def test_the_embedding_is_the_encoders_on_the_clean_graph(graph):
    method = make(graph)
    clean = two_views.features_of(graph), two_views.smoothing(graph)
    assert_close(method.embed(graph), plain_embedding(method, *clean))


def test_the_hidden_layer_is_twice_as_wide_and_has_the_same_slope(graph):
    method = make(graph)
    assert [tuple(weight.shape) for weight in method.encoder.weights] == [(9, 12), (12, 6)]
    assert len(method.encoder.activations) == 1
    assert method.cost == "quadratic"
