"""The study in small: every graph, every choice of keys, and numbers that keep the theorems."""

from dataclasses import replace
from statistics import fmean

import pytest
import torch
from torch.nn.functional import normalize
from torch.testing import assert_close

from aspect import Embedder, mixed_graph
from aspect.errors import SettingsError
from aspect.examples import theory as module
from aspect.examples.theorems import RegretBound, largest_bound, mix_risks, regret
from aspect.examples.theory import (
    QUICK,
    RegretCase,
    Theory,
    TheoryScope,
    caveats,
    draw_keys,
    findings,
    run_theory,
    summary,
    theory_files,
    theory_tables,
)
from aspect.randomness import generator_for
from examples.pages import FACTS, SCOPE, small_theory

BOTH = ("homophilic", "heterophilic")


def grid(count):
    return torch.linspace(0, 1, count, dtype=torch.float64)


def unit(x):
    return normalize(x.double(), dim=-1)


@pytest.fixture(scope="module")
def theory():
    return small_theory()


def test_every_graph_is_measured_with_both_kinds_of_keys(theory):
    found = [(case.purity, case.share, case.seed, case.keys) for case in theory.cases]
    assert len(found) == len(set(found)) == 2 * 2 * 2 * 2
    assert theory.temperature == 0.7
    assert (theory.settings["epochs"], theory.settings["width"]) == (3, 6)
    assert [each.purity for each in theory.examples] == [0.5, 0.9]
    assert [each.purity for each in theory.trade_offs] == [0.5, 0.9]


def test_no_regret_is_below_its_bound(theory):
    for case in theory.cases:
        assert case.regret >= case.bound.value - 1e-12
        assert case.holds
        assert case.bound.value == 0 or 0 < case.bound.gap <= 1
        assert case.bound.prefers_high + case.bound.prefers_low <= 1
    assert any(case.bound.value > 0 for case in theory.cases)


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
        (found,) = [
            each
            for each in theory.cases
            if (each.purity, each.share, each.seed, each.keys) == (0.9, 0.5, 1, choice)
        ]
        assert found.regret == pytest.approx(regret(risks), abs=1e-9)
        assert found.bound.value == pytest.approx(largest_bound(risks, mixes).value, abs=1e-9)
        own = mixes[risks.argmin(dim=1)]
        halves = dict(zip(("homophilic", "heterophilic"), own.chunk(2), strict=True))
        assert found.best_mixes == pytest.approx({k: float(v.mean()) for k, v in halves.items()})


def test_broken_bounds_are_counted(monkeypatch):
    monkeypatch.setattr(module, "TOLERANCE", -1e9)  # which no bound can keep
    one = {"shares": (0.5,), "purities": (0.9,), "seeds": (0,)}
    (trade_off,) = small_theory(SCOPE.model_copy(update=one)).trade_offs
    assert trade_off.broken == trade_off.pairs > 0


def test_a_region_without_nodes_is_left_out(theory):
    regions = {case.share: set(case.best_mixes) for case in theory.cases}
    assert regions == {0.0: {"homophilic"}, 0.5: {"homophilic", "heterophilic"}}


def test_the_example_s_mean_is_lowest_at_the_regret(theory):
    for example in theory.examples:
        case = next(
            each
            for each in theory.cases
            if (each.purity, each.share, each.seed, each.keys) == (example.purity, 0.5, 0, "class")
        )
        assert float(example.mean.min()) == pytest.approx(case.regret, abs=1e-6)
        assert sum(len(mixes) for mixes in example.best_mixes.values()) == SCOPE.nodes
        for curves in example.curves.values():
            assert float(curves.min(dim=1).values.max()) == 0


def test_the_bounds_under_perturbations_hold_everywhere(theory):
    for trade_off in theory.trade_offs:
        assert trade_off.broken == 0
        assert trade_off.pairs == SCOPE.nodes * len(trade_off.mixes)
        assert 0 < trade_off.tightest <= 1
        for region in ("homophilic", "heterophilic"):
            chain = (trade_off.rise[region], trade_off.shift[region], trade_off.bound[region])
            assert all(a <= b + 1e-6 <= c + 2e-6 for a, b, c in zip(*chain, strict=True))


def test_either_kind_of_perturbation_moves_less_than_both(theory):
    for trade_off in theory.trade_offs:
        moves = {(each["region"], each["kind"]): each for each in trade_off.sensitivities}
        for region in ("homophilic", "heterophilic"):
            whole = moves[region, "all"]
            for number, band in enumerate(("low", "high")):
                mean = fmean(trade_off.moves[region][number].tolist())
                assert whole[band] == pytest.approx(mean, abs=1e-6)
                for kind in ("edges", "features"):
                    assert 0 < moves[region, kind][band] <= whole[band]


def test_the_same_seeds_give_the_same_numbers(theory):
    calls = []
    again = small_theory(advance=lambda *call: calls.append(call))
    first, second = summary(theory), summary(again)
    assert first.pop("seconds") > 0 < second.pop("seconds")
    assert first == second
    assert theory_files(theory, FACTS) == theory_files(again, FACTS)
    assert [done for done, _, _ in calls] == list(range(9))
    assert {total for _, total, _ in calls} == {8}


def test_equal_regions_are_part_of_every_study():
    with pytest.raises(SettingsError, match=r"must include 0\.5\. Got \[0\.0, 1\.0\]"):
        small_theory(SCOPE.model_copy(update={"shares": (0.0, 1.0)}))


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
    mean = {(row["purity"], row["share"]): row["regret"] for row in theory.rows()}
    assert mean[0.95, 0.5] > 10 * mean[0.5, 0.5]
    assert mean[0.95, 0.5] > 20 * max(mean[0.95, 0.0], mean[0.95, 1.0])
    purest = theory.trade_offs[-1].sensitivities
    moves = {each["region"]: each for each in purest if each["kind"] == "all"}
    assert moves["homophilic"]["low"] < moves["homophilic"]["high"]
    assert moves["heterophilic"]["high"] < moves["heterophilic"]["low"]


def test_the_quick_scope_includes_what_the_page_compares():
    assert {0.0, 0.5, 1.0} <= set(QUICK.shares)
    assert 0.5 in QUICK.purities


def by_hand(theory, **changes):
    """At 0.9 regret is 0.2 with equal regions and 0 with one; seeds lie 0.01 apart."""
    cases = []
    for share in (0.0, 0.5, 1.0):
        for purity in (0.5, 0.9):
            for seed in (0, 1):
                for keys in ("class", "own"):
                    value = 0.195 + 0.01 * seed if (purity, share) == (0.9, 0.5) else 0.0
                    value = 0.05 if keys == "own" else value if purity == 0.9 else 0.004
                    bound = RegretBound(value / 4, 1.0, 0.3, 0.4, 0.0, 1.0)
                    mixes = dict(
                        zip(BOTH, (0.9, 0.2) if purity == 0.9 else (0.5, 0.5), strict=True)
                    )
                    kept = {0.0: BOTH[:1], 0.5: BOTH, 1.0: BOTH[1:]}[share]
                    best = {name: mixes[name] for name in kept}
                    cases.append(RegretCase(share, purity, seed, keys, value, bound, best))
    scope = SCOPE.model_copy(update={"shares": (0.0, 0.5, 1.0), "mixes": 3})
    made = Theory(scope, {"temperature": 1.0}, "cpu", cases, theory.examples, theory.trade_offs)
    return replace(made, **changes)


def test_rows_are_means_over_the_seeds(theory):
    row = by_hand(theory).row(0.9, 0.5)
    assert (row["regret"], row["bound"], row["ratio"]) == pytest.approx((0.2, 0.05, 0.25))
    assert row["regret_std"] == pytest.approx(0.01 / 2**0.5)
    assert row["best_mixes"] == pytest.approx({"homophilic": 0.9, "heterophilic": 0.2})
    assert by_hand(theory).row(0.9, 0.0)["ratio"] is None
    assert by_hand(theory).row(0.9, 0.5, "own")["regret"] == 0.05
    table, _ = theory_tables(by_hand(theory))
    (cells,) = [row for row in table.rows if row[:2] == ("0.5", "0.90")]
    assert cells[2:] == ("0.2000 ± 0.0071", "0.0500", "0.25", "0.30", "0.40", "1.000", "1.00")


def test_the_grid_s_error_falls_with_the_square_of_its_step(theory):
    made = by_hand(theory)
    assert made.grid_error == pytest.approx(0.5**2 / 2)
    fine = SCOPE.model_copy(update={"mixes": 101})
    assert replace(made, scope=fine).grid_error == pytest.approx(5e-5)
    cooler = replace(made, scope=fine, settings={"temperature": 0.5})
    assert cooler.grid_error == pytest.approx(2e-4)


def test_sentences_say_what_the_numbers_say(theory):
    valid, share, separation, own, stable, _, choice = findings(by_hand(theory))
    assert valid == (
        "In all 24 cases the measured regret is at least the bound, which is 25% to 25% of it, "
        "25% on average, in the 2 whose regret exceeds the error of the grid."
    )
    assert "highest, 0.2000, where a ratio of 0.5" in share
    assert "0.0000 at 0, 0.0000 at 1. Where nearly all nodes are alike" in share
    assert "0.0040 at 0.5, 0.2000 at 0.9; at 0.9 the mean best mix is 0.90 in" in separation
    assert "do not differ, 0.0040" in separation
    assert "a regret of 0.0500 with equal regions, whose mean best mixes are 0.70 apart" in own
    assert "with L = 2 / tau = 2, held at all of" in stable
    assert "at 0.5, " in choice


def test_sentences_admit_what_does_not_hold(theory):
    cases = by_hand(theory).cases
    wrong = replace(cases[0], bound=RegretBound(1.0))
    assert not wrong.holds
    made = by_hand(theory, cases=[wrong, *cases[1:]])
    assert findings(made)[0].startswith("In 1 of 24 cases the measured regret lies below the bound")
    assert summary(made)["holds"] is False
    broken = [theory.trade_offs[0], replace(theory.trade_offs[1], broken=3)]
    assert "held at all but 3 of" in findings(by_hand(theory, trade_offs=broken))[4]
    flat = [replace(case, regret=0.2, bound=RegretBound(0.1)) for case in cases]
    assert "one mix costs little" not in findings(by_hand(theory, cases=flat))[1]
    none = [replace(case, regret=0.0, bound=RegretBound(0.0)) for case in cases]
    assert "no regret exceeds the error of the grid" in findings(by_hand(theory, cases=none))[0]
    scope = SCOPE.model_copy(update={"shares": (0.0, 0.5, 1.0)})
    drawn = theory_files(by_hand(theory, cases=none, scope=scope), FACTS)
    assert "All cases" in drawn["report.html"]


@pytest.mark.parametrize(
    ("moves", "verdict"),
    [
        (((0.1, 0.5), (0.5, 0.1)), "is on average the more stable one there, too"),
        (((0.1, 0.5), (0.1, 0.5)), "one band is the more stable in both"),
        (((0.5, 0.1), (0.1, 0.5)), "is on average the less stable one there"),
    ],
)
def test_the_verdict_on_the_bands_follows_their_moves(theory, moves, verdict):
    sensitivities = [
        {"region": region, "kind": "all", "low": low, "high": high}
        for region, (low, high) in zip(BOTH, moves, strict=True)
    ]
    turned = replace(theory.trade_offs[1], sensitivities=sensitivities)
    made = by_hand(theory, trade_offs=[theory.trade_offs[0], turned])
    assert verdict in findings(made)[5]


def test_the_sentence_on_ratios_names_where_the_bound_is_tight(theory):
    base = next(case for case in by_hand(theory).cases if (case.purity, case.share) == (0.9, 0.5))
    others = [case for case in by_hand(theory).cases if case.purity != 0.9 or case.keys == "own"]
    cases = [
        replace(base, share=share, regret=0.2, bound=RegretBound(bound))
        for share, bound in ((0.1, 0.1), (0.5, 0.05), (0.9, 0.08))
    ]
    share = module._about_share(by_hand(theory, cases=others + cases))
    assert share.endswith("tightest at 0.1 (50% of the regret) and loosest at 0.5 (25%).")


def test_caveats_name_keys_grid_growth_and_perturbations(theory):
    text = " ".join(caveats(by_hand(theory)))
    for words in (
        "The positive of a node is drawn from the keys of its class",
        "on a grid of 3 mixes",
        "by at most 0.12500",
        "the proof needs growth from these nodes only",
        "at separation 0.9",
        "4 random draws a graph",
    ):
        assert words in text
