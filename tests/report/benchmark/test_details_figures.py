"""The pictures of trained models: their numbers and words, whatever the graph is like."""

import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from aspect.evaluation.details import Attacked, Sensitivity
from aspect.report.benchmark.attacked_figures import attacked_drawings, clean_and_attacked
from aspect.report.benchmark.details_figures import (
    class_kinds,
    filter_drawings,
    loss_drawings,
    map_drawings,
    training_gate_drawings,
)
from aspect.report.benchmark.gate_figures import (
    correlations,
    cost_drawings,
    density_drawings,
    homophily_drawings,
    sensitivity_drawings,
    sensitivity_gap,
)
from aspect.report.benchmark.search_figures import search_drawings
from aspect.report.canvas import SERIES
from aspect.report.html import inline_svg
from report.node_details import make_details, plain_details

NODES = 100
HOSTILE = "</svg><script>alert(1)</script>$\\x_1$\n\x1b[31m" + "y" * 10_000


def rising(nodes=NODES, **changes):
    """Gate, cost gap and homophily rise together; the attacked gate is a half everywhere."""
    share = np.arange(nodes) / (nodes - 1)
    homophily = (None, *share[1:].tolist())
    content = {
        "gate": tuple(share.tolist()),
        "cost_gap": tuple((4 * share - 2).tolist()),
        "homophily": homophily,
        "attacked": (Attacked(label="random 10%", gate=(0.5,) * nodes, homophily=homophily),),
    }
    return make_details(nodes, **{**content, **changes})


def drawn(drawing):
    figure = Figure()
    drawing.picture.paint(figure.add_subplot())
    return figure


def everything(details):
    makers = (
        density_drawings,
        cost_drawings,
        homophily_drawings,
        sensitivity_drawings,
        search_drawings,
        filter_drawings,
        attacked_drawings,
        loss_drawings,
        training_gate_drawings,
        map_drawings,
    )
    return [drawing for make in makers for drawing in make(details)]


def test_what_has_nothing_to_show_is_left_out():
    assert everything([]) == []
    assert everything([plain_details()]) == []


def test_names_are_unique_and_words_are_there():
    details = [
        *(rising(graph=graph) for graph in ("cora", "Cora", "a b", "a-b", "5")),
        rising(title="Other", graph="cora"),
    ]
    drawings = everything(details)
    names = [drawing.name for drawing in drawings]
    assert len(set(names)) == len(names)
    for drawing in drawings:
        assert drawing.title
        assert drawing.caption.endswith(".")
        assert drawing.alt.endswith(".")
        assert len(drawing.alt) > 30


def test_correlations_are_those_of_the_ranks():
    up = rising()
    down = rising(graph="down", gate=tuple(reversed(up.gate)))
    assert [(each.graph, value) for each, value in correlations([up, down], "cost_gap")] == [
        ("ring", pytest.approx(1)),
        ("down", pytest.approx(-1)),
    ]
    found = correlations([up, down], "homophily")
    assert [value for _, value in found] == pytest.approx([1, -1])


def test_a_constant_gate_has_a_picture_and_no_correlation():
    flat = rising(gate=(0.5,) * NODES)
    assert correlations([flat], "cost_gap") == []
    (drawing,) = cost_drawings([flat])
    assert "from 0.50 to 0.50." in drawing.alt
    assert drawing.svg


def test_densities_tell_mean_and_spread():
    (drawing,) = density_drawings([rising(), rising(graph="other", gate=(0.25,) * NODES)])
    assert "ring 0.50 with a spread of 0.29; other 0.25 with a spread of 0.00" in drawing.alt


@pytest.mark.parametrize(
    ("graphs", "sizes"), [(1, [1]), (4, [4]), (5, [2, 3]), (9, [3, 3, 3]), (10, [3, 3, 4])]
)
def test_graphs_share_panels_of_even_size(graphs, sizes):
    details = [rising(graph=f"g{k}") for k in range(graphs)]
    for draw in (density_drawings, cost_drawings, sensitivity_drawings, homophily_drawings):
        drawn = draw(details)
        assert [
            drawing.alt.count(";") - drawing.alt.count("means:") + 1 for drawing in drawn
        ] == sizes
        titles = " ".join(drawing.title.removeprefix("ASPECT on ") for drawing in drawn)
        assert titles.replace(",", "").split() == [each.graph for each in details]


def test_models_share_no_panel():
    drawn = density_drawings([rising(graph="a"), rising(graph="b"), rising(title="Other")])
    assert [drawing.title for drawing in drawn] == ["ASPECT on a, b", "Other on ring"]
    assert [drawing.name for drawing in drawn] == ["gate-density-1", "gate-density-2-ring"]


def test_bins_go_from_the_lowest_to_the_highest():
    (cost,), (homophily,) = cost_drawings([rising()]), homophily_drawings([rising()])
    # Ten bins of ten nodes: the means of the first and of the last ten gates.
    assert "ring from 0.05 to 0.95, Spearman 1.00" in cost.alt
    assert "ring from 0.05 to 0.95, Spearman 1.00" in homophily.alt


def test_clean_and_attacked_are_binned_by_their_own_homophily():
    details = rising()
    turned = tuple(reversed(details.gate))
    attack = Attacked(label="turned", gate=turned, homophily=tuple(reversed(details.homophily)))
    found = clean_and_attacked(details.model_copy(update={"attacked": (attack,)}))
    assert list(found) == ["clean", "turned"]
    clean, attacked = (bins for _, bins in found.values())
    assert len(clean.means) == 5
    assert clean.means == pytest.approx(attacked.means)
    expected = [part.mean() for part in np.array_split(np.asarray(details.gate)[1:], 5)]
    assert clean.means == pytest.approx(expected)


def test_the_attacked_gate_has_two_pictures():
    density, quantiles = attacked_drawings([rising()])
    names = [drawing.name for drawing in attacked_drawings([rising(), rising(graph="other")])]
    assert [name.split("-")[1] for name in names] == ["density"] * 2 + ["quantiles"] * 2
    assert "clean 0.50; random 10% 0.50" in density.alt
    # Of the nodes 1 to 99: the means of the first 20 and of the last 19, over 99.
    assert "clean from 0.11 to 0.91; random 10% from 0.50 to 0.50" in quantiles.alt
    assert all(f">Q{k}<" in quantiles.svg for k in range(1, 6))


def test_without_labels_only_the_density_is_drawn():
    bare = rising(labels=(), homophily=(), class_names=())
    attack = bare.attacked[0].model_copy(update={"homophily": (None,) * NODES})
    drawn = attacked_drawings([bare.model_copy(update={"attacked": (attack,)})])
    assert [drawing.name for drawing in drawn] == ["attacked-density-1-ring"]
    assert homophily_drawings([bare]) == []


def test_more_attacks_than_colours_are_cut():
    details = rising()
    many = tuple(details.attacked[0].model_copy(update={"label": f"a{k}"}) for k in range(12))
    density, _ = attacked_drawings([details.model_copy(update={"attacked": many})])
    assert "a6 0.50" in density.alt
    assert "a7" not in density.alt


def test_filters_tell_their_ends_and_the_spectrum():
    (drawing,) = filter_drawings([make_details()])
    assert "low band from 1.00 to 0.00; high band from 0.00 to 1.00" in drawing.alt
    assert "mean frequency of the graph is 1.00" in drawing.alt
    assert drawing.title == "ASPECT on ring"
    spectrum = make_details().spectrum.model_copy(update={"is_exact": False})
    (drawing,) = filter_drawings([make_details(spectrum=spectrum)])
    assert drawing.title == "ASPECT on ring (estimated)"
    assert "estimated from Chebyshev moments" in drawing.caption


def test_training_shows_terms_and_gate():
    (loss,), (gate,) = loss_drawings([make_details()]), training_gate_drawings([make_details()])
    assert "over 3 epochs: contrast -1.50; stability -0.50." in loss.alt
    assert "Dots: a term of some epochs alone" in loss.caption
    assert "Mean gate from 0.50 to 0.50 over 3 epochs, its spread from 0.00 to 0.20." in gate.alt
    bare = make_details(curves={"loss": (3.0, 2.0), "late": (1.0,)})
    (only,) = loss_drawings([bare])
    assert "over 2 epochs: loss -1.00." in only.alt
    assert "Dots" not in only.caption
    assert training_gate_drawings([bare]) == []
    assert loss_drawings([make_details(curves={"loss": (3.0,)})]) == []


def test_a_term_of_some_epochs_has_its_dots_there():
    curves = {"loss": (3.0, 2.0, 1.5, 1.0), "stability": (None, 4.0, None, 3.0)}
    (drawing,) = loss_drawings([make_details(curves=curves)])
    figure = drawn(drawing)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 4]
    (stability,) = lines
    assert stability.get_marker() == "o"
    assert stability.get_linestyle() == "None"
    known = {
        x: y
        for x, y in zip(stability.get_xdata(), stability.get_ydata(), strict=True)
        if np.isfinite(y)
    }
    assert known == {2: 0.0, 4: -1.0}
    nothing = make_details(curves={"loss": (3.0, 2.0), "never": (None, None)})
    assert "never" not in loss_drawings([nothing])[0].alt


def test_searches_stand_at_their_epochs():
    objective, sensitivity, energy = search_drawings([make_details()])
    assert "clean graph from 4.00 to 3.50; changed graph from 6.00 to 5.00" in objective.alt
    assert "searches from epoch 2 to 3, 2 in all." in objective.alt
    assert "low band from 0.50 to 0.25; high band from 1.00 to 0.75" in sensitivity.alt
    assert "high, clean from 1.50 to 1.75; high, changed from 1.25 to 1.50" in energy.alt
    before, after = drawn(objective).axes[0].lines
    assert (list(before.get_xdata()), list(before.get_ydata())) == ([2, 3], [4.0, 3.5])
    assert (list(after.get_xdata()), list(after.get_ydata())) == ([2, 3], [6.0, 5.0])
    assert {before.get_linestyle(), after.get_linestyle()} == {"None"}
    assert search_drawings([make_details(curves={"loss": (3.0, 2.0)})]) == []


def test_the_gate_is_held_against_the_sensitivity_gap():
    details = rising()
    gap = sensitivity_gap(details)
    distances = np.asarray(list(details.sensitivity.distances.values()))
    assert gap == pytest.approx((distances[1] - distances[0]) / distances.std())
    (drawing,) = sensitivity_drawings([details])
    assert "sensitivity gap: ring from 0.05 to 0.95, Spearman 1.00" in drawing.alt
    assert drawing.caption.endswith(" ring: 4 flips and 6 entries moved.")
    assert sensitivity_drawings([rising(sensitivity=None)]) == []
    still = Sensitivity(flips=0, moves=0, distances={"low": (0.0,) * NODES, "high": (0.0,) * NODES})
    assert sensitivity_gap(rising(sensitivity=still)) == (0.0,) * NODES
    (flat,) = sensitivity_drawings([rising(sensitivity=still)])
    assert "Spearman" not in flat.alt


def test_classes_have_colours_until_there_are_too_many():
    names, kinds = class_kinds(make_details())
    assert [label for label, _ in names] == ["Theory", "Practice", "Neither"]
    assert kinds == [node % 3 for node in range(24)]
    # Twelve classes, the last five of which are the smallest.
    labels = tuple(label for label in range(12) for _ in range(3 if label < 7 else 1))
    many = make_details(len(labels), labels=labels, class_names=tuple("abcdefghijkl"))
    names, kinds = class_kinds(many)
    assert [label for label, _ in names] == [*"abcdefg", "other"]
    assert len({colour for _, colour in names}) == len(SERIES)
    assert kinds == [min(label, 7) for label in labels]


def test_unknown_classes_are_named_so():
    labels = (-1,) * 4 + (0,) * 20
    names, kinds = class_kinds(make_details(labels=labels))
    assert [label for label, _ in names] == ["Theory", "unknown"]
    assert kinds == [1] * 4 + [0] * 20
    by_class, by_gate = map_drawings([make_details(labels=labels)])
    assert by_class.alt == "Map of 24 nodes coloured by class: Theory 20, unknown 4."
    assert "mean 0.48, from 0.00 to 0.96" in by_gate.alt


@pytest.mark.filterwarnings("error")
def test_hostile_names_stay_text_and_short():
    details = make_details(
        title=HOSTILE,
        graph=HOSTILE,
        class_names=(HOSTILE, HOSTILE + "2", "节点"),
        ids=(HOSTILE,) * 24,
        curves={"loss": (2.0, 1.0), HOSTILE: (2.0, 1.0)},
        attacked=(Attacked(label=HOSTILE, gate=(0.5,) * 24, homophily=(None,) * 24),),
    )
    for drawing in everything([details]):
        assert re.fullmatch(r"[a-z0-9-]{1,70}", drawing.name)
        for text in (drawing.title, drawing.caption, drawing.alt):
            assert text.isprintable()
            assert len(text) < 600
        inline = inline_svg(drawing)
        assert "<script" not in inline
        assert inline.count("</svg>") == 1
    assert map_drawings([details])[0].picture.render("pdf").startswith(b"%PDF")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("nodes", [2, 6])
def test_tiny_graphs_are_drawn(nodes):
    details = [make_details(nodes), make_details(nodes, labels=(-1,) * (nodes - 1) + (0,))]
    for drawing in everything(details):
        assert drawing.svg
