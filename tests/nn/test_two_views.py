import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import dense, row_normalise
from aspect.nn.augmentations import ViewSource
from aspect.nn.propagation import SymmetricPropagation
from reference.graphs import random_graph


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(40, 150, 12, isolated=1, density=request.param)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("normalise_rows", [False, True])
def test_the_clean_view_is_the_graph(graph, normalise_rows):
    view = ViewSource(graph, normalise_rows=normalise_rows).clean
    expected = row_normalise(graph.features) if normalise_rows else graph.features
    assert_close(dense(view.features), dense(expected))
    assert_close(view.operator.matrix.values, SymmetricPropagation(graph).smoothing().matrix.values)


def test_probabilities_of_zero_change_and_draw_nothing(graph):
    source, draws = ViewSource(graph), generator()
    before = draws.get_state()
    view = source.corrupted(0.0, 0.0, draws)
    assert view.features is source.features
    assert view.operator is source.clean.operator
    assert torch.equal(draws.get_state(), before)


def test_columns_are_masked_for_all_nodes_and_never_rescaled(graph):
    source = ViewSource(graph)
    view, whole = source.corrupted(0.0, 0.5, generator()), dense(source.features)
    seen = dense(view.features)
    kept = (seen != 0).any(0)
    assert 0 < int(kept.sum()) < int((whole != 0).any(0).sum())
    assert_close(seen, whole * kept)


def test_degrees_follow_the_dropped_entries(graph):
    view = ViewSource(graph).corrupted(0.4, 0.0, generator())
    matrix = view.operator.matrix.dense()
    kept = (matrix != 0).double()
    scale = kept.sum(1).rsqrt()
    assert_close(matrix, scale[:, None] * kept * scale[None, :])
    assert bool(kept.diagonal().all())  # self-loops are never dropped
    assert not torch.equal(kept, kept.t())


def test_each_may_have_its_own_probability(graph):
    entries = graph.edge_index.shape[1]
    edge_drop = (torch.arange(entries) % 2).double()
    column_drop = (torch.arange(12) < 5).double()
    source = ViewSource(graph)
    view = source.corrupted(edge_drop, column_drop, generator())
    expected = source.propagation.smoothing(1 - edge_drop)
    assert_close(view.operator.matrix.values, expected.matrix.values)
    assert_close(dense(view.features), dense(source.features) * (1 - column_drop))


def test_the_generator_decides(graph):
    source = ViewSource(graph)
    one, again, other = (source.corrupted(0.3, 0.3, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.operator.matrix.values, again.operator.matrix.values)
    assert torch.equal(dense(one.features), dense(again.features))
    assert not torch.equal(one.operator.matrix.values, other.operator.matrix.values)
