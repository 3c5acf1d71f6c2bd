"""How the attack loss changes with every pair of nodes, through the training of the surrogate.

With a matrix `dL/dS = F Kᵀ` of low rank, the derivative along `A_ij = A_ji` is a product of two
short rows, `s_ij = l_i · r_j`; nothing of the size nodes x nodes is formed. The two inner solvers
differ in F and K alone:

- implicit: the surrogate with a ridge is trained to its one optimum, and the adjoint of the
  optimality condition gives rank 2C, exactly.
- unrolled (Zügner & Günnemann, ICLR 2019): two weight matrices, trained by a fixed number of steps
  of gradient descent with momentum and without a ridge, and the derivative through all of them, of
  rank C(2 steps + 1), compressed. Step t adds `R_t K_tᵀ + B_t W_tᵀ` to `dL/dS`, where `W_t` is the
  product of the weights, (u1, u2) the adjoint of the velocities, `K_t = u1 W2 + W1 u2` and
  `B_t = J(S K_t) / |T|`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.attacks.base import Known
from aspect.attacks.flip_ranking import PairScores
from aspect.attacks.surrogate import (
    Surrogate,
    conjugate_gradients,
    ridge_curvature,
    row_softmax,
    slim_product,
    softmax_curvature,
)

__all__ = [
    "AttackLoss",
    "Descent",
    "LowRank",
    "UnrolledGradient",
    "adjoint_weights",
    "compressed",
    "implicit_gradient",
    "pair_scores",
    "unrolled_gradient",
]

Weights = Float[Tensor, "features classes"]


@dataclass(frozen=True, eq=False)
class AttackLoss:
    """`L = λ mean_T CE(Z_i, y_i) + (1 - λ) mean_U CE(Z_i, ŷ_i)`, which the attacker maximises."""

    classes: Int[Tensor, " nodes"]  # known on T, guessed on U
    shares: Float[Tensor, " nodes"]  # λ / |T| on T, (1 - λ) / |U| on U

    @classmethod
    def build(
        cls,
        classes: Int[Tensor, " nodes"],
        train: Int[Tensor, " train"],
        train_weight: float,
        dtype: torch.dtype,
    ) -> AttackLoss:
        """Weigh the mean over training nodes (λ) against the mean over all the others."""
        others = max(1, len(classes) - len(train))
        shares = torch.full(
            (len(classes),), (1 - train_weight) / others, dtype=dtype, device=classes.device
        )
        shares[train] = train_weight / len(train)
        return cls(classes, shares)

    def value(self, logits: Float[Tensor, "nodes classes"]) -> Float[Tensor, ""]:
        """The loss itself."""
        every = torch.nn.functional.cross_entropy(logits, self.classes, reduction="none")
        return (self.shares * every).sum()

    def gradient(self, logits: Float[Tensor, "nodes classes"]) -> Float[Tensor, "nodes classes"]:
        """`P = dL/dZ`."""
        gradient = row_softmax(logits)
        gradient[torch.arange(len(gradient), device=gradient.device), self.classes] -= 1
        return gradient.mul_(self.shares.unsqueeze(1))


@dataclass(frozen=True, eq=False)
class LowRank:
    """`dL/dS = F Kᵀ`."""

    nodes: Float[Tensor, "nodes rank"]  # F
    features: Float[Tensor, "features rank"]  # K


def pair_scores(
    surrogate: Surrogate, degrees: Int[Tensor, " nodes"], gradient: LowRank
) -> PairScores:
    """From `dL/dS` through both propagations and the normalisation to the pairs.

    Args:
        surrogate: With the adjacency at which the derivative is taken.
        degrees: Without self-loops; they are added here.
        gradient: `F Kᵀ`.
    """
    f, y0 = gradient.nodes, surrogate.project(gradient.features)
    f1, y1 = surrogate.propagate(f), surrogate.propagate(y0)
    f2, y2 = surrogate.propagate(f1), surrogate.propagate(y1)
    d = (degrees + 1).to(f.dtype).unsqueeze(1)
    # dL/dD_i, the self-loop's part included: adding an edge also weakens all others of its ends.
    through_degree = (2 * f1 * y1 + f * y2 + y0 * f2).sum(dim=1, keepdim=True) / (-2 * d)
    scale, one = d.rsqrt(), torch.ones_like(through_degree)
    left = torch.cat([f * scale, f1 * scale, y1 * scale, y0 * scale, through_degree, one], dim=1)
    right = torch.cat([y1 * scale, y0 * scale, f * scale, f1 * scale, one, through_degree], dim=1)
    return PairScores(left, right)


def adjoint_weights(
    surrogate: Surrogate,
    probabilities: Float[Tensor, "train classes"],
    target: Weights,
    ridge: float,
    start: Weights | None,
    *,
    products: int,
    tolerance: float,
) -> Weights:
    """V of `H V = Sᵀ P`, H the Hessian of the inner problem: how the optimum answers the loss."""
    curvature = ridge_curvature(surrogate, probabilities, ridge)
    return conjugate_gradients(curvature, target, start, products, tolerance)


def implicit_gradient(
    surrogate: Surrogate,
    known: Known,
    outer: Float[Tensor, "nodes classes"],
    weights: Weights,
    adjoint: Weights,
) -> LowRank:
    """`F = [P - B, -R]` and `K = [W, V]` at the trained weights.

    Args:
        surrogate: S.
        known: The training nodes, with their classes.
        outer: `P = dL/dZ`.
        weights: W, the optimum of the inner problem.
        adjoint: V.
    """
    probabilities = row_softmax(surrogate.train_logits(weights))
    bent = softmax_curvature(probabilities, surrogate.train_logits(adjoint))
    through_logits = outer.index_add(0, known.nodes, bent, alpha=-1 / surrogate.num_train)
    through_residual = torch.zeros_like(outer)
    through_residual[known.nodes] = (known.targets - probabilities) / surrogate.num_train
    return LowRank(
        torch.cat([through_logits, through_residual], dim=1), torch.cat([weights, adjoint], dim=1)
    )


# The unrolled solver


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
    steps, first, second = _descend(surrogate, known, descent)
    product = slim_product(second, first.t())
    outer = loss.gradient(surrogate.logits(product))
    pulled = surrogate.pull_back(outer)
    toward_first, toward_second = pulled @ second.t(), (pulled.t() @ first).t()
    speed_first, speed_second = torch.zeros_like(first), torch.zeros_like(second)
    pieces = _Pieces(2 * descent.steps, known, product)
    for step in reversed(steps):
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
    steps = []
    for _ in range(descent.steps):
        product = slim_product(second, first.t())
        probabilities = row_softmax(surrogate.train_logits(product))
        residual = (probabilities - known.targets) / surrogate.num_train
        pulled = surrogate.pull_back_train(residual)
        steps.append(_Step(first, second, product, probabilities, residual, pulled))
        speed_first.mul_(descent.momentum).addmm_(pulled, second.t())
        speed_second.mul_(descent.momentum).add_((pulled.t() @ first).t())
        first = first.sub(speed_first, alpha=descent.rate)
        second = second.sub(speed_second, alpha=descent.rate)
    return steps, first, second


def compressed(gradient: UnrolledGradient, sketch: Float[Tensor, "features rank"]) -> LowRank:
    """The same matrix to the rank of a random sketch: a range finder with one power iteration.

    It is exact where the rank is at least that of the matrix.
    """
    nodes = torch.linalg.qr(gradient.times(sketch)).Q
    features = torch.linalg.qr(gradient.transposed_times(nodes)).Q
    nodes = torch.linalg.qr(gradient.times(features)).Q
    return LowRank(nodes, gradient.transposed_times(nodes))
