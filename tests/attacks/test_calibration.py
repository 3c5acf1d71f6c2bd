"""The script on the attack's strength: what it trains on, what it keeps, how it compares."""

import pandas as pd
import pytest
import torch

from aspect import mixed_graph
from aspect.attacks.base import flips_within
from aspect.attacks.metattack import Metattack
from aspect.experiment.store import read_records
from aspect.report.results import collect
from aspect.report.statistics import drops
from attacks.graphs import edge_set
from scripts import load_script

script = load_script("calibration")

LABELLED = mixed_graph(num_nodes=80, degree=6.0, num_features=12, seed=0)
ROWS = ["graph", "variant", "method", "split", "probe", "accuracy"]


@pytest.fixture(autouse=True)
def _small_graph(monkeypatch):
    monkeypatch.setattr(script, "load_named", lambda _: LABELLED)


@pytest.mark.parametrize("variant", ["random", *script.VARIANTS[:6:5], "solver=implicit"])
def test_a_variant_flips_as_many_edges_as_the_budget_allows(variant):
    poisoned = script.Poisoning("mixed", variant, (1,), ()).poisoned(LABELLED)
    flips = flips_within(script.BUDGET, LABELLED.graph)
    assert len(edge_set(poisoned) ^ edge_set(LABELLED.graph)) == flips
    assert not torch.equal(poisoned.features, LABELLED.graph.features)


def test_every_variant_is_known():
    for variant in script.VARIANTS[1:]:
        settings = script.parse_overrides(variant.split())
        assert Metattack.settle(settings, LABELLED.graph)


def test_rows_are_kept_and_what_is_there_is_not_done_again(tmp_path, monkeypatch):
    done = []

    def score(poisoning):
        done.append(poisoning)
        return [
            dict(zip(ROWS, ("cora", poisoning.variant, method, split, probe, 80.0), strict=True))
            for method in poisoning.methods
            for split in poisoning.splits
            for probe in script.PROBES
        ]

    def run_here(work, tasks, _, keep):
        for task in tasks:
            keep(task, work(task))
        return 1

    monkeypatch.setattr(script, "run_all", run_here)
    monkeypatch.setattr(script, "scores_of", score)
    words = ["--graph", "cora", "--split", "0", "1", "--out", str(tmp_path / "rows.csv")]
    assert script.main(["random", *words]) == 2  # a training was lost
    assert [(one.variant, one.splits) for one in done] == [
        ("clean", (0, 1)),
        ("random", (0,)),
        ("random", (1,)),
    ]
    script.main(["random", "solver=implicit", *words])
    assert [one.variant for one in done[3:]] == ["solver=implicit"] * 2
    assert len(pd.read_csv(tmp_path / "rows.csv")) == 2 * 2 * 2 * 3
    script.main(["--graph", "cora", "--split", "0", "1", "2", *words[-2:], "random"])
    assert [(one.variant, one.splits) for one in done[5:]] == [("clean", (2,)), ("random", (2,))]


def test_drops_stand_beside_the_papers_and_the_nearest_is_named():
    rows = [
        ("cora", variant, "cca-ssg epochs=9", split, "neutral", accuracy)
        for variant, split, accuracy in [
            ("clean", 0, 90.0),
            ("clean", 1, 80.0),
            ("weak", 0, 85.0),
            ("strong", 0, 45.0),
            ("strong", 1, 40.0),
        ]
    ]
    lines = script.table(pd.DataFrame(rows, columns=ROWS)).set_index("variant")
    assert lines.loc["strong"][["splits", "clean", "drop"]].tolist() == [2, 85.0, 50.0]
    assert lines.loc["weak"][["splits", "perturbed", "drop"]].tolist() == [1, 85.0, 5.6]
    assert (lines.paper == 82.8).all()
    assert (lines["paper's drop"] == 5.3).all()
    told = script.closest(lines.reset_index())
    assert told.endswith("nearest to the paper's drop of 5.3% is 'weak' with 5.6%.")


def test_a_training_is_scored_by_both_probes():
    poisoning = script.Poisoning("mixed", "random", (0,), ("propagated", "raw"))
    rows = script.scores_of(poisoning)
    assert [(row["method"], row["probe"]) for row in rows] == [
        (method, probe) for method in ("propagated", "raw") for probe in ("neutral", "paper")
    ]
    assert all(0 < row["accuracy"] <= 100 for row in rows)


def test_the_figures_of_the_page_are_those_of_the_results(capsys):
    assert script.main(["--tables"]) == 0
    assert "nearest to the paper's drop" in capsys.readouterr().out
    lines = script.table(pd.read_csv(script.RESULTS))
    page = (script.ROOT / "docs" / "attacks.md").read_text(encoding="utf-8")
    unrolled = "solver=unrolled train_weight="
    names = ["meta-train", "meta-self first_order=true", "meta-both", "meta-self"]
    of_record = collect(read_records(script.ROOT / "results" / "records" / "perturbed.jsonl"))
    recorded = drops(of_record, "class-balanced", "metattack-unrolled-poison-10")
    for graph in script.GRAPHS:
        is_shown = (lines.method == "cca-ssg") & (lines.probe == "neutral") & (lines.graph == graph)
        head = f"| {graph.capitalize()}, CCA-SSG, drop in %"
        (row,) = (line for line in page.splitlines() if line.startswith(head))
        found = lines[is_shown].set_index("variant")["drop"]
        expected = [found.get(name) for name in ["random", *(unrolled + name for name in names)]]
        expected.append(recorded.loc[("cca-ssg", graph), "drop"])
        expected.append(lines[is_shown]["paper's drop"].iloc[0])
        words = ["-" if drop is None else f"{drop:.1f}" for drop in expected]
        assert [cell.strip() for cell in row.strip("|").split("|")[1:]] == words
