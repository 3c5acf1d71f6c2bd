"""Budget curves: a panel per graph and perturbation."""

from dataclasses import replace

import pytest

from aspect.report.benchmark.sweep_figures import sweep_drawings
from aspect.report.benchmark.sweeps import Curve, Sweep


def sweep(curves, graph="cora"):
    return Sweep(
        "sweep-random-poison-cora", "random", "", "poison", True, "random", graph, tuple(curves)
    )


def curve(number, stds=(1.0, 2.0, 2.0)):
    means = (90.0 - number, 80.0 - number, 70.0 - number)
    return Curve(f"m{number}", f"Method {number}", (0.0, 0.05, 0.1), means, stds)


def test_a_panel_tells_where_each_curve_begins_and_ends():
    (drawing,) = sweep_drawings([sweep([curve(0), curve(1)])])
    assert drawing.name == "sweep-random-poison-cora-curves"
    assert drawing.title == "cora under random (poison)"
    assert "budget of 10%: Method 0 from 90.0% to 70.0%; Method 1 from 89.0%" in drawing.alt
    assert ">Method 1<" in drawing.svg


def test_titles_name_the_solver_in_full_unless_it_is_no_solver():
    metattack = replace(sweep([curve(0)]), kind="metattack", solver="unrolled")
    nasty = replace(metattack, solver="\n" + 100 * "x")
    evaded = replace(metattack, mode="evade")
    titles = [drawing.title for drawing in sweep_drawings([metattack, evaded, nasty])]
    assert titles[0] == "cora under metattack (unrolled)"
    assert titles[1] == "cora under metattack (unrolled, evade)"
    assert titles[2].isprintable()
    assert len(titles[2]) < 80


def test_more_lines_than_colours_take_more_panels():
    drawings = sweep_drawings([sweep(curve(k) for k in range(10))])
    assert [drawing.name[-8:] for drawing in drawings] == ["curves-1", "curves-2"]
    assert drawings[1].title.endswith("(2 of 2)")
    assert "Method 7" in drawings[0].alt
    assert "Method 8" in drawings[1].alt


@pytest.mark.filterwarnings("error")
def test_a_single_split_has_no_spread():
    (drawing,) = sweep_drawings([sweep([curve(0, (None, None, None))])])
    assert drawing.svg


def test_nothing_gives_no_panel():
    assert sweep_drawings([]) == []
    assert sweep_drawings([sweep([Curve("m", "M", (), (), ())])]) == []
