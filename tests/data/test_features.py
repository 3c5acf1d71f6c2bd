from typing import get_args

import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import (
    Structural,
    as_features,
    dense,
    drop_entries,
    dropout,
    mask_columns,
    mean_size,
    num_entries,
    permute_columns,
    row_normalise,
    take_rows,
    with_structural_features,
)
from aspect.data.graph import Graph
from aspect.data.sparse import SparseMatrix
from aspect.errors import GraphError


@pytest.fixture
def matrix():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(8, 12, dtype=torch.float64, generator=generator)
    values[torch.rand(8, 12, generator=generator) < 0.6] = 0
    values[3] = 0
    return values


@pytest.fixture(params=["dense", "sparse"])
def features(request, matrix):
    return matrix if request.param == "dense" else SparseMatrix.from_dense(matrix)


def generator():
    return torch.Generator().manual_seed(7)


def test_entries_that_are_not_zero_are_counted_and_measured(features, matrix):
    assert num_entries(features) == sum(value != 0 for row in matrix.tolist() for value in row)
    assert_close(mean_size(features), matrix[matrix != 0].abs().mean())
    masked = mask_columns(features, torch.zeros(12, dtype=torch.float64))
    assert num_entries(masked) == 0  # zeros that are stored do not count
    assert float(mean_size(masked)) == 0


@pytest.mark.parametrize("rows", [[], [2, 2, 3, 7, 2]])
def test_rows_are_taken_in_the_order_given(features, matrix, rows):
    rows = torch.tensor(rows, dtype=torch.long)
    taken = take_rows(features, rows)
    assert type(taken) is type(features)
    assert_close(dense(taken), matrix[rows], rtol=0, atol=0)
    weights = torch.randn(12, 2, dtype=torch.float64, requires_grad=True)
    expected = torch.autograd.grad((matrix[rows] @ weights).square().sum(), weights)
    assert_close(torch.autograd.grad((taken @ weights).square().sum(), weights), expected)


def test_columns_are_permuted_and_masked(features, matrix):
    order = torch.randperm(12, generator=generator())
    permuted = permute_columns(features, order)
    assert type(permuted) is type(features)
    assert_close(dense(permuted), matrix[:, order], rtol=0, atol=0)
    keep = (torch.arange(12) % 3 != 0).double()
    assert_close(dense(mask_columns(features, keep)), matrix * keep)
    assert mask_columns(features, None) is features


def test_rows_sum_to_one_in_absolute_value_and_zero_rows_stay(features, matrix):
    normalised = dense(row_normalise(features))
    expected = torch.ones(8, dtype=torch.float64)
    expected[3] = 0
    assert_close(normalised.abs().sum(1), expected)
    assert_close(normalised * matrix.abs().sum(1, keepdim=True), matrix)


def test_what_is_kept_is_scaled_up_and_inputs_stay(features, matrix):
    before = matrix.clone()
    dropped = dense(drop_entries(features, 0.25, generator()))
    kept = dropped != 0
    assert_close(dropped[kept], matrix[kept] / 0.75)
    assert 0 < kept.sum() < (matrix != 0).sum()
    row_normalise(features)
    mask_columns(features, torch.zeros(12, dtype=torch.float64))
    assert_close(dense(features), before, rtol=0, atol=0)
    for rate, source in ((0.5, None), (0.0, generator())):
        assert_close(dense(drop_entries(features, rate, source)), before, rtol=0, atol=0)


@pytest.mark.parametrize("rate", [0.05, 0.999])
def test_share_dropped_and_mean_are_right(rate):
    x = torch.ones(400, 501)
    out = dropout(x, rate, generator())
    deviation = (rate * (1 - rate) / x.numel()) ** 0.5
    assert abs(float((out == 0).float().mean()) - rate) < 5 * deviation
    assert float(out.mean()) == pytest.approx(1, abs=5 * deviation / (1 - rate))


def test_draws_are_independent_and_repeat_with_the_generator():
    """Four draws come from each 64-bit word: neighbours must not agree."""
    x = torch.ones(2**18)
    one = generator()
    first = dropout(x, 0.5, one)
    assert torch.equal(first, dropout(x, 0.5, generator()))
    assert not torch.equal(first, dropout(x, 0.5, one))
    kept = (first > 0).double() - 0.5
    for distance in (1, 2, 3, 4):
        correlation = float((kept[distance:] * kept[:-distance]).mean()) * 4
        assert abs(correlation) < 5 / 2**9


def test_any_number_of_entries_can_be_dropped_and_the_gradient_passes():
    for shape in ((0,), (3,), (5, 7)):
        assert dropout(torch.ones(shape), 0.5, generator()).shape == shape
    x = torch.randn(50, 3, dtype=torch.float64, requires_grad=True)
    out = dropout(x, 0.4, generator())
    out.sum().backward()
    assert_close(x.grad, (out / x).detach())


def test_integers_that_float32_would_merge_are_refused():
    kept = torch.tensor([[2**24, 1], [2**24 + 2, 2]])
    assert dense(as_features(kept)).tolist() == kept.tolist()
    with pytest.raises(GraphError, match=r"below 2\*\*24\. Got 16777216, 16777217 \(2 in all\)"):
        as_features(torch.tensor([[2**24, 1], [2**24 + 1, 2]]))


# Features made from the edges


@pytest.mark.parametrize("kind", get_args(Structural))
def test_structural_features_are_the_same_at_every_call_and_finite(kind):
    nodes = torch.arange(300)
    ids = [str(node) for node in range(302)]  # two of them isolated
    graph = Graph.build(torch.ones(302, 1), torch.stack([nodes, nodes.roll(1)]), ids)
    changed, again = (with_structural_features(graph, kind) for _ in range(2))
    features = dense(changed.features)
    assert features.shape[0] == 302
    assert torch.isfinite(features).all()
    assert_close(features, dense(again.features), rtol=0, atol=0)
    assert changed.ids == graph.ids
    assert changed.edge_index is graph.edge_index


def test_degree_is_one_hot_of_its_power_of_two_and_identity_the_identity():
    star = Graph.build(torch.ones(6, 1), torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]]))
    features = dense(with_structural_features(star, "degree").features)
    assert features.tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert_close(dense(with_structural_features(star, "identity").features), torch.eye(6))


@pytest.mark.parametrize("num_nodes", [30, 300])  # dense and iterative eigenvectors
def test_laplacian_vectors_are_eigenvectors_in_order(num_nodes):
    path = torch.stack([torch.arange(num_nodes - 1), torch.arange(1, num_nodes)])
    graph = Graph.build(torch.ones(num_nodes, 1), path)
    vectors = dense(with_structural_features(graph, "laplacian").features).double()
    adjacency = torch.zeros(num_nodes, num_nodes, dtype=torch.double)
    adjacency[tuple(graph.edge_index)] = 1
    scale = adjacency.sum(1).rsqrt()
    normalised = scale[:, None] * adjacency * scale
    values = (vectors * (normalised @ vectors)).sum(0) / (vectors**2).sum(0)
    assert (values.diff() < 1e-6).all()
    assert_close(normalised @ vectors, vectors * values, rtol=0, atol=2e-3)
    assert_close((vectors**2).mean(0), torch.ones(vectors.shape[1]).double())
    for vector in vectors.T:
        first = (vector.abs() > 0.999 * vector.abs().max()).nonzero()[0]
        assert vector[first] > 0


def test_laplacian_without_edges():
    empty = Graph.build(torch.ones(3, 1), torch.zeros(2, 0, dtype=torch.long))
    with pytest.raises(GraphError, match=r"need edges\. Got none; ask for degree or random"):
        with_structural_features(empty, "laplacian")
