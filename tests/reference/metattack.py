"""Metattack in its plain form: dense matrices, autograd through the whole inner training.

The gradient is one number for every entry of the adjacency, of which the two of a pair are added:
`A_ij` and `A_ji` move together. It is the yardstick of `make speed-attack`, too.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from aspect.data.features import dense
from aspect.data.graph import Graph


def dense_adjacency(graph: Graph) -> Tensor:
    """Zeros and ones, nodes x nodes."""
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=graph.dtype)
    adjacency[graph.edge_index[0], graph.edge_index[1]] = 1
    return adjacency


def normalised(adjacency: Tensor) -> Tensor:
    """`Â = D^(-1/2) (A + I) D^(-1/2)`."""
    looped = adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype)
    scale = looped.sum(1).rsqrt()
    return scale[:, None] * looped * scale


def propagated(adjacency: Tensor, features: Tensor) -> Tensor:
    """`S = Â² X`."""
    spread = normalised(adjacency)
    return spread @ (spread @ features)


def attack_loss(
    logits: Tensor, classes: Tensor, train: Tensor, train_weight: float = 0.0
) -> Tensor:
    """`λ mean_T CE + (1 - λ) mean_U CE`, U all nodes but those of T."""
    others = torch.ones(len(logits), dtype=torch.bool)
    others[train] = False
    loss = (1 - train_weight) * functional.cross_entropy(logits[others], classes[others])
    if train_weight:
        loss = loss + train_weight * functional.cross_entropy(logits[train], classes[train])
    return loss


def fitted(s: Tensor, classes: Tensor, train: Tensor, num_classes: int, ridge: float) -> Tensor:
    """The inner optimum, by a method of its own (L-BFGS) until rounding ends it."""
    weights = torch.zeros(s.shape[1], num_classes, dtype=s.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weights],
        max_iter=2000,
        tolerance_grad=1e-13,
        tolerance_change=1e-16,
        history_size=50,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = inner_loss(s, weights, classes, train, ridge)
        loss.backward()
        return loss

    optimiser.step(closure)
    return weights.detach()


def inner_loss(s: Tensor, weights: Tensor, classes: Tensor, train: Tensor, ridge: float) -> Tensor:
    """`mean_T CE(S W, y) + ridge / 2 |W|²`."""
    loss = functional.cross_entropy((s @ weights)[train], classes[train])
    return loss + ridge / 2 * weights.square().sum()


def loss_at_optimum(
    graph: Graph,
    adjacency: Tensor,
    classes: Tensor,
    train: Tensor,
    num_classes: int,
    ridge: float,
    train_weight: float = 0.0,
) -> Tensor:
    """`L(A, W*(A))`, trained from zero."""
    s = propagated(adjacency, dense(graph.features))
    weights = fitted(s, classes, train, num_classes, ridge)
    return attack_loss(s @ weights, classes, train, train_weight)


def converged_meta_gradient(
    graph: Graph,
    classes: Tensor,
    train: Tensor,
    num_classes: int,
    ridge: float,
    train_weight: float = 0.0,
    steps: int = 600,
) -> Tensor:
    """Autograd through gradient descent that starts at the optimum and stays there.

    Its derivative converges to that of the optimum itself, whatever the start.
    """
    adjacency = dense_adjacency(graph).requires_grad_()
    s = propagated(adjacency, dense(graph.features))
    weights = fitted(s.detach(), classes, train, num_classes, ridge).requires_grad_()
    largest = float(torch.linalg.matrix_norm(s.detach()[train], ord=2)) ** 2 / len(train)
    rate = 1 / (largest / 2 + ridge)  # the curvature of softmax is at most one half
    for _ in range(steps):
        loss = inner_loss(s, weights, classes, train, ridge)
        (slope,) = torch.autograd.grad(loss, weights, create_graph=True)
        weights = weights - rate * slope
    outer = attack_loss(s @ weights, classes, train, train_weight)
    (gradient,) = torch.autograd.grad(outer, adjacency)
    return gradient + gradient.t()


def unrolled_meta_gradient(
    graph: Graph,
    classes: Tensor,
    train: Tensor,
    weights: tuple[Tensor, Tensor],
    *,
    steps: int = 100,
    rate: float = 0.1,
    momentum: float = 0.9,
    train_weight: float = 0.0,
) -> Tensor:
    """Autograd through gradient descent with momentum, as the public implementations have it.

    They too propagate anew in every step, by a dense matrix.
    """
    adjacency = dense_adjacency(graph).requires_grad_()
    spread, features = normalised(adjacency), dense(graph.features)

    def logits(first: Tensor, second: Tensor) -> Tensor:
        return spread @ ((spread @ (features @ first)) @ second)

    now = [weight.clone().requires_grad_() for weight in weights]
    speeds = [torch.zeros_like(weight) for weight in weights]
    for _ in range(steps):
        loss = functional.cross_entropy(logits(*now)[train], classes[train])
        slopes = torch.autograd.grad(loss, now, create_graph=True)
        speeds = [momentum * speed + slope for speed, slope in zip(speeds, slopes, strict=True)]
        now = [weight - rate * speed for weight, speed in zip(now, speeds, strict=True)]
    outer = attack_loss(logits(*now), classes, train, train_weight)
    (gradient,) = torch.autograd.grad(outer, adjacency)
    return gradient + gradient.t()


def first_order_meta_gradient(
    graph: Graph,
    classes: Tensor,
    train: Tensor,
    weights: tuple[Tensor, Tensor],
    *,
    steps: int = 100,
    rate: float = 0.1,
    momentum: float = 0.9,
    train_weight: float = 0.0,
) -> Tensor:
    """The attack loss after each step of torch's own descent, added up; weights are constants."""
    adjacency = dense_adjacency(graph).requires_grad_()
    s = propagated(adjacency, dense(graph.features))
    first, second = (weight.clone().requires_grad_() for weight in weights)
    optimiser = torch.optim.SGD([first, second], lr=rate, momentum=momentum)
    outer = torch.zeros((), dtype=s.dtype)
    for _ in range(steps):
        optimiser.zero_grad()
        logits = s.detach() @ first @ second
        functional.cross_entropy(logits[train], classes[train]).backward()
        optimiser.step()
        constant = (first @ second).detach()
        outer = outer + attack_loss(s @ constant, classes, train, train_weight)
    (gradient,) = torch.autograd.grad(outer, adjacency)
    return gradient + gradient.t()
