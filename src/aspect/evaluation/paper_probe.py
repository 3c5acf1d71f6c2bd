"""The probe of published tables: unit rows, Adam, the best step by validation.

It is kept to compare with those tables, strict and optimistic, and was the only one in version 0.1.
It depends on where the embeddings lie: a direction that all rows share acts as regularisation.

A task is one split with one weight decay. All tasks share the embeddings, so that a step is two
large products, `weights @ rows.T` and `residual @ rows`, however many tasks there are. Tables are
laid out `[classes, splits, decays, rows]`: with the rows last, reductions over the few classes are
vectorised (on a CPU an order of magnitude faster than with the classes last).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor
from torch.nn.functional import cross_entropy

from aspect.data.splits import Split
from aspect.errors import SettingsError
from aspect.evaluation.metrics import PERCENT
from aspect.evaluation.result import Answers, unit_rows, with_constant

__all__ = ["PaperProbe", "ProbeTrace", "SplitTables", "pick_decay_and_step", "train_probe"]

# Memory for the tables of the tasks trained together; further tasks are trained afterwards.
# Ten splits by five weight decays of Pubmed (19,717 x 512) or Squirrel (5,201 x 1,024) fit at once.
BATCH_BYTES = 2**28

# Adam's own constants, those of torch.optim.Adam.
MEAN_DECAY = 0.9
SQUARE_DECAY = 0.999
ADAM_EPSILON = 1e-8

# More classes than this do not fit the byte in which a prediction is kept.
MOST_BYTE_CLASSES = 255


@dataclass(frozen=True)
class PaperProbe:
    """How the paper's probe is trained; every weight decay is tried, and validation chooses.

    Per split, validation accuracy chooses the weight decay and the step, the first best one; equal
    weight decays are told apart by validation cross-entropy at that step, then by their order.
    """

    name: ClassVar[str] = "paper"
    choice_name: ClassVar[str] = "weight_decay"

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

    @staticmethod
    def inputs(embeddings: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes inputs"]:
        """Rows of length d^(1/4), and a constant; a row of zeros stays zero.

        Contrastive losses do not see the length of an embedding: with a common one, learning rate
        and weight decay mean much the same for every method. Rows that nearly share a direction,
        as those of PolyGCL on Cora do, are scored lower than they could be.
        """
        length: float = embeddings.shape[1] ** 0.25
        return with_constant(unit_rows(embeddings) * length)

    def answer(
        self,
        embeddings: Float[Tensor, "nodes dim"],
        known: Int[Tensor, "splits nodes"],
        splits: Sequence[Split],
        num_classes: int,
    ) -> Iterator[Answers]:
        """Train and choose for split after split, in batches that fit the memory.

        Memory beside the embeddings and a copy of them: `BATCH_BYTES`, or the tables of a single
        split where those are larger (8 bytes per node, class and weight decay), and one byte per
        step, weight decay and test node.

        Args:
            embeddings: Float32 or float64; trained on the device they lie on.
            known: Labels, a line per split, masked at its test nodes.
            splits: Of the nodes that the embeddings are of.
            num_classes: Classes of the data set.
        """
        inputs = self.inputs(embeddings)
        longest = max(len(split.test) for split in splits)
        # One split with one weight decay: answers, logits, targets and five weights.
        numbers = num_classes * (2 * inputs.shape[0] + 5 * inputs.shape[1])
        task_bytes = self.steps * longest + inputs.element_size() * numbers
        at_once = max(1, BATCH_BYTES // (task_bytes * len(self.weight_decays)))
        for start in range(0, len(splits), at_once):
            some, labels = splits[start : start + at_once], known[start : start + at_once]
            trace = train_probe(inputs, SplitTables.build(labels, some, num_classes, inputs), self)
            yield from _choose(trace, inputs, labels, some, self.weight_decays)


@dataclass(frozen=True, eq=False)
class SplitTables:
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
    ) -> SplitTables:
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
class ProbeTrace:
    """What training leaves behind for the choice: validation after every step, and test answers.

    The answers are predictions for test rows, kept for every step so that the choice can be made
    first and the test labels read afterwards.
    """

    correct: Int[Tensor, "steps splits decays"]  # validation rows answered rightly
    answers: Integer[Tensor, "steps splits decays test"]  # predicted classes of the test rows
    weights: Float[Tensor, "classes splits decays inputs"]  # at the first best validation step


@torch.no_grad()
def train_probe(
    inputs: Float[Tensor, "rows inputs"], tasks: SplitTables, settings: PaperProbe
) -> ProbeTrace:
    """Train all tasks from zero for the same number of full-batch steps, watching each one.

    Minimises mean cross-entropy + weight_decay / 2 * |weights|^2, the bias (the last of `inputs`)
    left out of the decay; scikit-learn's C is then 1 / (weight_decay * n_train). Nothing waits for
    the device before the end.
    """
    tried = (len(tasks.test), len(settings.weight_decays))
    shape = (len(tasks.targets), *tried)
    weights = inputs.new_zeros(*shape, inputs.shape[1])
    mean, square, best_weights = (torch.zeros_like(weights) for _ in range(3))
    gradient = torch.empty_like(weights)
    decays = inputs.new_tensor(settings.weight_decays).unsqueeze(1)
    table = inputs.new_zeros(*shape, len(inputs))  # logits, then residuals, then logits again
    best = torch.full(tried, -1, device=inputs.device)
    correct = best.new_empty(settings.steps, *tried)
    test = tasks.test.unsqueeze(1).expand(-1, tried[1], -1)
    answers = tasks.validation.new_empty(settings.steps, *test.shape)
    for step in range(settings.steps):
        # The loss gradient: (softmax - target) / n_train at training rows.
        table.sub_(table.amax(dim=0)).exp_()
        table.mul_(tasks.share / table.sum(dim=0)).sub_(tasks.targets)
        torch.mm(table.flatten(0, 2), inputs, out=gradient.flatten(0, 2))
        gradient[..., :-1].addcmul_(weights[..., :-1], decays)
        # torch.optim.Adam, operation by operation, without autograd's bookkeeping.
        mean.lerp_(gradient, 1 - MEAN_DECAY)
        square.mul_(SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - SQUARE_DECAY)
        scale = math.sqrt(1 - SQUARE_DECAY ** (step + 1))
        rate = settings.learning_rate / (1 - MEAN_DECAY ** (step + 1))
        torch.sqrt(square, out=gradient).div_(scale).add_(ADAM_EPSILON)
        weights.addcdiv_(mean, gradient, value=-rate)
        torch.mm(weights.flatten(0, 2), inputs.t(), out=table.flatten(0, 2))
        predicted = _first_largest(table, answers.dtype)
        torch.gather(predicted, 2, test, out=answers[step])
        correct[step] = (predicted == tasks.validation).sum(dim=-1)
        is_better = (correct[step] > best).unsqueeze(-1)
        torch.where(is_better, weights, best_weights, out=best_weights)
        torch.maximum(best, correct[step], out=best)
    return ProbeTrace(correct, answers, best_weights)


def _first_largest(
    logits: Float[Tensor, "classes splits decays rows"], kind: torch.dtype
) -> Integer[Tensor, "splits decays rows"]:
    """`logits.argmax(0)`, the first of equals; argmax over a leading axis is not vectorised."""
    count = len(logits)
    codes = torch.arange(count, 0, -1, dtype=kind, device=logits.device).view(-1, 1, 1, 1)
    is_largest = logits == logits.amax(dim=0)
    return count - (is_largest * codes).amax(dim=0)  # the first class has the largest code


def _choose(
    trace: ProbeTrace,
    inputs: Float[Tensor, "nodes inputs"],
    known: Int[Tensor, "splits nodes"],
    splits: Sequence[Split],
    weight_decays: Sequence[float],
) -> Iterator[Answers]:
    """Per split, the weight decay and step that validation prefers, and their test answers."""
    logits = (trace.weights @ inputs.t()).cpu()
    correct, predictions = trace.correct.cpu(), trace.answers.cpu()
    for number, split in enumerate(splits):
        by_decay = logits[:, number].transpose(0, 1)  # [decays, classes, nodes]
        truth = known[number, split.validation].expand(len(by_decay), -1)
        losses = cross_entropy(by_decay[..., split.validation], truth, reduction="none").mean(dim=1)
        decay, step = pick_decay_and_step(correct[:, number], losses)
        hits = correct[:, number, decay]
        answers = predictions[:, number, decay, : len(split.test)]
        yield Answers(
            choice=weight_decays[decay],
            step=step + 1,
            validation=PERCENT * int(hits[step]) / len(split.validation),
            predictions=answers[step],
            scores=by_decay[decay][:, split.test],
            records=answers[hits == hits.cummax(dim=0).values],
            weights=trace.weights[:, number, decay],
        )


def pick_decay_and_step(
    correct: Int[Tensor, "steps decays"], losses: Float[Tensor, " decays"]
) -> tuple[int, int]:
    """The weight decay with most hits, then with the lower loss; and its first best step."""
    best, step = correct.max(dim=0)
    decay = max(range(len(losses)), key=lambda index: (int(best[index]), -float(losses[index])))
    return decay, int(step[decay])
