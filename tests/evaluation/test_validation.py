"""Validation accuracy, which may choose, sees no test label."""

import pytest
import torch

from aspect.data.graph import UNLABELLED
from aspect.data.splits import make_splits
from aspect.errors import GraphError
from aspect.evaluation.linear_probe import (
    NeutralProbe,
    PaperProbe,
    linear_probe,
    validation_accuracy,
)
from aspect.evaluation.result import without_test_labels

QUICK = NeutralProbe(penalties=(0.1, 1e-2, 1e-3))
CLASSES = 3


def blurred(num_nodes=120, seed=3):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (num_nodes,), generator=generator)
    centres = torch.randn(CLASSES, 8, generator=generator)
    return centres[labels] + 1.5 * torch.randn(num_nodes, 8, generator=generator), labels


def accuracy(embeddings, labels, splits):
    return validation_accuracy(embeddings, labels, splits, num_classes=CLASSES, probe=QUICK)


@pytest.mark.parametrize("kind", ["class-balanced", "random"])
def test_equals_the_validation_column_of_the_linear_probe(kind):
    embeddings, labels = blurred()
    labels[::7] = UNLABELLED  # nodes in no split
    splits = make_splits(kind, labels, CLASSES)
    probed = linear_probe(embeddings, labels, splits, num_classes=CLASSES, probe=QUICK)
    expected = tuple(each.validation for each in probed.splits)
    assert len(set(expected)) > 1
    assert accuracy(embeddings, labels, splits) == expected


@pytest.mark.parametrize("nonsense", [UNLABELLED, 0, 10**6, -5])
def test_nonsense_in_the_test_labels_changes_nothing(nonsense):
    embeddings, labels = blurred()
    for split in make_splits("random", labels, CLASSES, count=3):
        spoilt = labels.clone()
        spoilt[split.test] = nonsense
        assert accuracy(embeddings, spoilt, [split]) == accuracy(embeddings, labels, [split])


def test_a_validation_label_does_change_it():
    embeddings, labels = blurred()
    split = make_splits("random", labels, CLASSES, count=1)[0]
    spoilt = labels.clone()
    spoilt[split.validation] = (labels[split.validation] + 1) % CLASSES
    assert accuracy(embeddings, spoilt, [split]) != accuracy(embeddings, labels, [split])


def test_splits_are_masked_each_by_itself():
    embeddings, labels = blurred()
    splits = make_splits("random", labels, CLASSES)
    together = accuracy(embeddings, labels, splits)
    assert together == tuple(accuracy(embeddings, labels, [split])[0] for split in splits)


@pytest.mark.parametrize("probe", [QUICK, PaperProbe(steps=5)], ids=lambda probe: probe.name)
def test_a_probe_is_handed_no_test_label(monkeypatch, probe):
    embeddings, labels = blurred()
    splits = make_splits("random", labels, CLASSES)
    seen, answer = [], type(probe).answer

    def spy(self, rows, known, some, num_classes):
        seen.extend(zip(known, some, strict=True))
        return answer(self, rows, known, some, num_classes)

    monkeypatch.setattr(type(probe), "answer", spy)
    validation_accuracy(embeddings, labels, splits, num_classes=CLASSES, probe=probe)
    assert len(seen) == len(splits)
    for line, split in seen:
        assert bool((line[split.test] == UNLABELLED).all())
        assert torch.equal(line[split.train], labels[split.train])


def test_the_labels_given_are_left_alone():
    _, labels = blurred()
    before = labels.clone()
    known = without_test_labels(labels, make_splits("random", labels, CLASSES, count=2))
    assert torch.equal(labels, before)
    assert bool((known == UNLABELLED).any(dim=1).all())


def test_what_does_not_fit_is_refused():
    embeddings, labels = blurred()
    splits = make_splits("random", labels, CLASSES, count=1)
    with pytest.raises(GraphError, match="Got 119 embeddings and 120 labels"):
        accuracy(embeddings[1:], labels, splits)
    embeddings[3, 0] = float("nan")
    with pytest.raises(GraphError, match="NaN or infinity in rows 3"):
        accuracy(embeddings, labels, splits)
