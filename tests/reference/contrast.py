"""Contrastive losses of the baselines written out: dense matrices, loops over nodes and pairs."""

import torch


def unit(x):
    lengths = x.norm(dim=1, keepdim=True)
    return x / torch.where(lengths > 0, lengths, 1)


def intra_view(queries, keys, temperature):
    """Row losses: every other node of both views is a negative."""
    one, other = unit(queries), unit(keys)
    losses = []
    for i in range(len(one)):
        scores = [one[i] @ other[j] / temperature for j in range(len(one))]
        scores += [one[i] @ one[j] / temperature for j in range(len(one)) if j != i]
        losses.append(torch.stack(scores).logsumexp(0) - scores[i])
    return torch.stack(losses)


def several_positives(queries, keys, temperature, positives):
    """Row losses; `positives` is one set of node numbers a node."""
    one, other = unit(queries), unit(keys)
    losses = []
    for i, own in enumerate(positives):
        scores = one[i] @ other.t() / temperature
        drawn = torch.stack([scores[j] for j in sorted(own)]).mean()
        left = [scores[j] for j in range(len(other)) if j not in own]
        losses.append((torch.stack(left).logsumexp(0) if left else 0.0) - drawn)
    return torch.stack(losses)


def reconstruction(graph, embeddings):
    """GMI's weighted cross-entropy over all pairs, as its definition reads."""
    nodes = graph.num_nodes
    joined = torch.eye(nodes, dtype=embeddings.dtype)
    joined[tuple(graph.edge_index)] = 1
    half = joined.sum() / 2
    present = torch.sigmoid(embeddings @ embeddings.t())
    positive = (nodes**2 - half) / half * joined * torch.log(present + 1e-10)
    negative = (1 - joined) * torch.log(1 - present + 1e-10)
    return -(nodes**2) / (nodes**2 - half) * (positive + negative).mean()
