"""The head and the foot of the page: counts and settings against the records themselves."""

from aspect.experiment.plan import Entry
from aspect.report.benchmark.overview import Overview, Surroundings, graph_table, settings_of
from report.benchmark_records import ABLATION, evade, make_records, poison


def test_counts_are_those_of_the_records():
    attacks = (None, poison(0.1), evade(0.2))
    records = make_records(perturbations=attacks, failed=(lambda each: each.cell.entry == "low",))
    overview = Overview.of(records)
    # Per graph and entry: two seeds clean, two by four poisoned, two evaded.
    assert overview.counts == {
        "cells": 2 * 3 * (2 + 8 + 2),
        "failed": 2 * (2 + 8 + 2),
        "methods": 3,
        "graphs": 2,
        "perturbations": 2,
        "seeds": 2,
        "splits": 4,
    }
    assert overview.sentences == (
        "3 methods on 2 graphs, clean and under 2 perturbations, with 2 pre-training seeds and "
        "4 class-balanced splits: 48 of 72 cells are done.",
        "24 cells failed and left a gap in the tables; why, stands below.",
    )


def test_one_of_everything_is_said_in_the_singular():
    records = make_records(("aspect",), ("cora",), (poison(0.1),), seeds=1, splits=1)
    assert Overview.of(records).sentences == (
        "1 method on 1 graph, under 1 perturbation, with 1 pre-training seed and "
        "1 class-balanced split: 1 of 1 cell is done.",
    )


def test_no_record_is_no_table():
    assert Overview.of([]).counts["cells"] == 0
    assert graph_table([]).lines == ()


def test_settings_stand_under_their_graphs():
    entries = ("aspect", Entry(name="mine", method="aspect", set={"fusion": "global"}))
    first = make_records(entries, ("cora",), settings={"epochs": 30, "order": 5})
    second = make_records(entries, ("folder/texas.npz",), settings={"epochs": 40})
    own, mine = settings_of([*first, *second])
    assert own.graphs == ("cora", "texas")
    assert own.rows == {"epochs": ("30", "40"), "order": ("5", "-")}
    assert mine.rows["fusion"] == ('"global"', '"global"')
    assert mine.method == "aspect"


def test_surroundings_name_everything_once():
    records = make_records()
    found = Surroundings.of([*records, *records])
    assert found.devices == ("a processor",)
    assert found.versions == ("aspect 0.1.0", "torch 2.11")
    assert found.seeds == (0, 1)


def test_a_graph_is_one_line():
    table = graph_table(make_records())
    assert [line.title for line in table.lines] == ["cora", "texas"]
    assert [cell.text for cell in table.lines[0].cells] == ["1000", "3000", "50", "5", "0.50"]


def test_variants_are_counted_apart():
    overview = Overview.of(make_records([*ABLATION, "raw"]))
    assert (overview.counts["methods"], overview.counts["variants"]) == (2, 2)
    assert overview.sentences[0].startswith("2 methods and 2 variants on 2 graphs, clean, with")
