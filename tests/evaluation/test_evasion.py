"""Evasion: the probe learns from clean embeddings and is tested on perturbed ones alone."""

import pytest
import torch

from aspect.data.splits import make_splits
from aspect.evaluation.linear_probe import (
    NeutralProbe,
    PaperProbe,
    TrainedProbe,
    evasion_probe,
    linear_probe,
)

PROBES = [NeutralProbe(penalties=(0.1, 1e-2, 1e-3)), PaperProbe(steps=40)]


@pytest.fixture(params=PROBES, ids=lambda probe: probe.name)
def probe(request):
    return request.param


@pytest.fixture
def labels():
    return torch.arange(60) % 2


@pytest.fixture
def splits(labels):
    return make_splits("random", labels, 2, count=3)


@pytest.fixture
def clean(labels):
    noise = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    return noise + 0.8 * labels[:, None]


def test_without_a_perturbation_it_is_the_linear_probe(clean, labels, splits, probe):
    evaded = evasion_probe(clean, [clean] * 3, labels, splits, num_classes=2, probe=probe)
    plain = linear_probe(clean, labels, splits, num_classes=2, probe=probe)
    assert evaded.splits == plain.splits
    assert all(map(torch.equal, evaded.predictions, plain.predictions))


def test_each_split_is_tested_on_its_own_perturbed_embeddings(clean, labels, splits, probe):
    mirrored = 2 * clean.mean(0) - clean  # every answer near the mean's other side turns
    evaded = evasion_probe(
        clean, [clean, mirrored, clean], labels, splits, num_classes=2, probe=probe
    )
    plain = linear_probe(clean, labels, splits, num_classes=2, probe=probe)
    assert evaded.splits[0] == plain.splits[0]
    assert evaded.splits[2] == plain.splits[2]
    assert evaded.splits[1].strict < plain.splits[1].strict
    # The perturbation decides no choice, and only test nodes are looked at in the perturbed graph.
    chosen = [(score.choice, score.step, score.validation) for score in evaded.splits]
    assert chosen == [(score.choice, score.step, score.validation) for score in plain.splits]
    wild = torch.full_like(clean, 1e6)
    wild[splits[0].test] = clean[splits[0].test]
    evaded = evasion_probe(clean, [wild], labels, splits[:1], num_classes=2, probe=probe)
    assert evaded.splits == plain.splits[:1]


def test_every_split_needs_its_embeddings(clean, labels, splits, probe):
    with pytest.raises(ValueError, match="longer"):
        evasion_probe(clean, [clean], labels, splits, num_classes=2, probe=probe)


def test_embeddings_that_are_all_the_same_are_noticed(clean, labels, splits, probe):
    same, settings = torch.ones_like(clean), {"num_classes": 2, "probe": probe}
    assert evasion_probe(same, [same] * 3, labels, splits, **settings).is_constant
    numbered = dict(enumerate(splits))
    assert TrainedProbe.fit(same, labels, numbered, **settings).clean.is_constant
    assert not evasion_probe(same, [clean] * 3, labels, splits, **settings).is_constant
