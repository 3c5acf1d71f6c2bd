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
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.splits import Split
from aspect.errors import SettingsError
from aspect.evaluation.inputs import with_constant
from aspect.evaluation.logistic import Tasks, logits_of, principal_axes, solve
from aspect.evaluation.metrics import PERCENT
from aspect.evaluation.result import Answers

__all__ = ["NeutralProbe", "pick"]

# Memory for the tables of the tasks that are solved together; further ones are solved afterwards.
BATCH_BYTES = 2**28
TABLES = 6  # of a number per task, class and row: targets, logits, probabilities and work


@dataclass(frozen=True)
class NeutralProbe:
    """Every penalty is solved, and validation chooses.

    Per split the penalty is chosen by validation accuracy, equals by validation cross-entropy, then
    the stronger penalty.
    """

    penalties: tuple[float, ...] = tuple(10 ** (-step / 2) for step in range(17))
    tolerance: float = 1e-5  # length of the gradient, in the units of the scaled rows

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
        rows = _Rows.of(embeddings, torch.unique(torch.cat([split.train for split in splits])))
        task_bytes = TABLES * rows.inputs.element_size() * num_classes * len(embeddings)
        at_once = max(1, BATCH_BYTES // task_bytes)
        for start in range(0, len(splits), at_once):
            some, labels = splits[start : start + at_once], known[start : start + at_once]
            yield from _Path.solve(rows, labels, some, num_classes, self).answers()


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


@dataclass(frozen=True, eq=False)
class _Path:
    """Solutions of some splits for all penalties, the strongest first, and how they validate."""

    rows: _Rows
    splits: Sequence[Split]
    priors: Float[Tensor, "splits classes"]
    penalties: Sequence[float]  # descending
    weights: Sequence[Float[Tensor, "splits classes inputs"]]  # by penalty
    correct: Int[Tensor, "penalties splits"]  # validation nodes that are predicted rightly
    losses: Float[Tensor, "penalties splits"]  # validation cross-entropy

    @classmethod
    def solve(
        cls,
        rows: _Rows,
        known: Int[Tensor, "splits nodes"],
        splits: Sequence[Split],
        num_classes: int,
        probe: NeutralProbe,
    ) -> _Path:
        """Solve, and look at the validation nodes."""
        inputs, penalties = rows.inputs, sorted(probe.penalties, reverse=True)
        targets, validation = _tables(known, splits, num_classes, inputs)
        scales = torch.stack([rows.scale(split.train) for split in splits])
        weights = _solutions(inputs, targets, scales, penalties, probe.tolerance)
        priors = targets.sum(dim=2)
        validated = [
            _validate(logits_of(solution, inputs, priors), validation, priors)
            for solution in weights
        ]
        correct, losses = (torch.stack(column).cpu() for column in zip(*validated, strict=True))
        return cls(rows, splits, priors, penalties, weights, correct, losses)

    def answers(self) -> Iterator[Answers]:
        """Per split, the penalty that validation prefers, and its answers for the test nodes."""
        for number, split in enumerate(self.splits):
            best = pick(self.correct[:, number], self.losses[:, number])
            weights = self.weights[best][number]
            tested = self.rows.inputs[split.test.to(weights.device)]
            logits = logits_of(weights.unsqueeze(0), tested, self.priors[number : number + 1])
            scores = logits.squeeze(0).cpu()
            affine = self.rows.weights(weights)
            affine[self.priors[number] == 0, -1] = -math.inf
            yield Answers(
                choice=self.penalties[best],
                step=None,
                validation=PERCENT * int(self.correct[best, number]) / len(split.validation),
                predictions=scores.argmax(dim=0),
                scores=scores,
                weights=affine,
                at_path_end=best in (0, len(self.penalties) - 1),
            )


def pick(correct: Int[Tensor, " penalties"], losses: Float[Tensor, " penalties"]) -> int:
    """The penalty with most hits, then with the lower loss, then the first, which is stronger."""
    hits, values = correct.tolist(), losses.tolist()
    return max(range(len(hits)), key=lambda index: (hits[index], -values[index]))


def _solutions(
    inputs: Float[Tensor, "nodes inputs"],
    targets: Float[Tensor, "splits classes nodes"],
    scales: Float[Tensor, " splits"],
    penalties: Sequence[float],
    tolerance: float,
) -> list[Float[Tensor, "splits classes inputs"]]:
    """From the strongest penalty to the weakest, each from where the ones before it point to."""
    priors = targets.sum(dim=2)
    start = inputs.new_zeros(*priors.shape, inputs.shape[1])
    start[..., -1] = torch.where(priors > 0, priors.log(), 0)  # the solution without slopes
    solutions: list[Tensor] = []
    for penalty in penalties:
        tasks = Tasks(targets, penalty * scales.square())
        solutions.append(solve(inputs, tasks, start, tolerance * scales))
        start = _extrapolated(solutions)
    return solutions


def _extrapolated(solutions: Sequence[Tensor]) -> Tensor:
    """Where the next solution of the path may lie, by the last three: the path is smooth."""
    if len(solutions) < 3:  # noqa: PLR2004
        return solutions[-1]
    third, second, last = solutions[-3:]
    return 3 * (last - second) + third


def _tables(
    known: Int[Tensor, "splits nodes"], splits: Sequence[Split], num_classes: int, like: Tensor
) -> tuple[Float[Tensor, "splits classes nodes"], Int[Tensor, "splits nodes"]]:
    """Training targets, and the classes of validation nodes with -1 elsewhere."""
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
) -> tuple[Int[Tensor, " splits"], Float[Tensor, " splits"]]:
    """Hits, and the mean cross-entropy of the nodes whose class was trained on at all."""
    correct = (logits.argmax(dim=1) == validation).sum(dim=1)
    classes = validation.clamp_min(0)
    is_known = (validation >= 0) & (priors.gather(1, classes) > 0)
    chosen = logits.gather(1, classes.unsqueeze(1)).squeeze(1)
    losses = (logits.logsumexp(dim=1) - chosen).masked_fill(~is_known, 0)
    return correct, losses.sum(dim=1) / is_known.sum(dim=1).clamp_min(1)
