"""The factorised meta-gradient is the dense one that autograd finds."""

import pytest
import torch

from aspect.attacks.meta_gradient import adjoint_weights, implicit_gradient, pair_scores
from aspect.attacks.surrogate import Effort, fit_ridge
from attacks.tasks import random_task
from reference.metattack import (
    attack_loss,
    converged_meta_gradient,
    dense_adjacency,
    loss_at_optimum,
)

EXACT = Effort(steps=100, products=2000, tolerance=1e-12, gradient=1e-13)
RIDGE = 0.05


def off_diagonal(matrix):
    return matrix[~torch.eye(len(matrix), dtype=torch.bool)]


def implicit_scores(task, train_weight=0.0):
    surrogate, known = task.surrogate, task.known
    zero = torch.zeros(task.graph.num_features, task.num_classes, dtype=torch.float64)
    weights = fit_ridge(surrogate, known, RIDGE, zero, EXACT)
    logits = surrogate.logits(weights)
    outer = task.loss(train_weight).gradient(logits)
    adjoint = adjoint_weights(
        surrogate,
        logits[task.train].softmax(dim=1),
        surrogate.pull_back(outer),
        RIDGE,
        None,
        products=2000,
        tolerance=1e-12,
    )
    gradient = implicit_gradient(surrogate, known, outer, weights, adjoint)
    return pair_scores(surrogate, task.graph.degrees(), gradient)


@pytest.mark.parametrize("train_weight", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("density", [1.0, 0.15])
def test_implicit_agrees_with_autograd_through_converged_training(train_weight, density):
    task = random_task(density=density)
    scores = implicit_scores(task, train_weight)
    expected = converged_meta_gradient(task.graph, task.labels, task.train, 3, RIDGE, train_weight)
    torch.testing.assert_close(
        off_diagonal(scores.left @ scores.right.t()),
        off_diagonal(expected),
        rtol=0,
        atol=1e-5 * float(expected.abs().max()),
    )


def test_implicit_agrees_with_central_differences_of_retrained_surrogates():
    task = random_task(seed=3)
    scores = implicit_scores(task)
    adjacency = dense_adjacency(task.graph)
    found, expected = [], []
    for i, j in [(0, 1), (2, 39), (38, 39), *task.graph.edge_index.t()[:3].tolist()]:
        losses = []
        for change in (1e-4, -1e-4):
            moved = adjacency.clone()
            moved[i, j] += change
            moved[j, i] += change
            losses.append(loss_at_optimum(task.graph, moved, task.labels, task.train, 3, RIDGE))
        expected.append((losses[0] - losses[1]) / 2e-4)
        found.append(scores.left[i] @ scores.right[j])
    largest = float((scores.left @ scores.right.t()).abs().max())
    torch.testing.assert_close(
        torch.stack(found), torch.stack(expected), rtol=0, atol=1e-5 * largest
    )


def test_scores_are_symmetric_and_found_by_pair():
    task = random_task(seed=1)
    scores = implicit_scores(task)
    matrix = scores.left @ scores.right.t()
    torch.testing.assert_close(matrix, matrix.t())
    low, high = torch.triu_indices(40, 40, offset=1)
    torch.testing.assert_close(scores.of(low, high), matrix[low, high])


@pytest.mark.parametrize("train_weight", [0.0, 0.3, 1.0])
def test_the_attack_loss_and_its_gradient_are_those_of_autograd(train_weight):
    task = random_task()
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 3, dtype=torch.float64, generator=generator).requires_grad_()
    expected = attack_loss(logits, task.labels, task.train, train_weight)
    (slope,) = torch.autograd.grad(expected, logits)
    loss = task.loss(train_weight)
    torch.testing.assert_close(loss.value(logits), expected)
    torch.testing.assert_close(loss.gradient(logits.detach()), slope)
