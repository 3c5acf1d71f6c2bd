"""Figures: their numbers and words, whatever the graph is like."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import rankdata

from aspect.evaluation.details import Attacked, Sensitivity
from aspect.report import model_plots as models
from aspect.report.benchmark_tables import sweeps
from aspect.report.html import PALETTE
from aspect.report.plots import COLOURS, accuracy_plots, short, sweep_plots
from aspect.report.results import collect
from report.benchmark_records import make_records, poison
from report.node_details import make_details, plain_details

NODES = 100
HOSTILE = "</svg><script>alert(1)</script>$\\x_1$\n\x1b[31m" + "y" * 10_000
POSITIONS = np.linspace(0, 1, 2001)


def painted(plot):
    figure = Figure()
    plot.paint(figure.add_subplot())
    return figure.axes[0]


def rising(nodes=NODES, **changes):
    """Gate, cost gap and homophily rise together; the perturbed gate is a half everywhere."""
    ratio = np.arange(nodes) / (nodes - 1)
    homophily = (None, *ratio[1:].tolist())
    content = {
        "gate": tuple(ratio.tolist()),
        "cost_gap": tuple((4 * ratio - 2).tolist()),
        "homophily": homophily,
        "attacked": (Attacked(label="random 10%", gate=(0.5,) * nodes, homophily=homophily),),
    }
    return make_details(nodes, **{**content, **changes})


def everything(details):
    rivals = ("cost_gap", "sensitivity_gap", "homophily")
    makers = (
        models.density_plots,
        *(lambda given, rival=rival: models.gate_plots(given, rival) for rival in rivals),
        models.filter_plots,
        models.attacked_plots,
        models.map_plots,
    )
    plots = [plot for make in makers for plot in make(details)]
    return [*plots, *(plot for kind in models.training_plots(details) for plot in kind)]


def test_accuracy_is_drawn_with_intervals_by_average_rank():
    level = {"aspect": 70.0, "low": 80.0, "raw": 60.0}
    records = make_records(splits=3, seeds=1, score=lambda entry, split, **_: level[entry] + split)
    ranks, cora, texas = accuracy_plots(collect(records), "class-balanced", "aspect")
    assert (ranks.name, cora.name) == ("ranks", "accuracy-1-cora")
    assert ranks.alt.endswith(": low 1.0; aspect 2.0; raw 3.0.")
    assert cora.alt == "cora: low 81.0; aspect 71.0; raw 61.0."
    assert texas.caption == cora.caption != ranks.caption
    assert "critical difference at 5%, 2.34" in ranks.caption
    axes = painted(cora)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["low", "aspect", "raw"]
    colours = [label.get_color() for label in axes.get_yticklabels()]
    assert colours == [PALETTE["ink"], PALETTE["orange"], PALETTE["ink"]]
    (intervals, dots) = axes.collections
    half = 4.302653 / np.sqrt(3)  # Student's t with two degrees of freedom, a std of one
    ends = [segment[:, 0] for segment in intervals.get_segments()]
    assert ends[0] == pytest.approx([81 - half, 81 + half], abs=1e-4)
    assert dots.get_offsets()[:, 0].tolist() == [81.0, 71.0, 61.0]


def test_long_names_are_told_apart_by_their_ends():
    names = [short(f"a method with all its settings {number}") for number in (1, 2)]
    assert names == ["a method wi...settings 1", "a method wi...settings 2"]
    assert short("a line\nbreak") == "a line break"


def test_methods_without_every_graph_are_not_ranked():
    records = [*make_records(["aspect", "low"]), *make_records(["raw"], ["cora"])]
    ranks, *panels = accuracy_plots(collect(records), "class-balanced", "aspect")
    assert "raw" not in ranks.alt
    assert ranks.caption.endswith("Not ranked, since not run on every graph: raw.")
    assert "raw" in panels[0].alt
    (single,) = accuracy_plots(collect(make_records(["aspect"], ["cora"])), "class-balanced", "")
    assert single.name == "accuracy-1-cora"


def test_a_sweep_has_a_panel_for_eight_methods():
    def falling(perturbation, split, entry, **_):
        return 90 - len(entry) + split - (100 * perturbation.budget if perturbation else 0)

    entries = [f"m{number}" for number in range(10)]
    attacks = [None, poison(0.05), poison(0.1)]
    records = make_records(entries, ["cora"], attacks, splits=3, seeds=1, score=falling)
    first, second = sweep_plots(sweeps(collect(records)))
    assert first.name == "sweep-random-poison-cora-curves-1"
    assert second.title == "cora under random (poison) (2 of 2)"
    assert "m0 from 89.00 to 79.00" in first.alt
    assert ("m7 " in first.alt, "m8 " in first.alt, "m8 " in second.alt) == (True, False, True)
    line = painted(first).lines[0]
    assert line.get_xdata() == pytest.approx([0, 5, 10])
    assert line.get_ydata() == pytest.approx([89, 84, 79])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "values",
    [
        [0.5],
        [0.3, 0.3 + 1e-9],
        np.random.default_rng(0).beta(0.3, 0.3, 500),
    ],
    ids=["one", "rounding", "both ends"],
)
def test_a_density_lies_between_zero_and_one(values):
    heights = models.density(np.asarray(values, dtype=float), POSITIONS)
    assert np.isfinite(heights).all()
    assert heights.min() >= 0
    assert np.trapezoid(heights, POSITIONS) == pytest.approx(1, abs=0.02)


def test_a_density_peaks_where_the_values_are():
    values = np.concatenate([np.full(300, 0.2), np.full(100, 0.8)])
    values = values + 0.02 * np.random.default_rng(0).standard_normal(400)
    heights = models.density(values, POSITIONS)
    left = POSITIONS < 0.5
    assert POSITIONS[heights.argmax()] == pytest.approx(0.2, abs=0.02)
    assert np.trapezoid(np.where(left, heights, 0), POSITIONS) == pytest.approx(0.75, abs=0.02)
    assert heights[1000] < 0.2 * heights.max()  # two peaks, not one


def test_bins_hold_equally_many_values_or_equal_widths():
    x = np.arange(100.0)[::-1]
    bins = models.bins_by_rank(x, 2 * x, 10)
    assert bins.x.tolist() == [4.5 + 10 * k for k in range(10)]
    assert bins.y == pytest.approx(2 * bins.x)
    assert bins.std == pytest.approx(np.full(10, 2 * np.arange(10).std()))
    x = np.array([0.0] * 5 + [0.05] * 5 + [0.55] * 4 + [0.95] * 3 + [1.0] * 2)
    bins = models.bins_of_equal_width(x, np.arange(19.0), 10)
    assert bins.x == pytest.approx([0.025, 0.97])  # four values are too few
    assert bins.y == pytest.approx([4.5, 16.0])


def test_equal_values_are_distributed_at_random_and_the_same_every_time():
    x, y = np.array([0.0] * 10 + [1.0] * 90), np.arange(100.0)
    bins = models.bins_by_rank(x, y, 5)
    assert bins.x == pytest.approx([0.5, 1, 1, 1, 1])
    assert (bins.std[1:] > 15).all()  # no bin of neighbours in the list alone
    assert np.array_equal(bins.y, models.bins_by_rank(x, y, 5).y)


def test_correlations_are_those_of_the_ranks():
    up = rising()
    down = rising(graph="down", gate=tuple(reversed(up.gate)))
    for rival in ("cost_gap", "homophily"):
        found = [(each.graph, value) for each, value in models.correlations([up, down], rival)]
        assert found == [("ring", pytest.approx(1)), ("down", pytest.approx(-1))]
    gate = np.random.default_rng(0).random(NODES)
    gap = np.random.default_rng(1).integers(0, 5, NODES).astype(float)
    noisy = rising(gate=tuple(gate.tolist()), cost_gap=tuple(gap.tolist()))
    ((_, value),) = models.correlations([noisy], "cost_gap")
    assert value == pytest.approx(np.corrcoef(rankdata(gap), rankdata(gate))[0, 1])
    flat = rising(gate=(0.5,) * NODES)
    assert models.correlations([flat], "cost_gap") == []
    (plot,) = models.gate_plots([flat], "cost_gap")
    assert "from 0.50 to 0.50." in plot.alt


def test_what_has_nothing_to_show_is_left_out():
    assert everything([]) == []
    assert everything([plain_details()]) == []


def test_names_are_unique_and_words_are_there():
    details = [
        *(rising(graph=graph) for graph in ("cora", "Cora", "a b", "a-b", "5")),
        rising(title="Other", graph="cora"),
    ]
    plots = everything(details)
    assert len({plot.name for plot in plots}) == len(plots)
    for plot in plots:
        assert plot.title
        assert plot.caption.endswith(".")
        assert plot.alt.endswith(".")
        assert len(plot.alt) > 30


@pytest.mark.parametrize(("graphs", "sizes"), [(4, [4]), (10, [3, 3, 4])])
def test_graphs_of_one_model_share_panels_of_even_size(graphs, sizes):
    details = [rising(graph=f"g{k}") for k in range(graphs)]
    for plots in (models.density_plots(details), models.gate_plots(details, "homophily")):
        assert [len(plot.title.split(",")) for plot in plots] == sizes
    mixed = models.density_plots([rising(graph="a"), rising(graph="b"), rising(title="Other")])
    assert [plot.title for plot in mixed] == ["ASPECT on a, b", "Other on ring"]
    assert [plot.name for plot in mixed] == ["gate-density-1", "gate-density-2-ring"]


def test_models_of_one_name_have_a_line_each():
    (plot,) = models.density_plots([rising(), rising(gate=(0.25,) * NODES)])
    assert "ring 0.50 with a std of 0.29; ring 0.25 with a std of 0.00" in plot.alt


def test_the_gate_is_summarised_in_words():
    other = rising(graph="other", gate=(0.25,) * NODES)
    (density,) = models.density_plots([rising(), other])
    assert "ring 0.50 with a std of 0.29; other 0.25 with a std of 0.00" in density.alt
    # Ten bins of ten nodes: the means of the first and of the last ten gates.
    for rival in ("cost_gap", "homophily", "sensitivity_gap"):
        (plot,) = models.gate_plots([rising()], rival)
        assert "ring from 0.05 to 0.95" in plot.alt
    assert plot.caption.endswith(" ring: 4 flips and 6 entries changed.")


def test_the_sensitivity_gap_is_in_units_of_the_distances():
    details = rising()
    distances = np.asarray(list(details.sensitivity.distances.values()))
    (plot,) = models.gate_plots([details], "sensitivity_gap")
    gap = (distances[1] - distances[0]) / distances.std()
    line = painted(plot).lines[0]
    assert line.get_xdata()[0] == pytest.approx(np.sort(gap)[:10].mean())
    assert models.gate_plots([rising(sensitivity=None)], "sensitivity_gap") == []
    still = Sensitivity(flips=0, moves=0, distances={"low": (0.0,) * NODES, "high": (0.0,) * NODES})
    (flat,) = models.gate_plots([rising(sensitivity=still)], "sensitivity_gap")
    assert flat.title == "ASPECT on ring"  # all are equal: nothing to divide by
    assert models.correlations([rising(sensitivity=still)], "sensitivity_gap") == []


def test_perturbed_graphs_are_binned_by_their_own_homophily():
    details = rising()
    turned = Attacked(
        label="turned",
        gate=tuple(reversed(details.gate)),
        homophily=tuple(reversed(details.homophily)),
    )
    density, quantiles = models.attacked_plots([details.model_copy(update={"attacked": (turned,)})])
    assert "clean 0.50 with a std of 0.29; turned 0.50" in density.alt
    clean, perturbed = (line.get_ydata() for line in painted(quantiles).lines[:2])
    expected = [part.mean() for part in np.array_split(np.asarray(details.gate)[1:], 5)]
    assert clean == pytest.approx(expected)
    assert perturbed == pytest.approx(expected)
    bare = rising(labels=(), homophily=(), class_names=())
    attack = bare.attacked[0].model_copy(update={"homophily": (None,) * NODES})
    plots = models.attacked_plots([bare.model_copy(update={"attacked": (attack,)})])
    assert [plot.name for plot in plots] == ["attacked-density-1-ring"]
    many = tuple(turned.model_copy(update={"label": f"a{k}"}) for k in range(12))
    density, _ = models.attacked_plots([details.model_copy(update={"attacked": many})])
    assert ("a6 0.50" in density.alt, "a7" in density.alt) == (True, False)


def test_filters_show_their_ends_and_the_spectrum():
    (plot,) = models.filter_plots([make_details()])
    assert plot.alt.endswith("low band from 1.00 to 0.00; high band from 0.00 to 1.00.")
    (spectrum,) = painted(plot).patches
    assert spectrum.get_data().edges.tolist() == [0.0, 1.0, 2.0]
    estimated = make_details().spectrum.model_copy(update={"is_exact": False})
    (plot,) = models.filter_plots([make_details(spectrum=estimated)])
    assert plot.title == "ASPECT on ring (estimated)"


def test_training_shows_terms_and_gate():
    (loss,), (gate,), _ = models.training_plots([make_details()])
    words = "over 3 epochs: contrast from 0.00 to -1.50; stability from 0.00 to -0.50."
    assert words in loss.alt
    assert "Dots: a term of some epochs alone" in loss.caption
    assert "its std from 0.00 to 0.20: mean gate from 0.50 to 0.50." in gate.alt
    dots = painted(loss).lines[1]
    assert (dots.get_marker() == "None", dots.get_linestyle()) == (False, "None")
    points = zip(dots.get_xdata(), dots.get_ydata(), strict=True)
    assert {x: y for x, y in points if np.isfinite(y)} == {2: 0.0, 3: -0.5}
    bare = make_details(curves={"loss": (3.0, 2.0), "late": (1.0,), "never": (None, None)})
    (only,), gates, searches = models.training_plots([bare])
    assert "over 2 epochs: loss from 0.00 to -1.00." in only.alt
    assert "Dots" not in only.caption
    assert (gates, searches) == ([], [])
    assert models.training_plots([make_details(curves={"loss": (3.0,)})]) == [[], [], []]


def test_searches_stand_at_their_epochs():
    *_, (objective, sensitivity, energy) = models.training_plots([make_details()])
    assert "Over 2 searches, objective: before from 4.00 to 3.50; after from" in objective.alt
    assert "low from 0.50 to 0.25; high from 1.00 to 0.75" in sensitivity.alt
    assert "high from 1.50 to 1.75; high, changed from 1.25 to 1.50" in energy.alt
    before, after = painted(objective).lines
    assert (list(before.get_xdata()), list(before.get_ydata())) == ([2, 3], [4.0, 3.5])
    assert (list(after.get_xdata()), list(after.get_ydata())) == ([2, 3], [6.0, 5.0])


def test_maps_have_a_colour_for_the_largest_classes():
    by_class, by_gate = models.map_plots([make_details()])
    assert "Theory 8, Practice 8, Neither 8" in by_class.alt
    assert "mean 0.48, from 0.00 to 0.96" in by_gate.alt
    # Twelve classes, the last five of which are the smallest, and an unknown one.
    labels = (*(label for label in range(12) for _ in range(3 if label < 7 else 1)), -1)
    many = make_details(len(labels), labels=labels, class_names=tuple("abcdefghijkl"))
    by_class, _ = models.map_plots([many])
    assert by_class.alt.endswith("f 3, g 3, other or unknown 6.")
    colours = painted(by_class).collections[0].get_facecolors()
    assert len(np.unique(colours.round(3), axis=0)) == len(COLOURS)


@pytest.mark.filterwarnings("error")
def test_hostile_names_and_tiny_graphs_are_drawn():
    hostile = rising(title=HOSTILE, graph=HOSTILE, class_names=(HOSTILE,) * 3)
    for plot in everything([hostile]):
        svg = str(plot.inline())
        assert "<script" not in svg
        assert len(plot.title) < 100
        assert svg.startswith('<svg role="img" aria-label="')
    tiny = [make_details(2, labels=(-1, 0))]
    assert all(plot.render("svg") for plot in everything(tiny))


def test_figures_are_the_same_bytes_in_every_format():
    (plot,) = models.filter_plots([make_details()])
    for kind, start in (("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")):
        assert plot.render(kind).startswith(start)
        assert plot.render(kind) == plot.render(kind)
