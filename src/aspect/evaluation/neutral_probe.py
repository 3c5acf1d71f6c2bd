"""The neutral probe: logistic regression that does not depend on where the embeddings lie.

Per split, rows are centred by the mean of its training nodes and divided by one number, their mean
length after that; the intercept is free. So neither a shift of all embeddings nor a common scale
nor a rotation changes a score. Every penalty of a wide path is solved to convergence.

The rows themselves are shared by all splits: with a free intercept another centre changes no
solution, and a split's scale only turns its penalty p into p * scale^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor

from aspect.data.source import Metric
from aspect.data.splits import Split
from aspect.errors import SettingsError
from aspect.evaluation.logistic_regression import Solver, logits_of
from aspect.evaluation.metrics import PERCENT, check_metric, roc_areas
from aspect.evaluation.result import Answers, with_constant

# Memory for the tables of the tasks that are solved together; further ones are solved afterwards.
BATCH_BYTES = 2**28
TABLES = 6  # of a number per task, class and row: targets, logits, probabilities and work

# More axes than this are not looked for: their eigenvectors would take longer than they save. On a
# CPU the steps that they save take longer than on a GPU.
MOST_AXES = {"cpu": 6000, "cuda": 2500}
# Axes whose variance is this part of the largest or less are dropped where rows are fewer than
# columns: no penalty lets them matter, and rounding would leave them askew.
SMALLEST_VARIANCE = 1e-12


FEW_NODES = 1000  # whose probe a CPU solves sooner than a GPU is told what to do


def on_faster_device(embeddings: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
    """Where the probe of embeddings that lie on a GPU is solved: few of them on the CPU."""
    return embeddings.cpu() if len(embeddings) <= FEW_NODES else embeddings


@dataclass(frozen=True)
class NeutralProbe:
    """Every penalty is solved, and validation chooses.

    Per split the penalty is chosen by the metric on validation nodes, equals by validation
    cross-entropy, then the stronger penalty.
    """

    penalties: tuple[float, ...] = tuple(10 ** (-step / 2) for step in range(17))
    tolerance: float = 1e-5  # length of the gradient, in the units of the scaled rows
    metric: Metric = "accuracy"  # `roc-auc` for two classes of unequal size

    name: ClassVar[str] = "neutral"
    choice_name: ClassVar[str] = "penalty"

    def __post_init__(self) -> None:
        allowed = [0 < penalty < math.inf for penalty in self.penalties]
        if not (allowed and all(allowed)):
            raise SettingsError(
                "Penalties of the probe must be one or more numbers > 0. "
                f"Got {list(self.penalties)}."
            )
        if not 0 < self.tolerance < math.inf:
            raise SettingsError(
                f"Tolerance of the probe must be a number > 0. Got {self.tolerance}."
            )

    @staticmethod
    def inputs(embeddings: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes inputs"]:
        """The embeddings as they are, and a constant: what `Answers.weights` apply to."""
        return with_constant(embeddings)

    def answer(
        self,
        embeddings: Float[Tensor, "nodes dim"],
        known: Int[Tensor, "splits nodes"],
        splits: Sequence[Split],
        num_classes: int,
    ) -> Iterator[Answers]:
        """Solve and choose for split after split, in batches that fit the memory.

        Args:
            embeddings: Float32 or float64; solved on the device they lie on.
            known: Labels, a line per split, masked at its test nodes.
            splits: Of the nodes that the embeddings are of.
            num_classes: Classes of the data set.
        """
        check_metric(self.metric, num_classes)
        rows = _Rows.of(embeddings, torch.unique(torch.cat([split.train for split in splits])))
        task_bytes = TABLES * rows.inputs.element_size() * num_classes * len(embeddings)
        at_once = max(1, BATCH_BYTES // task_bytes)
        for start in range(0, len(splits), at_once):
            some, labels = splits[start : start + at_once], known[start : start + at_once]
            yield from self._answers(rows, labels, some, num_classes)

    def _answers(
        self,
        rows: _Rows,
        known: Int[Tensor, "splits nodes"],
        splits: Sequence[Split],
        num_classes: int,
    ) -> Iterator[Answers]:
        """Solve some splits for all penalties; validation chooses one for each split."""
        inputs, penalties = rows.inputs, sorted(self.penalties, reverse=True)
        targets, validation = training_tables(known, splits, num_classes, inputs)
        scales = torch.stack([rows.scale(split.train) for split in splits])
        solutions = _solutions(inputs, targets, scales, penalties, self.tolerance)
        priors = targets.sum(dim=2)
        validated = [
            _validate(logits_of(weights, inputs, priors), validation, priors, self.metric)
            for weights in solutions
        ]
        reached, losses = (torch.stack(column).cpu() for column in zip(*validated, strict=True))
        for number, split in enumerate(splits):
            best = pick_setting(reached[:, number], losses[:, number])
            weights = solutions[best][number]
            tested = inputs[split.test.to(weights.device)]
            logits = logits_of(weights.unsqueeze(0), tested, priors[number : number + 1])
            scores = logits.squeeze(0).cpu()
            affine = rows.weights(weights)
            affine[priors[number] == 0, -1] = -math.inf
            yield Answers(
                choice=penalties[best],
                step=None,
                validation=float(reached[best, number]),
                predictions=scores.argmax(dim=0),
                scores=scores,
                loss=float(losses[best, number]),
                weights=affine,
                at_path_end=best in (0, len(penalties) - 1),
            )


@dataclass(frozen=True, eq=False)
class _Rows:
    """The embeddings as all splits share them, and the way back to the embeddings as given."""

    inputs: Float[Tensor, "nodes inputs"]  # centred, of mean length one, along principal axes; 1
    mean: Float[Tensor, " dim"]
    length: Float[Tensor, ""]
    axes: Float[Tensor, "dim axes"] | None

    @classmethod
    def of(cls, embeddings: Float[Tensor, "nodes dim"], trained: Int[Tensor, " trained"]) -> _Rows:
        """Centre, scale and axes are of the nodes that some split trains on.

        Others may lie anywhere, as those of a perturbed graph do: no solution depends on them.
        """
        trained = trained.to(embeddings.device)
        mean = embeddings[trained].mean(dim=0)
        rows = embeddings - mean
        known = rows[trained]
        # Divided by the largest entry first, tiny and huge rows do not under- or overflow.
        largest = known.abs().amax()
        length = largest * (known / largest).norm(dim=1).mean() if largest > 0 else largest + 1
        rows = rows / length
        axes = principal_axes(rows[trained])
        return cls(with_constant(rows if axes is None else rows @ axes), mean, length, axes)

    def scale(self, nodes: Int[Tensor, " part"]) -> Float[Tensor, ""]:
        """Mean length of some rows after centring; one for rows that are all the same."""
        rows = self.inputs[nodes.to(self.inputs.device), :-1]
        length = (rows - rows.mean(dim=0)).norm(dim=1).mean()
        return torch.where(length > 0, length, 1)

    def weights(self, shared: Float[Tensor, "classes shared"]) -> Float[Tensor, "classes inputs"]:
        """Weights and intercept for the embeddings as given, in float64."""
        slopes, intercepts = shared[:, :-1].double(), shared[:, -1].double()
        if self.axes is not None:
            slopes = slopes @ self.axes.t().double()
        slopes = slopes / self.length.double()
        intercepts = intercepts - slopes @ self.mean.double()
        return torch.cat([slopes, intercepts.unsqueeze(1)], dim=1)


def pick_setting(reached: Real[Tensor, " tried"], losses: Float[Tensor, " tried"]) -> int:
    """The setting that reached most on validation nodes, then the lower loss, then the first."""
    scores, values = reached.tolist(), losses.tolist()
    return max(range(len(scores)), key=lambda index: (scores[index], -values[index]))


def _solutions(
    inputs: Float[Tensor, "nodes inputs"],
    targets: Float[Tensor, "splits classes nodes"],
    scales: Float[Tensor, " splits"],
    penalties: Sequence[float],
    tolerance: float,
) -> list[Float[Tensor, "splits classes inputs"]]:
    """From the strongest penalty to the weakest, each from where the ones before it point to."""
    solver = Solver(inputs, targets)
    start, priors = torch.zeros_like(solver.weights), solver.priors
    start[..., -1] = torch.where(priors > 0, priors.log(), 0)  # the solution without slopes
    solutions: list[Tensor] = []
    for penalty in penalties:
        strengths = penalty * scales.square()
        solutions.append(solver.solve(strengths, start, tolerance * scales))
        start = solutions[-1]
        if len(solutions) > 2:  # noqa: PLR2004 - the path is smooth: extrapolate the last three
            start = 3 * (solutions[-1] - solutions[-2]) + solutions[-3]
    return solutions


def training_tables(
    known: Int[Tensor, "splits nodes"], splits: Sequence[Split], num_classes: int, like: Tensor
) -> tuple[Float[Tensor, "splits classes nodes"], Int[Tensor, "splits nodes"]]:
    """1 / n_train at a training node's class; classes of validation nodes, -1 elsewhere."""
    targets = torch.zeros(len(splits), num_classes, known.shape[1], dtype=like.dtype)
    validation = torch.full_like(known, -1)
    for number, split in enumerate(splits):
        targets[number, known[number, split.train], split.train] = 1 / len(split.train)
        validation[number, split.validation] = known[number, split.validation]
    return targets.to(like.device), validation.to(like.device)


def _validate(
    logits: Float[Tensor, "splits classes nodes"],
    validation: Int[Tensor, "splits nodes"],
    priors: Float[Tensor, "splits classes"],
    metric: Metric,
) -> tuple[Float[Tensor, " splits"], Float[Tensor, " splits"]]:
    """The metric in percent, and the mean cross-entropy of nodes whose class was trained on."""
    if metric == "roc-auc":
        reached = roc_areas(validation, logits[:, 1] - logits[:, 0])
    else:
        hits = (logits.argmax(dim=1) == validation).sum(dim=1)
        reached = PERCENT * hits.double() / (validation >= 0).sum(dim=1)
    classes = validation.clamp_min(0)
    is_known = (validation >= 0) & (priors.gather(1, classes) > 0)
    chosen = logits.gather(1, classes.unsqueeze(1)).squeeze(1)
    losses = (logits.logsumexp(dim=1) - chosen).masked_fill(~is_known, 0)
    return reached, losses.sum(dim=1) / is_known.sum(dim=1).clamp_min(1)


def principal_axes(rows: Float[Tensor, "rows dim"]) -> Float[Tensor, "dim axes"] | None:
    """Orthonormal axes along which the rows are uncorrelated; None where that would take too long.

    Weights along these axes have the same length, hence the same penalty, and the Hessian is nearly
    diagonal. Fewer rows than columns span no more axes than there are rows; no solution leaves
    their span.
    """
    count, dim = rows.shape
    if min(count, dim) > MOST_AXES["cpu" if rows.device.type == "cpu" else "cuda"]:
        return None
    if dim <= count:
        _, axes = torch.linalg.eigh((rows.t() @ rows).double())
    else:
        exact = rows.double()
        variances, vectors = torch.linalg.eigh(exact @ exact.t())
        kept = variances > SMALLEST_VARIANCE * variances[-1]
        axes = exact.t() @ vectors[:, kept] / variances[kept].sqrt()
    orthonormal: Tensor = axes.to(rows.dtype)
    return orthonormal
