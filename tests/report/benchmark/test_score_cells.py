"""The lines beside a cell, against the numbers themselves."""

import statistics

from aspect.report.benchmark.collection import collect
from aspect.report.benchmark.score_cells import Footnotes, score_cell
from report.benchmark_records import make_records

STRICT = {(0, 0): 60.0, (0, 1): 70.0, (1, 0): 64.0, (1, 1): 74.0}


def tip(metric="strict", **options):
    records = make_records(
        ("aspect",), ("cora",), score=lambda seed, split, **_: STRICT[seed, split], **options
    )
    (scores,) = collect(records).scores.values()
    return score_cell(scores, metric, Footnotes()).tip.splitlines()


def test_a_tip_counts_and_measures_the_scores():
    lines = tip(seeds=2, splits=2)
    assert lines[0] == "strict accuracy: 67.00%"
    assert lines[1] == "2 seeds, 2 splits: 4 scores"
    assert lines[2].startswith("95% interval over seeds: ")
    within = statistics.stdev([60.0, 70.0])  # the same of both seeds
    assert lines[3] == f"standard deviation over splits: {within:.2f}"
    assert lines[4] == f"standard deviation over seeds: {statistics.stdev([65.0, 69.0]):.2f}"
    assert lines[5] == "by the optimistic rule: 67.50%"  # half a point above each score


def test_a_single_score_has_no_spread():
    assert tip(seeds=1, splits=1) == [
        "strict accuracy: 60.00%",
        "1 seed, 1 split: 1 score",
        "by the optimistic rule: 60.50%",
    ]


def test_other_measures_do_not_repeat_the_optimistic_rule():
    assert tip("macro_f1", seeds=1, splits=1)[0] == "macro-F1: 55.00%"
    assert len(tip("macro_f1", seeds=1, splits=1)) == 2
