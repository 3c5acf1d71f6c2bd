import math

import pytest
import torch
from torch.testing import assert_close

from aspect.attacks.projected_ascent import slopes_of
from aspect.attacks.view_search import flippable_pairs
from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.data.sparse import SparseMatrix
from aspect.methods.base import Step
from aspect.methods.dgi import DGI, DGIConfig
from aspect.methods.rdgi import RDGI, RDGIConfig
from aspect.randomness import generator_for
from aspect.training.trainer import train
from methods.building import (
    assert_captured_is_the_same,
    assert_unasked_is_the_same,
    build,
    generator,
    step,
)
from reference.graphs import random_graph

NEVER, ALWAYS = 1e9, -1e9  # margins: out of reach, and reached by anything
NO_SEARCH = {"perturbation_budget": 0.0, "feature_box": 0.0}
# Fresh scores hardly tell anything, and so hardly hang on edges: steps for them are larger.
FAR = {"edge_step": 1e4, "feature_step": 0.003}


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    """Features in [0, 1], as bags of words have them."""
    made = random_graph(24, 60, 12, isolated=1, density=request.param)
    return Graph.build(dense(made.features).abs(), made.edge_index)


def make(graph, kind=RDGI, config=RDGIConfig, **settings):
    return build(kind, config(width=5, **settings), graph, seed=0)


def own_draws(seed=5):
    """Where the search and the changed graph's corruption come from."""
    return generator_for(seed, "perturbation")


def loss_of(method, graph, seed=5):
    return method.loss_terms(graph, step(seed))["discrimination"]


def gradients(loss, method):
    return torch.autograd.grad(loss, list(method.parameters()))


class TestSwitch:
    def test_a_margin_out_of_reach_is_dgi(self, graph):
        method, plain = make(graph, margin=NEVER), make(graph, DGI, DGIConfig)
        found, expected = loss_of(method, graph), loss_of(plain, graph)
        assert_close(found, expected, rtol=0, atol=0)
        assert_close(gradients(found, method), gradients(expected, plain), rtol=0, atol=0)

    def test_a_margin_below_all_takes_the_changed_graph(self, graph):
        method = make(graph, margin=ALWAYS, **FAR)
        own = own_draws()
        changed = method.discriminate(graph, method.search(graph, own).view, Step(1, own))
        found = loss_of(method, graph)
        assert_close(found, changed, rtol=0, atol=0)
        assert_close(gradients(found, method), gradients(changed, method), rtol=0, atol=0)
        assert float(changed.detach()) != float(loss_of(make(graph, margin=NEVER), graph).detach())

    @pytest.mark.parametrize("seed", range(2))
    def test_the_margin_decides_and_is_reached_by_its_own_value(self, graph, seed):
        method = make(graph, **FAR)
        loss_of(method, graph, seed)
        told = method.monitors()
        clean, changed = told["clean_loss"], told["changed_loss"]
        gap = float(changed - clean)
        for margin, expected in ((gap, changed), (math.nextafter(gap, math.inf), clean)):
            other = make(graph, margin=margin, **FAR)
            assert_close(loss_of(other, graph, seed).detach(), expected, rtol=0, atol=0)

    def test_without_searches_it_is_dgi_with_another_corruption(self, graph):
        method = make(graph, margin=ALWAYS, **NO_SEARCH)
        plain = make(graph, DGI, DGIConfig)
        expected = plain.loss_terms(graph, Step(1, own_draws()))["discrimination"]
        assert_close(loss_of(method, graph), expected)
        assert int(method.monitors()["search_flips"]) == 0
        view = method.search(graph, own_draws()).view
        assert view.features is method.source(graph).features


class TestSearch:
    def test_it_does_harm_where_the_corruption_stays_the_same(self, graph, monkeypatch):
        order = torch.randperm(graph.num_nodes, generator=generator(4))
        monkeypatch.setattr("aspect.methods.base.draw_order", lambda *_: order)
        # A model that tells nodes apart; training it as DGI spares the searches.
        plain = make(graph, DGI, DGIConfig, epochs=60, patience=None, learning_rate=0.02)
        train(plain, graph, seed=0)
        method = make(graph)
        method.load_state_dict(plain.state_dict())
        clean = method.discriminate(graph, method.source(graph).clean, Step(1, generator()))
        harm = method.search(graph, generator())
        changed = method.discriminate(graph, harm.view, Step(1, generator()))
        assert float((changed - clean).detach()) > 0.001
        assert len(harm.flips) > 0

    def test_parameters_are_left_alone(self, graph):
        method = make(graph, **FAR).train()
        method.search(graph, generator())
        assert all(p.grad is None and p.requires_grad for p in method.parameters())
        assert method.training

    def test_slopes_do_not_hang_on_the_order_of_nodes(self, graph, monkeypatch):
        """The mirror image's are the mirrored ones: no triangle of the matrix comes first."""
        method = make(graph)
        turned = torch.arange(graph.num_nodes - 1, -1, -1)
        mirror = Graph.build(dense(graph.features)[turned], turned[graph.edge_index])
        order = torch.randperm(graph.num_nodes, generator=generator(4))
        slopes = []
        for each, corruption in ((graph, order), (mirror, turned[order[turned]])):
            monkeypatch.setattr("aspect.methods.base.draw_order", lambda *_, c=corruption: c)
            pairs = flippable_pairs(each, method.config, generator())
            projected = method.encoder.project(method.source(each).features).detach()

            def loss(shares, each=each, pairs=pairs, projected=projected):
                step = Step(1, generator())
                return method.tell_apart(each, projected, pairs.smoothing(shares), step)

            _, (slope,) = slopes_of(loss, pairs.nothing())
            slopes.append(slope + slope.t())
        assert float(slopes[0].abs().max()) > 0
        assert_close(slopes[1], slopes[0][turned][:, turned])

    def test_every_loss_has_a_corruption_of_its_own(self, graph, monkeypatch):
        drawn = []

        def listen(nodes, generator):
            drawn.append(torch.randperm(nodes, generator=generator))
            return drawn[-1]

        monkeypatch.setattr("aspect.methods.base.draw_order", listen)
        loss_of(make(graph, perturbation_steps=3), graph)
        assert len(drawn) == 2 * (3 + 1) + 2
        assert len({tuple(order.tolist()) for order in drawn}) == len(drawn)


class TestLargeGraphs:
    def test_the_user_is_told(self, graph):
        assert list(make(graph).outlook(graph)) == []
        (told,) = make(graph, exact_up_to=9, candidates=3).outlook(graph)
        assert f"up to {3 * graph.num_edges} other pairs" in told
        assert "24 nodes" in told
        assert list(make(graph, exact_up_to=9, perturbation_budget=0.0).outlook(graph)) == []

    def test_the_user_is_told_of_features_that_fill_up(self):
        """5,000 numbers that are stored become 1.6 GB; below 1 GB, nothing is said."""

        def outlook(num_nodes, **settings):
            nodes = torch.arange(5000)
            words = SparseMatrix.from_entries(
                nodes, nodes % 2000, torch.ones(5000, dtype=torch.float64), (num_nodes, 2000)
            )
            wide = Graph(words, torch.empty(2, 0, dtype=torch.long))
            return list(make(wide, perturbation_budget=0.0, **settings).outlook(wide))

        (told,) = outlook(100_000)
        assert "1.6 GB" in told
        assert "feature_step=0" in told
        assert outlook(60_000) == []
        assert outlook(100_000, feature_step=0.0) == outlook(100_000, feature_box=0.0) == []


def test_the_embedding_is_dgi_s_on_the_clean_graph(graph):
    method = make(graph)
    plain = make(graph, DGI, DGIConfig)
    loss_of(method, graph).backward()
    assert_close(method.embed(graph), plain.embed(graph), rtol=0, atol=0)


@pytest.mark.parametrize("changes", [{}, {"official_additions": True}, {"edge_step": 1e6}])
def test_a_step_over_all_pairs_asks_a_gpu_for_nothing(graph, changes, monkeypatch):
    method = make(graph, margin=ALWAYS, **(FAR | changes))
    assert_unasked_is_the_same(method, graph, monkeypatch)


def test_steps_over_all_pairs_alone_are_captured(graph):
    for bound, key in ((23, None), (24, ())):
        method = make(graph, exact_up_to=bound)
        method.before_step(graph, step())
        assert method.capture_key(step()) == key


@pytest.mark.gpu
@pytest.mark.parametrize("margin", [ALWAYS, NEVER])
def test_a_captured_step_is_the_same(graph, margin, monkeypatch):
    method = make(graph, margin=margin, **FAR)
    assert_captured_is_the_same(method.to("cuda"), graph.to("cuda"), monkeypatch)


@pytest.mark.gpu
@pytest.mark.parametrize("bound", [0, 100])
def test_a_step_on_a_gpu(graph, bound):
    placed = graph.to("cuda")
    method = make(graph, exact_up_to=bound, margin=ALWAYS, **FAR).to("cuda")
    loss = method.loss_terms(placed, Step(1, torch.Generator("cuda").manual_seed(0)))
    loss["discrimination"].backward()
    assert torch.isfinite(method.encoder.weights[0].grad).all()
    assert float(method.monitors()["search_flips"]) > 0


def dense_smoothing(adjacency):
    looped = adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype)
    roots = looped.sum(1).rsqrt()
    return roots[:, None] * looped * roots


def plain_budget(point, most):
    """The shift by bisection, over the whole matrix: every pair has two entries."""
    low, high = float(point.min()) - 1, float(point.max())
    if float(point.clamp(0, 1).sum()) <= 2 * most:
        return point.clamp(0, 1)
    for _ in range(200):
        middle = (low + high) / 2
        above = float((point - middle).clamp(0, 1).sum()) > 2 * most
        low, high = (middle, high) if above else (low, middle)
    return (point - high).clamp(0, 1)


class PlainStep:
    """RDGI's step written out by dense matrices, every draw in the order of the search."""

    def __init__(self, method, graph):
        self.config, self.scorer = method.config, method.scorer
        self.weight, self.bias = method.encoder.weights[0], method.encoder.biases[0]
        self.slope = method.encoder.activations[0].function.weight
        x = dense(graph.features)
        self.x = x / x.sum(1, keepdim=True).clamp(min=1e-300)
        self.adjacency = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
        self.adjacency[tuple(graph.edge_index)] = 1

    def loss(self, matrix, x, draws):
        order = torch.randperm(len(x), generator=draws)
        real, corrupted = (
            torch.nn.functional.prelu(matrix @ (rows @ self.weight) + self.bias, self.slope)
            for rows in (x, x[order])
        )
        summary = real.mean(0).sigmoid()
        logits = [
            rows @ self.scorer.matrix @ summary + self.scorer.bias for rows in (real, corrupted)
        ]
        both = torch.cat(logits)
        truth = torch.cat([torch.ones(len(x)), torch.zeros(len(x))]).double()
        return torch.nn.functional.binary_cross_entropy_with_logits(both, truth)

    def best(self, start, objective, climb, last):
        highest, best, point = -math.inf, start, start
        for _ in range(self.config.perturbation_steps):
            moved = point.clone().requires_grad_()
            value = objective(moved)
            (slope,) = torch.autograd.grad(value, moved)
            if float(value.detach()) > highest:
                highest, best = float(value.detach()), point
            point = climb(point, slope)
        return point if float(objective(last(point)).detach()) > highest else best

    def changed(self, draws):
        config, clean, nodes = self.config, self.adjacency, len(self.adjacency)
        direction = 1 - 2 * clean - torch.eye(nodes, dtype=torch.float64)
        most = int(config.perturbation_budget * float(clean.sum()) / 2)

        def climb(shares, slope):
            both = ((slope + slope.t()) / 2).fill_diagonal_(0)
            return plain_budget(shares + config.edge_step * both, most)

        def flips(shares):
            drawn = torch.bernoulli(shares, generator=draws).triu(1)
            return drawn + drawn.t()

        def of_shares(shares):
            return self.loss(dense_smoothing(clean + shares * direction), self.x, draws)

        drawn = flips(self.best(torch.zeros_like(clean), of_shares, climb, flips))
        adversarial = clean + (drawn if config.official_additions else drawn * direction)
        matrix = dense_smoothing(adversarial)

        def move(x, slope):
            near = (x + config.feature_step * slope.sign() - self.x).clamp(
                -config.feature_box, config.feature_box
            )
            return (self.x + near).clamp(0, 1)

        x = self.best(self.x, lambda x: self.loss(matrix, x, draws), move, lambda x: x)
        return self.loss(matrix, x, draws), int(drawn.sum()) // 2


@pytest.mark.parametrize("official", [False, True])
@pytest.mark.parametrize("size", [300.0, 1e4])
def test_search_and_loss_are_those_of_the_formula(graph, official, size):
    reach = {"edge_step": size, "feature_step": 0.003, "feature_box": 0.007}
    method = make(graph, margin=ALWAYS, official_additions=official, **reach)
    method.scorer.matrix.data *= 30
    expected, flips = PlainStep(method, graph).changed(own_draws())
    found = loss_of(method, graph)
    assert_close(found, expected)
    assert_close(gradients(found, method), gradients(expected, method))
    assert int(method.monitors()["search_flips"]) == flips > 0
