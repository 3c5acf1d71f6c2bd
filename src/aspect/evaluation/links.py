"""Link prediction: edges that no training saw, told from pairs that are no edges.

Edges are held out first; everything that reads the graph, methods, controls and rules alike, reads
what is left. Negatives are as many pairs, drawn uniformly from all that are no edge of the whole
graph, so that an edge is never called a mistake because it was held out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from aspect.data.graph import Graph, edge_keys, pair_keys, with_pairs
from aspect.errors import GraphError
from aspect.evaluation.metrics import PERCENT
from aspect.evaluation.result import read_embeddings, unit_rows
from aspect.nn.augmentations import draw_order, draw_pairs
from aspect.randomness import generator_for

TEST, VALIDATION = 0.1, 0.05  # ratios of the edges, those of Kipf and Welling (2016)
MOST_TRAINING_PAIRS = 20_000  # edges that the classifier is fitted to, and as many non-edges
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)  # C of scikit-learn's logistic regression
MOST_LISTED = 2**22  # pairs of nodes up to which all non-edges are listed; above, they are drawn

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Edges, and as many pairs that are none."""

    edges: Int[Tensor, "2 pairs"]
    negatives: Int[Tensor, "2 pairs"]

    @property
    def both(self) -> Int[Tensor, "2 all_pairs"]:
        """The edges, then the others."""
        return torch.cat([self.edges, self.negatives], dim=1)

    @property
    def truth(self) -> NDArray[np.int64]:
        """One for each edge, zero for each other pair."""
        return np.repeat([1, 0], [self.edges.shape[1], self.negatives.shape[1]])


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A graph without some of its edges, and those."""

    graph: Graph  # all nodes, without the edges of validation and test
    train: Pairs  # of its own edges
    validation: Pairs
    test: Pairs


@dataclass(frozen=True)
class LinkScore:
    """How well test edges are told from other pairs, in percent; 50 is chance."""

    roc_auc: float
    average_precision: float
    cosine_roc_auc: float | None = None  # by the cosine alone, nothing fitted; None for a rule
    cosine_average_precision: float | None = None


def hold_out(graph: Graph, seed: int = 0) -> HeldOut:
    """Take a tenth of the edges for the test, a twentieth for validation, uniformly.

    A node may lose its last edge. All draws are on the CPU, and follow from the seed alone.
    """
    graph = graph.to("cpu")
    generator = generator_for(seed, "held-out edges")
    keys = edge_keys(graph)
    sizes = [round(TEST * len(keys)), round(VALIDATION * len(keys))]
    if min(sizes) < 1:
        fewest = int(0.5 / VALIDATION) + 1
        raise GraphError(
            f"Link prediction needs a graph of at least {fewest} edges: a tenth is held out for "
            f"the test and a twentieth for validation. Got {len(keys)}."
        )
    keys = keys[draw_order(len(keys), generator)]
    test, validation, kept = torch.split(keys, [*sizes, len(keys) - sum(sizes)])
    sizes.append(min(len(kept), MOST_TRAINING_PAIRS))
    others = torch.split(_non_edges(graph, sum(sizes), generator), sizes)
    edges = (test, validation, kept[: sizes[2]])
    pairs = [
        Pairs(_ends(some, graph.num_nodes), _ends(other, graph.num_nodes))
        for some, other in zip(edges, others, strict=True)
    ]
    return HeldOut(with_pairs(graph, kept.sort().values), pairs[2], pairs[1], pairs[0])


def _ends(keys: Int[Tensor, " pairs"], num_nodes: int) -> Int[Tensor, "2 pairs"]:
    return torch.stack([keys // num_nodes, keys % num_nodes])


def _non_edges(graph: Graph, count: int, generator: torch.Generator) -> Int[Tensor, " count"]:
    """So many pairs of different nodes that are no edge, each once, uniform, in random order."""
    nodes, edges = graph.num_nodes, edge_keys(graph)
    total = nodes * (nodes - 1) // 2
    if total - len(edges) < count:
        raise GraphError(
            f"Link prediction compares edges with as many pairs that are none, {count} here. "
            f"The graph has only {total - len(edges)} such pairs."
        )
    drawn: Tensor = edges.new_empty(0)
    if total <= MOST_LISTED:
        low, high = torch.triu_indices(nodes, nodes, offset=1)
        every = low * nodes + high
        drawn = every[~torch.isin(every, edges)]
    while len(drawn) < count:
        one, other = draw_pairs(2 * count, nodes, generator)
        fresh = pair_keys(one, other, nodes)
        drawn = torch.unique(torch.cat([drawn, fresh[~torch.isin(fresh, edges)]]))
    return drawn[draw_order(len(drawn), generator)[:count]]


def link_scores(embeddings: Tensor | ArrayLike, held_out: HeldOut) -> LinkScore:
    """Score test pairs by logistic regression on Hadamard products, and by the cosine alone.

    The classifier sees the products of both ends' embeddings (Grover and Leskovec, 2016),
    standardised, of training edges and as many non-edges; validation pairs choose its penalty by
    ROC AUC. Test pairs are scored once.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows, nodes = read_embeddings(embeddings).cpu(), held_out.graph.num_nodes
    if len(rows) != nodes:
        raise GraphError(
            f"Embeddings must have a row for each of the {nodes} nodes of the graph. "
            f"Got {len(rows)} rows."
        )
    # By a power of two, which is exact: products of tiny and huge entries under- or overflow.
    rows = torch.ldexp(rows, -torch.frexp(rows.abs().max()).exponent)

    def products(pairs: Pairs) -> Array:
        one, other = pairs.both
        return (rows[one] * rows[other]).double().numpy()

    known = products(held_out.train), held_out.train.truth
    models = [
        make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=1000)).fit(*known)
        for penalty in PENALTIES
    ]
    seen = products(held_out.validation)
    areas = [_scores(held_out.validation, model.decision_function(seen))[0] for model in models]
    best = models[int(np.argmax(areas))]
    units = unit_rows(rows.double())
    one, other = held_out.test.both
    cosines = (units[one] * units[other]).sum(dim=1).numpy()
    return LinkScore(
        *_scores(held_out.test, best.decision_function(products(held_out.test))),
        *_scores(held_out.test, cosines),
    )


def rule_scores(held_out: HeldOut) -> dict[str, LinkScore]:
    """What the graph that is left tells without features or training.

    `common neighbours` is the Adamic-Adar index, `degrees` their product: non-edges are drawn
    uniformly, and hubs are seldom among them.
    """
    graph, (one, other) = held_out.graph, held_out.test.both.numpy()
    rows, columns = graph.edge_index.numpy()
    size = (graph.num_nodes, graph.num_nodes)
    adjacency = scipy.sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=size)
    degrees = graph.degrees().double().numpy()
    # A common neighbour has two neighbours at least, so that its logarithm is not zero.
    weights = 1 / np.log(np.maximum(degrees, 2))
    common = adjacency[one].multiply(adjacency[other]) @ weights
    return {
        "common neighbours": LinkScore(*_scores(held_out.test, common)),
        "degrees": LinkScore(*_scores(held_out.test, degrees[one] * degrees[other])),
    }


def _scores(pairs: Pairs, values: Array | Float[Tensor, " pairs"]) -> tuple[float, float]:
    """ROC AUC and average precision, in percent."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    truth, numbers = pairs.truth, np.asarray(values)
    area = float(roc_auc_score(truth, numbers))
    return PERCENT * area, PERCENT * float(average_precision_score(truth, numbers))
