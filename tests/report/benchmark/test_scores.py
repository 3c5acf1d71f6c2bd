"""Scores of one place: summaries agree with the evaluation's own, also where some are missing."""

import numpy as np
import pytest
import torch

from aspect.evaluation.protocol import Spread
from aspect.report.benchmark.collection import collect
from aspect.report.benchmark.scores import Place
from report.benchmark_records import make_records, poison

TABLE = np.random.default_rng(0).uniform(60, 90, size=(3, 5))  # seeds by splits


def given(seed, split, **_):
    return float(TABLE[seed, split])


def one(perturbation=None, **changes):
    records = make_records(
        ["aspect"], ["cora"], [perturbation], seeds=3, splits=5, score=given, **changes
    )
    place = Place("aspect", "cora", "class-balanced", perturbation)
    return collect(records).find(place)


@pytest.mark.parametrize("perturbation", [None, poison()], ids=["clean", "poison"])
def test_a_whole_grid_is_summarised_as_the_evaluation_does(perturbation):
    scores = one(perturbation)
    expected = Spread.of(torch.tensor(TABLE))
    assert scores.spread().to_dict() == pytest.approx(expected.to_dict())
    assert scores.complaint == ""
    assert len(scores.done) == (3 if perturbation is None else 15)


def test_every_metric_has_its_spread_or_none():
    scores = one()
    assert scores.spread("optimistic").mean == pytest.approx(TABLE.mean() + 0.5)
    assert scores.spread("macro_f1").mean == pytest.approx(TABLE.mean() - 5)
    assert scores.spread("roc_auc") is None


def test_a_single_seed_and_split_have_no_spread():
    records = make_records(["aspect"], ["cora"], seeds=1, splits=1, score=given)
    spread = collect(records).find(Place("aspect", "cora", "class-balanced")).spread()
    assert (spread.mean, spread.std_splits, spread.std_seeds) == (TABLE[0, 0], None, None)


def test_holes_are_left_out_and_told():
    def is_gone(record):
        return record.cell.spec.seed == 0 and record.cell.spec.split_numbers == (1,)

    scores = one(poison(), missing=[is_gone])
    left = TABLE[0, [0, 2, 3, 4]]
    assert scores.spread().mean == pytest.approx((left.mean() + TABLE[1:].mean(1).sum()) / 3)
    expected = (left.std(ddof=1) + TABLE[1:].std(1, ddof=1).sum()) / 3
    assert scores.spread().std_splits == pytest.approx(expected)
    assert scores.complaint == "14 of 15 scores are there"
    assert scores.by_split()[1] == pytest.approx(TABLE[1:, 1].mean())


def test_a_seed_that_failed_leaves_the_others():
    scores = one(failed=[lambda record: record.cell.spec.seed == 2])
    assert scores.spread().mean == pytest.approx(TABLE[:2].mean())
    assert scores.complaint == "1 cell failed (The loss is no longer a number after epoch 3)"


def test_nothing_but_failures_is_no_number():
    scores = one(failed=[lambda _: True])
    assert scores.spread() is None
    assert scores.complaint.startswith("3 cells failed")


def test_splits_that_other_entries_have_are_missed():
    records = make_records(
        ["aspect", "low"],
        ["cora"],
        [poison()],
        seeds=1,
        splits=4,
        missing=[lambda record: (record.cell.entry, record.scores[0].split) == ("low", 3)],
    )
    found = collect(records)
    assert found.find(Place("low", "cora", "class-balanced", poison())).complaint == (
        "3 of 4 scores are there"
    )
    assert found.find(Place("aspect", "cora", "class-balanced", poison())).complaint == ""


@pytest.mark.parametrize("perturbation", [None, poison()], ids=["clean", "poison"])
def test_some_splits_alone_are_summarised_as_if_others_had_not_been(perturbation):
    scores = one(perturbation).over(frozenset({1, 3}))
    expected = Spread.of(torch.tensor(TABLE[:, [1, 3]]))
    assert scores.spread().to_dict() == pytest.approx(expected.to_dict())
    assert scores.complaint == ""
    assert one(perturbation).over(frozenset()).spread() is None
