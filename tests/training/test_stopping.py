from __future__ import annotations

import math

import pytest

from aspect.training.stopping import CHECK_EVERY, CollapseStopping, EarlyStopping


def test_without_patience_nothing_is_kept_and_nothing_stops():
    stopping = EarlyStopping(None)
    assert not stopping.observe(1, 0.5)
    assert not stopping.observe(2, 0.1)
    assert not stopping.is_over(10**6)


def test_a_lower_loss_is_the_best_and_an_equal_one_is_not():
    stopping = EarlyStopping(3)
    assert stopping.observe(1, 2.0)
    assert not stopping.observe(2, 2.0)
    assert stopping.observe(3, 1.0)
    assert (stopping.best, stopping.best_epoch) == (1.0, 3)


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_it_is_over_after_exactly_so_many_epochs_without_a_better_one(patience):
    stopping = EarlyStopping(patience)
    stopping.observe(4, 1.0)
    over = [epoch for epoch in range(4, 12) if stopping.is_over(epoch)]
    assert over[0] == 4 + patience


def test_a_loss_that_is_no_number_is_never_the_best():
    stopping = EarlyStopping(2)
    assert not stopping.observe(1, math.nan)
    assert not stopping.observe(2, math.inf)
    assert stopping.best_epoch == 0
    assert stopping.is_over(2)


def test_looks_at_the_embedding_are_due_every_few_epochs_where_asked_for():
    due = [epoch for epoch in range(1, 25) if CollapseStopping(True).is_due(epoch)]
    assert due == [CHECK_EVERY, 2 * CHECK_EVERY]
    assert not any(CollapseStopping(False).is_due(epoch) for epoch in range(1, 25))


def test_a_collapse_after_a_healthy_look_is_the_end():
    stopping = CollapseStopping(True)
    assert stopping.observe(10, is_collapsed=False)
    assert stopping.observe(20, is_collapsed=False)
    assert not stopping.is_over
    assert not stopping.observe(30, is_collapsed=True)
    assert stopping.is_over
    assert stopping.healthy_epoch == 20


def test_an_embedding_that_was_never_healthy_stops_nothing():
    stopping = CollapseStopping(True)
    assert not stopping.observe(10, is_collapsed=True)
    assert not stopping.is_over
    assert stopping.observe(20, is_collapsed=False)
    assert not stopping.observe(30, is_collapsed=True)
    assert stopping.is_over
