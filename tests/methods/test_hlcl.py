import itertools
import math

import pytest
import torch
from torch.nn.functional import cosine_similarity, elu
from torch.testing import assert_close

from aspect.graph.data import Graph
from aspect.graph.features import dense
from aspect.methods.base import Step
from aspect.methods.hlcl import HLCL, HLCLConfig
from aspect.training.trainer import train
from reference.graphs import random_graph

STILL = {"dropout": 0.0, "edge_drop": 0.0, "node_drop": 0.0, "column_mask": 0.0}


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(num_features=12, isolated=1, density=request.param)


@pytest.fixture
def full():
    """Features without ties."""
    return random_graph(num_edges=60, num_features=12, isolated=1)


def make(graph, **settings):
    torch.manual_seed(5)
    shares = {"like_share": 0.4, "unlike_share": 0.7}
    method = HLCL(HLCLConfig(**{"width": 6} | shares | settings), graph.num_features)
    for bias in method.encoder.biases:
        bias.data.normal_()
    return method.double().train()


def step(epoch=1, seed=0):
    return Step(epoch, torch.Generator().manual_seed(seed))


def chosen_of(method, graph):
    return method._chosen(graph)


def operators(graph, chosen, *, unit_diagonal=False):
    """The low pass of the like edges and the high pass of the unlike ones, as matrices."""
    matrices = []
    for weights in (chosen.like, chosen.unlike):
        looped = torch.eye(graph.num_nodes, dtype=torch.float64)
        looped[tuple(graph.edge_index)] = weights
        scale = looped.sum(1).rsqrt()
        matrices.append(scale[:, None] * looped * scale)
    own = torch.eye(graph.num_nodes, dtype=torch.float64)
    high = own - matrices[1]
    return matrices[0], torch.where(own == 1, own, high) if unit_diagonal else high


def rows(graph):
    x = dense(graph.features)
    sums = x.abs().sum(1, keepdim=True)
    return x / torch.where(sums > 0, sums, 1)


def encode(method, graph, operator):
    x = rows(graph)
    for weight, bias in zip(method.encoder.weights, method.encoder.biases, strict=True):
        x = (operator @ (x @ weight) + bias).relu()
    return x


def project(method, x):
    first, second = method.projector.layers
    return second(elu(first(x)))


def plain_contrast(one, other, temperature):
    """Both directions of InfoNCE, node by node."""
    nodes, total = len(one), 0.0
    for asking, answering in ((one, other), (other, one)):
        for i in range(nodes):
            scores = cosine_similarity(asking[i : i + 1], answering) / temperature
            total = total + scores.logsumexp(0) - scores[i]
    return total / (2 * nodes)


def assert_same_with_gradients(method, found, expected):
    assert_close(found, expected)
    trained = [each for each in method.parameters() if each.requires_grad]
    assert_close(torch.autograd.grad(found, trained), torch.autograd.grad(expected, trained))


@pytest.mark.parametrize("unit_diagonal", [False, True])
def test_loss_and_gradients_are_those_of_the_formula(graph, unit_diagonal):
    method = make(graph, unit_diagonal=unit_diagonal, **STILL)
    terms = method.loss_terms(graph, step())
    views = operators(graph, chosen_of(method, graph), unit_diagonal=unit_diagonal)
    low, high = (project(method, encode(method, graph, each)) for each in views)
    # Nothing is drawn, so that the two views of a kind are the same.
    expected = (plain_contrast(low, low, 0.2) + plain_contrast(high, high, 0.2)) / 2
    assert_same_with_gradients(method, terms["low"] + terms["high"], expected)


def test_the_simplified_loss_holds_low_against_high(graph):
    method = make(graph, simplified=True, temperature=0.5, **STILL)
    (found,) = method.loss_terms(graph, step()).values()
    views = operators(graph, chosen_of(method, graph))
    low, high = (project(method, encode(method, graph, each)) for each in views)
    assert_same_with_gradients(method, found, plain_contrast(low, high, 0.5))


@pytest.mark.parametrize("simplified", [False, True])
def test_equal_projections_cost_the_logarithm_of_the_nodes(graph, simplified):
    method = make(graph, simplified=simplified)
    method.projector.layers[1].weight.data.zero_()
    total = sum(method.loss_terms(graph, step()).values())
    assert_close(total.item(), math.log(graph.num_nodes))


def test_every_view_is_drawn_anew(full):
    for name in STILL:
        method = make(full, **STILL | {name: 0.5})
        generator = step().generator
        views = (method._low_view, method._high_view)
        differ = [not torch.equal(v(full, generator), v(full, generator)) for v in views]
        assert differ == [name != "node_drop", name != "edge_drop"], name


def test_low_and_high_pass_of_the_same_edges_add_up_to_the_signal(full):
    method = make(full)
    source, weights = method._source(full), chosen_of(method, full).like
    x = dense(full.features)
    passed = method._low_pass(source, weights)(x) + method._high_pass(source, weights)(x)
    assert_close(passed, x)


def test_a_constant_on_a_regular_graph_passes_low_and_not_high():
    nodes = torch.arange(8)
    ring = Graph.build(torch.randn(8, 4).double(), torch.stack([nodes, (nodes + 1) % 8]))
    method = make(ring)
    source, ones = method._source(ring), torch.ones(16, dtype=torch.float64)
    constant = torch.full((8, 3), 1.7, dtype=torch.float64)
    assert_close(method._low_pass(source, ones)(constant), constant)
    assert_close(method._high_pass(source, ones)(constant), torch.zeros_like(constant))


def chosen_by_loop(graph, x, share, sign):
    chosen = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    for i in range(graph.num_nodes):
        others = graph.edge_index[1][graph.edge_index[0] == i].tolist()
        likeness = {j: sign * float(cosine_similarity(x[i], x[j], dim=0)) for j in others}
        count = math.ceil(round(share * len(others), 9))
        for j in sorted(others, key=lambda j: -likeness[j])[:count]:
            chosen[i, j] = chosen[j, i] = 1
    return chosen[tuple(graph.edge_index)]


def test_edges_are_first_chosen_by_features(full):
    chosen = chosen_of(make(full), full)
    assert_close(chosen.like, chosen_by_loop(full, full.features, 0.4, 1))
    assert_close(chosen.unlike, chosen_by_loop(full, full.features, 0.7, -1))


def test_edges_are_chosen_anew_by_both_passes_of_the_encoder(full):
    method = make(full, interval=3)
    views = operators(full, chosen_of(method, full))
    seen = torch.cat([encode(method, full, each) for each in views], dim=1).detach()
    assert bool((seen.norm(dim=1) > 0).all())  # a row of zeros would be like nothing
    method.loss_terms(full, step(epoch=4))
    chosen = chosen_of(method, full)
    assert_close(chosen.like, chosen_by_loop(full, seen, 0.4, 1))
    assert_close(chosen.unlike, chosen_by_loop(full, seen, 0.7, -1))


def test_the_choice_changes_after_every_interval_and_never_between(full):
    method = make(full, interval=3)
    choices = []
    for epoch in range(1, 9):
        method.loss_terms(full, step(epoch))
        choices.append(chosen_of(method, full))
    same = [one is other for one, other in itertools.pairwise(choices)]
    assert same == [True, True, False, True, True, False, True]
    never = make(full, interval=None)
    never.loss_terms(full, step(101))
    assert not bool(never.has_chosen)


def test_all_shares_are_the_whole_graph(graph):
    chosen = chosen_of(make(graph, like_share=1.0, unlike_share=1.0), graph)
    assert bool(chosen.like.all())
    assert bool(chosen.unlike.all())


def test_equally_similar_edges_are_chosen_whatever_the_numbering():
    draw = torch.Generator().manual_seed(1)
    words = (torch.rand(40, 4, generator=draw) < 0.5).double()  # sixteen rows at most
    extra = torch.rand(40, 1, generator=draw, dtype=torch.float64) < 0.1
    features = torch.cat([words, extra], dim=1)
    graph = Graph.build(features, torch.randint(40, (2, 150), generator=draw))
    order = torch.randperm(40, generator=draw)
    place = torch.argsort(order)
    other = Graph.build(features[order], place[graph.edge_index])
    method = make(graph)
    chosen, again = chosen_of(method, graph).like, chosen_of(method, other).like
    table = torch.zeros(2, 40, 40, dtype=torch.float64)
    table[0][tuple(graph.edge_index)] = chosen
    table[1][tuple(other.edge_index)] = again
    assert_close(table[1], table[0][order][:, order])


def test_the_embedding_is_the_low_pass_of_the_like_edges(graph):
    method = make(graph).eval()
    low, _ = operators(graph, chosen_of(method, graph))
    assert_close(method.embed(graph), encode(method, graph, low))


def test_a_loaded_state_brings_its_choice_along(full):
    trained = make(full, interval=2, epochs=4, learning_rate=0.1)
    train(trained, full, seed=0)  # edges were last chosen before the third epoch
    # The encoder has moved on since: by itself it cannot tell which edges were chosen.
    assert not torch.equal(trained.chooser.weights[0], trained.encoder.weights[0])
    loaded = make(full, interval=2)
    loaded.eval().embed(full)  # it has chosen by features by now
    loaded.load_state_dict(trained.state_dict())
    assert_close(loaded.embed(full), trained.embed(full), rtol=0, atol=0)
    assert_close(chosen_of(loaded, full).like, chosen_of(trained, full).like, rtol=0, atol=0)


def test_one_encoder_serves_all_views_and_what_chooses_is_not_trained(full):
    method = make(full)
    trained = {id(p) for group in method.parameter_groups() for p in group.parameters}
    both = [*method.encoder.parameters(), *method.projector.parameters()]
    assert trained == {id(p) for p in both}
    assert not any(p.requires_grad for p in method.chooser.parameters())
