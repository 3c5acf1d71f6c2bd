"""Tables of edge scores: what is found, and what goes."""

import pytest
import torch

from aspect.data.graph import edge_keys, flip_pairs, with_pairs
from aspect.data.synthetic import mixed_graph
from scripts import load_script

script = load_script("edge_scores")


def test_an_unknown_score_is_refused_before_any_table(capsys):
    assert script.main(["--graph", "texas", "--score", "jaccard"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "Unknown edge score 'jaccard'" in told.err


def test_the_rules_table_counts_what_goes_of_added_and_of_clean_edges(monkeypatch):
    clean = mixed_graph(num_nodes=60, seed=0)
    edge = edge_keys(clean.graph)[:1]
    absent = torch.tensor([key for key in range(1, 60) if key not in edge_keys(clean.graph)][:1])

    class Flips:
        def apply(self, labelled, budget, *, features):
            assert (budget, features) == (script.BUDGET, False)
            return flip_pairs(labelled.graph, absent)

    class Rule:
        def apply(self, graph):  # prunes one clean edge and the added one
            kept = edge_keys(graph)
            return with_pairs(graph, kept[~torch.isin(kept, torch.cat([edge, absent]))])

    monkeypatch.setattr(script, "load_named", lambda _: clean)
    monkeypatch.setattr(script, "flips_of", lambda *_: Flips())
    none_there = script.rule_table(["any"], Rule())
    assert list(none_there.columns[1].cells) == ["none"]
    monkeypatch.setattr(script, "solvers_of", lambda _: ["unrolled", "implicit"])
    table = script.rule_table(["any"], Rule())
    lost = f"{100 / clean.graph.num_edges:.1f}%"
    columns = [list(column.cells) for column in table.columns]
    assert columns[1] == ["none", "metattack (unrolled)", "metattack (implicit)"]
    assert columns[3] == ["-", "100.0%", "100.0%"]
    assert columns[4] == [lost, lost, lost]


def test_a_detection_counts_what_is_found_before_what_is_lost(tmp_path, monkeypatch):
    added = torch.tensor([True, False, True, False, False])  # lowest score first
    measured = script.Detection("any", "unrolled", "support", added)
    assert measured.area == pytest.approx(5 / 6)  # five of six pairs in order
    assert measured.found == 0.5
    lost, found = measured.curve()
    torch.testing.assert_close(found, torch.tensor([0.5, 0.5, 1.0, 1.0, 1.0]))
    torch.testing.assert_close(lost, torch.tensor([0, 1 / 3, 1 / 3, 2 / 3, 1.0]))
    pairs = [(s, measured) for s in ("unrolled", "implicit")]
    both = [script.Detection("any", solver, "support", each.added) for solver, each in pairs]
    monkeypatch.setattr(script, "pruned_by_rule", lambda *_: (0.1, 0.5, 0.0))
    script.draw(both, tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text()
    assert text.startswith("<?xml")
