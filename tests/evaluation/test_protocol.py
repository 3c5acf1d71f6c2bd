import statistics

import pytest
import torch

from aspect.data.splits import make_splits
from aspect.errors import SettingsError
from aspect.evaluation.linear_probe import NeutralProbe, linear_probe
from aspect.evaluation.metrics import Summary
from aspect.evaluation.protocol import Evaluation, Spread

QUICK = NeutralProbe(penalties=(0.1, 1e-2, 1e-3))


def seeds(count, num_classes=3):
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(num_classes, (100,), generator=generator)
    centres = torch.randn(num_classes, 6, generator=generator)
    noise = torch.randn(count, 100, 6, generator=generator)
    return [centres[labels] + each for each in noise], labels


def evaluated(embeddings, labels, splits="random"):
    return Evaluation(tuple(linear_probe(z, labels, splits, probe=QUICK) for z in embeddings))


def test_the_mean_is_over_seeds_and_splits():
    embeddings, labels = seeds(3)
    evaluation = evaluated(embeddings, labels)
    means = [result.strict.mean for result in evaluation.results]
    assert evaluation.strict.mean == pytest.approx(statistics.mean(means))
    assert (evaluation.roc_auc, evaluation.optimistic) == (None, None)
    assert (evaluation.validation.seeds, evaluation.validation.splits) == (3, 10)
    assert evaluated(*seeds(1, num_classes=2)).roc_auc.mean > 50


def test_spread_separates_seeds_from_splits():
    table = torch.tensor([[80.0, 82.0, 84.0], [90.0, 90.0, 90.0]], dtype=torch.float64)
    spread = Spread.of(table)
    between = Summary.of([82.0, 90.0])
    assert (spread.mean, spread.std_splits) == (86.0, 1.0)
    assert (spread.std_seeds, spread.low, spread.high) == (between.std, between.low, between.high)
    assert (spread.seeds, spread.splits) == (2, 3)


def test_a_single_seed_takes_its_interval_from_the_splits():
    spread, summary = Spread.of(torch.tensor([[80.0, 82.0]])), Summary.of([80.0, 82.0])
    assert (spread.low, spread.high, spread.std_seeds) == (summary.low, summary.high, None)
    assert Spread.of(torch.tensor([[80.0]])) == Spread(80.0, None, None, None, None, 1, 1)


def test_classes_are_averaged_over_seeds_and_splits():
    embeddings, labels = seeds(2)
    splits = make_splits("random", labels, 3, count=2)
    evaluation = evaluated(embeddings, labels, splits)
    tables = [score.per_class for result in evaluation.results for score in result.splits]
    for label, score in enumerate(evaluation.per_class):
        assert score.label == label
        assert score.recall == pytest.approx(statistics.mean(one[label].recall for one in tables))
        assert score.support == statistics.mean(one[label].support for one in tables)


def test_results_on_different_splits_are_refused():
    embeddings, labels = seeds(1)
    splits = make_splits("random", labels, 3)
    results = [linear_probe(embeddings[0], labels, splits[:k], probe=QUICK) for k in (2, 3)]
    with pytest.raises(SettingsError, match=r"Got 2 results with \[2, 3\] splits"):
        Evaluation(tuple(results))
