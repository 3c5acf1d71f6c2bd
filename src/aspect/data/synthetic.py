"""Graphs drawn from a model: the mixed graph, in which one rule for all nodes cannot be right."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from aspect.data.graph import Graph, LabelledGraph
from aspect.errors import GraphError
from aspect.randomness import generator_for

HOMOPHILIC, HETEROPHILIC = 0, 1


def mixed_regions(num_nodes: int, share: float = 0.5) -> Tensor:
    """The region of every node: the first are homophilic, the last, a `share`, heterophilic."""
    if not 0 <= share <= 1:
        raise GraphError(f"The share of heterophilic nodes must lie in [0, 1]. Got {share}.")
    heterophilic = math.floor(num_nodes * share + 0.5)
    return (torch.arange(num_nodes) >= num_nodes - heterophilic).long()


def mixed_graph(  # noqa: PLR0913 - the model's parameters, each on its own
    num_nodes: int = 1000,
    *,
    degree: float = 12.0,
    purity: float = 0.75,
    bridges: float = 0.05,
    signal: float = 0.7,
    num_features: int = 32,
    num_classes: int = 2,
    share: float = 0.5,
    seed: int = 0,
) -> LabelledGraph:
    """A contextual block model of two halves, or of two regions with a `share` in the second.

    In the homophilic half a share `purity` of the edges joins nodes of one class, in the
    heterophilic half the same share joins different classes; a share `bridges` of all edges joins
    the halves, whatever the classes. Features are a class mean, `signal` long, plus standard noise:
    smoothing averages the noise away in the first half and the signal away in the second. Regions
    of unequal size have fewer bridges, as they have fewer pairs across; a single region has none.
    """
    if num_nodes < 4 * num_classes:
        raise GraphError(f"A mixed graph needs at least {4 * num_classes} nodes. Got {num_nodes}.")
    generator = generator_for(seed, "mixed graph")
    labels = torch.arange(num_nodes) % num_classes
    regions = mixed_regions(num_nodes, share)
    means = torch.randn(num_classes, num_features, generator=generator)
    means = means - means.mean(0)
    means = signal * means / means.norm(dim=1, keepdim=True)
    features = means[labels] + torch.randn(num_nodes, num_features, generator=generator)
    halves = [(regions == region).nonzero().squeeze(1) for region in (HOMOPHILIC, HETEROPHILIC)]
    across = bridges * 4 * share * (1 - share)  # as the pairs across; all of them for two halves
    inside = degree * (1 - across)
    drawn = [
        _draw_edges(labels, half, inside, purity if region == HOMOPHILIC else 1 - purity, generator)
        for region, half in enumerate(halves)
    ]
    drawn.append(_draw_bridges(halves, across * degree * num_nodes / 2, generator))
    edges = torch.cat(drawn, dim=1)
    return LabelledGraph(
        Graph.build(features, torch.cat([edges, edges.flip(0)], dim=1)),
        labels,
        tuple(str(name) for name in range(num_classes)),
    )


def embedded_graph() -> LabelledGraph:
    """The graph that comes with the package, `mixed`: the same at every call.

    With three classes and 70% of the edges between different ones, the heterophilic half tells
    hardly more of the classes by its edges than chance: two hops do not lead back to a node's
    class, as they do with two classes, and all smoothing loses it.
    """
    return mixed_graph(
        900, degree=12.0, purity=0.7, bridges=0.03, signal=1.0, num_features=16, num_classes=3
    )


def _draw_edges(
    labels: Tensor, nodes: Tensor, degree: float, share_same: float, generator: torch.Generator
) -> Tensor:
    """A pair is an edge with a probability that depends on whether the classes agree."""
    same = labels[nodes][:, None] == labels[nodes][None, :]
    pairs_same = (same.sum() - len(nodes)) / 2
    pairs_other = (~same).sum() / 2
    edges = degree * len(nodes) / 2
    probability = torch.where(
        same, edges * share_same / pairs_same, edges * (1 - share_same) / pairs_other
    )
    drawn = torch.rand(probability.shape, generator=generator) < probability
    return nodes[drawn.triu(1).nonzero().t()]


def _draw_bridges(halves: list[Tensor], edges: float, generator: torch.Generator) -> Tensor:
    """Every pair across the halves is an edge with the same probability."""
    first, second = halves
    chance = edges / max(1, len(first) * len(second))
    drawn = torch.rand(len(first), len(second), generator=generator) < chance
    source, target = drawn.nonzero(as_tuple=True)
    return torch.stack([first[source], second[target]])
