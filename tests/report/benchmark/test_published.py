"""The paper's figures, a few of them looked up by hand."""

from collections import Counter

import pytest

from aspect.report.benchmark.published import published, published_figures
from aspect.settings import find_experiment


@pytest.mark.parametrize(
    ("method", "graph", "table", "mean", "std"),
    [
        ("dgi", "cora", "clean", 85.88, 0.95),
        ("hlcl", "cornell_old", "clean", 64.00, 8.98),
        ("polygcl", "pubmed", "clean", 87.15, 0.27),  # underlined there
        ("aspect", "squirrel", "clean", 59.39, 1.76),
        ("aspect-s", "squirrel", "clean", 59.91, 0.90),  # bold there
        ("gbt", "pubmed", "perturbed", 75.60, 1.30),
        ("ariel", "", "average-drop", 9.22, None),
        ("aspect-global", "actor", "ablation-perturbed", 37.07, 1.51),
        ("aspect-s-without-sensitivity", "squirrel", "ablation-clean", 57.06, 2.41),
    ],
)
def test_figures_are_those_of_the_paper(method, graph, table, mean, std):
    found = published(method, graph, table)
    assert (found.mean, found.std) == (mean, std)


def test_every_line_is_whole():
    counts = Counter((each.table, each.method) for each in published_figures())
    by_table = {
        table: {count for (own, _), count in counts.items() if own == table} for table, _ in counts
    }
    assert by_table == {
        "clean": {9},
        "perturbed": {6},
        "average-drop": {1},
        "ablation-clean": {4},
        "ablation-perturbed": {4},
    }
    assert len({each.method for each in published_figures() if each.table == "clean"}) == 19
    assert len({each.method for each in published_figures() if each.table == "perturbed"}) == 18
    assert len(set(published_figures())) == len(published_figures()) == 345


def test_the_ablation_repeats_the_full_tables():
    for each in published_figures():
        if each.table.startswith("ablation") and each.method in ("aspect", "aspect-s"):
            table = each.table.removeprefix("ablation-")
            assert published(each.method, each.graph, table).mean == each.mean


def test_settings_shipped_as_published_name_the_same_figures():
    for graph in ("cora", "cornell_old", "squirrel"):
        experiment, _ = find_experiment("aspect", graph, "published")
        assert experiment.reported["mean"] == published("aspect", graph, "clean").mean


def test_what_the_paper_does_not_print_is_none():
    assert published("aspect", "cornell", "clean") is None
    assert published("hlcl", "cora", "perturbed") is None
