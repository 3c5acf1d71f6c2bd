"""The study in small: every graph, every choice of keys, and numbers that keep the theorems."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import normalize
from torch.testing import assert_close

from aspect import Embedder, mixed_graph
from aspect.errors import SettingsError
from aspect.examples.theorems import largest_bound, mix_risks, regret
from aspect.examples.theory import (
    QUICK,
    Theory,
    TheoryScope,
    caveats,
    draw_keys,
    findings,
    run_theory,
    summary,
    theory_tables,
)
from aspect.randomness import generator_for
from examples.pages import SCOPE, small_theory


def grid(count):
    return torch.linspace(0, 1, count, dtype=torch.float64)


def unit(x):
    return normalize(x.double(), dim=-1)


@pytest.fixture(scope="module")
def theory():
    return small_theory()


def test_every_graph_is_measured_and_no_regret_is_below_its_bound(theory):
    measured = [
        (case["purity"], case["share"], case["seed"], case["keys"]) for case in theory.cases
    ]
    assert len(measured) == len(set(measured)) == 2 * 2 * 2 * 2
    assert theory.temperature == 0.7
    assert (theory.settings["epochs"], theory.settings["width"]) == (3, 6)
    assert [trade_off["purity"] for trade_off in theory.trade_offs] == [0.5, 0.9]
    assert all(case["regret"] >= case["bound"] - 1e-12 for case in theory.cases)
    assert any(case["bound"] > 0 for case in theory.cases)
    for trade_off in theory.trade_offs:
        assert (trade_off["broken"], trade_off["pairs"]) == (0, SCOPE.nodes * 5)
        assert 0 < trade_off["tightest"] <= 1


def test_a_case_is_what_its_graph_gives(theory):
    """One graph drawn and trained again; its risks as `mix_risks` has them."""
    labelled, mixes = mixed_graph(SCOPE.nodes, purity=0.9, share=0.5, seed=1), grid(SCOPE.mixes)
    graph = labelled.graph.to(torch.float32)
    method = Embedder("aspect", seed=1, device="cpu", **theory.settings).fit(graph).method.eval()
    with torch.no_grad():
        bands = unit(method.encode(graph).bands)
        signals = [method.augmented(graph, generator_for(1, "keys", number)) for number in (0, 1)]
        views = [unit(method(signal).bands) for signal in signals]
    for choice in ("class", "own"):
        draws = [draw_keys(view, labelled.labels, choice) for view in views]
        risks = mix_risks(bands, draws, 0.7, mixes)
        (case,) = [
            case
            for case in theory.cases
            if (case["purity"], case["share"], case["seed"], case["keys"]) == (0.9, 0.5, 1, choice)
        ]
        assert case["regret"] == pytest.approx(regret(risks), abs=1e-9)
        assert case["bound"] == pytest.approx(largest_bound(risks, mixes).value, abs=1e-9)
        low, high = mixes[risks.argmin(dim=1)].chunk(2)
        expected = (float(low.mean()), float(high.mean()))
        assert (case["mix_homophilic"], case["mix_heterophilic"]) == pytest.approx(expected)


def test_the_same_seeds_give_the_same_numbers(theory):
    one, calls = SCOPE.model_copy(update={"purities": (0.9,), "seeds": (0,)}), []
    settings = {"order": 2, "temperature": 0.7}
    again = run_theory(one, settings, device="cpu", advance=lambda *call: calls.append(call))
    assert again.seconds > 0
    assert again.trade_offs == theory.trade_offs[1:]
    for case in again.cases:  # a region without nodes has no best mix: NaN differs from itself
        assert str(case) in map(str, theory.cases)
    assert [call[:2] for call in calls] == [(0, 2), (1, 2), (2, 2)]


def test_equal_regions_are_part_of_every_study():
    with pytest.raises(SettingsError, match=r"must include 0\.5\. Got \[0\.0, 1\.0\]"):
        run_theory(SCOPE.model_copy(update={"shares": (0.0, 1.0)}))
    assert {0.0, 0.5, 1.0} <= set(QUICK.shares)
    assert 0.5 in QUICK.purities


@pytest.fixture
def view():
    generator = torch.Generator().manual_seed(0)
    return normalize(torch.randn(2, 7, 5, dtype=torch.float64, generator=generator), dim=-1)


def test_a_node_s_own_key_is_equally_near_to_both_bands(view):
    draw = draw_keys(view, torch.arange(7), "own")
    assert_close(draw.keys.norm(dim=1), torch.ones(7, dtype=torch.float64))
    low, high = (view * draw.positives).sum(2)
    assert_close(low, high)


def test_positives_of_a_class_are_its_mean_key(view):
    labels = torch.tensor([0, 1, 0, 2, 1, 0, 0])
    draw = draw_keys(view, labels, "class")
    for node, name in enumerate(labels):
        assert_close(draw.positives[node], draw.keys[labels == name].mean(0))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_regret_follows_share_and_separation():
    """The settings that `aspect theory` ships, on the graphs that decide its figure."""
    scope = TheoryScope(shares=(0.0, 0.5, 1.0), purities=(0.5, 0.95), seeds=(0, 1))
    theory = run_theory(scope, device="cpu")
    rows = theory.rows().query("keys == 'class'").set_index(["purity", "share"])["regret"]
    assert rows[0.95, 0.5] > 10 * rows[0.5, 0.5]
    assert rows[0.95, 0.5] > 20 * max(rows[0.95, 0.0], rows[0.95, 1.0])
    moves = {
        move["region"]: move
        for move in theory.trade_offs[-1]["sensitivities"]
        if move["kind"] == "all"
    }
    assert moves["homophilic"]["low"] < moves["homophilic"]["high"]
    assert moves["heterophilic"]["high"] < moves["heterophilic"]["low"]


def by_hand(theory, *, regret=0.2, bound=0.05, broken=0):
    """Two seeds of one kind of graph with both choices of keys; regrets lie 0.01 apart."""
    parts = {"growth": 1.0, "prefers_high": 0.3, "prefers_low": 0.4, "gap": 1.0}
    cases = [
        {"share": 0.5, "purity": 0.9, "seed": seed, "keys": keys, **parts}
        | {"regret": regret and regret - 0.005 + 0.01 * seed, "bound": bound}
        for keys in ("class", "own")
        for seed in (0, 1)
    ]
    trade_offs = [trade_off | {"broken": broken} for trade_off in theory.trade_offs]
    scope = SCOPE.model_copy(update={"mixes": 3})
    return Theory(scope, {"temperature": 1.0}, "cpu", cases, trade_offs, theory.risks)


def test_rows_are_means_over_the_seeds(theory):
    row = by_hand(theory).rows().iloc[0]
    assert (row["regret"], row["bound"]) == pytest.approx((0.2, 0.05))
    assert row["regret_std"] == pytest.approx(0.01 / 2**0.5)
    table, moves = (cells.to_numpy() for cells in theory_tables(by_hand(theory)).values())
    assert table[0, :4].tolist() == ["0.5", "0.90", "0.2000 ± 0.0071", "0.0500"]
    assert table[0, 4:].tolist() == ["0.25", "0.30", "0.40", "1.000", "1.00", "0.2000"]
    assert len(moves) == 2 * 2 * 3
    plain = summary(by_hand(theory, regret=0.0, bound=0.0))["rows"][0]
    assert plain["ratio"] is None
    assert "mix_heterophilic" not in plain


def test_the_grid_s_error_falls_with_the_square_of_its_step(theory):
    made = by_hand(theory)
    assert made.grid_error == pytest.approx(0.5**2 / 2)
    fine = SCOPE.model_copy(update={"mixes": 101})
    assert replace(made, scope=fine).grid_error == pytest.approx(5e-5)
    cooler = replace(made, scope=fine, settings={"temperature": 0.5})
    assert cooler.grid_error == pytest.approx(2e-4)


def test_sentences_say_what_holds_and_what_does_not(theory):
    valid, stable, moved = findings(by_hand(theory))
    assert valid.startswith("Theorem 2.1: the regret is at least the bound in 4 of 4 cases; ")
    assert "the bound is 24% to 26% of the 4 regrets that exceed the error" in valid
    assert "with L = 2 / tau = 2, hold at 600 of 600 pairs" in stable
    assert "% at 0.5, " in moved
    wrong = by_hand(theory, bound=1.0, broken=3)
    assert "in 0 of 4 cases" in findings(wrong)[0]
    assert "hold at 594 of 600 pairs" in findings(wrong)[1]
    assert summary(wrong)["holds"] is False
    none = findings(by_hand(theory, regret=0.0, bound=0.0))[0]
    assert "no regret exceeds the error of the grid" in none
    text = " ".join(caveats(by_hand(theory)))
    for words in ("grid of 3 mixes", "by at most 0.12500", "4 random draws a graph"):
        assert words in text
