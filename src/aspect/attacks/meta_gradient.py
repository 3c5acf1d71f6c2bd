"""How the attack loss changes with every pair of nodes, through the training of the surrogate.

With a matrix `dL/dS = F Kᵀ` of low rank, the derivative along `A_ij = A_ji` is a product of two
short rows, `s_ij = l_i · r_j`; nothing of the size nodes x nodes is formed. The two inner solvers
differ in F and K alone:

- implicit: the surrogate with a ridge is trained to its one optimum, and the adjoint of the
  optimality condition gives rank 2C, exactly.
- unrolled (Zügner & Günnemann, ICLR 2019): two weight matrices, trained by a fixed number of steps
  of gradient descent with momentum, and the derivative through all of them, of rank C(2 steps + 1),
  compressed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.attacks.knowledge import Known
from aspect.attacks.surrogate import (
    Surrogate,
    conjugate_gradients,
    ridge_curvature,
    row_softmax,
    softmax_curvature,
)

__all__ = [
    "AttackLoss",
    "LowRank",
    "PairScores",
    "adjoint_weights",
    "implicit_gradient",
    "pair_scores",
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


@dataclass(frozen=True, eq=False)
class PairScores:
    """`s_ij = l_i · r_j = s_ji` for i != j: the derivative of the loss along A_ij = A_ji."""

    left: Float[Tensor, "nodes rank"]  # l
    right: Float[Tensor, "nodes rank"]  # r

    def of(
        self, low: Int[Tensor, " pairs"], high: Int[Tensor, " pairs"]
    ) -> Float[Tensor, " pairs"]:
        """The scores of some pairs."""
        return (self.left[low] * self.right[high]).sum(dim=1)


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
