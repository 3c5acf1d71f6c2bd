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
from torch.nn.utils.rnn import pad_sequence

from aspect.data.source import Metric
from aspect.data.splits import Split
from aspect.errors import SettingsError
from aspect.evaluation.metrics import PERCENT
from aspect.evaluation.neutral_probe import pick_setting, training_tables
from aspect.evaluation.result import Answers, unit_rows, with_constant

# Memory for the tables of the tasks trained together; further tasks are trained afterwards.
# Ten splits by five weight decays of Pubmed (19,717 x 512) or Squirrel (5,201 x 1,024) fit at once.
BATCH_BYTES = 2**28

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
    metric: ClassVar[Metric] = "accuracy"

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
            trace = train_probe(inputs, labels, some, num_classes, self)
            yield from _choose(trace, inputs, labels, some, self.weight_decays)


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
    inputs: Float[Tensor, "rows inputs"],
    known: Int[Tensor, "splits rows"],
    splits: Sequence[Split],
    num_classes: int,
    settings: PaperProbe,
) -> ProbeTrace:
    """Train all tasks from zero for the same number of full-batch steps, watching each one.

    Minimises mean cross-entropy + weight_decay / 2 * |weights|^2, the bias (the last of `inputs`)
    left out of the decay; scikit-learn's C is then 1 / (weight_decay * n_train). Nothing waits for
    the device before the end.
    """
    by_split, truth = training_tables(known, splits, num_classes, inputs)
    targets, share = by_split.transpose(0, 1).unsqueeze(2), by_split.sum(dim=1).unsqueeze(1)
    validation = truth.to(torch.uint8 if num_classes <= MOST_BYTE_CLASSES else torch.int16)
    tested = pad_sequence([split.test for split in splits], batch_first=True).to(inputs.device)
    tried = (len(splits), len(settings.weight_decays))
    shape = (num_classes, *tried)
    weights = inputs.new_zeros(*shape, inputs.shape[1])
    best_weights, gradient = torch.zeros_like(weights), torch.empty_like(weights)
    weights.grad = gradient
    optimiser = torch.optim.Adam([weights], lr=settings.learning_rate, foreach=False)
    decays = inputs.new_tensor(settings.weight_decays).unsqueeze(1)
    table = inputs.new_zeros(*shape, len(inputs))  # logits, then residuals, then logits again
    best = torch.full(tried, -1, device=inputs.device)
    correct = best.new_empty(settings.steps, *tried)
    test = tested.unsqueeze(1).expand(-1, tried[1], -1)
    answers = validation.new_empty(settings.steps, *test.shape)
    for step in range(settings.steps):
        # The loss gradient, without autograd: (softmax - target) / n_train at training rows.
        table.sub_(table.amax(dim=0)).exp_()
        table.mul_(share / table.sum(dim=0)).sub_(targets)
        torch.mm(table.flatten(0, 2), inputs, out=gradient.flatten(0, 2))
        gradient[..., :-1].addcmul_(weights[..., :-1], decays)
        optimiser.step()
        torch.mm(weights.flatten(0, 2), inputs.t(), out=table.flatten(0, 2))
        predicted = _first_largest(table, answers.dtype)
        torch.gather(predicted, 2, test, out=answers[step])
        correct[step] = (predicted == validation.unsqueeze(1)).sum(dim=-1)
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
        most, first_best = correct[:, number].max(dim=0)
        decay = pick_setting(most, losses)
        step, hits = int(first_best[decay]), correct[:, number, decay]
        answers = predictions[:, number, decay, : len(split.test)]
        yield Answers(
            choice=weight_decays[decay],
            step=step + 1,
            validation=PERCENT * int(hits[step]) / len(split.validation),
            predictions=answers[step],
            scores=by_decay[decay][:, split.test],
            loss=float(losses[decay]),
            records=answers[hits == hits.cummax(dim=0).values],
            weights=trace.weights[:, number, decay],
        )
