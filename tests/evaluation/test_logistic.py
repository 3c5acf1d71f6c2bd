"""The solver: scikit-learn's solutions, invariances, and what has no solution of its own."""

import logging
import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import one_hot

from aspect.evaluation import neutral_probe as logistic
from aspect.evaluation.neutral_probe import RegressionTasks, logits_of, principal_axes, solve
from aspect.evaluation.result import with_constant


def problem(dim=6, num_nodes=90, num_classes=3, noise=1.5, seed=7):
    """Blurred classes in float64, and two overlapping training sets of different sizes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(num_classes, (num_nodes,), generator=generator)
    centres = torch.randn(num_classes, dim, generator=generator, dtype=torch.float64)
    blur = torch.randn(num_nodes, dim, generator=generator, dtype=torch.float64)
    trained = torch.stack([torch.arange(num_nodes) % 3 > 0, torch.arange(num_nodes) < 50])
    return centres[labels] + noise * blur, labels, trained


def tasks_of(labels, trained, penalties, num_classes=3):
    share = trained.double() / trained.sum(dim=1, keepdim=True)
    targets = share.unsqueeze(1) * one_hot(labels, num_classes).t().double()
    return RegressionTasks(targets, torch.as_tensor(penalties, dtype=torch.float64))


def solved(rows, tasks, tolerance=1e-9, start=None):
    inputs = with_constant(rows)
    start = rows.new_zeros(*tasks.priors.shape, inputs.shape[1]) if start is None else start
    return solve(inputs, tasks, start, torch.full_like(tasks.penalties, tolerance))


@pytest.mark.parametrize("penalty", [10.0, 1e-1, 1e-3, 1e-5])
@pytest.mark.parametrize("dim", [6, 120])  # fewer columns than rows, and more: separable
def test_the_solution_is_that_of_scikit_learn(penalty, dim):
    rows, labels, trained = problem(dim)
    found = solved(rows, tasks_of(labels, trained, [penalty, penalty]))
    for weights, mask in zip(found, trained, strict=True):
        strength = 1 / (penalty * int(mask.sum()))
        reference = LogisticRegression(C=strength, tol=1e-12, max_iter=100_000)
        reference.fit(rows[mask].numpy(), labels[mask].numpy())
        slopes = torch.from_numpy(reference.coef_)
        torch.testing.assert_close(weights[:, :-1], slopes, rtol=1e-3, atol=1e-4)
        expected = torch.from_numpy(reference.predict_proba(rows.numpy()))
        logits = with_constant(rows) @ weights.t()
        torch.testing.assert_close(logits.softmax(dim=1), expected, rtol=1e-3, atol=1e-4)


def test_the_gradient_of_the_objective_vanishes():
    rows, labels, trained = problem()
    penalties = torch.tensor([0.3, 0.003], dtype=torch.float64)
    found = solved(rows, tasks_of(labels, trained, penalties)).requires_grad_()
    losses = [
        torch.nn.functional.cross_entropy((with_constant(rows) @ weights.t())[mask], labels[mask])
        + penalty / 2 * weights[:, :-1].square().sum()
        for weights, mask, penalty in zip(found, trained, penalties, strict=True)
    ]
    (gradient,) = torch.autograd.grad(sum(losses), found)
    assert float(gradient.flatten(1).norm(dim=1).max()) < 1e-9


def test_the_start_does_not_matter():
    rows, labels, trained = problem()
    tasks = tasks_of(labels, trained, [1e-2, 1e-3])
    wild = 5 * torch.randn(2, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    # All intercepts may be raised together, so that they are compared by their differences.
    found, other = (
        weights - weights.mean(dim=1, keepdim=True)
        for weights in (solved(rows, tasks), solved(rows, tasks, start=wild))
    )
    torch.testing.assert_close(found, other, rtol=1e-6, atol=1e-6)


def test_tasks_do_not_disturb_each_other():
    rows, labels, trained = problem()
    together = solved(rows, tasks_of(labels, trained, [1.0, 1e-6]))
    for number, penalty in enumerate([1.0, 1e-6]):
        alone = solved(rows, tasks_of(labels, trained[number : number + 1], [penalty]))
        torch.testing.assert_close(together[number], alone[0], rtol=1e-6, atol=1e-8)


def test_a_class_without_training_rows_is_never_predicted():
    rows, labels, trained = problem()
    trained[1] &= labels != 2
    tasks = tasks_of(labels, trained, [1e-3, 1e-3])
    found = solved(rows, tasks)
    logits = logits_of(found, with_constant(rows), tasks.priors)
    assert bool(torch.isfinite(found).all())
    assert bool((logits[1, 2] == -math.inf).all())
    two = solved(rows, tasks_of(labels.clamp_max(1), trained[1:], [1e-3], num_classes=2))
    torch.testing.assert_close(found[1, :2], two[0], rtol=1e-6, atol=1e-8)


def test_rows_that_are_all_the_same_leave_the_shares_of_the_classes():
    _, labels, trained = problem()
    rows = torch.zeros(len(labels), 4, dtype=torch.float64)
    tasks = tasks_of(labels, trained, [1.0, 1e-8])
    found = solved(rows, tasks)
    torch.testing.assert_close(found[..., -1].softmax(dim=1), tasks.priors)
    assert bool((found[..., :-1] == 0).all())


@pytest.mark.parametrize("shape", [(90, 6), (40, 120)])
def test_axes_keep_lengths_and_leave_rows_uncorrelated(shape):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(shape, generator=generator) @ torch.randn(2 * shape[1:], generator=generator)
    rows = rows - rows.mean(dim=0)
    axes = principal_axes(rows)
    assert axes.shape[1] == min(shape[1], shape[0] - 1)
    turned = rows @ axes
    torch.testing.assert_close(turned.norm(dim=1), rows.norm(dim=1), rtol=1e-5, atol=1e-5)
    products = turned.t() @ turned
    torch.testing.assert_close(
        products, products.diag().diag(), rtol=0, atol=1e-5 * len(products) ** 3
    )


def test_too_many_axes_are_not_looked_for(monkeypatch):
    monkeypatch.setattr(logistic, "MOST_AXES", 5)
    assert principal_axes(torch.randn(6, 7)) is None
    assert principal_axes(torch.randn(6, 5)) is not None


def test_what_is_not_solved_is_said_and_stays_finite(caplog):
    rows, labels, trained = problem(120)
    single = RegressionTasks(
        tasks_of(labels, trained, [1e-8, 1e-8]).targets.float(), torch.full((2,), 1e-8)
    )
    with caplog.at_level(logging.WARNING):
        found = solved(rows.float(), single, tolerance=1e-20)  # rounding does not allow it
    assert "2 of 2 logistic regressions of the probe were not solved" in caplog.text
    assert bool(torch.isfinite(found).all())
    exact = solved(rows, tasks_of(labels, trained, [1e-8, 1e-8]), tolerance=1e-12)
    agreed = (with_constant(rows) @ found.double().mT).argmax(2) == (
        with_constant(rows) @ exact.mT
    ).argmax(2)
    assert float(agreed.double().mean()) > 0.97
