"""The surrogate, its training, and the meta-gradient through it: those of dense autograd."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from aspect.attacks import meta_gradient
from aspect.attacks.base import Known
from aspect.attacks.meta_gradient import (
    AttackLoss,
    Descent,
    Effort,
    LowRank,
    Surrogate,
    UnrolledGradient,
    compressed,
    conjugate_gradients,
    first_order_gradient,
    fit_ridge,
    forms_rows,
    implicit_gradient,
    pair_scores,
    ridge_curvature,
    unrolled_gradient,
)
from aspect.data.features import dense
from attacks.tasks import random_task
from reference.metattack import (
    attack_loss,
    converged_meta_gradient,
    dense_adjacency,
    first_order_meta_gradient,
    fitted,
    inner_loss,
    loss_at_optimum,
    propagated,
    unrolled_meta_gradient,
)

EXACT = Effort(steps=100, products=2000, tolerance=1e-12, gradient=1e-13)
RIDGE = 0.05


def off_diagonal(matrix):
    return matrix[~torch.eye(len(matrix), dtype=torch.bool)]


def implicit_scores(task, train_weight=0.0):
    model, known = task.surrogate, task.known
    zero = torch.zeros(task.graph.num_features, task.num_classes, dtype=torch.float64)
    weights = fit_ridge(model, known, RIDGE, zero, EXACT)
    logits = model.logits(weights)
    outer = task.loss(train_weight).gradient(logits)
    curvature = ridge_curvature(model, logits[task.train].softmax(dim=1), RIDGE)
    adjoint = conjugate_gradients(curvature, model.pull_back(outer), None, 2000, 1e-12)
    gradient = implicit_gradient(model, known, outer, weights, adjoint)
    return pair_scores(model, task.graph.degrees(), gradient)


@pytest.mark.parametrize(("train_weight", "density"), [(0.0, 1.0), (0.5, 0.15), (1.0, 1.0)])
def test_implicit_agrees_with_autograd_through_converged_training(train_weight, density):
    task = random_task(density=density)
    scores = implicit_scores(task, train_weight)
    expected = converged_meta_gradient(task.graph, task.labels, task.train, 3, RIDGE, train_weight)
    matrix = scores.left @ scores.right.t()
    largest = float(expected.abs().max())
    torch.testing.assert_close(
        off_diagonal(matrix), off_diagonal(expected), rtol=0, atol=1e-5 * largest
    )
    torch.testing.assert_close(matrix, matrix.t())
    low, high = torch.triu_indices(40, 40, offset=1)
    torch.testing.assert_close(scores.of(low, high), matrix[low, high])


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


@pytest.mark.parametrize("train_weight", [0.0, 0.3])
def test_the_attack_loss_and_its_gradient_are_those_of_autograd(train_weight):
    task = random_task()
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 3, dtype=torch.float64, generator=generator).requires_grad_()
    expected = attack_loss(logits, task.labels, task.train, train_weight)
    (slope,) = torch.autograd.grad(expected, logits)
    loss = task.loss(train_weight)
    torch.testing.assert_close(loss.gradient(logits.detach()), slope)


# The unrolled solver

HIDDEN = 5


def descent(task, seed=0, **settings):
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(11, HIDDEN, dtype=torch.float64, generator=generator)
    second = torch.randn(HIDDEN, task.num_classes, dtype=torch.float64, generator=generator)
    return Descent(first, second, **{"steps": 100, "rate": 0.1, "momentum": 0.9} | settings)


@pytest.mark.parametrize(
    ("train_weight", "density", "settings"),
    [
        (0.0, 1.0, {}),
        (1.0, 0.15, {}),
        (0.5, 1.0, {"steps": 7, "rate": 0.02, "momentum": 0.0}),
        (0.0, 1.0, {"steps": 1}),
    ],
)
@pytest.mark.parametrize(
    ("derive", "reference"),
    [
        (unrolled_gradient, unrolled_meta_gradient),
        (first_order_gradient, first_order_meta_gradient),
    ],
)
def test_scores_agree_with_autograd(train_weight, density, settings, derive, reference):
    task = random_task(density=density)
    training = descent(task, **settings)
    model = task.surrogate
    gradient = derive(model, task.known, task.loss(train_weight), training)
    expected = reference(
        task.graph,
        task.labels,
        task.train,
        (training.first, training.second),
        steps=training.steps,
        rate=training.rate,
        momentum=training.momentum,
        train_weight=train_weight,
    )
    sketch = torch.randn(11, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    whole = compressed(gradient, sketch)  # there are eleven features: no rank is lost
    scores = pair_scores(model, task.graph.degrees(), whole)
    torch.testing.assert_close(
        off_diagonal(scores.left @ scores.right.t()),
        off_diagonal(expected),
        rtol=0,
        atol=1e-10 * float(expected.abs().max()),
    )


class OnNoDevice(Surrogate):
    """A surrogate of tensors without content: whoever asks one for a number gets an error."""

    num_train = 25

    def __init__(self):
        self.rows = torch.empty(50, 11, device="meta")

    def logits(self, weights):
        return self.rows @ weights

    def train_logits(self, weights):
        return self.rows[: self.num_train] @ weights

    def pull_back(self, gradient):
        return self.rows.t() @ gradient

    def pull_back_train(self, gradient):
        return self.rows[: self.num_train].t() @ gradient


def test_nothing_waits_for_a_number_between_the_steps():
    """On a GPU the hundred steps there and back are queued without a pause."""
    model = OnNoDevice()
    train = torch.arange(model.num_train, device="meta")
    known = Known(train, torch.empty(model.num_train, 3, device="meta"))
    classes = torch.empty(50, dtype=torch.long, device="meta")
    loss = AttackLoss.build(classes, train, 0.0, torch.float32)
    first, second = (torch.empty(*shape, device="meta") for shape in ((11, HIDDEN), (HIDDEN, 3)))
    gradient = unrolled_gradient(model, known, loss, Descent(first, second, 4, 0.1, 0.9))
    small = compressed(gradient, torch.empty(11, 6, device="meta"))
    assert small.nodes.shape == (50, 6)
    assert small.features.device.type == "meta"


def test_compression_keeps_the_large_part_of_a_matrix():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    train = torch.arange(0, 50, 2)
    decay = 0.5 ** torch.arange(30, dtype=torch.float64)
    outer, steps = LowRank(draw(50, 1), draw(40, 1)), LowRank(draw(25, 30) * decay, draw(40, 30))
    matrix = UnrolledGradient(outer, steps, train)
    exact = outer.nodes @ outer.features.t()
    exact[train] += steps.nodes @ steps.features.t()
    torch.testing.assert_close(matrix.times(torch.eye(40).double()), exact)
    torch.testing.assert_close(matrix.transposed_times(torch.eye(50).double()), exact.t())
    small = compressed(matrix, draw(40, 12))
    assert small.nodes.shape == (50, 12)
    assert small.features.shape == (40, 12)
    error = (small.nodes @ small.features.t() - exact).norm()
    assert error < 3 * torch.linalg.svdvals(exact)[12:].norm()


# The surrogate


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


@pytest.fixture(params=[1.0, 0.15], ids=["dense", "compressed"])
def task(request):
    return random_task(density=request.param)


@pytest.fixture(params=[0, 40 * 11], ids=["applied", "formed"])
def formed(request, monkeypatch):
    """Both ways on the CPU: where rows of S are formed, that is done on a GPU alone."""
    monkeypatch.setitem(meta_gradient.MOST_FORMED_ENTRIES, "cpu", request.param)
    return request.param > 0


@pytest.fixture
def s(task):
    return propagated(dense_adjacency(task.graph), dense(task.graph.features))


def test_products_are_those_of_the_matrix(task, s, formed, monkeypatch):
    monkeypatch.setattr(meta_gradient, "COLUMNS_AT_ONCE", 4)  # the norm is taken in chunks
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
    other = LogisticRegression(
        C=1 / (0.02 * len(task.train)), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(s[task.train].numpy(), task.labels[task.train].numpy())
    for start in (torch.zeros(11, 3, dtype=torch.float64), 3 * draw(11, 3)):
        found = fit_ridge(task.surrogate, task.known, 0.02, start, EXACT)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(found, torch.tensor(other.coef_).t(), rtol=1e-4, atol=1e-5)
    rough = Effort(3, 10, tolerance=1e-2, gradient=1e-9)
    assert torch.equal(fit_ridge(task.surrogate, task.known, 0.02, found, rough), found)


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


def test_conjugate_gradients_stop_where_squares_vanish_in_float32():
    target = torch.full((3, 2), 1e-22)
    found = conjugate_gradients(lambda x: 0.01 * x, target, None, 10, 1e-2)
    assert torch.equal(found, torch.zeros_like(target))
