"""The meta-gradient: how the attack loss changes with every pair, through the surrogate's training.

The surrogate, the model that Metattack fools, is a graph convolution of two layers without
non-linearity. Its logits are `Z = S W` with `S = Â² X` and `Â = D^(-1/2) (A + I) D^(-1/2)`. On a
CPU, S is never formed: it is applied as two propagations of `X W`, which has as many columns as
there are classes. A GPU spends its time on starting products rather than on making them, so that
there the training nodes' rows of S are formed once for the hundreds of products of a training.

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

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.attacks.base import Known
from aspect.attacks.flip_ranking import PairScores
from aspect.data.graph import Features
from aspect.data.sparse import Pattern, SparseMatrix

COLUMNS_AT_ONCE = 64  # of S, where its norm is taken
MOST_FORMED_ENTRIES = {"cpu": 0, "cuda": 2**25}  # of a matrix of the features' size
SUFFICIENT_DECREASE = 1e-4  # share of the decrease that the slope promises (Armijo)
MOST_HALVINGS = 20

Weights = Float[Tensor, "features classes"]


# The surrogate and its training


@dataclass(frozen=True)
class Effort:
    """How far the convex inner problem is solved."""

    steps: int  # of Newton's method
    products: int  # with the Hessian, in each of them
    tolerance: float  # relative residual at which conjugate gradients end
    gradient: float  # norm of the gradient, relative to that at zero, at which Newton ends


class ConstantFeatures:
    """X and its transpose, ready to be multiplied with; the attack never changes them."""

    def __init__(self, features: Features) -> None:
        self.shape, self.dtype, self.device = features.shape, features.dtype, features.device
        self.sparse = isinstance(features, SparseMatrix)
        if isinstance(features, SparseMatrix):
            self._matrix, self._transposed = features.as_csr(), features.transposed.as_csr()
        else:
            self._matrix, self._transposed = features, features.t().contiguous()

    def times(self, x: Float[Tensor, "features dim"]) -> Float[Tensor, "nodes dim"]:
        """`X x`."""
        return self._matrix @ x if self.sparse else slim_product(x, self._transposed)

    def transposed_times(self, x: Float[Tensor, "nodes dim"]) -> Float[Tensor, "features dim"]:
        """`Xᵀ x`."""
        return self._transposed @ x if self.sparse else slim_product(x, self._matrix)

    def dense(self) -> Float[Tensor, "nodes features"]:
        """X with its zeros."""
        return self._matrix.to_dense() if self.sparse else self._matrix


def slim_product(x: Float[Tensor, "inner dim"], y: Float[Tensor, "inner outer"]) -> Tensor:
    """`yᵀ x` for an x of few columns: on a CPU several times as fast from this side."""
    return y.t() @ x if x.is_cuda else (x.t() @ y).t().contiguous()


def forms_rows(shape: tuple[int, ...], device: torch.device) -> bool:
    """Whether S of features of this shape is formed for its training nodes."""
    return shape[0] * shape[1] <= MOST_FORMED_ENTRIES.get(device.type, 0)


class Surrogate:
    """S of one adjacency, for all nodes and for the training nodes alone."""

    def __init__(
        self, features: ConstantFeatures, adjacency: SparseMatrix, train: Int[Tensor, " train"]
    ) -> None:
        self.features, self.num_train = features, len(train)
        self.adjacency = adjacency.as_csr()  # `Â x` is the mean that a graph convolution takes
        into_train = _rows(adjacency, train)
        self._into_train, self._out_of_train = into_train.as_csr(), into_train.transposed.as_csr()
        self._train_rows: Tensor | None = None  # of S, where it is formed
        if forms_rows(features.shape, features.device):
            self._train_rows = self._into_train @ (self.adjacency @ features.dense())

    def logits(self, weights: Weights) -> Float[Tensor, "nodes classes"]:
        """`S W` of every node."""
        return self.adjacency @ (self.adjacency @ self.features.times(weights))

    def train_logits(self, weights: Weights) -> Float[Tensor, "train classes"]:
        """`S W` of the training nodes."""
        if self._train_rows is not None:
            return self._train_rows @ weights
        return self._into_train @ (self.adjacency @ self.features.times(weights))

    def pull_back(self, gradient: Float[Tensor, "nodes classes"]) -> Weights:
        """`Sᵀ P`: from a gradient at the logits to one at the weights."""
        return self.features.transposed_times(self.adjacency @ (self.adjacency @ gradient))

    def pull_back_train(self, gradient: Float[Tensor, "train classes"]) -> Weights:
        """`Sᵀ P` for a P that is zero outside the training nodes."""
        if self._train_rows is not None:
            return self._train_rows.t() @ gradient
        return self.features.transposed_times(self.adjacency @ (self._out_of_train @ gradient))

    def mean_square(self) -> float:
        """Mean squared norm of the training nodes' rows of S; a ridge in its unit has no scale."""
        num_features = self.features.shape[1]
        total = 0.0
        for start in range(0, num_features, COLUMNS_AT_ONCE):
            width = min(COLUMNS_AT_ONCE, num_features - start)
            columns = torch.zeros(
                num_features, width, dtype=self.features.dtype, device=self.features.device
            )
            columns[torch.arange(start, start + width), torch.arange(width)] = 1
            total += float(self.train_logits(columns).square().sum())
        return total / self.num_train


def fit_ridge(
    surrogate: Surrogate, known: Known, ridge: float, start: Weights, effort: Effort
) -> Weights:
    """`argmin_W  mean_T CE(S W, y) + ridge / 2 |W|²` by Newton's method, from a first guess."""
    weights, logits = start, surrogate.train_logits(start)
    even = 1 / known.targets.shape[1]  # the probabilities of weights that are zero
    at_zero = surrogate.pull_back_train((even - known.targets) / surrogate.num_train)
    smallest = effort.gradient * float(at_zero.norm())
    for _ in range(effort.steps):
        probabilities = row_softmax(logits)
        residual = (probabilities - known.targets) / surrogate.num_train
        gradient = surrogate.pull_back_train(residual) + ridge * weights
        if float(gradient.norm()) <= smallest:
            break
        curvature = ridge_curvature(surrogate, probabilities, ridge)
        step = conjugate_gradients(curvature, -gradient, None, effort.products, effort.tolerance)
        # Logits are moved with the weights, so that no trial costs a product with S.
        logits_step, slope = surrogate.train_logits(step), float((gradient * step).sum())
        loss, length = _ridge_loss(weights, logits, known, ridge), 1.0
        for _ in range(MOST_HALVINGS):
            trial = weights + length * step, logits + length * logits_step
            if _ridge_loss(*trial, known, ridge) <= loss + SUFFICIENT_DECREASE * length * slope:
                break
            length /= 2
        else:
            break  # rounding hides any further decrease
        weights, logits = trial
    return weights


def _ridge_loss(
    weights: Weights, logits: Float[Tensor, "train classes"], known: Known, ridge: float
) -> float:
    surprise = (logits.logsumexp(dim=1) - (logits * known.targets).sum(dim=1)).mean()
    return float(surprise + ridge / 2 * weights.square().sum())


def ridge_curvature(
    surrogate: Surrogate, probabilities: Float[Tensor, "train classes"], ridge: float
) -> Callable[[Tensor], Tensor]:
    """The Hessian of the inner problem, `D -> Sᵀ J(S D) / |T| + ridge D`."""

    def apply(direction: Weights) -> Weights:
        bent = softmax_curvature(probabilities, surrogate.train_logits(direction))
        return surrogate.pull_back_train(bent / surrogate.num_train) + ridge * direction

    return apply


def row_softmax(logits: Float[Tensor, "rows classes"]) -> Float[Tensor, "rows classes"]:
    """Softmax of every row; torch's own takes several times as long on a CPU for few columns."""
    if logits.is_cuda:
        return logits.softmax(dim=1)
    return logits.t().contiguous().softmax(dim=0).t().contiguous()


def softmax_curvature(
    probabilities: Float[Tensor, "rows classes"], direction: Float[Tensor, "rows classes"]
) -> Float[Tensor, "rows classes"]:
    """`J(D) = p ∘ D - p (p · D)`: how softmax answers a change of its logits, row by row."""
    weighted = probabilities * direction
    return weighted - probabilities * weighted.sum(dim=1, keepdim=True)


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    target: Tensor,
    start: Tensor | None,
    products: int,
    tolerance: float,
) -> Tensor:
    """Solve `H x = target` for a positive definite H, from a first guess (None: zero)."""
    solution = torch.zeros_like(target) if start is None else start
    residual = target if start is None else target - apply(start)
    square = float(residual.square().sum())
    enough = tolerance**2 * float(target.square().sum())
    direction = residual
    for _ in range(products):
        if square <= enough:
            break
        product = apply(direction)
        curvature = float((direction * product).sum())
        if curvature == 0:  # the residual is so small that its squares vanish
            break
        length = square / curvature
        solution = solution + length * direction
        residual = residual - length * product
        before, square = square, float(residual.square().sum())
        direction = residual + (square / before) * direction
    return solution


def _rows(matrix: SparseMatrix, kept: Int[Tensor, " kept"]) -> SparseMatrix:
    """Some rows of a matrix, ascending."""
    counts = matrix.pattern.row_pointers.diff()
    chosen = torch.zeros(matrix.shape[0], dtype=torch.bool, device=kept.device)
    chosen[kept] = True
    # Of a known length, for which a GPU need not be waited for.
    entries = torch.repeat_interleave(chosen, counts, output_size=len(matrix.values))
    pointers = counts.new_zeros(len(kept) + 1)
    torch.cumsum(counts[kept], dim=0, dtype=counts.dtype, out=pointers[1:])
    shape = len(kept), matrix.shape[1]
    pattern = Pattern(pointers, matrix.pattern.columns[entries], shape)
    return SparseMatrix(pattern, matrix.values[entries])


# The attack loss, and its derivative along every pair


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
        other = (1 - train_weight) / max(1, len(classes) - len(train))
        shares = torch.full_like(classes, other, dtype=dtype)
        shares[train] = train_weight / len(train)
        return cls(classes, shares)

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
    """From `dL/dS = F Kᵀ` through both propagations and the normalisation to the pairs.

    The degrees are those without self-loops.
    """
    f, y0 = gradient.nodes, surrogate.features.times(gradient.features)
    f1, y1 = surrogate.adjacency @ f, surrogate.adjacency @ y0
    f2, y2 = surrogate.adjacency @ f1, surrogate.adjacency @ y1
    d = (degrees + 1).to(f.dtype).unsqueeze(1)
    # dL/dD_i, the self-loop's part included: adding an edge also weakens all others of its ends.
    through_degree = (2 * f1 * y1 + f * y2 + y0 * f2).sum(dim=1, keepdim=True) / (-2 * d)
    scale, one = d.rsqrt(), torch.ones_like(through_degree)
    left = torch.cat([f * scale, f1 * scale, y1 * scale, y0 * scale, through_degree, one], dim=1)
    right = torch.cat([y1 * scale, y0 * scale, f * scale, f1 * scale, one, through_degree], dim=1)
    return PairScores(left, right)


def implicit_gradient(
    surrogate: Surrogate,
    known: Known,
    outer: Float[Tensor, "nodes classes"],
    weights: Weights,
    adjoint: Weights,
) -> LowRank:
    """`F = [P - B, -R]` and `K = [W, V]` at the trained weights.

    `P = dL/dZ` is `outer`, W the optimum of the inner problem, and V of `H V = Sᵀ P` the adjoint,
    H the Hessian of the inner problem: how the optimum answers the loss.
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
    rows: list[Tensor] = []  # of the steps' parts, each transposed
    columns: list[Tensor] = []
    for step in reversed(steps):
        # Adjoints of the velocities, which are those of the step's gradient as well.
        speed_first.mul_(descent.momentum).sub_(toward_first, alpha=descent.rate)
        speed_second.mul_(descent.momentum).sub_(toward_second, alpha=descent.rate)
        direction = slim_product(step.second, speed_first.t())
        direction += slim_product(speed_second, step.first.t())
        bent = softmax_curvature(step.probabilities, surrogate.train_logits(direction))
        bent.div_(surrogate.num_train)
        rows += [step.residual.t(), bent.t()]
        columns += [direction.t(), step.product.t()]
        back = surrogate.pull_back_train(bent)
        toward_first.addmm_(back, step.second.t()).addmm_(step.pulled, speed_second.t())
        toward_second += (back.t() @ step.first + step.pulled.t() @ speed_first).t()
    parts = LowRank(torch.cat(rows).t(), torch.cat(columns).t())
    return UnrolledGradient(LowRank(outer, product), parts, known.nodes)


def first_order_gradient(
    surrogate: Surrogate, known: Known, loss: AttackLoss, descent: Descent
) -> UnrolledGradient:
    """`Σ_t P_t W_tᵀ`, the original's approximation: no step's weights answer the flips."""
    steps, first, second = _descend(surrogate, known, descent)
    weights = [*(step.product for step in steps[1:]), slim_product(second, first.t())]
    outer = LowRank(
        torch.cat([loss.gradient(surrogate.logits(each)) for each in weights], dim=1),
        torch.cat(weights, dim=1),
    )
    nothing = LowRank(outer.nodes[known.nodes, :0], outer.features[:, :0])
    return UnrolledGradient(outer, nothing, known.nodes)


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
