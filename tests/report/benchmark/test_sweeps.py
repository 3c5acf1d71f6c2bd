"""Budget sweeps: curves from the clean graph on."""

import pytest

from aspect.report.benchmark.sweeps import sweep_tables, sweeps
from report.benchmark_records import evade, make_records, poison

BUDGETS = (0.05, 0.1, 0.25)


def falling(perturbation, split, **_):
    return 80 + split - (100 * perturbation.budget if perturbation else 0)


def records(**changes):
    attacks = [None, *(poison(budget) for budget in BUDGETS[::-1]), evade(0.1)]
    return make_records(
        ["aspect", "raw"], perturbations=attacks, splits=3, score=falling, **changes
    )


def test_a_curve_begins_with_the_clean_graph():
    found = sweeps(records())
    assert [(each.graph, each.label, each.name) for each in found] == [
        ("cora", "random (poison)", "sweep-random-poison-cora"),
        ("texas", "random (poison)", "sweep-random-poison-texas"),
    ]
    curve = found[0].curves[0]
    assert (curve.entry, curve.title) == ("aspect", "aspect")
    assert curve.budgets == found[0].budgets == (0.0, *BUDGETS)
    assert curve.means == pytest.approx((81.0, 76.0, 71.0, 56.0))
    assert curve.stds == pytest.approx((1.0, 1.0, 1.0, 1.0))


def test_points_that_failed_are_left_out():
    def fails(record):
        return record.cell.spec.perturbation == poison(0.1) and record.cell.entry == "raw"

    aspect, raw = sweeps(records(failed=[fails]))[0].curves
    assert raw.budgets == (0.0, 0.05, 0.25)
    assert aspect.budgets == (0.0, *BUDGETS)
    table = sweep_tables(records(failed=[fails]))[0]
    assert table.lines[1].cells[2].text == "- [1]"


def test_the_table_holds_the_same_numbers():
    table, *_ = sweep_tables(records())
    assert table.columns == ("clean", "5%", "10%", "25%")
    assert [cell.value for cell in table.lines[0].cells] == pytest.approx([81, 76, 71, 56])


def test_one_budget_makes_no_curve():
    assert sweeps(make_records(perturbations=[None, poison()])) == []
    assert sweep_tables(make_records(perturbations=[None, poison(), evade(0.2)])) == []


def test_edges_alone_are_another_family():
    attacks = [poison(budget, features=False) for budget in BUDGETS]
    (sweep,) = sweeps(make_records(["aspect"], ["cora"], [*attacks, poison(0.1)]))
    assert sweep.label == "random (poison, edges alone)"
    assert sweep.curves[0].budgets == BUDGETS


def test_all_points_of_a_curve_are_over_the_same_splits():
    """Split k scores k points more: over other splits a curve would rise or fall by itself."""

    def level(split, **_):
        return 70.0 + split

    few = make_records(
        ["aspect"], ["cora"], [None, poison(0.1), poison(0.2)], splits=2, score=level
    )
    more = make_records(["aspect", "low"], ["cora"], [None, poison(0.1)], splits=5, score=level)
    ((aspect, low),) = [sweep.curves for sweep in sweeps([*few, *more])]
    assert aspect.means == (70.5, 70.5, 70.5)
    assert low.means == (70.5, 70.5)
    (table,) = sweep_tables([*few, *more])
    assert table.caption.endswith("over 2 class-balanced splits, 2 pre-training seeds each.")
    assert not table.notes


def test_budgets_without_a_common_split_keep_their_own():
    def only(number):
        return lambda record: record.cell.spec.split_numbers != (number,)

    first = make_records(["aspect"], ["cora"], [poison(0.1)], splits=2, missing=[only(0)])
    second = make_records(["aspect"], ["cora"], [poison(0.2)], splits=2, missing=[only(1)])
    (sweep,) = sweeps([*first, *second])
    assert sweep.curves[0].budgets == (0.1, 0.2)


def test_nothing_but_failures_has_no_curve():
    assert sweeps(records(failed=[lambda _: True]))[0].curves == ()
    assert {
        cell.value for cell in sweep_tables(records(failed=[lambda _: True]))[0].lines[0].cells
    } == {None}
