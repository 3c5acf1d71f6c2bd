"""What an attacker reads: labels of training nodes, checked."""

import pytest
import torch

from aspect.attacks.knowledge import read_known
from aspect.errors import GraphError
from reference.graphs import random_graph

GRAPH = random_graph(10, 20)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, -1])


def read(labels=LABELS, train=(4, 0, 7), num_classes=3):
    return read_known(labels, torch.tensor(train, dtype=torch.long), GRAPH, num_classes)


def test_nodes_come_in_order_with_their_classes():
    known = read()
    assert known.nodes.tolist() == [0, 4, 7]
    assert known.classes.tolist() == [0, 1, 1]
    assert known.targets.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert known.targets.dtype == GRAPH.dtype


def test_classes_are_counted_where_nobody_says():
    assert read(num_classes=None).targets.shape == (3, 2)


def test_other_labels_may_be_anything():
    labels = torch.full((10,), 999)
    labels[[0, 4, 7]] = LABELS[[0, 4, 7]]
    assert torch.equal(read(labels).targets, read().targets)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train": ()}, r"needs training nodes with labels\. Got none"),
        ({"train": (0, 10)}, r"from 0 to 9\. Got 10 \(1 in all\)"),
        ({"train": (0, -1)}, r"from 0 to 9\. Got -1 \(1 in all\)"),
        ({"train": (0, 1, 0)}, r"different from each other\. Got twice: 0 \(1 in all\)"),
        ({"train": (0, 3)}, r"at least 2 classes\. Got class 0 alone"),
        ({"train": (0, 9)}, r"classes 0 to 2\. Got -1 \(1 in all\)"),
        ({"num_classes": 1}, r"classes 0 to 0\. Got 1 \(1 in all\)"),
        ({"labels": LABELS[:9]}, r"each of the 10 nodes\. Got 9"),
    ],
)
def test_what_teaches_nothing_is_refused(changes, words):
    with pytest.raises(GraphError, match=words):
        read(**changes)
