"""Operators of weighted graphs against dense matrices in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from aspect.attacks.projected_ascent import draw_pairs, edge_candidates
from aspect.attacks.view_search import AllPairs, _smoothing
from aspect.data.graph import Graph, count_pairs, edge_keys, flip_pairs
from aspect.data.operators import Propagation, largest_eigenvalue, normalised_adjacency
from aspect.methods.aspect import AspectConfig, AspectMethod
from aspect.nn.augmentations import (
    ViewSource,
    eigenvector_centrality,
    keep_mask,
    pagerank_centrality,
)
from aspect.nn.diffusion import return_probabilities
from aspect.nn.propagation import SymmetricPropagation, neighbour_mean
from reference.spectrum import dense_laplacian, filtered, rescaled_laplacian


@pytest.fixture(scope="module")
def graph():
    """Twenty nodes, the last two without an edge; weights from 0.1 to 3, in float64."""
    draw = torch.Generator().manual_seed(3)
    pairs = torch.randint(18, (2, 45), generator=draw)
    weights = 0.1 + 2.9 * torch.rand(45, generator=draw, dtype=torch.float64)
    features = torch.randn(20, 4, generator=draw, dtype=torch.float64)
    return Graph.build(features, pairs, weights=weights)


def edge_weights(graph):
    """In the order of the edges' keys."""
    return graph.weights[graph.edge_index[0] < graph.edge_index[1]]


def adjacency(graph):
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    matrix[tuple(graph.edge_index)] = graph.weights.double()
    return matrix


def smoothing(matrix, loops=1.0):
    """`D^(-1/2) (W + l I) D^(-1/2)`, rows of zeros staying so."""
    looped = matrix + loops * torch.eye(len(matrix), dtype=matrix.dtype)
    degrees = looped.sum(1)
    scale = torch.where(degrees > 0, degrees, 1) ** -0.5
    return scale[:, None] * looped * scale[None, :]


EYE = torch.eye(20, dtype=torch.float64)


@pytest.mark.parametrize("self_loops", [False, True])
def test_the_laplacian_is_that_of_the_weighted_graph(graph, self_loops):
    weights = edge_weights(graph)
    propagation = Propagation(graph, self_loops=self_loops, lambda_max=1.7)
    expected = rescaled_laplacian(
        graph, self_loops=self_loops, edge_weights=weights, lambda_max=1.7
    )
    assert_close(propagation.operator()(EYE), expected)
    # Edge drop keeps the weights of the edges that stay; degrees follow.
    kept = keep_mask(graph.num_edges, 0.4, torch.Generator().manual_seed(1), torch.float64)
    dropped = rescaled_laplacian(graph, self_loops=self_loops, edge_weights=weights * kept)
    assert 0 < float(kept.sum()) < graph.num_edges
    assert_close(propagation.operator(kept)(EYE), dropped)


@pytest.mark.parametrize("self_loops", [False, True])
def test_its_largest_eigenvalue(graph, self_loops):
    laplacian = dense_laplacian(graph, self_loops=self_loops, edge_weights=edge_weights(graph))
    expected = float(torch.linalg.eigvalsh(laplacian).max())
    assert largest_eigenvalue(graph, self_loops=self_loops) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("loops", [0.0, 1.0, 2.0])
def test_graph_convolutions_see_weights(graph, loops):
    propagation = SymmetricPropagation(graph, loop_weight=loops)
    low = smoothing(adjacency(graph), loops)
    assert_close(propagation.smoothing()(EYE), low)
    assert_close(propagation.sharpening()(EYE), EYE - low)
    mask = torch.ones(graph.edge_index.shape[1], dtype=torch.float64)
    mask[::3] = 0
    masked = adjacency(graph)
    masked[tuple(graph.edge_index)] *= mask
    looped = masked + loops * EYE
    scale = torch.where(looped.sum(1) > 0, looped.sum(1), 1) ** -0.5
    expected = scale[:, None] * looped * scale[None, :]
    assert_close(propagation.smoothing(mask)(EYE), expected)


def test_a_graph_convolution_is_that_of_pyg(graph):
    edge_index, values = gcn_norm(graph.edge_index, graph.weights, 20, dtype=torch.float64)
    expected = torch.zeros(20, 20, dtype=torch.float64).index_put(tuple(edge_index), values)
    assert_close(SymmetricPropagation(graph).smoothing()(EYE), expected)


def test_means_and_walks_go_by_weight(graph):
    matrix = adjacency(graph)
    degrees = matrix.sum(1, keepdim=True)
    walk = matrix / torch.where(degrees > 0, degrees, 1)
    assert_close(neighbour_mean(graph)(EYE), walk)
    chances = [torch.linalg.matrix_power(walk, k).diagonal() for k in range(1, 6)]
    assert_close(return_probabilities(graph, 5), torch.stack(chances, dim=1))
    x = torch.ones(20, dtype=torch.float64)
    for _ in range(7):
        x = 0.15 * x + 0.85 * walk.t() @ x
    assert_close(pagerank_centrality(graph, 7), x)


def test_the_centrality_is_the_leading_eigenvector(graph):
    values, vectors = torch.linalg.eigh(adjacency(graph))
    leading = vectors[:, values.argmax()].abs()
    assert_close(eigenvector_centrality(graph), leading, atol=1e-6, rtol=1e-5)


def test_the_adjacency_with_added_degrees(graph):
    matrix = adjacency(graph).numpy()
    for added in (0.0, 2 * graph.num_edges / graph.num_nodes):
        degrees = matrix.sum(1) + added * matrix[matrix > 0].mean()
        scale = 1 / np.sqrt(np.where(degrees > 0, degrees, 1))
        found = normalised_adjacency(graph, added).toarray()
        np.testing.assert_allclose(found, scale[:, None] * matrix * scale[None, :])


def test_augmented_views_drop_edges_and_keep_weights(graph):
    view = ViewSource(graph).corrupted(0.5, 0.0, torch.Generator().manual_seed(2))
    found = view.operator(EYE)
    source, target = graph.edge_index
    present = found[source, target] != 0
    masked = adjacency(graph)
    masked[source[~present], target[~present]] = 0
    assert 0 < int(present.sum()) < len(present)
    looped = masked + EYE
    scale = looped.sum(1) ** -0.5
    assert_close(found, scale[:, None] * looped * scale[None, :])


@pytest.mark.parametrize("lambda_max", ["two", "power-iteration"])
def test_aspect_filters_by_the_weighted_laplacian(graph, lambda_max):
    """Both bands by eigendecomposition of a dense Laplacian, before the linear layer."""
    config = AspectConfig(
        width=8, lambda_max=lambda_max, layer_order="filter-first", input_dropout=0.0
    )
    config = config.model_copy(update={"row_normalise": False})
    method = AspectMethod(config, 4).double().eval()
    bound = 2.0
    if lambda_max != "two":
        bound = largest_eigenvalue(graph, self_loops=config.self_loops)
    rescaled = rescaled_laplacian(
        graph, self_loops=config.self_loops, edge_weights=edge_weights(graph), lambda_max=bound
    )
    basis = method.ready(graph).signal.basis
    for coefficients in method.encoder.coefficients().detach():
        expected = filtered(rescaled, coefficients.tolist(), graph.features)
        assert_close(torch.einsum("t,tnd->nd", coefficients, basis), expected)


def test_a_scale_of_all_weights_changes_no_laplacian_without_loops(graph):
    thousand = Graph.build(graph.features, graph.edge_index, weights=1000 * graph.weights)
    one, other = (Propagation(each, self_loops=False).operator() for each in (graph, thousand))
    assert_close(one(EYE), other(EYE))


def test_searches_start_from_the_weighted_graph(graph):
    clean = SymmetricPropagation(graph).smoothing()(EYE)
    pairs = AllPairs.of(graph)
    assert_close(pairs.smoothing(pairs.nothing())(EYE), clean)
    drawn = draw_pairs(graph, 30, torch.Generator().manual_seed(0))
    some = edge_candidates(graph, *drawn, self_loops=True)
    assert len(some.keys) > graph.num_edges
    assert_close(some.smoothing(some.nothing())(EYE), clean)


def test_whole_flips_of_a_search_are_flips_of_the_graph(graph):
    drawn = draw_pairs(graph, 30, torch.Generator().manual_seed(0))
    some = edge_candidates(graph, *drawn, self_loops=True)
    flips = torch.zeros_like(some.present)
    flips[::7] = 1
    flipped = flip_pairs(graph, some.flipped(flips))
    expected = SymmetricPropagation(flipped).smoothing()(EYE)
    assert_close(some.smoothing(flips)(EYE), expected)
    assert_close(_smoothing(graph, some.flipped(flips))(EYE), expected)
    pairs, shares = AllPairs.of(graph), torch.zeros(20, 20, dtype=torch.float64)
    keys = some.flipped(flips)
    shares[keys // 20, keys % 20] = 1
    assert_close(pairs.smoothing(shares + shares.t())(EYE), expected)


def test_added_pairs_weigh_twice_in_the_official_form(graph):
    keys = edge_keys(graph)[[0, 5]]
    every, counts = count_pairs(graph, keys)
    doubled = adjacency(graph)
    for key in every[counts == 2].tolist():
        doubled[key // 20, key % 20] *= 2
        doubled[key % 20, key // 20] *= 2
    found = _smoothing(graph, keys, official_additions=True)(EYE)
    assert_close(found, smoothing(doubled))
    shares = torch.zeros(20, 20, dtype=torch.float64)
    shares[keys // 20, keys % 20] = 1
    assert_close(AllPairs.of(graph).smoothing(shares + shares.t(), added=True)(EYE), found)


@pytest.mark.parametrize("added", [False, True])
def test_slopes_of_pairs_are_those_of_the_weighted_formula(graph, added):
    """A pair that is none would weigh the mean; what a share adds to an edge has a sign."""
    upper = torch.rand(20, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    upper = upper.triu(1).requires_grad_()
    shares = (upper + upper.t()).detach().requires_grad_()
    own = adjacency(graph)
    both, sign = upper + upper.t(), 1 if added else -1
    mean = graph.weights.mean() * (1 - torch.eye(20))
    flipped = torch.where(own > 0, own * (1 + sign * both), mean * both)
    (expected,) = torch.autograd.grad((smoothing(flipped) ** 3).sum(), upper)
    matrix = AllPairs.of(graph).smoothing(shares, added=added)(EYE)
    (found,) = torch.autograd.grad((matrix**3).sum(), shares)
    expected = expected.triu(1)
    assert_close(found, expected + expected.t())
