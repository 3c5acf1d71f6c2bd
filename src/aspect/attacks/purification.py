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
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from aspect.attacks.cosines import COMPONENTS, compressed, deviation_of_cosines, mean_cosine
from aspect.attacks.paths import Paths
from aspect.attacks.pruning import AUTO, DEFAULT, Pruning, check_score
from aspect.data.features import dense
from aspect.data.graph import Features, Graph, edge_keys, pair_keys, values_of_pairs, with_pairs
from aspect.data.sparse import SparseMatrix
from aspect.errors import SettingsError
from aspect.losses.similarity import cosines
from aspect.nn.propagation import SymmetricPropagation

LEVEL = 64  # roundings apart: two cosines that may be the same
EMBEDDING_HOPS = 2
TELLING = 1.3  # standard deviations of random pairs between their mean cosine and that of edges
BY_FEATURES, BY_PATHS = "refined-support", "tfidf-support+paths"  # what `auto` stands for
TOP = 0.9  # quantile of the edges' cosines from which a neighbour weighs one
LEAST = 0.01  # of a neighbour whose edge scores no better than a random pair, before the power
POWER = 3  # of a relative cosine, as the weight of a neighbour
TINY = 1e-12  # a smaller square length of sums of unit rows is rounding
FEW = 2  # edges of a node that keeps the best of them
FEWEST_RANDOM = 0.1  # estimated ratio of random edges that clean graphs have, too
FEWEST_OF_EACH = 0.05  # by each of several scores
MOST_RANDOM = 0.5  # beyond which a score says nothing
NUMBERS_AT_ONCE = 2**20  # of the rows of pairs
MOST_NUMBERS = 2**28  # of dense features: one GiB in float32
MATRICES = 4  # of a row for every node, held at once by `refined-support`
PIECE_BYTES = 2**26  # of what is computed in pieces
LEAST_WEIGHT = 0.01  # of an edge with the lowest score, where weights are soft

Embed = Callable[[Graph], Float[Tensor, "nodes dim"]]


@dataclass(frozen=True, eq=False)
class Profiles:
    """What a score compares: a row for every node."""

    rows: Float[Tensor, "nodes dim"]

    def scores(
        self, low: Int[Tensor, " pairs"], high: Int[Tensor, " pairs"]
    ) -> Float[Tensor, " pairs"]:
        """The cosine of every pair."""
        at_once = max(1, NUMBERS_AT_ONCE // self.rows.shape[1])
        parts = zip(torch.split(low, at_once), torch.split(high, at_once), strict=True)
        return torch.cat([self._cosines(*ends) for ends in parts])

    def block(self, nodes: Int[Tensor, " some"]) -> Float[Tensor, "some nodes"]:
        """The cosines of some nodes with all to which no edge joins them."""
        return self._directions[nodes] @ self._directions.t()

    @cached_property
    def _directions(self) -> Float[Tensor, "nodes dim"]:
        return normalize(self.rows, dim=1)

    def mean(self) -> float:
        """The mean cosine of all pairs of nodes, their edges included."""
        return mean_cosine(self.rows)

    def _cosines(self, low: Tensor, high: Tensor) -> Tensor:
        return cosines(self.rows[low], self.rows[high])


@dataclass(frozen=True, eq=False)
class Neighbourhoods(Profiles):
    """Sums of the unit rows of a node and its neighbours; the edge of a pair has no part in it."""

    unit: Float[Tensor, "nodes dim"]
    keys: Int[Tensor, " edges"]  # ascending
    weights: Float[Tensor, " edges"]  # what a neighbour's row counts for

    @classmethod
    def of(
        cls,
        unit: Float[Tensor, "nodes dim"],
        keys: Int[Tensor, " edges"],
        weights: Float[Tensor, " edges"],
    ) -> Neighbourhoods:
        """Sum the rows."""
        nodes, both = len(unit), torch.cat([weights, weights])
        low, high = keys // nodes, keys % nodes
        source, target = torch.cat([low, high]), torch.cat([high, low])
        sums = SparseMatrix.from_entries(source, target, both, (nodes, nodes)) @ unit
        return cls(sums.add_(unit), unit, keys, weights)

    def refined(self, cosines: Float[Tensor, " edges"]) -> Neighbourhoods:
        """The same where a neighbour weighs as its edge scores, from near zero to one.

        Flips that mislead a node's neighbourhood then do so less.
        """
        random = self.mean()
        # Not torch.quantile, which takes at most 2**24 numbers.
        top = float(cosines.sort().values[int(TOP * len(cosines))]) if len(cosines) else 1.0
        fits = ((cosines - random) / max(top - random, TINY)).clamp(LEAST, 1)
        return self.of(self.unit, self.keys, fits.pow(POWER))

    @override
    def _cosines(self, low: Tensor, high: Tensor) -> Tensor:
        weights = values_of_pairs(self.keys, self.weights, low * len(self.unit) + high).unsqueeze(1)
        one = self.rows[low] - weights * self.unit[high]
        other = self.rows[high] - weights * self.unit[low]
        lengths = (one.square().sum(1) * other.square().sum(1)).clamp(min=TINY).sqrt()
        return (one * other).sum(1) / lengths


Single = Profiles | Paths


@dataclass(frozen=True, eq=False)
class Ranked:
    """Several scores: of each, how many of the graph's edges score less than a pair, added."""

    parts: list[Single]
    of_edges: list[Float[Tensor, " edges"]]  # their scores of the graph's edges, ascending

    def scores(
        self, low: Int[Tensor, " pairs"], high: Int[Tensor, " pairs"]
    ) -> Float[Tensor, " pairs"]:
        """Ranks added up; pairs that are level have the same."""
        return self.sum_of_ranks([part.scores(low, high) for part in self.parts])

    def block(self, nodes: Int[Tensor, " some"]) -> Float[Tensor, "some nodes"]:
        """Ranks added up, of some nodes with all to which no edge joins them."""
        return self.sum_of_ranks([part.block(nodes) for part in self.parts])

    def sum_of_ranks(self, scores: Sequence[Float[Tensor, "*pairs"]]) -> Float[Tensor, "*pairs"]:
        """From what each part scores the pairs; those that are level have the same rank."""
        ranks = [
            torch.searchsorted(edges, pairs - _rounding(pairs))
            for pairs, edges in zip(scores, self.of_edges, strict=True)
        ]
        return torch.stack(ranks).sum(0).double()


Compared = Single | Ranked


@dataclass(frozen=True, eq=False)
class Scored:
    """What a score compares, and the score of every edge in the order of its key."""

    nodes: Single
    edges: Float[Tensor, " edges"]
    before: Scored | None = None  # it was refined

    def random_ratio(self) -> float:
        """The ratio of edges that join their ends no better than chance."""
        # A refined score believes the one before, and sees more on clean graphs as well.
        if self.before is not None and (found := self.before.random_ratio()) <= FEWEST_RANDOM:
            return found
        least = self.nodes.mean() - _rounding(self.edges)
        return 2 * float((self.edges < least).double().mean())


# The scores: `aspect.attacks.pruning` names them


def score_bytes(graph: Graph) -> int:
    """Memory that comparing nodes takes at most, about, whatever the score."""
    nodes, columns = graph.num_nodes, graph.num_features
    if nodes * columns > MOST_NUMBERS:
        columns = COMPONENTS
    return MATRICES * nodes * columns * graph.dtype.itemsize + PIECE_BYTES


def _weighted(features: Features) -> Features:
    """Columns by their smooth inverse document frequencies: one for a feature of every node."""
    if isinstance(features, SparseMatrix):
        columns = features.pattern.columns.long()
        count = torch.bincount(columns, features.values != 0, minlength=features.shape[1])
        factors = _inverse_frequencies(count, features.shape[0]).to(features.dtype)
        return features.with_values(features.values * factors[columns])
    return features * _inverse_frequencies((features != 0).sum(0), len(features)).to(features)


def _rows(features: Features) -> Float[Tensor, "nodes dim"]:
    """Dense; of many numbers, those along the leading components: about the same cosines."""
    is_small = features.shape[0] * features.shape[1] <= MOST_NUMBERS
    return dense(features) if is_small else compressed(features)


def _inverse_frequencies(count: Tensor, nodes: int) -> Tensor:
    return torch.log((1 + nodes) / (1 + count)) + 1


def _neighbourhoods(graph: Graph, features: Features) -> Neighbourhoods:
    unit, keys = normalize(_rows(features), dim=1), edge_keys(graph)
    return Neighbourhoods.of(unit, keys, torch.ones_like(keys, dtype=unit.dtype))


def _propagated(graph: Graph) -> Float[Tensor, "nodes dim"]:
    smooth, rows = SymmetricPropagation(graph.unweighted()).smoothing(), dense(graph.features)
    for _ in range(EMBEDDING_HOPS):
        rows = smooth(rows)
    return rows


def compare(
    graph: Graph, score: str, embed: Embed | None = None
) -> tuple[Compared, Float[Tensor, " edges"]]:
    """What a score compares, pairs that no edge joins among them; and the score of every edge."""
    return _joined(scored_parts(graph, score, embed))


def _joined(parts: Sequence[Scored]) -> tuple[Compared, Float[Tensor, " edges"]]:
    nodes, found = [part.nodes for part in parts], [part.edges for part in parts]
    if len(parts) == 1:
        return nodes[0], found[0]
    ranked = Ranked(nodes, [scores.sort().values for scores in found])
    return ranked, ranked.sum_of_ranks(found)


def _ends(graph: Graph) -> tuple[Int[Tensor, " edges"], Int[Tensor, " edges"]]:
    """The smaller and the larger node of every edge, in the order of its key."""
    keys = edge_keys(graph)
    return keys // graph.num_nodes, keys % graph.num_nodes


def scored_parts(graph: Graph, score: str, embed: Embed | None = None) -> list[Scored]:
    """The scores that are joined by +."""
    return [_scored(graph, name, embed) for name in used_score(graph, score).split("+")]


def _scored(graph: Graph, name: str, embed: Embed | None) -> Scored:
    def scored(nodes: Single, before: Scored | None = None) -> Scored:
        return Scored(nodes, nodes.scores(*_ends(graph)), before)

    if name == "paths":
        return scored(Paths.of(graph))
    if name == "embedding":
        return scored(Profiles((embed or _propagated)(graph)))
    features = graph.features if name in ("features", "support") else _weighted(graph.features)
    if not name.endswith("support"):
        return scored(Profiles(_rows(features)))
    plain = _neighbourhoods(graph, features)
    found = scored(plain)
    return scored(plain.refined(found.edges), found) if name == "refined-support" else found


def edge_scores(
    graph: Graph, score: str = DEFAULT, embed: Embed | None = None
) -> Float[Tensor, " edges"]:
    """The score of every edge in the order of its key; ranks of several, joined by +, are added.

    Takes O(edges * features) time and O(nodes * features) memory; `paths` takes time that grows
    with the sum of the squared degrees.

    Args:
        graph: Its weights have no part in it.
        score: A name, or several joined by `+`; `aspect.attacks.pruning.SCORES` lists them, and
            `used_score` says what `auto` stands for on this graph.
        embed: What the score `embedding` compares; by default features after two propagation steps.
    """
    return compare(graph, score, embed)[1]


def used_score(graph: Graph, score: str = DEFAULT) -> str:
    """The score that `edge_scores` uses on this graph: `auto` asks whether features tell."""
    names = check_score(score).split("+")
    if AUTO not in names:
        return score
    found = BY_FEATURES if features_tell(graph) else BY_PATHS
    return "+".join(found if name == AUTO else name for name in names)


def features_tell(graph: Graph) -> bool:
    """Whether the features of an edge's ends are alike, by far more than those of random pairs."""
    profiles = Profiles(compressed(_weighted(graph.features)))
    scores = profiles.scores(*_ends(graph))
    if len(scores) == 0:
        return False
    above = float(scores.mean()) - profiles.mean()
    return above > TELLING * deviation_of_cosines(profiles.rows)


def edge_support(graph: Graph) -> Float[Tensor, " edges"]:
    """The cosine between the two ends' neighbourhoods, for every edge in the order of its key.

    A neighbourhood is the sum of the features, at unit length, of a node and its neighbours without
    the other end of the edge.
    """
    return edge_scores(graph, "support")


def _rounding(scores: Tensor) -> float:
    return LEVEL * torch.finfo(scores.dtype).eps


def auto_ratio(parts: Sequence[Scored]) -> float:
    """The ratio of edges that join their ends no better than chance; the mean of several scores'.

    The mean score of all pairs of nodes parts random pairs about in the middle, so that twice the
    ratio of edges below it estimates how many are random (Storey, 2002, on null hypotheses). At
    most a tenth are found on clean graphs too, where they are worth keeping; where it is more than
    half the score does not tell edges from random pairs; where one of several scores finds next to
    none they contradict each other. In all these cases nothing is pruned.
    """
    ratios = [part.random_ratio() for part in parts]
    found = sum(ratios) / len(ratios)
    is_known = min(ratios) > FEWEST_OF_EACH and max(ratios) <= MOST_RANDOM
    return found if found > FEWEST_RANDOM and is_known else 0.0


# Pruning


def purify(graph: Graph, pruning: Pruning, embed: Embed | None = None) -> Graph:
    """The graph as a pruning leaves it; never more edges go than its ratio allows.

    In several rounds each prunes its part of the edges, by scores of what the last one left.
    """
    if graph.num_edges == 0:
        return graph
    parts = scored_parts(graph, score := used_score(graph, pruning.score), embed)
    ratio = auto_ratio(parts) if isinstance(pruning.ratio, str) else pruning.ratio
    count, pruned, scores = round(ratio * graph.num_edges), graph, _joined(parts)[1]
    if pruning.soft:
        return weigh_edges(graph, count, scores)
    for number in range(1, pruning.rounds + 1):
        left = count * number // pruning.rounds - (graph.num_edges - pruned.num_edges)
        if left > 0:
            scores = scores if pruned is graph else edge_scores(pruned, score, embed)
            pruned = _without_lowest(pruned, left, scores)
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
    pairs = pair_keys(source, target, graph.num_nodes)
    weights = factors[torch.searchsorted(edge_keys(graph), pairs)]
    return replace(graph, weights=weights if graph.weights is None else graph.weights * weights)
