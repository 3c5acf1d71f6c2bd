"""Diffused edge scores against a slow dense reference, and what they find."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from aspect.attacks import diffused
from aspect.attacks.adaptive import AdaptiveConfig
from aspect.attacks.base import apply_flips
from aspect.attacks.cosines import (
    COMPONENTS,
    LEAST,
    TOP,
    compressed,
    deviation_of_cosines,
    mean_cosine,
)
from aspect.attacks.diffused import diffuse
from aspect.attacks.file import PerturbationFile
from aspect.attacks.pruning import Pruning
from aspect.attacks.purification import edge_scores, prune_edges, purify
from aspect.data.graph import Graph, edge_keys
from aspect.data.source import load_named

PERTURBATIONS = Path(__file__).parents[2] / "results" / "perturbations"


def communities(nodes, seed=0, signal=3.0, groups=20):
    """Groups whose features and edges agree; few of them would not stand out from random pairs."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(nodes) % groups
    noise = torch.randn(nodes, groups, generator=generator, dtype=torch.float64)
    features = noise + signal * torch.eye(groups, dtype=torch.float64)[classes]
    pairs = torch.randint(nodes, (2, 3 * groups * nodes), generator=generator)
    return Graph.build(features, pairs[:, classes[pairs[0]] == classes[pairs[1]]]), classes


def attacked(graph, classes, flips, seed=1):
    """Edges between groups, all of them at a few nodes."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.stack(
        [
            torch.randint(10, (20 * flips,), generator=generator),
            torch.randint(len(classes), (20 * flips,), generator=generator),
        ],
        dim=1,
    )
    pairs = pairs[classes[pairs[:, 0]] != classes[pairs[:, 1]]].sort(dim=1).values
    return apply_flips(graph, torch.unique(pairs, dim=0)[:flips])


def by_hand(graph, features):
    """All rounds with dense matrices and loops over edges."""
    x = features.numpy() / np.linalg.norm(features.numpy(), axis=1, keepdims=True)
    nodes = len(x)
    edges = [divmod(key, nodes) for key in edge_keys(graph).tolist()]
    weights = dict.fromkeys(edges, 1.0)
    for _ in range(diffused.ROUNDS):
        adjacency = np.eye(nodes)
        for (a, b), weight in weights.items():
            adjacency[a, b] = adjacency[b, a] = weight
        degrees = adjacency.sum(1)
        smooth = adjacency / np.sqrt(np.outer(degrees, degrees))
        rows = x
        for _ in range(diffused.STEPS):
            rows = diffused.RESTART * x + (1 - diffused.RESTART) * smooth @ rows
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        mean = (unit @ unit.T)[~np.eye(nodes, dtype=bool)].mean()
        cosines = {}
        for a, b in edges:
            c = (1 - diffused.RESTART) * smooth[a, b]
            one, other = rows[a] - c * rows[b], rows[b] - c * rows[a]
            cosines[a, b] = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        top = sorted(cosines.values())[int(TOP * len(edges))]
        own = {edge: np.clip((cos - mean) / (top - mean), -0.5, 1) for edge, cos in cosines.items()}
        typical = np.mean(list(own.values()))
        scores = {}
        for edge in edges:
            means = []
            for end in edge:
                others = [own[other] for other in edges if end in other and other != edge]
                means.append(np.mean([*others, typical]))
            beside = diffused.OTHER_EDGES
            scores[edge] = (own[edge] + beside * np.mean(means)) / (1 + beside)
        weights = {edge: np.clip(score, LEAST, 1) ** 2 for edge, score in scores.items()}
    return torch.tensor([scores[edge] for edge in edges])


def test_scores_agree_with_a_dense_reference(monkeypatch):
    monkeypatch.setattr("aspect.attacks.cosines.PAIRS_AT_ONCE", 50)  # in pieces
    monkeypatch.setattr("aspect.attacks.purification.TELLING", -9.0)
    graph = attacked(*communities(60), 20)
    found = diffuse(graph, graph.features)
    keys = edge_keys(graph)
    scores = found.scores(keys // 60, keys % 60)
    torch.testing.assert_close(scores, by_hand(graph, graph.features))
    torch.testing.assert_close(edge_scores(graph, "diffusion"), scores)  # frequencies are all one


def test_mean_and_deviation_are_those_of_all_pairs():
    rows = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unit = rows / rows.norm(dim=1, keepdim=True)
    pairs = torch.combinations(torch.arange(40))
    cosines = (unit[pairs[:, 0]] * unit[pairs[:, 1]]).sum(1)
    expected = float(cosines.mean()), float(cosines.std(correction=0))
    found = mean_cosine(rows), deviation_of_cosines(rows)
    assert found == pytest.approx(expected)


def test_many_columns_are_compressed_with_about_the_same_cosines():
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(80, 20, generator=generator, dtype=torch.float64)
    wide = few @ torch.linalg.qr(torch.randn(400, 20, generator=generator, dtype=torch.float64)).Q.T
    rows = compressed(wide)
    assert rows.shape == (80, COMPONENTS)
    torch.testing.assert_close(rows @ rows.T, few @ few.T)


def test_sparse_features_score_as_dense_ones_do():
    generator = torch.Generator().manual_seed(0)
    graph, classes = communities(100)
    features = torch.rand(100, 300, generator=generator) * (
        torch.rand(100, 300, generator=generator) < 0.05
    )
    features += 2 * torch.eye(20, 300)[classes]
    sparse = Graph.build(features.double(), graph.edge_index)
    assert not isinstance(sparse.features, torch.Tensor)
    plain = Graph(features.double(), sparse.edge_index)
    found, expected = (edge_scores(each, "diffusion") for each in (sparse, plain))
    torch.testing.assert_close(found, expected)


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


def test_flips_between_groups_score_lowest():
    clean, classes = communities(200, signal=4.0)
    graph = attacked(clean, classes, 150)
    added = ~torch.isin(edge_keys(graph), edge_keys(clean))
    keys = edge_keys(graph)
    scores = diffuse(graph, graph.features).scores(keys // 200, keys % 200)
    assert float(added[torch.argsort(scores)[:150]].double().mean()) > 0.9


def test_a_pair_that_is_no_edge_is_scored_by_the_other_edges_of_its_ends():
    graph, classes = communities(80)
    floor = AdaptiveConfig(avoid_below=0.3, avoid_score="diffusion").floor(graph)
    keys = edge_keys(graph)
    scores = edge_scores(graph, "diffusion")
    torch.testing.assert_close(
        floor.allows(keys), scores >= scores.sort().values[int(0.3 * len(keys))]
    )
    low, high = torch.triu_indices(80, 80, offset=1)
    absent = ~torch.isin(low * 80 + high, keys)
    allowed = floor.allows((low * 80 + high)[absent])
    same = (classes[low] == classes[high])[absent]
    assert float(allowed[same].double().mean()) > float(allowed[~same].double().mean()) + 0.5


def test_a_graph_without_edges_or_features_is_no_trouble():
    empty = Graph.build(torch.ones(3, 2), torch.empty(2, 0, dtype=torch.long))
    assert len(edge_scores(empty)) == 0
    dark = Graph.build(torch.zeros(4, 2), torch.tensor([[0, 1], [1, 2]]))
    assert bool(edge_scores(dark).isfinite().all())


def test_weights_of_edges_have_no_part_in_the_score():
    graph, _ = communities(60)
    weights = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(0)).double()
    both = torch.empty(graph.edge_index.shape[1], dtype=torch.float64)
    low, high = graph.edge_index.min(0).values, graph.edge_index.max(0).values
    both = weights[torch.searchsorted(edge_keys(graph), low * 60 + high)]
    weighted = dataclasses.replace(graph, weights=both)
    torch.testing.assert_close(edge_scores(weighted), edge_scores(graph))
    left = prune_edges(weighted, 0.2)
    assert left.weights is not None
    assert torch.equal(left.edge_index, prune_edges(graph, 0.2).edge_index)
