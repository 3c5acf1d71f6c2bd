"""An attacker who knows the edge score never flips a pair that scores below the floor."""

import pytest
import torch

from aspect.attacks.adaptive import AdaptiveConfig
from aspect.attacks.base import apply_flips
from aspect.attacks.metattack import Metattack, MetattackConfig
from aspect.attacks.pr_bcd import PRBCD, PRBCDConfig
from aspect.attacks.purification import edge_scores
from aspect.data.graph import edge_keys
from aspect.errors import SettingsError, UnknownNameError
from attacks.attempts import labelled_graph, plan
from attacks.tasks import class_task

TASK = class_task(dtype=torch.float32)
SHORT = {"block_size": 2000, "epochs": 20, "resampled_epochs": 15}
ROUNDING = 1e-5


def score_of_flip(graph, flip, score):
    """The score of the pair as an edge: of the graph itself, or of one with the edge added."""
    low, high = flip.tolist()
    key = low * graph.num_nodes + high
    joined = graph if key in edge_keys(graph) else apply_flips(graph, flip[None])
    return float(edge_scores(joined, score)[edge_keys(joined) == key])


def lowest(flips, score):
    return min(score_of_flip(TASK.graph, flip, score) for flip in flips)


def attacks(**settings):
    yield Metattack(TASK.target, MetattackConfig(flips_per_gradient=4, **settings), seed=0)
    unrolled = {"solver": "unrolled", "inner_steps": 10, "flips_per_gradient": 4}
    yield Metattack(TASK.target, MetattackConfig(**unrolled, **settings), seed=0)
    yield PRBCD(TASK.target, PRBCDConfig(**SHORT, **settings), seed=0)


@pytest.mark.parametrize("score", ["support", "features"])
def test_no_flip_scores_below_the_floor_and_without_it_some_do(score):
    floor = float(torch.quantile(edge_scores(TASK.graph, score), 0.3, interpolation="lower"))
    pairs = zip(attacks(), attacks(avoid_below=0.3, avoid_score=score), strict=True)
    for free, bound in pairs:
        flips = bound.find(20)
        assert 0 < len(flips) <= 20
        assert lowest(flips, score) >= floor - ROUNDING
        assert lowest(free.find(20), score) < floor - ROUNDING


@pytest.mark.parametrize("score", ["support", "embedding", "paths", "support+paths"])
def test_all_pairs_that_may_be_flipped_are_listed(score, monkeypatch):
    monkeypatch.setattr("aspect.attacks.adaptive.PAIRS_AT_ONCE", 7 * TASK.graph.num_nodes)
    floor = AdaptiveConfig(avoid_below=0.3, avoid_score=score).floor(TASK.graph)
    low, high = torch.triu_indices(TASK.graph.num_nodes, TASK.graph.num_nodes, offset=1)
    keys = low * TASK.graph.num_nodes + high
    found = floor.allowed()
    assert torch.equal(found, keys[floor.allows(keys)].int())
    assert len(found) > 0


def test_memory_is_told_before_and_refused_where_it_is_not_there(monkeypatch):
    labelled = labelled_graph()
    free, bound = plan(labelled), plan(labelled, avoid_below=0.3)
    assert bound.working_bytes > free.working_bytes
    floor = AdaptiveConfig(avoid_below=0.001).floor(TASK.graph)
    monkeypatch.setattr("aspect.attacks.base.available_bytes", lambda: 2**13)
    with pytest.raises(SettingsError, match=r"64 MiB of memory or more, and 0 MiB.*smaller graph"):
        plan(labelled, avoid_below=0.3)
    with pytest.raises(SettingsError, match="Raise avoid_below"):
        floor.allowed()


def test_a_gradient_gives_as_many_flips_with_a_floor_as_without():
    settings = {"flips_per_gradient": 4, "avoid_below": 0.3}
    attack = Metattack(TASK.target, MetattackConfig(**settings), seed=0)
    assert len(attack.advance(100)) == 4


def test_the_floor_is_a_quantile_of_the_edges():
    floor = AdaptiveConfig(avoid_below=0.25, avoid_score="support").floor(TASK.graph)
    edges = edge_keys(TASK.graph)
    below = int((~floor.allows(edges)).sum())
    assert below == int(0.25 * len(edges))


def test_several_scores_are_avoided_by_the_sum_of_their_ranks_among_the_edges():
    settings = AdaptiveConfig(avoid_below=0.25, avoid_score="support+paths")
    floor, edges = settings.floor(TASK.graph), edge_keys(TASK.graph)
    assert int((~floor.allows(edges)).sum()) <= int(0.25 * len(edges))
    flips = Metattack(
        TASK.target, MetattackConfig(avoid_below=0.25, avoid_score="support+paths"), seed=0
    ).find(20)
    assert bool(floor.allows(flips[:, 0] * TASK.graph.num_nodes + flips[:, 1]).all())
    ends = edges // TASK.graph.num_nodes, edges % TASK.graph.num_nodes
    ranks = floor.profiles.scores(*ends)
    torch.testing.assert_close(ranks, edge_scores(TASK.graph, "support+paths"))


def test_the_constraint_is_nested_and_taken_up_again():
    settings = MetattackConfig(flips_per_gradient=4, avoid_below=0.2)
    whole = Metattack(TASK.target, settings, seed=0).find(12)
    first = Metattack(TASK.target, settings, seed=0)
    begun = first.advance(4)
    again = Metattack(TASK.target, settings, seed=0, state=first.state())
    assert torch.equal(torch.cat([begun, again.find(8)]), whole)


def test_a_floor_that_leaves_no_pair_is_refused():
    with pytest.raises(SettingsError, match="score too low"):
        Metattack(TASK.target, MetattackConfig(avoid_below=0.999), seed=0).find(500)
    with pytest.raises(SettingsError, match="lower avoid_below"):
        PRBCD(TASK.target, PRBCDConfig(avoid_below=0.999, **SHORT), seed=0).find(100)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"avoid_below": 1.0}, "avoid_below"),
        ({"avoid_score": "paths"}, "Got 'paths' alone: set avoid_below as well"),
        ({"avoid_below": 0.1, "avoid_score": "support+feature"}, "Did you mean 'features'"),
        ({"avoid_below": 0.1, "avoid_score": "suport"}, "Did you mean 'support'"),
        ({"train_weight": "meta-tain"}, "Did you mean 'meta-train'"),
    ],
)
def test_wrong_settings_are_refused(settings, told):
    with pytest.raises((SettingsError, UnknownNameError), match=told):
        Metattack.settle(settings, TASK.graph)


def test_the_objectives_have_names():
    for name, weight in {"meta-self": 0.0, "meta-both": 0.5, "meta-train": 1.0}.items():
        assert Metattack.settle({"train_weight": name}, TASK.graph).train_weight == weight
