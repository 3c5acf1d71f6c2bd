"""Shares of flips over pairs: both kinds of pairs against dense matrices, and the budget."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from aspect.adversarial.candidates import EdgeCandidates
from aspect.adversarial.flippable import (
    AllPairs,
    SomePairs,
    added_smoothing,
    within_budget,
)
from aspect.adversarial.projection import project_to_budget
from aspect.data.graph import Graph, edge_index_of, flip_pairs
from aspect.data.operators import Propagation
from aspect.nn.propagation import SymmetricPropagation
from reference.graphs import random_graph
from reference.metattack import dense_adjacency

NODES = 12


@pytest.fixture
def graph():
    return random_graph(NODES, 20, 5, isolated=1)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def diagonal_form(adjacency):
    """With the degrees as diagonal matrices, as the formula reads."""
    looped = adjacency + torch.eye(len(adjacency), dtype=torch.float64)
    root = torch.diag(looped.sum(0) ** -0.5)
    return root @ looped @ root


def flipped(adjacency, shares):
    """A + S o C, for C = 11' - 2A - I."""
    nodes = len(adjacency)
    direction = torch.ones(nodes, nodes, dtype=torch.float64) - 2 * adjacency - torch.eye(nodes)
    return adjacency + (shares.triu(1) + shares.triu(1).t()) * direction


def every_pair(graph):
    """All pairs as candidates: the other form of the same."""
    low, high = torch.triu_indices(NODES, NODES, 1)
    keys = low * NODES + high
    whole = Graph(graph.features, edge_index_of(keys, NODES))
    present = dense_adjacency(graph)[low, high]
    return SomePairs(EdgeCandidates(keys, present, Propagation(whole, self_loops=True)))


def random_shares(seed=0):
    return torch.rand(NODES, NODES, dtype=torch.float64, generator=generator(seed)).triu(1)


def drawn_flips():
    return torch.bernoulli(0.5 * random_shares(), generator=generator(9))


def as_vector(shares):
    return shares[tuple(torch.triu_indices(NODES, NODES, 1))]


class TestPairs:
    def test_nothing_is_the_graph_s_own_convolution(self, graph):
        x = torch.eye(NODES, dtype=torch.float64)
        expected = SymmetricPropagation(graph).smoothing().matrix.dense()
        assert_close(expected, diagonal_form(dense_adjacency(graph)))
        for pairs in (AllPairs.of(graph), every_pair(graph)):
            assert_close(pairs.smoothing(pairs.nothing())(x), expected)

    def test_shares_flip_as_the_formula_says(self, graph):
        shares, x = random_shares(), torch.eye(NODES, dtype=torch.float64)
        expected = diagonal_form(flipped(dense_adjacency(graph), shares))
        assert_close(AllPairs.of(graph).smoothing(shares)(x), expected)
        assert_close(every_pair(graph).smoothing(as_vector(shares))(x), expected)

    def test_slopes_are_those_of_the_formula_the_degrees_included(self, graph):
        x = torch.randn(NODES, 3, dtype=torch.float64, generator=generator(1))
        shares = random_shares().requires_grad_()
        vector = as_vector(shares.detach()).requires_grad_()

        def slope(matrix, at):
            (found,) = torch.autograd.grad((matrix**2).sum(), at)
            return found

        expected = slope(diagonal_form(flipped(dense_adjacency(graph), shares)) @ x, shares)
        found = slope(AllPairs.of(graph).smoothing(shares)(x), shares)
        assert_close(found, expected)
        assert bool((found.tril() == 0).all()), "a pair has one share"
        assert_close(slope(every_pair(graph).smoothing(vector)(x), vector), as_vector(expected))

    def test_what_is_below_the_diagonal_counts_nothing(self, graph):
        pairs, shares, x = AllPairs.of(graph), random_shares(), torch.eye(NODES).double()
        noisy = shares + torch.rand(NODES, NODES, generator=generator(2)).double().tril()
        assert_close(pairs.smoothing(noisy)(x), pairs.smoothing(shares)(x))
        assert torch.equal(pairs.keys(noisy), pairs.keys(shares))

    def test_keys_name_the_flipped_pairs(self, graph):
        flips = drawn_flips()
        low, high = flips.nonzero().t()
        expected = (low * NODES + high).tolist()
        assert expected
        assert AllPairs.of(graph).keys(flips).tolist() == expected
        assert every_pair(graph).keys(as_vector(flips)).tolist() == expected


class TestFlips:
    def test_whole_flips_are_a_simple_graph(self, graph):
        flips = drawn_flips()
        keys = AllPairs.of(graph).keys(flips)
        found = dense_adjacency(flip_pairs(graph, keys))
        assert torch.equal(found, flipped(dense_adjacency(graph), flips))
        assert torch.equal(found, found.t())
        assert bool((found.diagonal() == 0).all())
        edges, others = dense_adjacency(graph) == 1, dense_adjacency(graph) == 0
        assert bool((found[edges] == 0).any())
        assert bool((found[others] == 1).any())

    def test_additions_keep_every_edge_and_double_those_that_are_named(self, graph):
        flips = drawn_flips()
        summed = dense_adjacency(graph) + flips + flips.t()
        assert set(summed.unique().tolist()) == {0.0, 1.0, 2.0}
        found = added_smoothing(graph, AllPairs.of(graph).keys(flips))
        assert_close(found.matrix.dense(), diagonal_form(summed))


class TestBudget:
    @given(st.lists(st.floats(-3, 3), min_size=1, max_size=30), st.floats(0, 12))
    def test_it_is_the_projection(self, values, budget):
        point = torch.tensor(values, dtype=torch.float64)
        assert_close(within_budget(point, budget), project_to_budget(point, budget))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("outlier", [None, 1e7])
    def test_where_it_binds_it_is_met(self, dtype, outlier):
        """Also where one share is so far ahead that the shift is hard to find beside it."""
        shares = torch.randn(90, 90, dtype=dtype, generator=generator()).triu(1)
        if outlier is not None:
            shares = torch.full((400, 400), 0.5, dtype=dtype).triu(1)
            shares[3, 7] = outlier
        found = within_budget(shares, 31.5)
        assert found.shape == shares.shape
        assert bool(((found >= 0) & (found <= 1)).all())
        assert bool((found.tril() == 0).all())
        assert float(found.double().sum()) == pytest.approx(31.5, rel=1e-4)
        assert_close(within_budget(found, 31.5), found, rtol=1e-4, atol=1e-6)
        # Larger stays larger.
        order = shares.flatten().argsort()
        assert bool((found.flatten()[order].diff() >= 0).all())

    def test_what_is_allowed_stays(self):
        shares = torch.rand(6, 6, generator=generator())
        assert torch.equal(within_budget(shares, 36), shares)
        assert torch.equal(within_budget(shares, 0), torch.zeros(6, 6))
