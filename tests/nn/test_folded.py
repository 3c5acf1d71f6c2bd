"""The folded encoder: the same function as the encoder in evaluation, and frozen."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from aspect.data.operators import Propagation
from aspect.data.sparse import SparseMatrix
from aspect.nn.normalisation import recording
from aspect.nn.spectral_encoder import Signal, SpectralEncoder, fold
from reference.graphs import random_graph

FORMS = list(itertools.product(["filter-first", "project-first"], [True, False], ["relu", "prelu"]))


def trained(layer_order, batch_norm, activation, statistics="recomputed"):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        encoder = SpectralEncoder(
            7,
            5,
            order=4,
            dropout=0.4,
            input_dropout=0.4,
            batch_norm=batch_norm,
            norm_statistics=statistics,
            activation=activation,
            layer_order=layer_order,
        ).double()
        if batch_norm:
            encoder.norm.running_mean.normal_()
            encoder.norm.running_var.uniform_(0.2, 3)
            torch.nn.init.normal_(encoder.norm.weight)
            torch.nn.init.normal_(encoder.norm.bias)
    return encoder.eval()


@pytest.mark.parametrize("layer_order", ["filter-first", "project-first"])
def test_one_average_for_all_bands_serves_them_all(layer_order):
    encoder = trained(layer_order, True, "prelu", "running")
    graph = random_graph(density=0.3)
    operator = Propagation(graph, self_loops=True).operator()
    folded = fold(encoder)
    assert_close(
        folded.embed(folded.project(graph.features), operator),
        encoder(Signal(graph.features, operator)),
    )


@pytest.mark.parametrize("layer_order", ["filter-first", "project-first"])
@pytest.mark.parametrize("statistics", ["recomputed", "graph"])
def test_on_the_recorded_graph_it_is_the_encoder_as_trained(layer_order, statistics):
    encoder = trained(layer_order, True, "prelu", statistics)
    graph = random_graph(density=0.3)
    operator = Propagation(graph, self_loops=True).operator()
    with torch.no_grad(), recording([encoder.norm]):
        encoder(Signal(graph.features, operator))
    folded = fold(encoder)
    assert_close(
        folded.embed(folded.project(graph.features), operator),
        encoder.train()(Signal(graph.features, operator)),
    )


def test_bands_share_one_map_unless_batch_norm_tells_them_apart():
    assert fold(trained("filter-first", False, "relu")).weight.shape == (1, 7, 5)
    assert fold(trained("filter-first", True, "relu")).weight.shape == (2, 7, 5)


@pytest.mark.parametrize(("layer_order", "batch_norm", "activation"), FORMS)
@pytest.mark.parametrize("kind", ["dense", "compressed"])
def test_it_embeds_as_the_encoder_does(layer_order, batch_norm, activation, kind):
    encoder = trained(layer_order, batch_norm, activation)
    graph = random_graph(density=0.3)
    features = SparseMatrix.from_dense(graph.features) if kind == "compressed" else graph.features
    operator = Propagation(graph, self_loops=True).operator()
    folded = fold(encoder)
    assert_close(
        folded.embed(folded.project(features), operator), encoder(Signal(features, operator))
    )


def test_it_does_not_follow_the_encoder_and_has_no_gradient():
    encoder = trained("filter-first", True, "prelu")
    folded = fold(encoder)
    before = [each.clone() for each in vars(folded).values()]
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(1)
    assert_close(list(vars(folded).values()), before, rtol=0, atol=0)
    assert not any(each.requires_grad for each in before)
