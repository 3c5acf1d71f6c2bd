"""One number per row, the same whatever the order of the records."""

import csv
import io

import numpy as np
import pytest

from aspect.errors import UnknownNameError
from aspect.report.benchmark.collection import collect
from aspect.report.benchmark.scores import Place
from aspect.report.benchmark.tidy import tidy_csv
from report.benchmark_records import ABLATION, NASTY, evade, make_records, poison

HEADER = "method,graph,split,selection,perturbation,solver,mode,budget,metric,mean,std,splits,seeds"


def rows(records, kind):
    text = tidy_csv(records, kind)
    assert text.splitlines()[0] == HEADER
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def records():
    attacks = [None, poison(0.1), poison(0.2), evade(0.05)]
    return make_records([*ABLATION, "raw"], ["texas", "cora"], attacks)


def test_a_clean_row_holds_its_number(records):
    (row,) = [
        each
        for each in rows(records, "clean")
        if (each["method"], each["graph"]) == ("raw", "cora")
        and (each["metric"], each["selection"]) == ("accuracy", "strict")
    ]
    spread = collect(records).find(Place("raw", "cora", "class-balanced")).spread()
    assert row == {
        "method": "raw",
        "graph": "cora",
        "split": "class-balanced",
        "selection": "strict",
        "perturbation": "none",
        "solver": "",
        "mode": "",
        "budget": "0",
        "metric": "accuracy",
        "mean": f"{spread.mean:.4f}",
        "std": f"{spread.std_splits:.4f}",
        "splits": "4",
        "seeds": "2",
    }


def test_metrics_and_selections(records):
    found = {(row["metric"], row["selection"]) for row in rows(records, "clean")}
    assert found == {("accuracy", "strict"), ("accuracy", "optimistic"), ("macro_f1", "strict")}


def attacks(found):
    return {(row["perturbation"], row["mode"], row["budget"]) for row in found}


def test_each_kind_has_its_rows(records):
    clean, first, second = (
        ("none", "", "0"),
        ("random", "poison", "0.1"),
        ("random", "poison", "0.2"),
    )
    evaded = ("random", "evade", "0.05")
    assert attacks(rows(records, "clean")) == {clean}
    assert attacks(rows(records, "perturbed")) == {clean, first, second, evaded}
    assert attacks(rows(records, "sweep")) == {clean, first, second}
    assert attacks(rows(records, "ablation")) == {clean, first, second, evaded}
    assert "raw" not in {row["method"] for row in rows(records, "ablation")}
    assert "raw" in {row["method"] for row in rows(records, "sweep")}


def test_a_clean_graph_is_no_row_of_perturbed_ones_alone():
    records = [*make_records(["aspect"], ["cora"], [None, poison()]), *make_records(["low"])]
    assert {row["method"] for row in rows(records, "perturbed")} == {"aspect"}
    assert rows(records, "sweep") == []


def test_order_of_records_does_not_matter(records):
    shuffled = [records[place] for place in np.random.default_rng(0).permutation(len(records))]
    for kind in ("clean", "perturbed", "ablation", "sweep"):
        assert tidy_csv(shuffled, kind) == tidy_csv(records, kind)


def test_rows_are_unique(records):
    identity = HEADER.split(",")[:9]
    found = [tuple(row[name] for name in identity) for row in rows(records, "perturbed")]
    assert len(set(found)) == len(found)
    edges = make_records(["aspect"], ["cora"], [poison(), poison(features=False)])
    assert {row["perturbation"] for row in rows(edges, "perturbed")} == {"random", "random-edges"}


def test_failures_are_no_rows_and_single_splits_have_no_std():
    records = make_records(
        ["aspect", "low"], ["cora"], splits=1, failed=[lambda each: each.cell.entry == "low"]
    )
    found = rows(records, "clean")
    assert {row["method"] for row in found} == {"aspect"}
    assert {row["std"] for row in found} == {""}


def test_formulas_are_disarmed():
    found = rows(make_records(["=cmd()"], NASTY), "clean")
    assert {row["method"] for row in found} == {"'=cmd()"}
    assert "'=cmd()" in {row["graph"] for row in found}


def test_an_unknown_kind_is_refused(records):
    with pytest.raises(UnknownNameError, match="Unknown kind of table 'cleen'"):
        tidy_csv(records, "cleen")


@pytest.mark.parametrize("kind", ["clean", "perturbed", "sweep", "ablation"])
def test_variants_are_rows_of_the_ablation_alone(records, kind):
    names = {row["method"] for row in rows(records, kind)}
    variants = {"aspect-global", "aspect-no-policy"}
    assert names == ({"aspect"} | variants if kind == "ablation" else {"aspect", "raw"})
