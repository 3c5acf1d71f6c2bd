import math

import pytest
import torch
from torch.testing import assert_close

from aspect.losses.blocked import with_smaller_blocks
from aspect.losses.info_nce import NodeLosses
from aspect.losses.negatives import log_sum_of_negatives
from aspect.losses.positives import Positives
from aspect.losses.several_positives import (
    several_positives_info_nce,
    several_positives_loss,
)
from reference import contrast
from reference.graphs import random_graph

NODES = 11


def views(nodes=NODES, dim=4, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(nodes, dim, dtype=dtype, generator=generator).requires_grad_() for _ in range(2)
    )


def some_positives(count=3, nodes=NODES, seed=1):
    generator = torch.Generator().manual_seed(seed)
    chosen = [torch.randperm(nodes, generator=generator)[:count] for _ in range(nodes)]
    return Positives.from_neighbours(torch.stack(chosen), torch.float64)


def as_sets(positives):
    dense = positives.matrix.dense()
    return [set(row.nonzero().flatten().tolist()) for row in dense]


def slow_losses(queries, keys, temperature, positives):
    sets = as_sets(positives)
    return NodeLosses(
        contrast.several_positives(queries, keys, temperature, sets),
        contrast.several_positives(keys, queries, temperature, sets),
    )


def weighed(found):
    generator = torch.Generator().manual_seed(5)
    by_row, by_column = torch.randn(2, len(found.rows), dtype=torch.float64, generator=generator)
    return (by_row * found.rows).sum() + (by_column * found.columns).sum()


class TestPositives:
    def test_a_node_is_its_own_positive_once(self):
        positives = Positives.from_neighbours(torch.tensor([[1, 0], [1, 1], [0, 1]]))
        assert as_sets(positives) == [{0, 1}, {1}, {0, 1, 2}]
        assert set(positives.matrix.values.tolist()) == {1.0}

    def test_no_neighbours_leave_the_node_alone(self):
        positives = Positives.from_neighbours(torch.empty(3, 0, dtype=torch.long))
        assert_close(positives.matrix.dense(), torch.eye(3))

    def test_those_of_a_graph_are_symmetric(self):
        graph = random_graph(isolated=1)
        positives = Positives.from_graph(graph)
        expected = torch.eye(graph.num_nodes, dtype=torch.float64)
        expected[tuple(graph.edge_index)] = 1
        assert_close(positives.matrix.dense(), expected)
        assert bool(positives.is_mutual.all())

    def test_mutual_is_what_the_transpose_holds_too(self):
        positives = some_positives()
        dense, pattern = positives.matrix.dense(), positives.matrix.pattern
        assert_close(positives.is_mutual, dense.t()[pattern.rows, pattern.columns.long()].bool())
        assert not bool(positives.is_mutual.all())

    def test_the_mean_is_over_each_nodes_own(self):
        positives, (x, _) = some_positives(), views()
        expected = torch.stack([x[sorted(own)].mean(0) for own in as_sets(positives)])
        assert_close(positives.mean @ x, expected)

    def test_among_some_nodes_they_are_the_dense_matrix_cut_out(self):
        positives, nodes = some_positives(), torch.tensor([7, 2, 9, 0])
        expected = positives.matrix.dense()[nodes][:, nodes]
        assert_close(positives.among(nodes).matrix.dense(), expected)


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("temperature", [0.2, 0.5])
def test_both_directions_equal_the_loop(count, temperature):
    (queries, keys), positives = views(), some_positives(count)
    found = several_positives_info_nce(queries, keys, temperature, positives)
    slow = slow_losses(queries, keys, temperature, positives)
    assert_close(found.rows, slow.rows)
    assert_close(found.columns, slow.columns)


@pytest.mark.parametrize("block", [1, 4, NODES, None])
def test_gradients_equal_those_of_the_loop(block):
    (queries, keys), positives = views(), some_positives()
    found = several_positives_info_nce(queries, keys, 0.3, positives, block=block)
    expected = torch.autograd.grad(
        weighed(slow_losses(queries, keys, 0.3, positives)), (queries, keys)
    )
    assert_close(torch.autograd.grad(weighed(found), (queries, keys)), expected)


@pytest.mark.parametrize("kept_bytes", [0, 10**9])
def test_gradients_are_exact(kept_bytes):
    positives = some_positives(2, nodes=6)

    def losses(queries, keys):
        found = log_sum_of_negatives(queries, keys, 0.4, positives, block=4, kept_bytes=kept_bytes)
        return found.rows, found.columns

    assert torch.autograd.gradcheck(losses, views(nodes=6, dim=3))


def test_a_second_backward_pass_gives_the_same():
    (queries, keys), positives = views(), some_positives()
    loss = several_positives_info_nce(queries, keys, 0.3, positives).symmetric.mean()
    first = torch.autograd.grad(loss, (queries, keys), retain_graph=True)
    assert_close(torch.autograd.grad(loss, (queries, keys)), first, rtol=0, atol=0)


def test_exchanged_views_exchange_the_directions():
    (queries, keys), positives = views(), some_positives()
    there = several_positives_info_nce(queries, keys, 0.3, positives)
    back = several_positives_info_nce(keys, queries, 0.3, positives)
    assert_close(there.rows, back.columns)
    assert_close(there.columns, back.rows)


@pytest.mark.parametrize("count", [0, 3])
def test_warm_similarities_count_the_negatives(count):
    queries, keys = views()
    neighbours = (torch.arange(NODES)[:, None] + torch.arange(1, count + 1)) % NODES
    positives = Positives.from_neighbours(neighbours)
    found = several_positives_info_nce(queries, keys, 1e9, positives).symmetric.mean()
    assert found.item() == pytest.approx(math.log(NODES - 1 - count))


def test_identical_rows_count_the_negatives_at_any_temperature():
    same, positives = torch.ones(NODES, 3, dtype=torch.float64), some_positives()
    expected = torch.tensor([math.log(NODES - len(own)) for own in as_sets(positives)])
    assert_close(several_positives_info_nce(same, same, 0.2, positives).rows, expected.double())


def test_a_node_without_negatives_is_only_drawn_to_its_positives():
    (queries, keys) = views(nodes=3)
    positives = Positives.from_neighbours(torch.tensor([[1, 2], [1, 1], [2, 2]]), torch.float64)
    found = several_positives_info_nce(queries, keys, 0.3, positives)
    slow = slow_losses(queries, keys, 0.3, positives)
    assert_close(found.rows, slow.rows)
    gradients = torch.autograd.grad(weighed(found), (queries, keys))
    assert_close(gradients, torch.autograd.grad(weighed(slow), (queries, keys)))


def test_a_positive_that_outweighs_all_else_is_left_out_exactly():
    basis, positives = torch.eye(5), Positives.from_neighbours(torch.empty(5, 0, dtype=torch.long))
    found = log_sum_of_negatives(basis, basis, 0.026, positives)
    assert_close(found.rows, torch.full((5,), math.log(4)))


def test_low_temperatures_are_stable_in_float32():
    (queries, keys), positives = views(dtype=torch.float32), some_positives()
    found = several_positives_info_nce(queries, keys, 0.01, positives)
    slow = slow_losses(queries.double(), keys.double(), 0.01, positives)
    assert found.rows.dtype == torch.float32
    assert_close(found.rows.double(), slow.rows, rtol=1e-4, atol=1e-4)


def test_memory_may_run_out(monkeypatch):
    from aspect.losses import negatives as module

    (queries, keys), positives = views(), some_positives()
    expected = log_sum_of_negatives(queries, keys, 0.3, positives).rows
    honest, sizes = module.exponential_blocks, []

    def limited(asking, answering, sharpness, block):
        sizes.append(block)
        if block > 2:
            raise torch.OutOfMemoryError("tried to allocate too much")
        return honest(asking, answering, sharpness, block)

    monkeypatch.setattr(module, "exponential_blocks", limited)
    found = log_sum_of_negatives(queries, keys, 0.3, positives, block=8).rows
    assert sizes == [8, 4, 2]
    assert_close(found, expected)
    assert_close(
        torch.autograd.grad(found.sum(), queries),
        torch.autograd.grad(expected.sum(), queries),
    )
    assert with_smaller_blocks(lambda size: size, 3, 1) == 3


class TestLoss:
    def test_without_batches_it_is_the_mean_over_both_directions(self):
        (queries, keys), positives = views(), some_positives()
        slow = slow_losses(queries, keys, 0.3, positives)
        expected = (slow.rows.mean() + slow.columns.mean()) / 2
        assert_close(several_positives_loss(queries, keys, 0.3, positives), expected)

    def test_one_batch_of_all_is_no_batch_in_whatever_order(self):
        (queries, keys), positives = views(), some_positives()
        everyone = torch.randperm(NODES, generator=torch.Generator().manual_seed(2))
        found = several_positives_loss(queries, keys, 0.3, positives, [everyone])
        assert_close(found, several_positives_loss(queries, keys, 0.3, positives))

    def test_nodes_meet_those_of_their_batch_alone(self):
        (queries, keys), positives = views(), some_positives()
        batches = [torch.tensor([4, 0, 9, 2, 7, 10]), torch.tensor([1, 3, 5, 6, 8])]
        total = 0.0
        for batch in batches:
            places = {int(node): place for place, node in enumerate(batch)}
            own = as_sets(positives)
            sets = [{places[j] for j in own[i] if j in places} for i in batch.tolist()]
            for one, other in ((queries, keys), (keys, queries)):
                total = (
                    total + contrast.several_positives(one[batch], other[batch], 0.3, sets).sum()
                )
        found = several_positives_loss(queries, keys, 0.3, positives, batches)
        assert_close(found, total / 2 / NODES)
        gradients = (
            torch.autograd.grad(each, (queries, keys)) for each in (found, total / 2 / NODES)
        )
        assert_close(*gradients)
