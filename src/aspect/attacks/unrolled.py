"""The original's inner training, and the derivative through each of its steps.

Two weight matrices are trained by a fixed number of steps of gradient descent with momentum and
without a ridge. Step t adds `R_t K_tᵀ + B_t W_tᵀ` to `dL/dS`, where `W_t` is the product of the
weights, (u1, u2) the adjoint of the velocities, `K_t = u1 W2 + W1 u2` and `B_t = J(S K_t) / |T|`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.attacks.knowledge import Known
from aspect.attacks.meta_gradient import AttackLoss, LowRank
from aspect.attacks.surrogate import Surrogate, row_softmax, slim_product, softmax_curvature

__all__ = ["Descent", "UnrolledGradient", "compressed", "unrolled_gradient"]


@dataclass(frozen=True)
class Descent:
    """The original's inner training: gradient descent with momentum, from given weights."""

    first: Float[Tensor, "features hidden"]
    second: Float[Tensor, "hidden classes"]
    steps: int
    rate: float
    momentum: float


@dataclass(frozen=True, eq=False)
class UnrolledGradient:
    """`dL/dS` as a sum: what the last weights see, and what all steps of training add."""

    outer: LowRank  # `P Wᵀ`, on all nodes
    steps: LowRank  # on the training nodes, of rank 2 C steps
    train: Int[Tensor, " train"]

    def times(self, x: Float[Tensor, "features dim"]) -> Float[Tensor, "nodes dim"]:
        """The matrix times x."""
        product = self.outer.nodes @ (self.outer.features.t() @ x)
        return product.index_add_(0, self.train, self.steps.nodes @ (self.steps.features.t() @ x))

    def transposed_times(self, x: Float[Tensor, "nodes dim"]) -> Float[Tensor, "features dim"]:
        """The transposed matrix times x."""
        product = self.outer.features @ (self.outer.nodes.t() @ x)
        return product + self.steps.features @ (self.steps.nodes.t() @ x[self.train])


@dataclass(frozen=True, eq=False)
class _Step:
    """What the way back needs of one step of the inner training."""

    first: Float[Tensor, "features hidden"]
    second: Float[Tensor, "hidden classes"]
    product: Float[Tensor, "features classes"]  # of the two
    probabilities: Float[Tensor, "train classes"]
    residual: Float[Tensor, "train classes"]
    pulled: Float[Tensor, "features classes"]  # the residual at the product of the weights


def unrolled_gradient(
    surrogate: Surrogate, known: Known, loss: AttackLoss, descent: Descent
) -> UnrolledGradient:
    """Train by gradient descent and go back through every step."""
    trace, first, second = _descend(surrogate, known, descent)
    product = slim_product(second, first.t())
    outer = loss.gradient(surrogate.logits(product))
    pulled = surrogate.pull_back(outer)
    toward_first, toward_second = pulled @ second.t(), (pulled.t() @ first).t()
    speed_first, speed_second = torch.zeros_like(first), torch.zeros_like(second)
    pieces = _Pieces(2 * descent.steps, known, product)
    for step in reversed(trace):
        # Adjoints of the velocities, which are those of the step's gradient as well.
        speed_first.mul_(descent.momentum).sub_(toward_first, alpha=descent.rate)
        speed_second.mul_(descent.momentum).sub_(toward_second, alpha=descent.rate)
        direction = slim_product(step.second, speed_first.t())
        direction += slim_product(speed_second, step.first.t())
        bent = softmax_curvature(step.probabilities, surrogate.train_logits(direction))
        bent.div_(surrogate.num_train)
        pieces.add(step.residual, direction)
        pieces.add(bent, step.product)
        back = surrogate.pull_back_train(bent)
        toward_first.addmm_(back, step.second.t()).addmm_(step.pulled, speed_second.t())
        toward_second += (back.t() @ step.first + step.pulled.t() @ speed_first).t()
    return UnrolledGradient(LowRank(outer, product), pieces.joined(), known.nodes)


class _Pieces:
    """The steps' parts side by side, written where they will stay: joining copies is slow."""

    def __init__(
        self, count: int, known: Known, weights: Float[Tensor, "features classes"]
    ) -> None:
        self.width, self.filled = weights.shape[1], 0
        self.rows = weights.new_empty(count * self.width, len(known.nodes))
        self.columns = weights.new_empty(count * self.width, len(weights))

    def add(
        self, rows: Float[Tensor, "train classes"], columns: Float[Tensor, "features classes"]
    ) -> None:
        place = slice(self.filled, self.filled + self.width)
        self.rows[place], self.columns[place] = rows.t(), columns.t()
        self.filled += self.width

    def joined(self) -> LowRank:
        return LowRank(self.rows.t(), self.columns.t())


def _descend(
    surrogate: Surrogate, known: Known, descent: Descent
) -> tuple[list[_Step], Tensor, Tensor]:
    """All steps, and the weights after the last."""
    first, second = descent.first, descent.second
    speed_first, speed_second = torch.zeros_like(first), torch.zeros_like(second)
    trace = []
    for _ in range(descent.steps):
        product = slim_product(second, first.t())
        probabilities = row_softmax(surrogate.train_logits(product))
        residual = (probabilities - known.targets) / surrogate.num_train
        pulled = surrogate.pull_back_train(residual)
        trace.append(_Step(first, second, product, probabilities, residual, pulled))
        speed_first.mul_(descent.momentum).addmm_(pulled, second.t())
        speed_second.mul_(descent.momentum).add_((pulled.t() @ first).t())
        first = first.sub(speed_first, alpha=descent.rate)
        second = second.sub(speed_second, alpha=descent.rate)
    return trace, first, second


def compressed(gradient: UnrolledGradient, sketch: Float[Tensor, "features rank"]) -> LowRank:
    """The same matrix to the rank of a random sketch: a range finder with one power iteration.

    It is exact where the rank is at least that of the matrix.
    """
    nodes = torch.linalg.qr(gradient.times(sketch)).Q
    features = torch.linalg.qr(gradient.transposed_times(nodes)).Q
    nodes = torch.linalg.qr(gradient.times(features)).Q
    return LowRank(nodes, gradient.transposed_times(nodes))
