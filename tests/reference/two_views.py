"""Corrupted copies of a graph as dense matrices, and a graph convolution over them."""

import torch

from aspect.data.features import dense


def smoothing(graph, weights=None):
    """`D^(-1/2) (W + I) D^(-1/2)` with weights in the order of the edge index."""
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=graph.dtype)
    for entry, (row, column) in enumerate(graph.edge_index.t().tolist()):
        matrix[row, column] = 1 if weights is None else weights[entry]
    matrix += torch.eye(graph.num_nodes, dtype=graph.dtype)
    roots = matrix.sum(1).sqrt()
    return matrix / roots[:, None] / roots[None, :]


def features_of(graph):
    """Rows divided by the sum of their absolute values; zeros stay."""
    x = dense(graph.features)
    return x / x.abs().sum(1, keepdim=True).clamp(min=1e-300)


def corrupted(graph, edge_drop, column_mask, generator):
    """Features and operator of a view: edges are drawn first, each direction, then columns."""
    weights = torch.empty(graph.edge_index.shape[1], dtype=graph.dtype)
    weights.bernoulli_(1 - edge_drop, generator=generator)
    keep = torch.empty(graph.num_features, dtype=graph.dtype)
    keep.bernoulli_(1 - column_mask, generator=generator)
    return features_of(graph) * keep, smoothing(graph, weights)


def batch_norm(x):
    """Over the rows, with torch's epsilon and first weights."""
    centred = x - x.mean(0)
    return centred / (centred.square().mean(0) + 1e-5).sqrt()


def prelu(x, slope):
    """Negative numbers times the slope."""
    return torch.where(x > 0, x, slope * x)


def correlations(one, other):
    """Between all columns of two matrices, with n in place of n - 1 as both papers' codes have."""
    both = torch.corrcoef(torch.cat([one, other], dim=1).t())
    return both[: one.shape[1], one.shape[1] :] * (len(one) - 1) / len(one)
