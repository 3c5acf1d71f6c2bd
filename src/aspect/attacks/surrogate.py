"""The model that Metattack fools: a graph convolution of two layers without non-linearity.

Its logits are `Z = S W` with `S = Â² X` and `Â = D^(-1/2) (A + I) D^(-1/2)`. On a CPU, S is never
formed: it is applied as two propagations of `X W`, which has as many columns as there are classes.
A GPU spends its time on starting products rather than on making them, so that there the training
nodes' rows of S are formed once for the hundreds of products that an inner training takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.attacks.base import Known
from aspect.data.graph import Features
from aspect.data.sparse import Pattern, SparseMatrix

__all__ = [
    "ConstantFeatures",
    "Effort",
    "Surrogate",
    "conjugate_gradients",
    "fit_ridge",
    "forms_rows",
    "ridge_curvature",
    "row_softmax",
    "slim_product",
    "softmax_curvature",
]

COLUMNS_AT_ONCE = 64  # of S, where its norm is taken
MOST_FORMED_ENTRIES = {"cpu": 0, "cuda": 2**25}  # of a matrix of the features' size
SUFFICIENT_DECREASE = 1e-4  # share of the decrease that the slope promises (Armijo)
MOST_HALVINGS = 20

Weights = Float[Tensor, "features classes"]


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
        self._adjacency = adjacency.as_csr()
        self._into_train = _rows(adjacency, train).as_csr()
        self._out_of_train = _columns(adjacency, train).as_csr()
        self._train_rows: Tensor | None = None  # of S, where it is formed
        if forms_rows(features.shape, features.device):
            self._train_rows = self._into_train @ (self._adjacency @ features.dense())

    def propagate(self, x: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
        """`Â x`, the mean over neighbours that a graph convolution takes."""
        return self._adjacency @ x

    def project(self, weights: Float[Tensor, "features dim"]) -> Float[Tensor, "nodes dim"]:
        """`X W`, before any propagation."""
        return self.features.times(weights)

    def logits(self, weights: Weights) -> Float[Tensor, "nodes classes"]:
        """`S W` of every node."""
        return self._adjacency @ (self._adjacency @ self.features.times(weights))

    def train_logits(self, weights: Weights) -> Float[Tensor, "train classes"]:
        """`S W` of the training nodes."""
        if self._train_rows is not None:
            return self._train_rows @ weights
        return self._into_train @ (self._adjacency @ self.features.times(weights))

    def pull_back(self, gradient: Float[Tensor, "nodes classes"]) -> Weights:
        """`Sᵀ P`: from a gradient at the logits to one at the weights."""
        return self.features.transposed_times(self._adjacency @ (self._adjacency @ gradient))

    def pull_back_train(self, gradient: Float[Tensor, "train classes"]) -> Weights:
        """`Sᵀ P` for a P that is zero outside the training nodes."""
        if self._train_rows is not None:
            return self._train_rows.t() @ gradient
        return self.features.transposed_times(self._adjacency @ (self._out_of_train @ gradient))

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
    smallest = effort.gradient * _slope_at_zero(surrogate, known)
    for _ in range(effort.steps):
        probabilities = row_softmax(logits)
        residual = (probabilities - known.targets) / surrogate.num_train
        gradient = surrogate.pull_back_train(residual) + ridge * weights
        if float(gradient.norm()) <= smallest:
            break
        curvature = ridge_curvature(surrogate, probabilities, ridge)
        step = conjugate_gradients(curvature, -gradient, None, effort.products, effort.tolerance)
        along = step, surrogate.train_logits(step)
        slope = float((gradient * step).sum())
        length = _step_length((weights, logits), along, slope, known, ridge)
        if length == 0:
            break  # rounding hides any further decrease
        weights, logits = weights + length * along[0], logits + length * along[1]
    return weights


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
        length = square / float((direction * product).sum())
        solution = solution + length * direction
        residual = residual - length * product
        before, square = square, float(residual.square().sum())
        direction = residual + (square / before) * direction
    return solution


def _step_length(
    at: tuple[Tensor, Tensor],
    along: tuple[Tensor, Tensor],
    slope: float,
    known: Known,
    ridge: float,
) -> float:
    """The first of 1, 1/2, 1/4, ... that lowers the loss enough; zero if none does.

    Points and directions are weights with their logits, so that no trial costs a product with S.
    """
    loss, length = _ridge_loss(*at, known, ridge), 1.0
    for _ in range(MOST_HALVINGS):
        trial = _ridge_loss(at[0] + length * along[0], at[1] + length * along[1], known, ridge)
        if trial <= loss + SUFFICIENT_DECREASE * length * slope:
            return length
        length /= 2
    return 0.0


def _ridge_loss(
    weights: Weights, logits: Float[Tensor, "train classes"], known: Known, ridge: float
) -> float:
    surprise = (logits.logsumexp(dim=1) - (logits * known.targets).sum(dim=1)).mean()
    return float(surprise + ridge / 2 * weights.square().sum())


def _slope_at_zero(surrogate: Surrogate, known: Known) -> float:
    even = 1 / known.targets.shape[1]
    gradient = surrogate.pull_back_train((even - known.targets) / surrogate.num_train)
    return float(gradient.norm())


def _rows(matrix: SparseMatrix, kept: Int[Tensor, " kept"]) -> SparseMatrix:
    """Some rows of a matrix, ascending."""
    counts = matrix.pattern.row_pointers.diff()
    chosen = torch.zeros(matrix.shape[0], dtype=torch.bool, device=kept.device)
    chosen[kept] = True
    # Of a known length, for which a GPU need not be waited for.
    entries = torch.repeat_interleave(chosen, counts, output_size=len(matrix.values))
    pattern = Pattern(
        _pointers(counts[kept]), matrix.pattern.columns[entries], (len(kept), matrix.shape[1])
    )
    return SparseMatrix(pattern, matrix.values[entries])


def _columns(matrix: SparseMatrix, kept: Int[Tensor, " kept"]) -> SparseMatrix:
    """Some columns of a matrix, ascending."""
    kind = matrix.pattern.columns.dtype
    place = torch.full((matrix.shape[1],), -1, dtype=kind, device=kept.device)
    place[kept] = torch.arange(len(kept), dtype=kind, device=kept.device)
    places = place[matrix.pattern.columns]
    entries = places >= 0
    before = _pointers(entries.to(kind))
    pattern = Pattern(
        before[matrix.pattern.row_pointers], places[entries], (matrix.shape[0], len(kept))
    )
    return SparseMatrix(pattern, matrix.values[entries])


def _pointers(counts: Int[Tensor, " rows"]) -> Int[Tensor, " rows_plus_one"]:
    pointers = counts.new_zeros(len(counts) + 1)
    torch.cumsum(counts, dim=0, dtype=counts.dtype, out=pointers[1:])
    return pointers
