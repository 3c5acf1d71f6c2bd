"""The surrogate without its matrix S is the one with it; the fit is the one optimum."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from aspect.attacks import surrogate
from aspect.attacks.surrogate import (
    Effort,
    conjugate_gradients,
    fit_ridge,
    forms_rows,
    ridge_curvature,
    row_softmax,
    slim_product,
    softmax_curvature,
)
from aspect.data.features import dense
from attacks.tasks import random_task
from reference.metattack import dense_adjacency, fitted, inner_loss, propagated

EXACT = Effort(steps=100, products=2000, tolerance=1e-12, gradient=1e-13)


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


@pytest.fixture(params=[1.0, 0.15], ids=["dense", "compressed"])
def task(request):
    return random_task(density=request.param)


@pytest.fixture(params=[0, 40 * 11], ids=["applied", "formed"])
def formed(request, monkeypatch):
    """Both ways on the CPU: where rows of S are formed, that is done on a GPU alone."""
    monkeypatch.setitem(surrogate.MOST_FORMED_ENTRIES, "cpu", request.param)
    return request.param > 0


@pytest.fixture
def s(task):
    return propagated(dense_adjacency(task.graph), dense(task.graph.features))


def test_products_are_those_of_the_matrix(task, s, formed):
    assert forms_rows(task.graph.features.shape, task.graph.device) == formed
    model, train = task.surrogate, task.train
    weights, gradient = draw(11, 3), draw(40, 3, seed=1)
    torch.testing.assert_close(model.logits(weights), s @ weights)
    torch.testing.assert_close(model.train_logits(weights), s[train] @ weights)
    torch.testing.assert_close(model.pull_back(gradient), s.t() @ gradient)
    torch.testing.assert_close(
        model.pull_back_train(gradient[train]), s[train].t() @ gradient[train]
    )
    assert model.mean_square() == pytest.approx(float(s[train].square().sum(1).mean()))


def test_the_norm_is_taken_over_all_chunks_of_columns(task, s, monkeypatch):
    monkeypatch.setattr(surrogate, "COLUMNS_AT_ONCE", 4)
    expected = float(s[task.train].square().sum(1).mean())
    assert task.surrogate.mean_square() == pytest.approx(expected)


def test_the_curvature_is_the_hessian_of_the_loss(task, s):
    weights, direction = draw(11, 3), draw(11, 3, seed=1)
    probabilities = (s @ weights)[task.train].softmax(dim=1)
    found = ridge_curvature(task.surrogate, probabilities, 0.1)(direction)
    expected = torch.autograd.functional.hvp(
        lambda w: inner_loss(s, w, task.labels, task.train, 0.1), weights, direction
    )[1]
    torch.testing.assert_close(found, expected)


def test_the_fit_is_the_optimum_whatever_the_start(task, s):
    expected = fitted(s, task.labels, task.train, 3, 0.02)
    for start in (torch.zeros(11, 3, dtype=torch.float64), 3 * draw(11, 3)):
        found = fit_ridge(task.surrogate, task.known, 0.02, start, EXACT)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_the_fit_is_that_of_another_library(task, s):
    found = fit_ridge(
        task.surrogate, task.known, 0.05, torch.zeros(11, 3, dtype=torch.float64), EXACT
    )
    other = LogisticRegression(
        C=1 / (0.05 * len(task.train)), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(s[task.train].numpy(), task.labels[task.train].numpy())
    torch.testing.assert_close(found, torch.tensor(other.coef_).t(), rtol=1e-4, atol=1e-5)


def test_a_little_effort_lowers_the_loss(task, s):
    start = 10 * draw(11, 3)
    little = Effort(steps=1, products=2, tolerance=1e-2, gradient=0.0)
    after = fit_ridge(task.surrogate, task.known, 0.02, start, little)
    losses = [inner_loss(s, w, task.labels, task.train, 0.02) for w in (start, after)]
    assert losses[1] < losses[0]


def test_a_fit_at_its_optimum_stays_there(task):
    best = fit_ridge(
        task.surrogate, task.known, 0.02, torch.zeros(11, 3, dtype=torch.float64), EXACT
    )
    again = fit_ridge(
        task.surrogate, task.known, 0.02, best, Effort(3, 10, tolerance=1e-2, gradient=1e-9)
    )
    assert torch.equal(again, best)


def test_conjugate_gradients_solve_from_any_start_and_stop_when_told():
    root = draw(8, 8)
    matrix, target = root @ root.t() + torch.eye(8), draw(8, 2, seed=1)
    exact = torch.linalg.solve(matrix, target)
    for start in (None, draw(8, 2, seed=2)):
        found = conjugate_gradients(lambda x: matrix @ x, target, start, 100, 1e-12)
        torch.testing.assert_close(found, exact)
    rough = conjugate_gradients(lambda x: matrix @ x, target, None, 100, 0.5)
    assert 1e-3 < (matrix @ rough - target).norm() / target.norm() <= 0.5
    assert torch.equal(conjugate_gradients(lambda x: matrix @ x, target, exact, 0, 0.0), exact)
    nothing = torch.zeros(8, 2, dtype=torch.float64)
    assert torch.equal(conjugate_gradients(lambda x: matrix @ x, nothing, None, 9, 0.0), nothing)


def test_quicker_forms_are_those_of_torch():
    x, y = draw(6, 3), draw(6, 4, seed=1)
    torch.testing.assert_close(row_softmax(x), x.softmax(dim=1))
    torch.testing.assert_close(slim_product(x, y), y.t() @ x)


def test_softmax_answers_as_its_jacobian_does():
    logits, direction = draw(5, 4), draw(5, 4, seed=1)
    expected = torch.autograd.functional.jvp(lambda z: z.softmax(dim=1), logits, direction)[1]
    torch.testing.assert_close(softmax_curvature(logits.softmax(dim=1), direction), expected)


def test_rows_are_formed_up_to_a_size(monkeypatch):
    monkeypatch.setitem(surrogate.MOST_FORMED_ENTRIES, "cuda", 12)
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert forms_rows((3, 4), gpu)
    assert not forms_rows((3, 5), gpu)
    assert not forms_rows((1, 1), cpu)
