import math
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close

from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.nn.augmentations import ViewSource
from aspect.nn.gcn import GCNStack
from aspect.nn.neighbours import EdgeSplit
from reference.graphs import random_graph
from reference.two_views import features_of, smoothing

SHARES = {"like_share": 0.4, "unlike_share": 0.7}


@pytest.fixture
def graph():
    """Features without ties."""
    return random_graph(num_edges=60, num_features=12, isolated=1)


def split(graph, encoder=None, **options):
    return EdgeSplit.of(ViewSource(graph), encoder, **SHARES | options)


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def an_encoder(graph, width=6):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        encoder = GCNStack([graph.num_features, width, width], activation="relu")
        for bias in encoder.biases:
            bias.data.normal_()
    return encoder.double()


def table(graph, weights):
    """Weights of the edge index as a matrix."""
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    matrix[tuple(graph.edge_index)] = weights
    return matrix


def chosen_by_loop(graph, x, share, sign):
    chosen = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    for i in range(graph.num_nodes):
        others = graph.edge_index[1][graph.edge_index[0] == i].tolist()
        likeness = {j: sign * float(cosine_similarity(x[i], x[j], dim=0)) for j in others}
        count = math.ceil(round(share * len(others), 9))
        for j in sorted(others, key=lambda j: -likeness[j])[:count]:
            chosen[i, j] = chosen[j, i] = 1
    return chosen[tuple(graph.edge_index)]


class TestChoice:
    def test_it_is_by_features(self, graph):
        found = split(graph)
        assert_close(found.like, chosen_by_loop(graph, graph.features, 0.4, 1))
        assert_close(found.unlike, chosen_by_loop(graph, graph.features, 0.7, -1))

    def test_an_encoder_chooses_by_both_passes_of_what_features_choose(self, graph):
        first, encoder = split(graph), an_encoder(graph)
        own = torch.eye(graph.num_nodes, dtype=torch.float64)
        low, high = smoothing(graph, first.like), own - smoothing(graph, first.unlike)
        seen = []
        for operator in (low, high):
            x = features_of(graph)
            for weight, bias in zip(encoder.weights, encoder.biases, strict=True):
                x = (operator @ (x @ weight) + bias).relu()
            seen.append(x.detach())
        x = torch.cat(seen, dim=1)
        assert bool((x.norm(dim=1) > 0).all())  # a row of zeros would be like nothing
        found = split(graph, encoder)
        assert_close(found.like, chosen_by_loop(graph, x, 0.4, 1))
        assert_close(found.unlike, chosen_by_loop(graph, x, 0.7, -1))
        assert not found.like.requires_grad

    @pytest.mark.parametrize("density", [1.0, 0.1], ids=["dense", "compressed"])
    def test_whole_shares_are_the_whole_graph(self, density):
        graph = random_graph(num_features=12, isolated=1, density=density)
        found = split(graph, like_share=1.0, unlike_share=1.0)
        assert bool(found.like.all())
        assert bool(found.unlike.all())

    def test_equally_similar_edges_are_chosen_whatever_the_numbering(self):
        generator = draw(1)
        words = (torch.rand(40, 4, generator=generator) < 0.5).double()  # sixteen rows at most
        extra = torch.rand(40, 1, generator=generator, dtype=torch.float64) < 0.1
        features = torch.cat([words, extra], dim=1)
        graph = Graph.build(features, torch.randint(40, (2, 150), generator=generator))
        order = torch.randperm(40, generator=generator)
        other = Graph.build(features[order], torch.argsort(order)[graph.edge_index])
        here, there = table(graph, split(graph).like), table(other, split(other).like)
        assert_close(there, here[order][:, order])


class TestPasses:
    @pytest.mark.parametrize("unit_diagonal", [False, True])
    def test_they_are_the_matrices_of_the_two_subgraphs(self, graph, unit_diagonal):
        found = split(graph, unit_diagonal=unit_diagonal)
        own = torch.eye(graph.num_nodes, dtype=torch.float64)
        high = own - smoothing(graph, found.unlike)
        expected = torch.where(own == 1, own, high) if unit_diagonal else high
        assert_close(found.low().operator(own), smoothing(graph, found.like))
        assert_close(found.high().operator(own), expected)
        assert_close(dense(found.low().features), features_of(graph))

    def test_of_the_same_edges_they_add_up_to_the_signal(self, graph):
        chosen = split(graph).like
        same, x = EdgeSplit(ViewSource(graph), chosen, chosen), graph.features
        assert_close(same.low().operator(x) + same.high().operator(x), x)

    def test_a_constant_on_a_regular_graph_passes_low_and_not_high(self):
        nodes = torch.arange(8)
        ring = Graph.build(torch.randn(8, 4).double(), torch.stack([nodes, (nodes + 1) % 8]))
        whole = split(ring, like_share=1.0, unlike_share=1.0)
        constant = torch.full((8, 3), 1.7, dtype=torch.float64)
        assert_close(whole.low().operator(constant), constant)
        assert_close(whole.high().operator(constant), torch.zeros_like(constant))


class TestDraws:
    def test_nothing_is_dropped_at_zero(self, graph):
        found, generator = split(graph), draw()
        before = generator.get_state()
        for drawn, clean in (
            (found.draw_low(0.0, 0.0, generator), found.low()),
            (found.draw_high(0.0, 0.0, generator), found.high()),
        ):
            assert torch.equal(drawn.operator.matrix.values, clean.operator.matrix.values)
            assert drawn.features is clean.features
        assert torch.equal(generator.get_state(), before)

    def test_low_views_lose_single_directions_of_like_edges(self, graph):
        found = split(graph)
        own = torch.eye(graph.num_nodes, dtype=torch.float64)
        kept = found.draw_low(0.5, 0.0, draw()).operator(own).fill_diagonal_(0) != 0
        like = table(graph, found.like).bool()
        assert not bool((kept & ~like).any())
        assert 0 < int(kept.sum()) < int(like.sum())
        assert bool((kept != kept.t()).any())

    def test_high_views_lose_all_edges_of_some_nodes(self, graph):
        found = split(graph)
        own = torch.eye(graph.num_nodes, dtype=torch.float64)
        kept = found.draw_high(0.3, 0.0, draw(2)).operator(own).fill_diagonal_(0) != 0
        unlike = table(graph, found.unlike).bool()
        alone = unlike.any(1) & ~kept.any(1)
        assert 0 < int(alone.sum()) < graph.num_nodes
        stay = ~alone[:, None] & ~alone[None, :]
        # An edge is lost only with one of its ends.
        assert torch.equal(kept & stay, unlike & stay)

    @pytest.mark.parametrize("kind", ["low", "high"])
    def test_columns_are_masked_for_all_nodes(self, graph, kind):
        found = split(graph)
        drawn = dense(getattr(found, f"draw_{kind}")(0.0, 0.5, draw()).features)
        whole = features_of(graph)
        masked = ~drawn.any(0)
        assert 0 < int(masked.sum()) < graph.num_features
        assert_close(drawn[:, ~masked], whole[:, ~masked])

    def test_every_view_is_drawn_anew(self, graph):
        found, generator = split(graph), draw()
        for drawing in (found.draw_low, found.draw_high):
            views = [drawing(0.4, 0.4, generator) for _ in range(4)]
            values = [view.operator.matrix.values for view in views]
            assert not any(torch.equal(one, other) for one, other in pairwise(values))
            masks = [dense(view.features) for view in views]
            assert not any(torch.equal(one, other) for one, other in pairwise(masks))
