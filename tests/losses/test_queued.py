import math

import pytest
import torch
from torch.testing import assert_close

from aspect.losses.info_nce import info_nce
from aspect.losses.queued import PastRows, queued_info_nce
from aspect.losses.similarity import directions

TEMPERATURE = 0.3


def embeddings(rows, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 6, dtype=torch.float64, generator=draw)


def plain_loss(u, v, i, negatives, whole):
    """Of row i, term by term: its positive, and its negatives scaled up to the whole graph."""
    positive = float(u[i] @ v[i]) / TEMPERATURE
    others = [float(u[i] @ one) / TEMPERATURE for one in negatives]
    scale = (whole - 1) / len(others)
    return math.log(math.exp(positive) + scale * sum(map(math.exp, others))) - positive


@pytest.fixture
def views():
    return embeddings(12, 1), embeddings(12, 2)


def test_a_batch_of_all_nodes_has_the_exact_loss_and_gradient(views):
    for view in views:
        view.requires_grad_(True)
    found, exact = queued_info_nce(*views, TEMPERATURE, 12), info_nce(*views, TEMPERATURE)
    assert_close(found.rows, exact.rows)
    assert_close(found.columns, exact.columns)
    assert_close(
        torch.autograd.grad(found.symmetric.mean(), views),
        torch.autograd.grad(exact.symmetric.mean(), views),
    )


def test_with_all_other_nodes_in_the_queue_a_batch_has_their_share_of_the_exact_loss(views):
    past = tuple(directions(view[5:]) for view in views)
    found = queued_info_nce(*(view[:5] for view in views), TEMPERATURE, 12, past)
    exact = info_nce(*views, TEMPERATURE)
    assert_close(found.rows, exact.rows[:5])
    assert_close(found.columns, exact.columns[:5])


def test_it_is_the_plain_sum_scaled_up(views):
    past, whole = tuple(directions(embeddings(4, seed)) for seed in (3, 4)), 1000
    found = queued_info_nce(*views, TEMPERATURE, whole, past)
    u, v = map(directions, views)
    for i in range(12):
        others = [j for j in range(12) if j != i]
        rows = plain_loss(u, v, i, [*v[others], *past[1]], whole)
        columns = plain_loss(v, u, i, [*u[others], *past[0]], whole)
        assert_close([float(found.rows[i]), float(found.columns[i])], [rows, columns])


def test_the_queue_keeps_the_newest_rows_of_an_epoch():
    past, first, second = PastRows(), embeddings(3, 5), embeddings(3, 6)
    assert past.of(1, "fused") is None
    past.keep("fused", (first, first), 4)
    past.keep("fused", (second, second), 4)
    expected = directions(torch.cat([second, first[:1]]))
    assert_close(past.of(1, "fused"), (expected, expected))
    assert past.of(1, "low") is None
    assert past.of(2, "fused") is None
    assert past.of(1, "fused") is None


def test_a_queue_of_no_rows_keeps_none():
    past = PastRows()
    past.of(1, "fused")
    past.keep("fused", (embeddings(3), embeddings(3)), 0)
    assert past.of(1, "fused") is None
