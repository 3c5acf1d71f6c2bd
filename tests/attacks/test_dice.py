"""DICE: edges within a class go, edges between classes come, among training nodes alone."""

import pytest
import torch

from aspect.attacks.dice import dice
from aspect.attacks.flips import apply_flips
from aspect.errors import GraphError, SettingsError
from attacks.graphs import edge_set
from attacks.tasks import class_task

TASK = class_task()


def drawn(count, seed=0, task=TASK, labels=None, train=None, **options):
    generator = torch.Generator().manual_seed(seed)
    labels = task.labels if labels is None else labels
    train = task.train if train is None else train
    return dice(task.graph, labels, train, count, generator, **options)


def test_removed_edges_join_a_class_and_added_ones_join_two():
    flips = drawn(60)
    edges, known = edge_set(TASK.graph), set(TASK.train.tolist())
    removed = 0
    for low, high in flips.tolist():
        assert {low, high} <= known
        assert low < high
        within = bool(TASK.labels[low] == TASK.labels[high])
        assert within is ((low, high) in edges)
        removed += within
    assert len({tuple(pair) for pair in flips.tolist()}) == 60
    assert 0 < removed < 60


def test_a_longer_draw_begins_as_a_shorter_one_and_seeds_differ():
    longer = drawn(80)
    for count in (1, 13, 80):
        assert torch.equal(drawn(count), longer[:count])
    assert not torch.equal(drawn(80, seed=1), longer)


def test_labels_outside_of_the_training_set_change_nothing():
    poisoned = torch.full_like(TASK.labels, -99)
    poisoned[TASK.train] = TASK.labels[TASK.train]
    assert torch.equal(drawn(40, labels=poisoned), drawn(40))


def everything(**options):
    """All flips that there are; the refusal of more must name their number."""
    with pytest.raises(SettingsError, match=r"must be at most \d+ here.* Got 4005") as caught:
        drawn(4005, **options)
    return drawn(int(str(caught.value).split("at most ")[1].split()[0]), **options)


def test_one_kind_takes_over_until_both_are_used_up():
    flips = everything(keep_last_edges=False)
    known, labels, edges = TASK.train.tolist(), TASK.labels, edge_set(TASK.graph)
    pairs = [(a, b) for a in known for b in known if a < b]
    expected = {(a, b) for a, b in pairs if (bool(labels[a] == labels[b]) is ((a, b) in edges))}
    assert {tuple(pair) for pair in flips.tolist()} == expected


def test_last_edges_stay():
    after = apply_flips(TASK.graph, everything())
    assert not bool(((TASK.graph.degrees() > 0) & (after.degrees() == 0)).any())


def test_what_cannot_be_attacked_is_refused():
    with pytest.raises(GraphError, match="Got none"):
        drawn(3, train=TASK.train[:0])
    with pytest.raises(GraphError, match="at least 2 classes"):
        drawn(3, train=TASK.train[TASK.labels[TASK.train] == 0])
    with pytest.raises(SettingsError, match="Got 0"):
        drawn(0)
