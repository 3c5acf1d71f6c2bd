"""The arithmetic of the drop, and what a row says."""

import pytest

from aspect.evaluation.result import ProbeResult, SplitScore
from aspect.experiment.robustness.result import PerturbedRow


def scores(*values):
    return ProbeResult(
        "paper",
        "weight_decay",
        3,
        tuple(
            SplitScore(0.0, 1, 50.0, value, value + 1, value / 2, None, (), (), 0.5)
            for value in values
        ),
    )


def row(clean, perturbed):
    return PerturbedRow("aspect", 0.1, (2, 5), clean, perturbed)


def test_the_drop_is_that_of_the_means():
    """Not the mean of drops: (90 + 50) / 2 = 70 falls to (60 + 45) / 2 = 52.5."""
    found = row({0: scores(90.0, 50.0)}, {0: scores(60.0, 45.0)})
    assert found.drop == pytest.approx(25.0)
    assert found.drop != pytest.approx((100 * 30 / 90 + 100 * 5 / 50) / 2)


def test_seeds_count_alike():
    clean = {0: scores(80.0, 60.0), 1: scores(100.0, 80.0)}
    found = row(clean, {0: scores(40.0, 40.0), 1: scores(80.0, 80.0)})
    assert found.drop == pytest.approx(100 * (80 - 60) / 80)
    told = found.to_dict()
    assert told["clean"]["mean"] == pytest.approx(80.0)
    assert told["perturbed"]["mean"] == pytest.approx(60.0)
    assert told["perturbed"]["seeds"] == 2
    assert told["macro_f1"]["mean"] == pytest.approx(30.0)
    assert [(each["seed"], each["split"], each["strict"]) for each in told["scores"]] == [
        (0, 2, 40.0),
        (0, 5, 40.0),
        (1, 2, 80.0),
        (1, 5, 80.0),
    ]
    assert len(told["clean_scores"]) == 4


def test_a_gain_is_a_drop_below_zero():
    found = row({0: scores(50.0, 50.0)}, {0: scores(55.0, 55.0)})
    assert found.drop == pytest.approx(-10.0)


def test_no_drop_without_something_to_drop_from():
    assert row({}, {0: scores(60.0, 45.0)}).drop is None
    assert row({}, {0: scores(60.0, 45.0)}).to_dict()["clean"] is None
    assert row({0: scores(0.0, 0.0)}, {0: scores(60.0, 45.0)}).drop is None
