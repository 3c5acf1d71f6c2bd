import math

import pytest
import scipy.stats
import torch
from sklearn.metrics import classification_report, f1_score, roc_auc_score

from aspect.errors import SettingsError
from aspect.evaluation.metrics import (
    ClassScore,
    Spread,
    Summary,
    accuracy,
    class_scores,
    macro_f1,
    mean_class_scores,
    roc_areas,
    roc_auc,
)


def test_accuracy_is_in_percent():
    assert accuracy(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 2, 0])) == 75


def test_macro_f1_leaves_out_classes_that_are_absent():
    labels, predictions = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 2, 1, 1])
    # Class 0: precision 1, recall 1/2; class 1 perfect; class 2 predicted but absent, not counted.
    assert macro_f1(labels, predictions) == pytest.approx(100 * (2 / 3 + 1) / 2)


def test_macro_f1_is_scikit_learns_when_all_classes_are_present():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(10)
    predictions = torch.randint(4, (40,), generator=generator)
    expected = f1_score(labels.numpy(), predictions.numpy(), average="macro")
    assert macro_f1(labels, predictions) == pytest.approx(100 * expected)


def test_a_class_never_predicted_counts_as_zero():
    assert macro_f1(torch.tensor([0, 1]), torch.tensor([0, 0])) == pytest.approx(100 / 3)


def test_roc_area_counts_ordered_pairs():
    labels = torch.tensor([0, 0, 1, 1])
    scores = torch.tensor([0.1, 0.6, 0.5, 0.9])
    assert roc_auc(labels, scores) == pytest.approx(75)  # three of four pairs in order
    assert roc_auc(labels, scores) == pytest.approx(100 * roc_auc_score(labels, scores))


def test_no_roc_area_with_a_class_absent():
    assert roc_auc(torch.tensor([1, 1]), torch.tensor([0.2, 0.4])) is None


def test_roc_areas_of_many_tasks_are_those_of_scikit_learn():
    """Nodes of no class take no part, equal scores count half, and infinite ones are scores."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(-1, 2, (20, 50), generator=generator)
    scores = torch.randn(20, 50, generator=generator)
    scores[10:] = scores[10:].round()
    for line, values, area in zip(labels, scores, roc_areas(labels, scores), strict=True):
        known = line >= 0
        expected = 100 * roc_auc_score(line[known].numpy(), values[known].numpy())
        assert float(area) == pytest.approx(expected, abs=1e-10)
    scores[0, labels[0] == 1] = math.inf
    scores[1] = -math.inf
    labels[2] = 1
    torch.testing.assert_close(roc_areas(labels, scores)[:3].float(), torch.tensor([100.0, 50, 50]))


def test_scores_of_a_class_are_those_of_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat(10)
    logits = torch.randn(3, 30, generator=generator)
    predictions = logits.argmax(dim=0)
    report = classification_report(labels.numpy(), predictions.numpy(), output_dict=True)
    areas = roc_auc_score(
        labels.numpy(), logits.softmax(dim=0).t().numpy(), multi_class="ovr", average=None
    )
    for label, score in enumerate(class_scores(labels, predictions, logits)):
        expected = report[str(label)]
        assert score.recall == pytest.approx(100 * expected["recall"])
        assert score.precision == pytest.approx(100 * expected["precision"])
        assert score.f1 == pytest.approx(100 * expected["f1-score"])
        assert score.roc_auc == pytest.approx(100 * areas[label])
        assert (score.label, score.support) == (label, 10)


def test_a_class_without_test_nodes_has_no_scores_and_one_never_predicted_has_none_right():
    labels, predictions = torch.tensor([0, 0, 2]), torch.tensor([0, 1, 0])
    scores = torch.tensor([[1.0, 0, 2], [0, 1, 0], [-math.inf] * 3])
    _, absent, missed = class_scores(labels, predictions, scores)
    assert absent == ClassScore(1, None, None, None, None, 0)
    assert (missed.recall, missed.precision, missed.f1, missed.roc_auc) == (0, 0, 0, 50)


def test_a_mean_over_splits_leaves_out_those_without_the_class():
    absent = ClassScore(0, None, None, None, None, 0)
    present = ClassScore(0, 50.0, 100.0, 75.0, None, 4)
    assert mean_class_scores([[absent], [present]]) == (ClassScore(0, 50.0, 100.0, 75.0, None, 2),)
    assert mean_class_scores([[absent]]) == (absent,)


def test_summary_agrees_with_scipy():
    values = [80.0, 81.5, 79.0, 84.0, 82.25]
    summary = Summary.of(values)
    low, high = scipy.stats.t.interval(0.95, df=4, loc=summary.mean, scale=scipy.stats.sem(values))
    assert summary.mean == pytest.approx(sum(values) / 5)
    assert summary.std == pytest.approx(scipy.stats.tstd(values))
    assert (summary.low, summary.high) == (pytest.approx(low), pytest.approx(high))
    assert (summary.count, str(summary)) == (5, "81.35 ± 1.95")


def test_one_value_has_no_spread():
    assert Summary.of([3.0]) == Summary(3.0, None, None, None, 1)
    assert str(Summary.of([3.0])) == "3.00"


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_summary_of_nothing_is_refused(values):
    with pytest.raises(SettingsError, match=r"one or more finite values. Got"):
        Summary.of(values)


def test_spread_separates_seeds_from_splits():
    spread = Spread.of([[80.0, 82.0, 84.0], [90.0, 90.0, 90.0]])
    between = Summary.of([82.0, 90.0])
    assert (spread.mean, spread.std) == (86.0, 1.0)
    assert (spread.std_seeds, spread.low, spread.high) == (between.std, between.low, between.high)
    assert (spread.seeds, spread.splits) == (2, 3)


def test_the_interval_of_scores_ends_where_scores_do():
    near, whole = [[100.0, 95.0, 100.0]], [[0.0, 100.0]]
    spread, plain = Spread.of_scores(near), Spread.of(near)
    assert plain.high > 100.0  # of a drop, or of a difference, it would be right
    assert (spread.low, spread.high, spread.mean) == (plain.low, 100.0, plain.mean)
    assert (Spread.of_scores(whole).low, Spread.of_scores(whole).high) == (0.0, 100.0)
    assert Spread.of_scores([[80.0]]) == Spread.of([[80.0]])


def test_a_single_seed_takes_its_interval_from_the_splits():
    spread, summary = Spread.of([[80.0, 82.0]]), Summary.of([80.0, 82.0])
    assert (spread.low, spread.high, spread.std_seeds) == (summary.low, summary.high, None)
    assert Spread.of([[80.0]]) == Spread(80.0, None, None, None, None, 1, 1)
