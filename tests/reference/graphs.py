"""Small random graphs in float64, for comparing the fast code with the slow."""

import torch

from aspect.data.graph import Graph


def random_graph(
    num_nodes=20,
    num_edges=40,
    num_features=7,
    *,
    seed=0,
    isolated=0,
    density=1.0,
    dtype=torch.float64,
):
    """Random edges among all but the last `isolated` nodes; a share of the features is zero."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, num_nodes - isolated, (2, num_edges), generator=generator)
    features = torch.randn(num_nodes, num_features, dtype=dtype, generator=generator)
    present = torch.rand(num_nodes, num_features, generator=generator) < density
    return Graph.build(features * present, edges)


def path_graph(num_nodes, num_features=3):
    """A line of nodes: bipartite, so that its Laplacian without self-loops reaches 2."""
    nodes = torch.arange(num_nodes - 1)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(num_nodes, num_features, dtype=torch.float64, generator=generator)
    return Graph.build(features, torch.stack([nodes, nodes + 1]))
