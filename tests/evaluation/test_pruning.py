"""Pruning: the least supported edges go, and validation chooses how many, split by split."""

from dataclasses import replace

import pytest
import torch

from aspect.attacks.purification import prune_edges
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import make_splits
from aspect.estimator import Embedder
from aspect.evaluation.linear_probe import linear_probe
from aspect.evaluation.pruning import (
    SplitPruning,
    best_by_validation,
    describe_pruning,
    probe_pruned,
)
from aspect.evaluation.result import ProbeResult

TINY = {"epochs": 2, "width": 8, "gate_width": 4, "order": 2}


@pytest.fixture
def probed():
    """Two readings of three splits, told apart by what they predict."""
    labels = torch.arange(60) % 2
    splits = make_splits("random", labels, 2, count=3)
    noise = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    return [linear_probe(noise + way * labels[:, None], labels, splits) for way in (0.2, 1.0)]


def with_validation(result: ProbeResult, *values):
    scores = zip(result.splits, values, strict=True)
    return replace(
        result, splits=tuple(replace(score, validation=value) for score, value in scores)
    )


def test_each_split_takes_the_reading_with_the_best_validation_and_the_first_of_equals(probed):
    first = with_validation(probed[0], 70.0, 60.0, 50.0)
    second = with_validation(probed[1], 65.0, 61.0, 50.0)
    joined, chosen = best_by_validation([first, second])
    assert chosen == (0, 1, 0)
    assert joined.splits == (first.splits[0], second.splits[1], first.splits[2])
    assert torch.equal(joined.predictions[1], second.predictions[1])
    assert torch.equal(joined.predictions[2], first.predictions[2])


def test_test_scores_have_no_say(probed):
    better = replace(probed[1], splits=tuple(replace(s, strict=100.0) for s in probed[1].splits))
    level = [with_validation(result, 70.0, 70.0, 70.0) for result in (probed[0], better)]
    assert best_by_validation(level)[1] == (0, 0, 0)


def test_one_training_is_read_once_for_each_share(small_graph):
    splits = make_splits("random", small_graph.labels, 2, count=2)
    model = Embedder("aspect", device="cpu", **TINY).fit(small_graph.graph)
    shares = (0.0, 0.2, 0.4)
    found = probe_pruned(model, small_graph.graph, small_graph, splits, shares)
    by_hand = [
        linear_probe(model.embed(prune_edges(small_graph.graph, share)), small_graph.labels, splits)
        for share in shares
    ]
    expected, places = best_by_validation(by_hand)
    assert found.result.splits == expected.splits
    assert [split.asked for split in found.splits] == [shares[place] for place in places]


@pytest.fixture
def stars():
    """Hubs whose leaves have one edge each, which they keep: little can be pruned."""
    leaves = torch.arange(2, 60)
    edges = torch.stack([leaves, leaves % 2])
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(60, 6, generator=generator)
    graph = Graph.build(features, torch.cat([edges, torch.tensor([[2, 4], [3, 5]])], dim=1))
    return LabelledGraph(graph, torch.arange(60) % 2, ("a", "b"))


def test_what_was_reached_and_the_score_stand_beside_what_was_asked(stars):
    splits = make_splits("random", stars.labels, 2, count=2)
    model = Embedder("aspect", device="cpu", **TINY).fit(stars.graph)
    found = probe_pruned(model, stars.graph, stars, splits, (0.9,))
    gone = stars.graph.num_edges - prune_edges(stars.graph, 0.9).num_edges
    assert found.splits == (SplitPruning(0.9, gone / stars.graph.num_edges),) * 2
    assert found.splits[0].reached < 0.1
    assert found.score == "tfidf-support+paths"  # random features do not explain edges


def test_the_sentence_says_what_was_asked_reached_and_used():
    splits = [SplitPruning(0.9, 0.477), SplitPruning(0.0, 0.0), SplitPruning(0.9, 0.477)]
    assert describe_pruning("for x", splits, "auto") == (
        "Pruned for x: no edge in 1 split, 47.7% of the edges in 2 splits (90% asked). Score: auto."
    )
    told = describe_pruning("for x", [SplitPruning(0.1, 0.05), SplitPruning(0.1, 0.1)], "support")
    assert "5.0% to 10.0% of the edges in 2 splits (10% asked)" in told
    assert told.endswith("Score: support, which is what auto means on this graph.")
