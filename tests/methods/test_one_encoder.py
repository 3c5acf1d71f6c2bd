"""The cache of one graph, and the base of methods with one encoder by the smallest of them."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.data.features import dense, row_normalise
from aspect.methods.base import OneEncoder, OneEncoderConfig, PerGraph, Step
from aspect.nn.gcn import GCNStack
from reference import two_views
from reference.graphs import random_graph


class Plain(OneEncoder):
    def __init__(self, config, num_features):
        super().__init__(config)
        self.encoder = GCNStack([num_features, 4], activation="rrelu")

    def loss_terms(self, graph, step):
        embeddings = self.encode(self.source(graph).clean, step.generator)
        self.monitored = {"largest": embeddings.detach().max()}
        return {"size": embeddings.square().mean()}


@pytest.fixture(params=[0.2, 1.0], ids=["sparse", "dense"])
def graph(request):
    return random_graph(20, 40, 6, isolated=1, density=request.param)


def make(graph, **settings):
    return Plain(OneEncoderConfig(**settings), graph.num_features).to(graph.dtype)


@pytest.mark.parametrize("normalised", [True, False])
def test_the_embedding_is_the_encoder_s_of_the_clean_graph(graph, normalised):
    method = make(graph, row_normalise=normalised)
    features = dense(row_normalise(graph.features) if normalised else graph.features)
    hidden = two_views.smoothing(graph) @ features @ method.encoder.weights[0]
    assert_close(method.embed(graph), torch.where(hidden >= 0, hidden, hidden * 11 / 48))


def test_a_generator_is_for_training_alone(graph):
    method, clean = make(graph), make(graph).source(graph).clean
    one, other = (method.encode(clean, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert not torch.equal(one, other)
    assert torch.equal(method.encode(clean), method.embed(graph))


def test_the_source_is_found_once_for_a_graph(graph):
    method = make(graph)
    method.prepare(graph)
    kept = method.source(graph)
    method.embed(graph)
    assert method.source(graph) is kept
    other = random_graph(9, 12, 6)
    assert method.source(other).graph is other


def test_a_step_tells_what_it_monitors(graph):
    method = make(graph)
    assert method.monitors() == {}
    method.loss_terms(graph, Step(1, torch.Generator().manual_seed(0)))
    assert set(method.monitors()) == {"largest"}


def test_it_is_made_once_for_a_graph_and_anew_for_another():
    made = []
    prepared = PerGraph(lambda graph: made.append(graph) or len(made))
    one, other = random_graph(seed=0), random_graph(seed=1)
    assert [prepared(one), prepared(one), prepared(other), prepared(one)] == [1, 1, 2, 3]
    assert [graph is one for graph in made] == [True, False, True]


class Doubling(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 2
        self.prepared = PerGraph(self.make)

    def make(self, graph):
        return self.factor * graph.num_nodes


def test_loading_a_state_makes_it_forget_in_a_copy_too():
    original = Doubling()
    original.register_load_state_dict_post_hook(original.prepared.forget)
    copied = copy.deepcopy(original)
    graph = random_graph(num_nodes=20)
    for module in (original, copied):
        assert module.prepared(graph) == 40
        module.factor = 3
        assert module.prepared(graph) == 40
    copied.load_state_dict({})
    assert (original.prepared(graph), copied.prepared(graph)) == (40, 60)
