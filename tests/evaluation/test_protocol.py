import json
import statistics

import pytest
import torch

from aspect.data.splits import make_splits
from aspect.errors import SettingsError
from aspect.evaluation.linear_probe import NeutralProbe, PaperProbe, linear_probe
from aspect.evaluation.metrics import Summary
from aspect.evaluation.protocol import Evaluation, Spread, evaluate_embeddings

QUICK = NeutralProbe(penalties=(0.1, 1e-2, 1e-3))


def seeds(count, num_classes=3):
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(num_classes, (100,), generator=generator)
    centres = torch.randn(num_classes, 6, generator=generator)
    noise = torch.randn(count, 100, 6, generator=generator)
    return [centres[labels] + each for each in noise], labels


def test_every_seed_is_probed_on_the_same_splits():
    embeddings, labels = seeds(3)
    evaluation = evaluate_embeddings(embeddings, labels, "random", probe=QUICK)
    alone = [linear_probe(each, labels, "random", probe=QUICK) for each in embeddings]
    assert evaluation.results == tuple(alone)
    assert evaluation.strict.mean == pytest.approx(statistics.mean(x.strict.mean for x in alone))


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


def test_one_seed_and_one_split_have_only_a_mean():
    assert Spread.of(torch.tensor([[80.0]])) == Spread(80.0, None, None, None, None, 1, 1)


def test_record_is_plain_json():
    embeddings, labels = seeds(2, num_classes=2)
    record = evaluate_embeddings(embeddings, labels, probe=QUICK).to_dict()
    again = json.loads(json.dumps(record, allow_nan=False))
    assert again["strict"]["seeds"] == len(again["results"]) == 2
    assert again["roc_auc"]["mean"] > 50
    assert again["optimistic"] is None
    three = evaluate_embeddings(*seeds(1), probe=QUICK)
    assert (three.roc_auc, three.validation.splits) == (None, 10)


def test_the_optimistic_rule_is_that_of_the_paper_and_labelled():
    record = evaluate_embeddings(*seeds(1), probe=PaperProbe(steps=5)).to_dict()
    assert "only for comparison" in record["optimistic"]["note"]


def test_classes_are_averaged_over_seeds_and_splits():
    embeddings, labels = seeds(2)
    splits = make_splits("random", labels, 3, count=2)
    evaluation = evaluate_embeddings(embeddings, labels, splits, probe=QUICK)
    tables = [score.per_class for result in evaluation.results for score in result.splits]
    for label, score in enumerate(evaluation.per_class):
        assert score.label == label
        assert score.recall == pytest.approx(statistics.mean(one[label].recall for one in tables))
        assert score.support == statistics.mean(one[label].support for one in tables)


def test_no_embeddings_are_refused():
    with pytest.raises(SettingsError, match=r"one or more seeds. Got none"):
        evaluate_embeddings([], torch.tensor([0, 1]))


def test_results_on_different_splits_are_refused():
    embeddings, labels = seeds(1)
    splits = make_splits("random", labels, 3)
    results = [linear_probe(embeddings[0], labels, splits[:k], probe=QUICK) for k in (2, 3)]
    with pytest.raises(SettingsError, match=r"Got 2 results with \[2, 3\] splits"):
        Evaluation(tuple(results))
