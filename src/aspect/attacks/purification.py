"""Edge pruning: edges that fit their ends least go, or weigh less; no label is read.

Edges that mislead a classifier join nodes that have little in common. GCN-Jaccard (Wu et al.,
IJCAI 2019) leaves out edges by the likeness of their ends' features, GNNGuard (Zhang and Zitnik,
NeurIPS 2020) weighs them by that of hidden layers, STABLE (Li et al., KDD 2022) prunes by
embeddings of a contrastive first pass, and Pro-GNN (Jin et al., KDD 2020) learns the adjacency
together with a classifier. An attack that knows the score can avoid it.

A score says how close two nodes are: a cosine of two rows, one for each, or a number of paths. It
can be had for pairs that are no edge as well: all pairs together say how close two nodes are that
nothing joins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from aspect.attacks.diffused import Diffused, cosines_of_all_pairs, cosines_of_pairs, diffuse
from aspect.attacks.paths import Paths
from aspect.attacks.pruning import AUTO, DEFAULT, Pruning, check_score
from aspect.data.features import dense
from aspect.data.graph import Features, Graph, edge_keys, with_pairs
from aspect.data.sparse import SparseMatrix
from aspect.errors import SettingsError
from aspect.nn.propagation import SymmetricPropagation

LEVEL = 64  # roundings apart: two cosines that may be the same
EMBEDDING_HOPS = 2
FALLBACK = "tfidf-support"  # the score where `diffusion` tells nothing
# What `combined` stands for where features tell, and where they do not.
COMBINED = {True: "tfidf-support+diffusion", False: "tfidf-support+paths"}
FEW = 2  # edges of a node that keeps the best of them
FEWEST_RANDOM = 0.1  # estimated ratio of random edges that clean graphs have, too
MOST_RANDOM = 0.5  # beyond which a score says nothing
LEAST_WEIGHT = 0.01  # of an edge with the lowest score, where weights are soft

Embed = Callable[[Graph], Float[Tensor, "nodes dim"]]


@dataclass(frozen=True, eq=False)
class Profiles:
    """What a score compares: a row for every node."""

    rows: Float[Tensor, "nodes dim"]
    own: Float[Tensor, "nodes dim"] | None = None  # a node's part in the rows of its neighbours

    def closeness(
        self,
        low: Int[Tensor, " pairs"],
        high: Int[Tensor, " pairs"],
        joined: Bool[Tensor, " pairs"] | None = None,
    ) -> Float[Tensor, " pairs"]:
        """The cosine of every pair; the edge that joins it has no part in it.

        Without `joined` all pairs are edges.
        """

        def ends(part: Tensor) -> tuple[Tensor, Tensor]:
            one, other = self.rows[low[part]], self.rows[high[part]]
            if self.own is None:
                return one, other
            mine, theirs = self.own[low[part]], self.own[high[part]]
            if joined is not None:
                mine, theirs = (own * joined[part].unsqueeze(1) for own in (mine, theirs))
            return one - theirs, other - mine

        return cosines_of_pairs(len(low), ends, low.device)

    scores = closeness

    def mean(self) -> float:
        """The mean cosine of all pairs of nodes, their edges included."""
        return cosines_of_all_pairs(self.rows)[0]


Single = Profiles | Diffused | Paths


@dataclass(frozen=True, eq=False)
class Ranked:
    """Several scores: of each, how many of the graph's edges score less than a pair, added."""

    parts: list[Single]
    of_edges: list[Float[Tensor, " edges"]]  # their scores of the graph's edges

    def scores(
        self,
        low: Int[Tensor, " pairs"],
        high: Int[Tensor, " pairs"],
        joined: Bool[Tensor, " pairs"] | None = None,
    ) -> Float[Tensor, " pairs"]:
        """Ranks added up; pairs that are level have the same. Without `joined` all are edges."""
        return _sum_of_ranks([part.scores(low, high, joined) for part in self.parts], self.of_edges)


def _sum_of_ranks(scores: Sequence[Tensor], of_edges: Sequence[Tensor]) -> Tensor:
    """Of each score how many edges have less; those that are level have the same rank."""
    ranks = [
        torch.searchsorted(edges.sort().values, pairs - _rounding(pairs))
        for pairs, edges in zip(scores, of_edges, strict=True)
    ]
    return torch.stack(ranks).double().sum(0)


Compared = Single | Ranked

# The scores: `aspect.attacks.pruning` names them


def _weighted(features: Features) -> Features:
    """Columns by their smooth inverse document frequencies: one for a feature of every node."""
    if isinstance(features, SparseMatrix):
        columns = features.pattern.columns.long()
        count = torch.bincount(columns, features.values != 0, minlength=features.shape[1])
        factors = _inverse_frequencies(count, features.shape[0]).to(features.dtype)
        return features.with_values(features.values * factors[columns])
    return features * _inverse_frequencies((features != 0).sum(0), len(features)).to(features)


def _inverse_frequencies(count: Tensor, nodes: int) -> Tensor:
    return torch.log((1 + nodes) / (1 + count)) + 1


def _neighbourhoods(graph: Graph, rows: Float[Tensor, "nodes dim"]) -> Profiles:
    """Sums of the unit rows of a node and its neighbours."""
    unit = normalize(rows, dim=1)
    source, target = graph.edge_index
    ones = torch.ones(len(source), dtype=graph.dtype, device=graph.device)
    sums = unit + SparseMatrix.from_entries(source, target, ones, (len(unit), len(unit))) @ unit
    return Profiles(sums, unit)


def _propagated(graph: Graph) -> Float[Tensor, "nodes dim"]:
    smooth, rows = SymmetricPropagation(graph.unweighted()).smoothing(), dense(graph.features)
    for _ in range(EMBEDDING_HOPS):
        rows = smooth(rows)
    return rows


def profiles_of(graph: Graph, score: str, embed: Embed | None = None) -> Compared:
    """What a score compares: pairs of nodes, whether edges join them or not."""
    parts = _parts(graph, score, embed)
    if len(parts) == 1:
        return parts[0]
    return Ranked(parts, [part.scores(*_ends(graph)) for part in parts])


def _parts(graph: Graph, score: str, embed: Embed | None) -> list[Single]:
    return [_single(graph, name, embed) for name in used_score(graph, score).split("+")]


def _ends(graph: Graph) -> tuple[Int[Tensor, " edges"], Int[Tensor, " edges"]]:
    """The smaller and the larger node of every edge, in the order of its key."""
    keys = edge_keys(graph)
    return keys // graph.num_nodes, keys % graph.num_nodes


def _single(graph: Graph, name: str, embed: Embed | None) -> Single:
    if name == "paths":
        return Paths.of(graph)
    if name == "embedding":
        return Profiles((embed or _propagated)(graph))
    if name == "diffusion":
        return diffuse(graph, _weighted(graph.features))
    is_weighted = name.startswith("tfidf")
    rows = dense(_weighted(graph.features) if is_weighted else graph.features)
    return _neighbourhoods(graph, rows) if name.endswith("support") else Profiles(rows)


def edge_scores(
    graph: Graph, score: str = DEFAULT, embed: Embed | None = None
) -> Float[Tensor, " edges"]:
    """The score of every edge in the order of its key; ranks of several, joined by +, are added.

    Takes O(edges * features) time and O(nodes * features) memory; `paths` takes time that grows
    with the sum of the squared degrees.

    Args:
        graph: Its weights have no part in it.
        score: A name, or several joined by `+`; `aspect.attacks.pruning.SCORES` lists them, and
            `used_score` says what two of them stand for on this graph.
        embed: What the score `embedding` compares; by default features after two propagation steps.
    """
    found = [part.scores(*_ends(graph)) for part in _parts(graph, score, embed)]
    return found[0] if len(found) == 1 else _sum_of_ranks(found, found)


def used_score(graph: Graph, score: str = DEFAULT) -> str:
    """The score that `edge_scores` uses on this graph, by name: some ask whether features tell."""

    def used(name: str) -> str:
        if name not in ("diffusion", "combined"):
            return name
        is_telling = diffuse(graph, _weighted(graph.features), 1).is_telling
        if name == "combined":
            return COMBINED[is_telling]
        return name if is_telling else FALLBACK

    return "+".join(map(used, check_score(score).split("+")))


def edge_support(graph: Graph) -> Float[Tensor, " edges"]:
    """The cosine between the two ends' neighbourhoods, for every edge in the order of its key.

    A neighbourhood is the sum of the features, at unit length, of a node and its neighbours without
    the other end of the edge.
    """
    return edge_scores(graph, "support")


def _rounding(scores: Tensor) -> float:
    return LEVEL * torch.finfo(scores.dtype).eps


def auto_ratio(graph: Graph, score: str = DEFAULT, embed: Embed | None = None) -> float:
    """The ratio of edges that join their ends no better than chance; the mean of several scores'.

    The mean score of all pairs of nodes parts random pairs about in the middle, so that twice the
    ratio of edges below it estimates how many are random (Storey, 2002, on null hypotheses). At
    most a tenth are found on clean graphs too, where they are worth keeping; if it is more than
    half the score does not tell edges from random pairs. In both cases nothing is pruned.
    """
    if graph.num_edges == 0:
        return 0.0
    ends = _ends(graph)

    def estimate(name: str) -> float:
        profiles = _single(graph, name, embed)
        scores = profiles.closeness(*ends)
        below = 2 * float((scores < profiles.mean() - _rounding(scores)).double().mean())
        # Rounds bring out flips that crowd; those that do not, neighbourhoods may show better.
        return max(below, estimate(FALLBACK)) if name == "diffusion" else below

    ratios = [estimate(name) for name in used_score(graph, score).split("+")]
    ratio = sum(ratios) / len(ratios)
    return ratio if FEWEST_RANDOM < ratio <= MOST_RANDOM else 0.0


# Pruning


def purify(graph: Graph, pruning: Pruning, embed: Embed | None = None) -> Graph:
    """The graph as a pruning leaves it; never more edges go than its ratio allows.

    In several rounds each prunes its part of the edges, by scores of what the last one left.
    """
    ratio = pruning.ratio
    if ratio == AUTO:
        ratio = auto_ratio(graph, pruning.score, embed)
    assert not isinstance(ratio, str)  # the only word is auto
    count, pruned = round(ratio * graph.num_edges), graph
    if pruning.soft:
        return weigh_edges(graph, count, edge_scores(graph, pruning.score, embed))
    for number in range(1, pruning.rounds + 1):
        left = count * number // pruning.rounds - (graph.num_edges - pruned.num_edges)
        if left > 0:
            pruned = _without_lowest(pruned, left, edge_scores(pruned, pruning.score, embed))
    return pruned


def prune_edges(graph: Graph, ratio: float, scores: Float[Tensor, " edges"] | None = None) -> Graph:
    """The graph without at most this ratio of its edges: those with the lowest scores.

    Edges that are level with one that stays do so too, so that nothing hangs on the order of nodes.
    A node with at most two edges keeps the better one; others may lose all. The scores are those of
    `edge_scores`, if they are known already.
    """
    check_ratio(ratio)
    count = round(ratio * graph.num_edges)
    if count == 0:
        return graph
    return _without_lowest(graph, count, edge_scores(graph) if scores is None else scores)


def check_ratio(ratio: float) -> None:
    """Refuse what is no ratio of edges to prune."""
    if not 0 <= ratio < 1:
        raise SettingsError(
            f"The ratio of pruned edges must be at least 0 and below 1. Got {ratio}."
        )


def _without_lowest(graph: Graph, count: int, scores: Float[Tensor, " edges"]) -> Graph:
    is_kept = (scores >= _first_kept(scores, count)) | _is_best_of_few(graph, scores)
    return with_pairs(graph, edge_keys(graph)[is_kept])


def _is_best_of_few(graph: Graph, scores: Float[Tensor, " edges"]) -> Bool[Tensor, " edges"]:
    """Edges that score highest at an end with at most `FEW` of them.

    They are most of what is known of such a node; a node under attack has more.
    """
    ends = _ends(graph)
    degrees, is_best = graph.degrees(), torch.zeros_like(ends[0], dtype=torch.bool)
    best = scores.new_full((graph.num_nodes,), -torch.inf)
    for end in ends:
        best = best.scatter_reduce(0, end, scores, "amax")
    for end in ends:
        is_best |= (scores >= best[end] - _rounding(scores)) & (degrees[end] <= FEW)
    return is_best


def _first_kept(scores: Float[Tensor, " edges"], count: int) -> Tensor:
    """The lowest score that stays when so many go, less a few roundings."""
    return scores.sort().values[min(count, len(scores) - 1)] - _rounding(scores)


def weigh_edges(graph: Graph, count: int, scores: Float[Tensor, " edges"]) -> Graph:
    """The graph whose edges weigh less, where pruning would leave them out.

    Their weights rise with the score, from 0.01 at the lowest to one at the first that stays; a
    weight that an edge has already is multiplied.
    """
    if count == 0:
        return graph
    lowest, first_kept = scores.min(), _first_kept(scores, count)
    if not bool(first_kept > lowest):
        return graph
    factors = ((scores - lowest) / (first_kept - lowest)).clamp(LEAST_WEIGHT, 1).to(graph.dtype)
    source, target = graph.edge_index
    keys = torch.minimum(source, target) * graph.num_nodes + torch.maximum(source, target)
    of_entries = factors[torch.searchsorted(edge_keys(graph), keys)]
    own = of_entries if graph.weights is None else graph.weights * of_entries
    return replace(graph, weights=own)
