"""Many multinomial logistic regressions on the same rows, trained together by Adam.

A task is one split with one weight decay. All tasks share the embeddings, so that a step is two
large products, `weights @ rows.T` and `residual @ rows`, however many tasks there are. Tables are
laid out `[classes, splits, decays, rows]`: with the rows last, reductions over the few classes are
vectorised (on a CPU an order of magnitude faster than with the classes last).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from aspect.errors import SettingsError
from aspect.graph.splits import Split

__all__ = ["ProbeSettings", "Tasks", "Trace", "scores_of", "train", "with_constant"]

# Adam's own constants, those of torch.optim.Adam.
MEAN_DECAY = 0.9
SQUARE_DECAY = 0.999
ADAM_EPSILON = 1e-8

# More classes than this do not fit the byte in which a prediction is kept.
MOST_BYTE_CLASSES = 255


@dataclass(frozen=True)
class ProbeSettings:
    """How the linear probe is trained; every weight decay is tried, and validation chooses."""

    learning_rate: float = 0.01
    steps: int = 600
    weight_decays: tuple[float, ...] = (0.0, 1e-4, 5e-4, 2e-3, 1e-2)

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise SettingsError(
                f"Learning rate of the probe must be a number > 0. Got {self.learning_rate}."
            )
        if self.steps < 1:
            raise SettingsError(f"Steps of the probe must be an integer >= 1. Got {self.steps}.")
        allowed = [0 <= decay < math.inf for decay in self.weight_decays]
        if not (allowed and all(allowed)):
            raise SettingsError(
                "Weight decays of the probe must be one or more numbers >= 0. "
                f"Got {list(self.weight_decays)}."
            )


@dataclass(frozen=True, eq=False)
class Tasks:
    """All that training may know: labels of training and validation rows, and no test label."""

    targets: Float[Tensor, "classes splits 1 rows"]  # 1 / n_train at a training row's class, or 0
    share: Float[Tensor, "splits 1 rows"]  # 1 / n_train at training rows, 0 elsewhere
    validation: Integer[Tensor, "splits 1 rows"]  # class of a validation row; `classes` elsewhere
    test: Int[Tensor, "splits test"]  # rows; a shorter list is filled up with its first row

    @classmethod
    def build(
        cls,
        labels: Int[Tensor, "*splits rows"],
        splits: Sequence[Split],
        num_classes: int,
        like: Float[Tensor, "rows dim"],
    ) -> Tasks:
        """The tables for splits of the rows of `like`, in its type and on its device.

        Labels are the same for all splits, or one line of them per split.
        """
        known = labels.expand(len(splits), -1)
        shape = (len(splits), len(like))
        targets = torch.zeros(num_classes, *shape, dtype=like.dtype)
        share = torch.zeros(shape, dtype=like.dtype)
        small = torch.uint8 if num_classes <= MOST_BYTE_CLASSES else torch.int16
        validation = torch.full(shape, num_classes, dtype=small)
        test = torch.empty(len(splits), max(len(split.test) for split in splits), dtype=torch.long)
        for number, split in enumerate(splits):
            targets[known[number, split.train], number, split.train] = 1 / len(split.train)
            share[number, split.train] = 1 / len(split.train)
            validation[number, split.validation] = known[number, split.validation].to(small)
            test[number] = split.test[0]
            test[number, : len(split.test)] = split.test
        tables = (targets.unsqueeze(2), share.unsqueeze(1), validation.unsqueeze(1), test)
        return cls(*(table.to(like.device) for table in tables))


@dataclass(frozen=True, eq=False)
class Trace:
    """What training leaves behind for the choice: validation after every step, and test answers.

    The answers are predictions for test rows, kept for every step so that the choice can be made
    first and the test labels read afterwards.
    """

    correct: Int[Tensor, "steps splits decays"]  # validation rows answered rightly
    answers: Integer[Tensor, "steps splits decays test"]  # predicted classes of the test rows
    weights: Float[Tensor, "classes splits decays inputs"]  # at the first best validation step
    last: Float[Tensor, "classes splits decays inputs"]  # weights after all steps

    @classmethod
    def join(cls, parts: Sequence[Trace]) -> Trace:
        """One trace of the same splits from traces over different weight decays."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            torch.cat([part.correct for part in parts], dim=2),
            torch.cat([part.answers for part in parts], dim=2),
            torch.cat([part.weights for part in parts], dim=2),
            torch.cat([part.last for part in parts], dim=2),
        )


def with_constant(rows: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows inputs"]:
    """The rows with a last column of ones, whose weight is the bias."""
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def scores_of(
    weights: Float[Tensor, "classes splits decays inputs"], inputs: Float[Tensor, "rows inputs"]
) -> Float[Tensor, "classes splits decays rows"]:
    """Logits of every row for every task."""
    return (weights.flatten(0, 2) @ inputs.t()).view(*weights.shape[:3], len(inputs))


@torch.no_grad()
def train(
    inputs: Float[Tensor, "rows inputs"],
    tasks: Tasks,
    settings: ProbeSettings,
    weight_decays: Sequence[float],
) -> Trace:
    """Train all tasks from zero for the same number of full-batch steps, watching each one.

    Minimises mean cross-entropy + weight_decay / 2 * |weights|^2, the bias (the last of `inputs`)
    left out of the decay; scikit-learn's C is then 1 / (weight_decay * n_train).
    """
    shape = (len(tasks.targets), len(tasks.test), len(weight_decays))
    weights = inputs.new_zeros(*shape, inputs.shape[1])
    decays = inputs.new_tensor(weight_decays).unsqueeze(1)
    optimiser = _Adam(weights, settings.learning_rate)
    watch = _Watch(tasks, weights, settings.steps)
    table = inputs.new_zeros(*shape, len(inputs))  # logits, then residuals, then logits again
    gradient = torch.empty_like(weights)
    for step in range(settings.steps):
        _residual_(table, tasks)
        torch.mm(table.flatten(0, 2), inputs, out=gradient.flatten(0, 2))
        gradient[..., :-1].addcmul_(weights[..., :-1], decays)
        optimiser.step(gradient)
        torch.mm(weights.flatten(0, 2), inputs.t(), out=table.flatten(0, 2))
        watch.look(step, table)
    return Trace(watch.correct, watch.answers, watch.best_weights, weights)


def _residual_(logits: Float[Tensor, "classes splits decays rows"], tasks: Tasks) -> None:
    """Turn logits into the loss gradient in place: (softmax - target) / n_train where training."""
    logits.sub_(logits.amax(dim=0)).exp_()
    logits.mul_(tasks.share / logits.sum(dim=0)).sub_(tasks.targets)


class _Adam:
    """torch.optim.Adam for one tensor, operation by operation, without autograd's bookkeeping."""

    def __init__(self, weights: Tensor, learning_rate: float) -> None:
        self.weights = weights
        self.learning_rate = learning_rate
        self.mean = torch.zeros_like(weights)
        self.square = torch.zeros_like(weights)
        self.count = 0

    def step(self, gradient: Tensor) -> None:
        """Move the weights; the gradient's memory is used up."""
        self.count += 1
        self.mean.lerp_(gradient, 1 - MEAN_DECAY)
        self.square.mul_(SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - SQUARE_DECAY)
        scale = math.sqrt(1 - SQUARE_DECAY**self.count)
        rate = self.learning_rate / (1 - MEAN_DECAY**self.count)
        torch.sqrt(self.square, out=gradient).div_(scale).add_(ADAM_EPSILON)
        self.weights.addcdiv_(self.mean, gradient, value=-rate)


class _Watch:
    """Looks at every task after every step; nothing waits for the device before the end."""

    def __init__(self, tasks: Tasks, weights: Tensor, steps: int) -> None:
        _, splits, decays, _ = weights.shape
        place = weights.device
        self.tasks, self.weights = tasks, weights
        self.best_weights = torch.zeros_like(weights)
        self.best = torch.full((splits, decays), -1, device=place)
        self.correct = torch.empty(steps, splits, decays, dtype=torch.long, device=place)
        self.test = tasks.test.unsqueeze(1).expand(-1, decays, -1)
        self.answers = torch.empty(
            steps, *self.test.shape, dtype=tasks.validation.dtype, device=place
        )

    def look(self, step: int, logits: Float[Tensor, "classes splits decays rows"]) -> None:
        """Note validation hits and test answers, and keep the weights of a new best."""
        answers = _first_largest(logits, self.answers.dtype)
        correct = (answers == self.tasks.validation).sum(dim=-1)
        better = correct > self.best
        self.correct[step] = correct
        torch.gather(answers, 2, self.test, out=self.answers[step])
        torch.where(better.unsqueeze(-1), self.weights, self.best_weights, out=self.best_weights)
        torch.maximum(self.best, correct, out=self.best)


def _first_largest(
    logits: Float[Tensor, "classes splits decays rows"], kind: torch.dtype
) -> Integer[Tensor, "splits decays rows"]:
    """`logits.argmax(0)`, the first of equals; argmax over a leading axis is not vectorised."""
    count = len(logits)
    codes = torch.arange(count, 0, -1, dtype=kind, device=logits.device).view(-1, 1, 1, 1)
    is_largest = logits == logits.amax(dim=0)
    return count - (is_largest * codes).amax(dim=0)  # the first class has the largest code
