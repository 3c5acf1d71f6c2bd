"""Laplacians and filters written out: dense matrices, loops, eigendecomposition."""

import math

import torch


def dense_laplacian(graph, *, self_loops, edge_weights=None):
    """`I - D^(-1/2) A D^(-1/2)` entry by entry; a node without neighbours has L_ii = 1.

    Weights belong to undirected edges, in the order of (smaller end, larger end).
    """
    pairs = sorted({(min(a, b), max(a, b)) for a, b in graph.edge_index.t().tolist()})
    weights = [1.0] * len(pairs) if edge_weights is None else edge_weights.tolist()
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    for (a, b), weight in zip(pairs, weights, strict=True):
        adjacency[a, b] = adjacency[b, a] = weight
    if self_loops:
        for node in range(graph.num_nodes):
            adjacency[node, node] = 1.0
    laplacian = torch.eye(graph.num_nodes, dtype=torch.float64)
    degrees = [float(row.sum()) for row in adjacency]
    for a in range(graph.num_nodes):
        for b in range(graph.num_nodes):
            if adjacency[a, b] != 0:
                laplacian[a, b] -= adjacency[a, b] / math.sqrt(degrees[a] * degrees[b])
    return laplacian


def rescaled_laplacian(graph, *, self_loops, edge_weights=None, lambda_max=2.0):
    """`2 L / lambda_max - I`."""
    laplacian = dense_laplacian(graph, self_loops=self_loops, edge_weights=edge_weights)
    return 2 * laplacian / lambda_max - torch.eye(graph.num_nodes, dtype=torch.float64)


def polynomial(coefficients, x):
    """`sum_k c_k T_k(x)` at every x in [-1, 1], from T_k(cos t) = cos(k t)."""
    return [
        sum(
            c * math.cos(k * math.acos(min(1.0, max(-1.0, point))))
            for k, c in enumerate(coefficients)
        )
        for point in x
    ]


def filtered(rescaled, coefficients, x):
    """`U g(Lambda) U^T x` with the polynomial g applied to the eigenvalues one by one."""
    eigenvalues, vectors = torch.linalg.eigh(rescaled)
    response = torch.tensor(polynomial(coefficients, eigenvalues.tolist()), dtype=torch.float64)
    return vectors @ (response[:, None] * (vectors.t() @ x))


def band_values(start, increments, sign):
    """Prefix sums of the positive parts: the filter's values at the nodes."""
    values = [max(0.0, start)]
    for increment in increments:
        values.append(values[-1] + sign * max(0.0, increment))
    return values


def coefficients_of(values):
    """Chebyshev coefficients of the polynomial through values at the nodes, by solving for them."""
    order = len(values) - 1
    angles = [(order - j + 0.5) * math.pi / (order + 1) for j in range(order + 1)]
    system = torch.tensor(
        [[math.cos(k * angle) for k in range(order + 1)] for angle in angles], dtype=torch.float64
    )
    return torch.linalg.solve(system, torch.tensor(values, dtype=torch.float64)).tolist()
