"""Edge scores against slow references; pruning in rounds, by weights and by a rule."""

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cosine_similarity

from aspect.attacks.adaptive import AdaptiveConfig
from aspect.attacks.base import apply_flips
from aspect.attacks.file import PerturbationFile
from aspect.attacks.paths import Paths
from aspect.attacks.pruning import SCORES, Pruning
from aspect.attacks.purification import (
    Profiles,
    auto_ratio,
    compare,
    edge_scores,
    edge_support,
    features_tell,
    prune_edges,
    purify,
    scored_parts,
    used_score,
    weigh_edges,
)
from aspect.data.graph import Graph, edge_keys
from aspect.data.source import load_named
from aspect.errors import SettingsError, UnknownNameError

PERTURBATIONS = Path(__file__).parents[2] / "results" / "perturbations"
GROUPS = 20


def random_ratio(graph, score="auto"):
    return auto_ratio(scored_parts(graph, score))


@pytest.fixture
def graph():
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(30, 7, generator=generator, dtype=torch.float64) - 0.3
    return Graph.build(features, torch.randint(30, (2, 90), generator=generator))


def by_hand(graph, weights=None):
    """Edge by edge, with the neighbours listed; weights by pairs."""
    unit = graph.features / graph.features.norm(dim=1, keepdim=True)
    neighbours = [set() for _ in range(graph.num_nodes)]
    for a, b in graph.edge_index.t().tolist():
        neighbours[a].add(b)

    def around(node, left_out):
        found = unit[node]
        for k in neighbours[node] - {left_out}:
            weight = 1 if weights is None else weights[min(node, k), max(node, k)]
            found = found + weight * unit[k]
        return found

    pairs = [divmod(key, graph.num_nodes) for key in edge_keys(graph).tolist()]
    return torch.stack(
        [torch.cosine_similarity(around(a, b), around(b, a), dim=0) for a, b in pairs]
    )


def refined_by_hand(graph):
    """Neighbours weigh by the cube of what their edge scored between a random pair and the top."""
    unit = graph.features / graph.features.norm(dim=1, keepdim=True)
    whole = torch.eye(graph.num_nodes, dtype=unit.dtype)
    whole[graph.edge_index[0], graph.edge_index[1]] = 1
    sums = whole @ unit
    pairs = torch.combinations(torch.arange(graph.num_nodes))
    random = torch.cosine_similarity(sums[pairs[:, 0]], sums[pairs[:, 1]], dim=1).mean()
    first = by_hand(graph)
    top = sorted(first.tolist())[int(0.9 * len(first))]
    weights = {
        divmod(key, graph.num_nodes): min(1, max(0.01, (score - random) / (top - random))) ** 3
        for key, score in zip(edge_keys(graph).tolist(), first.tolist(), strict=True)
    }
    return by_hand(graph, weights)


def test_support_is_the_cosine_of_neighbourhoods_without_the_edge(graph, monkeypatch):
    monkeypatch.setattr("aspect.attacks.purification.NUMBERS_AT_ONCE", 30)  # in pieces
    torch.testing.assert_close(edge_support(graph), by_hand(graph))
    scaled = Graph.build(graph.features * torch.arange(1, 31).unsqueeze(1), graph.edge_index)
    torch.testing.assert_close(edge_support(scaled), edge_support(graph))
    features = graph.features * (graph.features > 0.5)  # few entries: kept in compressed rows
    sparse = Graph.build(features, graph.edge_index)
    assert not isinstance(sparse.features, torch.Tensor)
    plain = Graph(features, sparse.edge_index)
    torch.testing.assert_close(edge_support(sparse), edge_support(plain))


def test_an_edge_between_groups_has_the_least_support_and_goes_first():
    features = torch.eye(2).repeat_interleave(4, dim=0)
    pairs = [(a, b) for first in (0, 4) for a in range(first, first + 4) for b in range(a)]
    inside = torch.tensor([pair for pair in pairs if pair[1] >= (0 if pair[0] < 4 else 4)]).t()
    whole = Graph.build(features, torch.cat([inside, torch.tensor([[0], [7]])], dim=1))
    for scores in (edge_support(whole), edge_scores(whole)):
        assert int(scores.argmin()) == int((edge_keys(whole) == 7).nonzero())
    left = prune_edges(whole, 1 / whole.num_edges)
    assert torch.equal(left.edge_index, Graph.build(features, inside).edge_index)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.97])
def test_the_share_is_met_and_the_rest_keeps_its_order(graph, share):
    left = prune_edges(graph, share)
    scores = edge_scores(graph)
    assert torch.equal(left.edge_index, prune_edges(graph, share, scores).edge_index)
    assert torch.equal(left.edge_index, Graph.build(graph.features, left.edge_index).edge_index)
    kept = torch.isin(edge_keys(graph), edge_keys(left))
    low, high = edge_keys(graph) // graph.num_nodes, edge_keys(graph) % graph.num_nodes
    is_few = torch.zeros_like(kept)
    for node in (graph.degrees() <= 2).nonzero().flatten().tolist():
        at_node = ((low == node) | (high == node)).nonzero().flatten()
        if len(at_node):
            is_few[at_node[scores[at_node].argmax()]] = True
    lowest = torch.argsort(scores)[: round(share * graph.num_edges)]
    expected = torch.ones_like(kept)
    expected[lowest] = False
    assert torch.equal(kept, expected | is_few)


def test_edges_that_are_level_stay_together(graph):
    alike = Graph.build(torch.ones(30, 2), graph.edge_index)
    for name in ("tfidf-support", "refined-support"):
        left = prune_edges(alike, 0.3, edge_scores(alike, name))
        assert torch.equal(left.edge_index, graph.edge_index)


def test_the_order_of_nodes_decides_nothing(graph):
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    place = torch.argsort(order)
    other = Graph.build(graph.features[order], place[graph.edge_index])
    left, expected = prune_edges(other, 0.2), prune_edges(graph, 0.2)
    pairs = {frozenset(order[pair].tolist()) for pair in left.edge_index.t()}
    assert pairs == {frozenset(pair.tolist()) for pair in expected.edge_index.t()}


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_what_is_no_share_is_refused(graph, share):
    with pytest.raises(SettingsError, match="at least 0 and below 1"):
        prune_edges(graph, share)


def test_a_graph_without_edges_or_features_is_no_trouble():
    empty = Graph.build(torch.ones(3, 2), torch.empty(2, 0, dtype=torch.long))
    assert len(edge_support(empty)) == 0
    assert prune_edges(empty, 0.5).num_edges == 0
    dark = Graph.build(torch.zeros(3, 2), torch.tensor([[0, 1], [1, 2]]))
    assert torch.equal(edge_support(dark), torch.zeros(2))
    for score in SCORES:
        assert len(edge_scores(empty, score)) == 0
        assert bool(edge_scores(dark, score).isfinite().all())


# Other scores


def relabelled(graph, seed=1):
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    place = torch.argsort(order)
    return Graph.build(graph.features[order], place[graph.edge_index]), order


def dense_rows(graph, score):
    """The rows of a score, from dense matrices; none for a neighbourhood."""
    x = graph.features.clone()
    if score.startswith(("tfidf", "refined")):
        for column in range(x.shape[1]):
            have = sum(1 for value in x[:, column].tolist() if value != 0)
            x[:, column] *= math.log((1 + len(x)) / (1 + have)) + 1
    if score == "embedding":
        whole = torch.eye(len(x), dtype=x.dtype)
        whole[graph.edge_index[0], graph.edge_index[1]] = 1
        root = whole.sum(1).rsqrt().diag()
        return root @ whole @ root @ root @ whole @ root @ x
    return x


@pytest.mark.parametrize(
    "score", ["features", "tfidf", "embedding", "tfidf-support", "refined-support"]
)
def test_scores_agree_with_dense_references(score):
    generator = torch.Generator().manual_seed(3)
    features = torch.rand(30, 7, generator=generator, dtype=torch.float64)
    features *= features > 0.4
    graph = Graph.build(features, torch.randint(30, (2, 90), generator=generator))
    graph = Graph(features, graph.edge_index)
    rows = dense_rows(graph, score)
    if score == "tfidf-support":
        expected = by_hand(Graph(rows, graph.edge_index))
    elif score == "refined-support":
        expected = refined_by_hand(Graph(rows, graph.edge_index))
    else:
        keys = edge_keys(graph)
        expected = cosine_similarity(rows[keys // 30], rows[keys % 30], dim=1)
    torch.testing.assert_close(edge_scores(graph, score), expected)


def test_every_named_score_can_be_computed(graph):
    for name in SCORES:
        assert edge_scores(graph, name).shape == (graph.num_edges,)
    with pytest.raises(UnknownNameError, match="edge score 'suport'"):
        edge_scores(graph, "suport")


def test_ranks_of_several_scores_are_added_and_level_edges_share_a_rank(graph):
    both = edge_scores(graph, "support+features")
    ranks = [
        torch.tensor([float((scores < s - 1e-9).sum()) for s in scores], dtype=torch.float64)
        for scores in (edge_scores(graph, "support"), edge_scores(graph, "features"))
    ]
    assert torch.equal(both, ranks[0] + ranks[1])
    alike = Graph.build(torch.ones(30, 2), graph.edge_index)
    assert torch.equal(
        edge_scores(alike, "support+features"), torch.zeros(graph.num_edges).double()
    )


def test_an_embedding_can_be_given_in_place_of_propagated_features(graph):
    found = edge_scores(graph, "embedding", lambda graph: graph.features)
    torch.testing.assert_close(found, edge_scores(graph, "features"))


def test_a_pair_has_the_score_that_its_edge_would_have(graph):
    profiles = compare(graph, "support")[0]
    ends = edge_keys(graph) // 30, edge_keys(graph) % 30
    torch.testing.assert_close(profiles.scores(*ends), edge_support(graph))
    keys = edge_keys(graph)
    a, b = next((a, b) for a in range(30) for b in range(a + 1, 30) if a * 30 + b not in keys)
    joined = apply_flips(graph, torch.tensor([[a, b]]))
    expected = edge_support(joined)[edge_keys(joined) == a * 30 + b]
    ends = torch.tensor([a]), torch.tensor([b])
    found = profiles.scores(*ends)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("score", [*SCORES, "support+paths"])
def test_scores_of_some_nodes_with_all_are_those_of_the_pairs(graph, score):
    profiles, nodes = compare(graph, score)[0], torch.tensor([3, 17, 0, 29])
    low, high = torch.triu_indices(30, 30, offset=1)
    expected = torch.zeros(30, 30, dtype=torch.float64)
    expected[low, high] = expected[high, low] = profiles.scores(low, high).double()
    absent = torch.ones(30, 30, dtype=torch.bool).fill_diagonal_(False)
    absent[graph.edge_index[0], graph.edge_index[1]] = False
    found = profiles.block(nodes).double()
    torch.testing.assert_close(found[absent[nodes]], expected[nodes][absent[nodes]])


def test_the_mean_is_that_of_all_pairs(graph):
    rows = graph.features
    pairs = torch.combinations(torch.arange(30))
    expected = cosine_similarity(rows[pairs[:, 0]], rows[pairs[:, 1]], dim=1).mean()
    assert Profiles(rows).mean() == pytest.approx(float(expected), rel=1e-12)


# Rounds, weights and the rule

HOW = [
    {"ratio": 0.2},
    {"ratio": 0.3, "rounds": 4},
    {"ratio": 0.3, "score": "support+embedding", "rounds": 3},
    {"ratio": "auto", "score": "tfidf-support"},
    {"ratio": 0.2, "score": "support+paths"},
    {"ratio": 0.3, "score": "auto", "rounds": 2},
]


@pytest.mark.parametrize("how", HOW)
def test_pruning_is_deterministic_and_never_exceeds_the_ratio(graph, how):
    pruning = Pruning.of(how)
    left = purify(graph, pruning)
    assert torch.equal(left.edge_index, purify(graph, pruning).edge_index)
    ratio = how["ratio"] if how["ratio"] != "auto" else random_ratio(graph, how["score"])
    assert graph.num_edges - left.num_edges <= round(ratio * graph.num_edges)
    if how["ratio"] != "auto":
        assert left.num_edges < graph.num_edges
    assert bool(torch.isin(edge_keys(left), edge_keys(graph)).all())


@pytest.mark.parametrize("how", HOW)
def test_relabelled_nodes_lose_the_same_edges(graph, how):
    other, order = relabelled(graph)
    left, expected = (purify(each, Pruning.of(how)) for each in (other, graph))
    pairs = {frozenset(order[pair].tolist()) for pair in left.edge_index.t()}
    assert pairs == {frozenset(pair.tolist()) for pair in expected.edge_index.t()}


@pytest.mark.parametrize("score", ["tfidf", "paths", "support+paths"])
@pytest.mark.parametrize("soft", [False, True])
def test_the_edges_are_scored_once_for_the_ratio_and_for_the_pruning(
    graph, monkeypatch, score, soft
):
    scored = []
    for kind in (Profiles, Paths):

        def counted(self, low, high, real=kind.scores):
            scored.append(type(self))
            return real(self, low, high)

        monkeypatch.setattr(kind, "scores", counted)
    purify(graph, Pruning(ratio="auto", score=score, soft=soft))
    assert len(scored) == len(score.split("+"))


def test_rounds_score_what_the_last_one_left(graph):
    in_rounds = purify(graph, Pruning(ratio=0.4, rounds=2))
    count = round(0.4 * graph.num_edges)
    once = prune_edges(graph, (count // 2) / graph.num_edges)
    left = count - (graph.num_edges - once.num_edges)  # an edge that stayed leaves room
    expected = prune_edges(once, left / once.num_edges)
    assert torch.equal(in_rounds.edge_index, expected.edge_index)


def test_soft_weights_rise_with_the_score_and_reach_one_where_pruning_stops(graph):
    soft, hard = (purify(graph, Pruning(ratio=0.3, soft=flag)) for flag in (True, False))
    assert torch.equal(soft.edge_index, graph.edge_index)
    assert soft.weights is not None
    back = soft.edge_index.flip(0)
    order = torch.argsort(back[0] * 30 + back[1])
    assert torch.equal(soft.weights, soft.weights[order])  # the same both ways
    weights = soft.weights[graph.edge_index[0] < graph.edge_index[1]]
    kept = torch.isin(edge_keys(graph), edge_keys(hard))
    assert bool(kept[weights == 1].all())
    assert int((weights < 1).sum()) == round(0.3 * graph.num_edges)
    assert float(weights.min()) == pytest.approx(0.01)
    scores = edge_scores(graph)
    by_score = weights[torch.argsort(scores)]
    assert bool((by_score.diff() >= 0).all())
    twice = weigh_edges(soft, round(0.3 * graph.num_edges), scores)
    torch.testing.assert_close(twice.weights, soft.weights.square())


def test_the_rule_finds_about_the_edges_that_were_drawn_at_random():
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(200) % 4
    noise = torch.randn(200, 8, generator=generator, dtype=torch.float64)
    features = noise + 3 * torch.eye(4, 8, dtype=torch.float64)[classes]
    pairs = torch.randint(200, (2, 4000), generator=generator)
    clean = Graph.build(features, pairs[:, classes[pairs[0]] == classes[pairs[1]]])
    count = clean.num_edges // 5
    poisoned = Graph.build(
        features,
        torch.cat(
            [clean.edge_index, pairs[:, classes[pairs[0]] != classes[pairs[1]]][:, :count]], 1
        ),
    )
    added = ~torch.isin(edge_keys(poisoned), edge_keys(clean))
    left = purify(poisoned, Pruning(ratio="auto"))
    kept = torch.isin(edge_keys(poisoned), edge_keys(left))
    assert purify(clean, Pruning(ratio="auto")).num_edges > 0.95 * clean.num_edges
    assert float((~kept)[added].double().mean()) > 0.8


def test_the_rule_prunes_nothing_where_edges_are_no_better_than_chance():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(200, 8, generator=generator, dtype=torch.float64)
    graph = Graph.build(features, torch.randint(200, (2, 600), generator=generator))
    assert random_ratio(graph) == 0.0
    assert purify(graph, Pruning(ratio="auto")).num_edges == graph.num_edges


def groups(signal=4.0, nodes=200):
    """Features and edges of groups; few of them would not stand out from random pairs."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(nodes) % GROUPS
    noise = torch.randn(nodes, GROUPS, generator=generator, dtype=torch.float64)
    pairs = torch.randint(nodes, (2, 3 * GROUPS * nodes), generator=generator)
    features = noise + signal * torch.eye(GROUPS, dtype=torch.float64)[classes]
    return Graph.build(features, pairs[:, classes[pairs[0]] == classes[pairs[1]]])


def crowded(graph, flips):
    """The graph with edges between groups, all of them at a few nodes."""
    generator = torch.Generator().manual_seed(1)
    pairs = torch.stack(
        [torch.randint(most, (20 * flips,), generator=generator) for most in (10, graph.num_nodes)],
        dim=1,
    )
    pairs = pairs[pairs[:, 0] % GROUPS != pairs[:, 1] % GROUPS].sort(dim=1).values
    return apply_flips(graph, torch.unique(pairs, dim=0)[:flips])


def test_flips_between_groups_score_lowest_though_they_crowd():
    clean = groups()
    graph = crowded(clean, 150)
    added = ~torch.isin(edge_keys(graph), edge_keys(clean))

    def found(score):
        return float(added[torch.argsort(edge_scores(graph, score))[:150]].double().mean())

    assert found("refined-support") > 0.9
    assert found("refined-support") >= found("support")


def test_a_pair_that_is_no_edge_is_scored_by_the_neighbours_of_its_ends():
    graph = groups()
    floor = AdaptiveConfig(avoid_below=0.1, avoid_score="refined-support").floor(graph)
    low, high = torch.triu_indices(200, 200, offset=1)
    absent = ~torch.isin(low * 200 + high, edge_keys(graph))
    allowed = floor.allows((low * 200 + high)[absent])
    same = (low % GROUPS == high % GROUPS)[absent]
    assert float(allowed[same].double().mean()) > 0.7
    assert float(allowed[~same].double().mean()) < 0.1


def test_sparse_features_score_as_dense_ones_do():
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(100, 300, generator=generator) * (
        torch.rand(100, 300, generator=generator) < 0.05
    )
    features += 2 * torch.eye(GROUPS, 300)[torch.arange(100) % GROUPS]
    sparse = Graph.build(features.double(), groups(nodes=100).edge_index)
    assert not isinstance(sparse.features, torch.Tensor)
    plain = Graph(features.double(), sparse.edge_index)
    found, expected = (edge_scores(each, "refined-support") for each in (sparse, plain))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("unit", [1e-9, 1e-4, 1e12])
@pytest.mark.parametrize("score", ["features", "tfidf", "embedding", "support"])
def test_the_unit_of_the_features_does_not_matter(graph, score, unit):
    scaled = Graph.build(graph.features.float() * unit, graph.edge_index)
    assert features_tell(scaled) == features_tell(graph)
    found, expected = edge_scores(scaled, score), edge_scores(graph, score).float()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_weights_of_edges_have_no_part_in_the_score():
    graph = groups(nodes=60)
    weights = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(0)).double()
    low, high = graph.edge_index.min(0).values, graph.edge_index.max(0).values
    both = weights[torch.searchsorted(edge_keys(graph), low * 60 + high)]
    weighted = dataclasses.replace(graph, weights=both)
    torch.testing.assert_close(edge_scores(weighted), edge_scores(graph))
    left = prune_edges(weighted, 0.2)
    assert left.weights is not None
    assert torch.equal(left.edge_index, prune_edges(graph, 0.2).edge_index)


def test_rounds_keep_the_score_that_the_whole_graph_chose(monkeypatch):
    graph, asked = groups(), []

    def tell(each):
        asked.append(each.num_edges)
        return len(asked) == 1

    monkeypatch.setattr("aspect.attacks.purification.features_tell", tell)
    left = purify(graph, Pruning(ratio=0.3, rounds=3))
    assert asked == [graph.num_edges]
    expected = purify(graph, Pruning(ratio=0.3, rounds=3, score="refined-support"))
    assert torch.equal(left.edge_index, expected.edge_index)


def test_the_score_by_default_asks_whether_features_tell(monkeypatch):
    telling = groups()
    assert features_tell(telling)
    assert used_score(telling) == "refined-support"
    torch.testing.assert_close(edge_scores(telling), edge_scores(telling, "refined-support"))
    generator = torch.Generator().manual_seed(0)
    silent = Graph.build(torch.rand(200, 6, generator=generator).double(), telling.edge_index)
    assert not features_tell(silent)
    assert used_score(silent) == "tfidf-support+paths"
    torch.testing.assert_close(edge_scores(silent), edge_scores(silent, "tfidf-support+paths"))
    assert used_score(silent, "features+auto") == "features+tfidf-support+paths"
    monkeypatch.setattr("aspect.attacks.purification.features_tell", lambda _: 1 / 0)
    assert used_score(silent, "support+tfidf") == "support+tfidf"  # nothing has to be asked


def test_a_clean_graph_keeps_its_edges_however_random_they_look_once_refined(monkeypatch):
    graph = groups(signal=1.5)
    for limit in ("FEWEST_RANDOM", "FEWEST_OF_EACH"):
        monkeypatch.setattr(f"aspect.attacks.purification.{limit}", 0.0)
    plain = random_ratio(graph, "tfidf-support")
    assert 0 < plain < random_ratio(graph, "refined-support")
    monkeypatch.setattr("aspect.attacks.purification.FEWEST_RANDOM", plain)
    assert random_ratio(graph, "refined-support") == 0.0


def test_nothing_is_pruned_where_two_scores_contradict_each_other():
    """A grid: ends of an edge have paths of three edges in common, and hardly any features."""
    width, generator = 20, torch.Generator().manual_seed(0)
    nodes = torch.arange(width * width).view(width, width)
    pairs = [(nodes[:, :-1], nodes[:, 1:]), (nodes[:-1], nodes[1:])]
    edges = torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], dim=1)
    quarters = (2 * (nodes // width // 10) + nodes % width // 10).flatten()
    noise = torch.randint(4, quarters.shape, generator=generator)
    is_told = torch.rand(len(noise), generator=generator) < 0.5
    features = torch.eye(4, dtype=torch.float64)[torch.where(is_told, quarters, noise)]
    grid = Graph.build(features, edges)
    assert used_score(grid) == "tfidf-support+paths"
    assert random_ratio(grid, "paths") == 0.0
    assert 0.2 < random_ratio(grid, "tfidf-support") <= 0.5
    assert random_ratio(grid) == 0.0


def test_many_features_are_compressed(monkeypatch):
    graph = groups()
    expected = edge_scores(graph, "refined-support")
    monkeypatch.setattr("aspect.attacks.purification.MOST_NUMBERS", graph.features.numel() - 1)
    monkeypatch.setattr("aspect.attacks.cosines.COMPONENTS", 18)
    found = edge_scores(graph, "refined-support")
    assert not torch.equal(found, expected)
    assert float(torch.corrcoef(torch.stack([found, expected]))[0, 1]) > 0.9


@pytest.mark.data
@pytest.mark.parametrize(("name", "found", "lost"), [("cora", 0.7, 0.2), ("citeseer", 0.7, 0.2)])
def test_the_rule_prunes_flips_and_leaves_clean_graphs_alone(name, found, lost):
    labelled = load_named(name)
    assert purify(labelled.graph, Pruning(ratio="auto")) is labelled.graph
    path = PERTURBATIONS / f"{name}-metattack-unrolled-class-balanced-0.safetensors"
    poisoned = PerturbationFile.read(path).apply(labelled, 0.1, features=False)
    left = purify(poisoned, Pruning(ratio="auto"))
    keys = edge_keys(poisoned)
    added, gone = ~torch.isin(keys, edge_keys(labelled.graph)), ~torch.isin(keys, edge_keys(left))
    assert float(gone[added].double().mean()) > found
    assert float(gone[~added].double().mean()) < lost


@pytest.mark.data
def test_features_tell_on_citations_and_not_on_pages():
    """Far from the limit on either side."""
    told = {name: used_score(load_named(name).graph) for name in ("cora", "citeseer", "chameleon")}
    assert told.pop("chameleon") == "tfidf-support+paths"
    assert set(told.values()) == {"refined-support"}


@pytest.mark.data
@pytest.mark.parametrize("name", ["minesweeper", "texas", "chameleon_filtered", "actor"])
def test_nothing_is_pruned_of_clean_graphs_without_homophily(name):
    graph = load_named(name).graph
    assert purify(graph, Pruning(ratio="auto")) is graph


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (1.5, "above 0 and below 1, or auto. Got 1.5"),
        ("some", "above 0 and below 1, or auto. Got 'some'"),
        (float("nan"), "above 0 and below 1"),
        (True, "above 0 and below 1"),
        ({"ratio": 0.1, "score": "jaccard"}, "edge score 'jaccard'"),
        ({"ratio": 0.1, "rounds": 2, "soft": True}, "in one round"),
        ({"ratio": 0.1, "round": 2}, "Unknown setting 'round' of edge pruning"),
    ],
)
def test_a_wrong_pruning_is_refused(given, told):
    with pytest.raises((SettingsError, UnknownNameError), match=told):
        Pruning.of(given)


def test_nothing_and_zero_are_no_pruning():
    assert Pruning.of(None) is None
    assert Pruning.of(0) is None
    assert Pruning.of(0.0) is None


def test_what_is_stored_names_the_score():
    assert Pruning.of(0.2).to_json()["score"] == "auto"
    assert Pruning.of(Pruning.of("auto").to_json()) == Pruning.of("auto")
