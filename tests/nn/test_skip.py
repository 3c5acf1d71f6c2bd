"""The skip connection: principal components of propagated features, by the training graph."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import dense
from aspect.data.operators import Propagation
from aspect.nn import skip
from aspect.nn.normalisation import recording
from aspect.nn.skip import Skip, principal_components
from reference.graphs import random_graph


@pytest.fixture(params=[1.0, 0.3], ids=["dense", "compressed"])
def graph(request):
    return random_graph(40, 90, 6, isolated=1, density=request.param)


def operator_of(graph):
    return Propagation(graph, self_loops=True).operator()


def recorded(graph, dim):
    layer = Skip(6, dim).double()
    with recording([layer]):
        layer(graph.features, operator_of(graph))
    return layer


def plain_rows(graph, lengths=None):
    x, step = dense(graph.features), operator_of(graph)
    blocks = [block.numpy() for block in (x, step(x), step(step(x)))]
    if lengths is None:
        lengths = [np.linalg.norm(block, axis=1).mean() for block in blocks]
    return np.concatenate(
        [block / length for block, length in zip(blocks, lengths, strict=True)], 1
    ), lengths


def test_components_are_those_of_a_singular_value_decomposition(graph):
    rows, _ = plain_rows(graph)
    centred = rows - rows.mean(0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:5].T
    expected = torch.from_numpy(centred @ axes)
    expected = expected / expected.norm(dim=1, keepdim=True)
    found = recorded(graph, 5)(graph.features, operator_of(graph))
    # The sign of an axis is free.
    assert_close((found * expected).sum(0).abs(), (expected * expected).sum(0))


def test_other_graphs_are_seen_along_the_axes_of_the_training_graph(graph):
    layer, other = recorded(graph, 3), random_graph(25, 60, 6)
    _, lengths = plain_rows(graph)
    rows = torch.from_numpy(plain_rows(other, lengths)[0])
    expected = (rows - layer.mean) @ layer.axes
    found = layer(other.features, operator_of(other))
    assert_close(found, expected / expected.norm(dim=1, keepdim=True))


def test_there_are_no_more_components_than_columns(graph):
    assert recorded(graph, 50)(graph.features, operator_of(graph)).shape == (40, 18)


def test_features_that_are_all_alike_have_no_direction():
    graph = random_graph(10, 20, 6)
    layer = Skip(6, 4).double()
    with recording([layer]):
        found = layer(torch.zeros(10, 6, dtype=torch.float64), operator_of(graph))
    assert_close(found, torch.zeros_like(found))


def test_many_columns_are_decomposed_by_iteration(monkeypatch):
    generator = torch.Generator().manual_seed(4)
    shape = (60, 90)
    rows = torch.randn(shape, dtype=torch.float64, generator=generator)
    rows = rows @ torch.diag(0.8 ** torch.arange(90, dtype=torch.float64))
    rows = rows - rows.mean(0)
    exact = principal_components(rows, 6)
    monkeypatch.setattr(skip, "EXACT_UP_TO", 10)
    assert_close(principal_components(rows, 6), exact, rtol=1e-5, atol=1e-6)
