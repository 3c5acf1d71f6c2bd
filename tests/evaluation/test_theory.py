"""The study in small: every graph, every choice of keys, and numbers that keep the theorems."""

from statistics import fmean

import pytest
import torch
from torch.nn.functional import normalize
from torch.testing import assert_close

from aspect import Embedder, mixed_graph
from aspect.errors import SettingsError
from aspect.evaluation import theory
from aspect.evaluation.regret import largest_bound, mix_risks, regret
from aspect.evaluation.theory import QUICK, draw_keys, study_theory
from aspect.evaluation.theory_record import Scope, TheoryRecord
from aspect.randomness import generator_for
from aspect.settings import Experiment, find_experiment

TINY = Scope(
    shares=(0.0, 0.5),
    purities=(0.5, 0.9),
    seeds=(0, 1),
    nodes=60,
    epochs=3,
    width=6,
    mixes=21,
    perturbations=2,
)
EXPERIMENT = Experiment(settings={"order": 2, "temperature": 0.7}, origin="a test")


def grid(count):
    return torch.linspace(0, 1, count, dtype=torch.float64)


def unit(x):
    return normalize(x.double(), dim=-1)


def study(scope=TINY, **options):
    return study_theory(scope, EXPERIMENT, device="cpu", **options)


@pytest.fixture(scope="module")
def record():
    return study()


def test_every_graph_is_measured_with_both_kinds_of_keys(record):
    found = [(case.purity, case.share, case.seed, case.keys) for case in record.cases]
    assert len(found) == len(set(found)) == 2 * 2 * 2 * 2
    assert record.temperature == 0.7
    assert (record.settings["epochs"], record.settings["width"]) == (3, 6)
    assert [each.purity for each in record.examples] == [0.5, 0.9]
    assert [each.purity for each in record.trade_offs] == [0.5, 0.9]


def test_no_regret_is_below_its_bound(record):
    for case in record.cases:
        assert case.regret >= case.bound - 1e-12
        assert case.bound == 0 or 0 < case.gap <= 1
        assert case.prefers_high + case.prefers_low <= 1
    assert any(case.bound > 0 for case in record.cases)


def test_a_case_is_what_its_graph_gives(record):
    """One graph drawn and trained again; its risks as `mix_risks` has them."""
    labelled, mixes = mixed_graph(TINY.nodes, purity=0.9, share=0.5, seed=1), grid(TINY.mixes)
    graph = labelled.graph.to(torch.float32)
    method = Embedder("aspect", seed=1, device="cpu", **record.settings).fit(graph).method.eval()
    with torch.no_grad():
        bands = unit(method.encode(graph).bands)
        signals = [method.augmented(graph, generator_for(1, "keys", number)) for number in (0, 1)]
        views = [unit(method(signal).bands) for signal in signals]
    for choice in ("class", "own"):
        draws = [draw_keys(view, labelled.labels, choice) for view in views]
        risks = mix_risks(bands, draws, 0.7, mixes)
        (found,) = [
            each
            for each in record.cases
            if (each.purity, each.share, each.seed, each.keys) == (0.9, 0.5, 1, choice)
        ]
        assert found.regret == pytest.approx(regret(risks), abs=1e-9)
        assert found.bound == pytest.approx(largest_bound(risks, mixes).value, abs=1e-9)
        assert found.best_mix == mixes[risks.mean(dim=0).argmin()]
        own = mixes[risks.argmin(dim=1)]
        halves = dict(zip(("homophilic", "heterophilic"), own.chunk(2), strict=True))
        assert found.best_mixes == pytest.approx({k: float(v.mean()) for k, v in halves.items()})


def test_broken_bounds_are_counted(monkeypatch):
    monkeypatch.setattr(theory, "TOLERANCE", -1e9)  # which no bound can keep
    one = {"shares": (0.5,), "purities": (0.9,), "seeds": (0,)}
    (trade_off,) = study(TINY.model_copy(update=one)).trade_offs
    assert trade_off.broken == trade_off.pairs > 0


def test_a_region_without_nodes_is_left_out(record):
    regions = {case.share: set(case.best_mixes) for case in record.cases}
    assert regions == {0.0: {"homophilic"}, 0.5: {"homophilic", "heterophilic"}}


def test_the_example_s_mean_is_lowest_at_the_regret(record):
    for example in record.examples:
        case = next(
            each
            for each in record.cases
            if (each.purity, each.share, each.seed, each.keys) == (example.purity, 0.5, 0, "class")
        )
        assert min(example.mean) == pytest.approx(case.regret, abs=1e-6)
        assert sum(len(mixes) for mixes in example.best_mixes.values()) == TINY.nodes
        for curves in example.curves.values():
            assert all(min(curve) == 0 for curve in curves)


def test_the_bounds_under_perturbations_hold_everywhere(record):
    for trade_off in record.trade_offs:
        assert trade_off.broken == 0
        assert trade_off.pairs == TINY.nodes * len(trade_off.mixes)
        assert 0 < trade_off.tightest <= 1
        for region in ("homophilic", "heterophilic"):
            chain = (trade_off.rise[region], trade_off.shift[region], trade_off.bound[region])
            assert all(a <= b + 1e-6 <= c + 2e-6 for a, b, c in zip(*chain, strict=True))


def test_either_kind_of_perturbation_moves_less_than_both(record):
    for trade_off in record.trade_offs:
        moves = {(each.region, each.kind): each for each in trade_off.sensitivities}
        for region in ("homophilic", "heterophilic"):
            whole = moves[region, "all"]
            assert whole.low == pytest.approx(fmean(trade_off.low[region]), abs=1e-6)
            assert whole.high == pytest.approx(fmean(trade_off.high[region]), abs=1e-6)
            for kind in ("edges", "features"):
                assert 0 < moves[region, kind].low <= whole.low
                assert 0 < moves[region, kind].high <= whole.high


def test_the_same_seeds_give_the_same_numbers(record):
    news = []
    again = study(advance=lambda *given: news.append(given))
    assert again.model_dump(exclude={"seconds"}) == record.model_dump(exclude={"seconds"})
    assert [done for done, _, _ in news] == list(range(9))
    assert {total for _, total, _ in news} == {8}


def test_a_record_comes_back_from_its_text(record):
    assert TheoryRecord.model_validate_json(record.model_dump_json()) == record


def test_equal_regions_are_part_of_every_study():
    with pytest.raises(SettingsError, match=r"must include 0\.5\. Got \[0\.0, 1\.0\]"):
        study(TINY.model_copy(update={"shares": (0.0, 1.0)}))


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
    scope = Scope(shares=(0.0, 0.5, 1.0), purities=(0.5, 0.95), seeds=(0, 1))
    experiment, _ = find_experiment("aspect", "mixed", None)
    record = study_theory(scope, experiment, device="cpu")
    mean = {
        (purity, share): sum(
            case.regret / 2
            for case in record.cases
            if (case.purity, case.share, case.keys) == (purity, share, "class")
        )
        for purity in scope.purities
        for share in scope.shares
    }
    assert mean[0.95, 0.5] > 10 * mean[0.5, 0.5]
    assert mean[0.95, 0.5] > 20 * max(mean[0.95, 0.0], mean[0.95, 1.0])
    purest = record.trade_offs[-1]
    moves = {each.region: each for each in purest.sensitivities if each.kind == "all"}
    assert moves["homophilic"].low < moves["homophilic"].high
    assert moves["heterophilic"].high < moves["heterophilic"].low


def test_the_quick_scope_includes_what_the_page_compares():
    assert {0.0, 0.5, 1.0} <= set(QUICK.shares)
    assert 0.5 in QUICK.purities
