"""The report's numbers and sentences, from a record whose numbers are known."""

import pytest

from aspect.report.mixture.figures import gate_shares
from aspect.report.mixture.findings import findings
from aspect.report.mixture.numbers import (
    duels,
    gap,
    gate_facts,
    gate_table,
    holm,
    score_table,
    summary,
)
from report.records import MEANS, make_record


def test_the_table_has_means_spreads_and_leads(record):
    table = score_table(record)
    assert table.columns == (
        "whole graph",
        "homophilic",
        "heterophilic",
        "ahead by",
    )
    first, *_, oracle = table.lines
    assert [cell.value for cell in first.cells] == pytest.approx([96, 97, 95, None])
    assert first.cells[0].std == pytest.approx(2**0.5)  # of seeds at 95 and 97
    assert oracle.apart
    assert oracle.cells[0].value == pytest.approx(98)
    leads = {line.title: line.cells[3].value for line in table.lines}
    assert leads["Global fusion"] == pytest.approx(6)
    assert leads["Per-node oracle"] is None


def test_the_method_is_best_and_the_oracle_is_not_compared(record):
    marks = {line.title: line.cells[0].mark for line in score_table(record).lines}
    assert {title for title, mark in marks.items() if mark} == {
        "ASPECT",
        "Paper's gate",
    }
    assert marks["ASPECT"] == "best"


def test_one_seed_has_no_spread(record):
    raw = next(line for line in score_table(record).lines if line.title == "Raw features")
    assert raw.cells[0].std is None
    assert raw.cells[0].text == "75.00"


def test_duels_are_paired_and_corrected_for_their_number(record):
    found = {duel.name: duel for duel in duels(record)}
    assert set(found) == set(MEANS) - {"aspect", "oracle"}
    assert found["global"].test.difference == pytest.approx(6)
    assert found["global"].test.wins == 10
    assert found["global"].p_value == pytest.approx(12 * 2 / 2**10)  # twelve rivals, 2^10 signs
    assert found["global"].is_decided


def test_holm_is_monotone_and_at_most_one():
    assert holm([0.01, 0.02, 0.9]) == pytest.approx([0.03, 0.04, 0.9])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_gap_and_the_share_that_is_won(record):
    found = gap(record)
    assert (found.oracle, found.won, found.share) == pytest.approx((8, 6, 75))


def test_no_gap_has_no_share():
    assert gap(make_record({**MEANS, "oracle": 89.0})).share is None


def test_the_gate_by_region(record):
    found = {(facts.entrant, facts.region): facts for facts in gate_facts(record)}
    own = found["aspect", "homophilic"]
    assert own.mean == pytest.approx(0.9)
    assert own.std_seeds == pytest.approx(0.01 * 2**0.5)
    assert own.std_nodes == pytest.approx(0.02 * (10 / 9) ** 0.5)
    assert own.right == 100
    assert found["paper-gate", "heterophilic"].mean == pytest.approx(0.4)
    assert len(gate_table(record).lines) == 4


def test_a_gate_the_wrong_way_round_leans_wrong(record):
    wrong = make_record(gates={"aspect": record.gates["aspect"][0:1] * 2})
    turned = tuple(tuple(reversed(gates)) for gates in wrong.gates["aspect"])
    facts = gate_facts(make_record(gates={"aspect": turned}))
    assert [each.right for each in facts] == [0, 0]


def test_histograms_count_every_node_of_every_seed(record):
    shares = gate_shares(record, "aspect")
    assert {place: float(values.sum()) for place, values in shares.items()} == pytest.approx(
        {"homophilic": 100, "heterophilic": 100}
    )
    assert shares["homophilic"][:20].sum() == shares["heterophilic"][20:].sum() == 0


def test_sentences_say_what_the_numbers_say(record):
    headline, about_controls, about_gap, about_gate, *_, caveat = findings(record)
    assert "96.0%" in headline
    assert "90.0%: 6.0 points more (95% interval" in headline
    assert "Spectral embedding" in about_controls
    assert "reaches 88.0%: ASPECT has 8.0 points more" in about_controls
    assert "gains 8.0 points" in about_gap
    assert "3 of its 40 edges join the two halves" in caveat
    assert caveat.startswith("90% and 10% of a node's neighbours share its class in the homophilic")
    assert "where chance gives 50%" in caveat
    assert "gains 6.0, or 75%" in about_gap
    assert "0.90 in the homophilic half and 0.10 in the heterophilic half" in about_gate


def test_sentences_admit_defeat():
    lost = list(findings(make_record({**MEANS, "aspect": 85.0, "oracle": 89.0})))
    assert "90.0%: 5.0 points fewer" in lost[0]
    assert "reaches 88.0%: ASPECT has 3.0 points fewer" in lost[1]
    assert "nothing here for a gate to win" in lost[2]


def test_sentences_say_what_is_not_significant():
    scores = [*(95.0 + shift for shift in (-3, 3, -2, 2, -1, 1, -3, 3, -2, 2))]
    base = make_record()
    rows = tuple(
        row.model_copy(update={"scores": {**row.scores, "whole": (tuple(scores),)}})
        if row.name == "global"
        else row
        for row in base.rows
    )
    assert "points, not significant" in next(iter(findings(make_record(rows=rows))))


def test_the_summary_is_plain(record):
    content = summary(record)
    assert content["rows"][0]["strict"]["whole"]["mean"] == pytest.approx(96)
    assert content["gap"]["share"] == pytest.approx(75)
    assert {test["name"] for test in content["tests"]} == set(MEANS) - {"aspect", "oracle"}
