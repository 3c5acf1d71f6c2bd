"""Probes that are trained once: the scores of those that are trained for every embedding."""

import pytest
import torch

from aspect.data.graph import UNLABELLED
from aspect.data.splits import make_splits
from aspect.evaluation.evasion import evasion_probe
from aspect.evaluation.linear_probe import NeutralProbe, PaperProbe, TrainedProbe, linear_probe

PROBES = [NeutralProbe(penalties=(0.1, 1e-2, 1e-3)), PaperProbe(steps=40)]


@pytest.fixture(params=PROBES, ids=lambda probe: probe.name)
def kind(request):
    return request.param


@pytest.fixture
def labels():
    labels = torch.arange(90) % 3
    labels[80:] = UNLABELLED  # nodes that no split uses
    return labels


@pytest.fixture
def splits(labels):
    drawn = make_splits("random", labels, 3, count=3)
    return {number: drawn[number] for number in (0, 2)}


def embedding(labels, seed=0):
    noise = torch.randn(90, 5, generator=torch.Generator().manual_seed(seed))
    return noise + 0.8 * labels[:, None]


@pytest.fixture
def probe(labels, splits, kind):
    return TrainedProbe.fit(embedding(labels), labels, splits, num_classes=3, probe=kind)


def test_on_its_own_embedding_it_is_the_linear_probe(probe, labels, splits, kind):
    clean = embedding(labels)
    plain = linear_probe(clean, labels, list(splits.values()), num_classes=3, probe=kind)
    assert probe.clean.splits == plain.splits
    for number, score in zip(splits, plain.splits, strict=True):
        assert probe.strict(number, clean) == score.strict


@pytest.mark.parametrize("size", [0.1, 0.5, 2.0])
def test_on_others_it_is_the_probe_of_evasion(probe, labels, splits, size, kind):
    clean = embedding(labels)
    other = clean + size * (embedding(labels, seed=1) - clean)
    evaded = evasion_probe(
        clean, [other] * 2, labels, list(splits.values()), num_classes=3, probe=kind
    )
    for number, score in zip(splits, evaded.splits, strict=True):
        assert probe.strict(number, other) == score.strict


def test_labels_of_test_nodes_are_read_for_the_score_alone(labels, splits, kind):
    clean, own, poisoned = embedding(labels), {2: splits[2]}, labels.clone()
    poisoned[splits[2].test] = (poisoned[splits[2].test] + 1) % 3
    probe, other = (
        TrainedProbe.fit(clean, classes, own, num_classes=3, probe=kind)
        for classes in (labels, poisoned)
    )
    assert torch.equal(other.weights[2], probe.weights[2])
    assert other.strict(2, clean) != probe.strict(2, clean)


def test_only_test_nodes_are_looked_at(probe, labels, splits):
    wild = torch.full((90, 5), 1e6)
    wild[splits[0].test] = embedding(labels)[splits[0].test]
    assert probe.strict(0, wild) == probe.clean.splits[0].strict
