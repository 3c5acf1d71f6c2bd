"""How much nodes matter, and how often what matters little is dropped (GCA)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.graph import Features, Graph
from aspect.data.sparse import SparseMatrix
from aspect.nn.propagation import neighbour_mean

__all__ = [
    "column_importance",
    "degree_centrality",
    "drop_probabilities",
    "edge_importance",
    "eigenvector_centrality",
    "pagerank_centrality",
]

DAMPING = 0.85
CONVERGED = 1e-10  # change of a unit vector at which power iteration ends
ROUNDING = 16  # steps of a float by which equal importances may differ


def degree_centrality(graph: Graph) -> Float[Tensor, " nodes"]:
    """Number of neighbours."""
    return graph.degrees().to(graph.dtype)


def pagerank_centrality(graph: Graph, steps: int = 200) -> Float[Tensor, " nodes"]:
    """`x <- 0.15 x + 0.85 sum_u x_u / degree_u` from ones, as GCA's code has it.

    A lazy walk, not PageRank proper: what is kept is the node's own value, there is no uniform
    restart. GCA takes 200 steps for edges and 10 for columns.
    """
    # The mean over neighbours, transposed: every neighbour hands out equal parts of its own.
    inflow = neighbour_mean(graph).matrix.transposed
    x = torch.ones(graph.num_nodes, 1, dtype=graph.dtype, device=graph.device)
    for _ in range(steps):
        x = (1 - DAMPING) * x + DAMPING * (inflow @ x)
    return x.squeeze(1)


def eigenvector_centrality(graph: Graph, steps: int = 1000) -> Float[Tensor, " nodes"]:
    """The leading eigenvector of A, of length one and without negative entries.

    By power iteration on A + I, which has the same vectors but no second eigenvalue of the same
    size where the graph is bipartite.
    """
    source, target = graph.edge_index
    ones = torch.ones(len(source), dtype=torch.float64, device=graph.device)
    nodes = graph.num_nodes
    adjacency = SparseMatrix.from_entries(source, target, ones, (nodes, nodes))
    x = torch.full((nodes, 1), nodes**-0.5, dtype=torch.float64, device=graph.device)
    for _ in range(steps):
        y = x + adjacency @ x
        before, x = x, y / y.norm()
        if float((x - before).norm()) <= CONVERGED:
            break
    return x.squeeze(1).to(graph.dtype)


def edge_importance(graph: Graph, centrality: Float[Tensor, " nodes"]) -> Float[Tensor, " entries"]:
    """`log phi` of the node that receives the message, the row's, for each entry of the edge index.

    Give eigenvector centralities as `phi.clamp(min=0) + 1e-8`: components may have none.
    """
    return centrality[graph.edge_index[0]].log()


def column_importance(
    features: Features, centrality: Float[Tensor, " nodes"], *, by_size: bool = False
) -> Float[Tensor, " features"]:
    """`log sum_v [x_vf != 0] phi_v`, minus infinity for an empty column.

    `by_size` weighs by |x_vf| instead, as GCA does for features without zeros.
    """
    if isinstance(features, SparseMatrix):
        matrix = features.with_values(_presence(features.values, by_size))
        return (matrix.transposed @ centrality.unsqueeze(1)).squeeze(1).log()
    return (_presence(features, by_size).t() @ centrality).log()


def _presence(values: Float[Tensor, "*shape"], by_size: bool) -> Float[Tensor, "*shape"]:
    return values.abs() if by_size else (values != 0).to(values.dtype)


def drop_probabilities(
    importance: Float[Tensor, " entries"],
    rate: float,
    *,
    cap: float = 0.7,
    official_nan: bool = False,
) -> Float[Tensor, " entries"]:
    """`min(rate * w / mean(w), cap)` for `w = (max s - s) / (max s - mean s)` of importances s.

    The most important is never dropped, and below the cap the mean is the rate. Where all matter
    alike, all are dropped at the rate.

    An importance of minus infinity (an empty column) takes no part in maximum and mean and gets
    the rate, which changes nothing. In GCA's code it turns all weights into NaN, and then every
    column is masked with probability `cap`, whatever the rate: `official_nan` does so.
    """
    counted = importance.isfinite()
    if official_nan and not bool(counted.all()):
        return torch.full_like(importance, cap)
    finite = importance[counted]
    probabilities = torch.full_like(importance, rate)
    if len(finite):
        below = finite.max() - finite
        mean = below.mean()
        # Importances that differ by rounding alone are alike.
        differ = mean > ROUNDING * torch.finfo(mean.dtype).eps * (1 + finite.abs().max())
        probabilities[counted] = torch.where(differ, rate * below / mean, rate)
    return probabilities.clamp(max=cap)
