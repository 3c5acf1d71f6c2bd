"""The folded encoder: the same function as the encoder in evaluation, and frozen."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from aspect.graph.operators import Propagation
from aspect.graph.sparse import SparseMatrix
from aspect.spectral.folded import fold
from aspect.spectral.views import Signal, SpectralEncoder
from reference.graphs import random_graph

FORMS = list(itertools.product(["filter-first", "project-first"], [True, False], ["relu", "prelu"]))


def trained(layer_order, batch_norm, activation):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        encoder = SpectralEncoder(
            7,
            5,
            order=4,
            dropout=0.4,
            input_dropout=0.4,
            batch_norm=batch_norm,
            activation=activation,
            layer_order=layer_order,
        ).double()
        if batch_norm:
            encoder.norm.running_mean.normal_()
            encoder.norm.running_var.uniform_(0.2, 3)
            torch.nn.init.normal_(encoder.norm.weight)
            torch.nn.init.normal_(encoder.norm.bias)
    return encoder.eval()


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
