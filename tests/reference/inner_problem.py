"""The inner problem of ASPECT-S written out: a dense adjacency, every pair, no folding."""

import torch

from aspect.data.features import dense


def normalised_laplacian(adjacency, *, self_loops):
    """`I - D^(-1/2) A D^(-1/2)`, differentiable in the adjacency; no node may be isolated."""
    eye = torch.eye(len(adjacency), dtype=adjacency.dtype)
    adjacency = adjacency + eye if self_loops else adjacency
    scale = adjacency.sum(1).rsqrt()
    return eye - scale[:, None] * adjacency * scale[None, :]


def changed_adjacency(graph, keys, flips):
    """The adjacency with each candidate flipped by its share."""
    nodes = graph.num_nodes
    clean = torch.zeros(nodes, nodes, dtype=flips.dtype)
    clean[tuple(graph.edge_index)] = 1
    shares = torch.zeros(nodes, nodes, dtype=flips.dtype).index_put(
        (keys // nodes, keys % nodes), flips
    )
    return clean + (1 - 2 * clean) * (shares + shares.t())


def embed(method, laplacian, features):
    """The encoder as it embeds, band by band, layer by layer."""
    encoder, views = method.encoder.eval(), []
    shifted = laplacian - torch.eye(len(laplacian), dtype=laplacian.dtype)
    for number, coefficients in enumerate(encoder.coefficients().detach()):
        terms = [features, shifted @ features]
        for _ in range(len(coefficients) - 2):
            terms.append(2 * shifted @ terms[-1] - terms[-2])
        filtered = sum(c * term for c, term in zip(coefficients, terms, strict=True))
        if encoder.project_first:
            hidden = normed(encoder.norm, encoder.linear(filtered), number)
        else:
            hidden = encoder.linear(normed(encoder.norm, filtered, number))
        views.append(encoder.activation(hidden))
    return torch.stack(views)


def normed(norm, x, band):
    """Batch norm by the stored statistics of the band, if there is any."""
    if norm is None:
        return x
    mean, variance = norm.running_mean[band], norm.running_var[band]
    return (x - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias


def losses(queries, keys, temperature):
    """InfoNCE of every query against all keys."""
    queries = queries / queries.norm(dim=1, keepdim=True)
    keys = keys / keys.norm(dim=1, keepdim=True)
    return torch.nn.functional.cross_entropy(
        queries @ keys.t() / temperature, torch.arange(len(keys)), reduction="none"
    )


def energy(laplacian, z):
    """The Rayleigh quotient."""
    return (z.t() @ laplacian @ z).trace() / (z.t() @ z).trace()


def objective(method, graph, problem, flips, moves):
    """L_gen + lambda_ray * Phi_ray of a change, by the definition."""
    config = method.config
    adjacency = changed_adjacency(graph, problem.edges.keys, flips)
    laplacian = normalised_laplacian(adjacency, self_loops=config.self_loops)
    pattern = problem.entries.places.pattern
    features = dense(method.ready(graph).features)
    features = features.index_put((pattern.rows, pattern.columns.long()), moves, accumulate=True)
    views = embed(method, laplacian, features)
    total = 0.0
    for band, keys, weights in zip(views, problem.keys, problem.weights.t(), strict=True):
        total = total + (weights * losses(band, keys, config.temperature)).mean()
    low, high = (energy(laplacian, band) for band in (views[0], views[-1]))
    return total + config.rayleigh_weight * (low - high)
