"""The original's inner training: its derivative is autograd's, before and after compression."""

import pytest
import torch

from aspect.attacks.knowledge import Known
from aspect.attacks.meta_gradient import AttackLoss, LowRank, pair_scores
from aspect.attacks.surrogate import Surrogate
from aspect.attacks.unrolled import Descent, UnrolledGradient, compressed, unrolled_gradient
from attacks.tasks import random_task
from reference.metattack import unrolled_meta_gradient

HIDDEN = 5


def off_diagonal(matrix):
    return matrix[~torch.eye(len(matrix), dtype=torch.bool)]


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
def test_scores_agree_with_autograd_through_every_step(train_weight, density, settings):
    task = random_task(density=density)
    training = descent(task, **settings)
    surrogate = task.surrogate
    gradient = unrolled_gradient(surrogate, task.known, task.loss(train_weight), training)
    expected = unrolled_meta_gradient(
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
    scores = pair_scores(surrogate, task.graph.degrees(), whole)
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
    surrogate = OnNoDevice()
    train = torch.arange(surrogate.num_train, device="meta")
    known = Known(train, torch.empty(surrogate.num_train, 3, device="meta"))
    classes = torch.empty(50, dtype=torch.long, device="meta")
    loss = AttackLoss.build(classes, train, 0.0, torch.float32)
    first, second = (torch.empty(*shape, device="meta") for shape in ((11, HIDDEN), (HIDDEN, 3)))
    gradient = unrolled_gradient(surrogate, known, loss, Descent(first, second, 4, 0.1, 0.9))
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
