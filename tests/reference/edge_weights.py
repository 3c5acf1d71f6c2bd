"""GREET's edge weights and filters by their formulas: gathered rows and dense matrices."""

import torch

from aspect.data.features import dense


def plain_filters(graph, weights, strength):
    """Both operators as dense matrices, from weights of entries."""
    nodes = graph.num_nodes
    matrices = []
    for each in (weights, 1 - weights):
        looped = torch.eye(nodes, dtype=graph.dtype)
        looped = looped.index_put(tuple(graph.edge_index), each)
        root = looped.sum(1) ** -0.5
        matrices.append(root[:, None] * looped * root[None, :])
    low, high = matrices
    eye = torch.eye(nodes, dtype=graph.dtype)
    return low, eye - strength * high * (1 - eye)


def plain_scores(discriminator, graph, walk_steps=4):
    """The raw score by the formula: both orders of the ends, averaged; features as they are."""
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=graph.dtype)
    adjacency[tuple(graph.edge_index)] = 1
    walk = adjacency / adjacency.sum(0).clamp(min=1)
    steps = range(1, walk_steps + 1)
    powers = [torch.linalg.matrix_power(walk, k).diagonal() for k in steps]
    whole = torch.cat([dense(graph.features), torch.stack(powers, dim=1)], dim=1)
    hidden = torch.relu(whole @ discriminator.hidden.weight.t() + discriminator.hidden.bias)
    source, target = graph.edge_index
    one = torch.cat([hidden[source], hidden[target]], dim=1)
    other = torch.cat([hidden[target], hidden[source]], dim=1)
    weight, bias = discriminator.scorer.weight[0], discriminator.scorer.bias
    return (one @ weight + other @ weight) / 2 + bias


def plain_weights(discriminator, graph, generator):
    """The scores with logistic noise, through a sigmoid."""
    scores = plain_scores(discriminator, graph)
    noise = torch.empty_like(scores).uniform_(1e-4, 1 - 1e-4, generator=generator)
    return torch.sigmoid(noise.log() - (1 - noise).log() + scores)
