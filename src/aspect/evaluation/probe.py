"""The linear probe: how well a logistic regression reads the classes off frozen embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import cross_entropy

from aspect.evaluation.inputs import ProbeInput, unit_rows, without_test_labels
from aspect.evaluation.logistic import (
    ProbeSettings,
    Tasks,
    Trace,
    scores_of,
    train,
    with_constant,
)
from aspect.evaluation.metrics import PERCENT
from aspect.evaluation.result import Answers, ProbeResult
from aspect.graph.splits import Split, SplitKind

__all__ = ["ProbeSettings", "answer", "answer_known", "linear_probe", "pick", "probe_rows"]

DEFAULT_SETTINGS = ProbeSettings()

# Memory for the tables of the tasks trained together; further tasks are trained afterwards.
# Ten splits by five weight decays of Pubmed (19,717 x 512) or Squirrel (5,201 x 1,024) fit at once.
BATCH_BYTES = 2**28


def linear_probe(
    embeddings: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    splits: SplitKind | str | Sequence[Split] = "class-balanced",
    *,
    num_classes: int | None = None,
    masks: Mapping[str, Tensor] | None = None,
    settings: ProbeSettings = DEFAULT_SETTINGS,
) -> ProbeResult:
    """Train a logistic regression per split and weight decay; score what validation chose.

    Per split, validation accuracy chooses the weight decay and the step, the first best one; equal
    weight decays are told apart by validation cross-entropy at that step, then by their order.
    Test labels are read after that, in `score`, and nowhere else.

    Memory beside the embeddings and a copy of them: `BATCH_BYTES`, or the tables of a single task
    where those are larger (8 bytes per node and class), and one byte per step, weight decay and
    test node of a split.

    Args:
        embeddings: One row per node; trained on the device they lie on, in float32.
        labels: Classes from 0 on, -1 for none.
        splits: A kind of split to draw, or the splits themselves.
        num_classes: Classes of the data set, if the last ones have no node here.
        masks: The published splits, for `splits="published"`.
        settings: Learning rate, steps and the weight decays to choose from.
    """
    given = ProbeInput.read(embeddings, labels, splits, num_classes, masks).used()
    answers = answer(probe_rows(given.embeddings), given, settings)
    return ProbeResult.of(
        "linear", "weight_decay", answers, given.labels, given.splits, given.num_classes
    )


def probe_rows(embeddings: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
    """Rows of length d^(1/4); a row of zeros stays zero.

    Contrastive losses do not see the length of an embedding: with a common one, learning rate and
    weight decay mean much the same for every method. Rows that nearly share a direction, as those
    of PolyGCL on Cora do, are read less well than they could be.
    """
    length: float = embeddings.shape[1] ** 0.25
    return unit_rows(embeddings) * length


def answer(
    rows: Float[Tensor, "nodes dim"], given: ProbeInput, settings: ProbeSettings
) -> Iterator[Answers]:
    """Train and choose for split after split; the labels of its test nodes are masked first."""
    known = without_test_labels(given.labels, given.splits)
    return answer_known(rows, known, given.splits, given.num_classes, settings)


def answer_known(
    rows: Float[Tensor, "nodes dim"],
    known: Int[Tensor, "splits nodes"],
    splits: Sequence[Split],
    num_classes: int,
    settings: ProbeSettings,
) -> Iterator[Answers]:
    """The same from labels that are masked already, in batches that fit the memory."""
    inputs = with_constant(rows)
    decays = settings.weight_decays
    longest = max(len(split.test) for split in splits)
    at_once = max(1, BATCH_BYTES // _task_bytes(inputs, num_classes, settings.steps * longest))
    group = max(1, at_once // len(decays))
    for start in range(0, len(splits), group):
        some, labels = splits[start : start + group], known[start : start + group]
        tasks = Tasks.build(labels, some, num_classes, inputs)
        traces = [
            train(inputs, tasks, settings, decays[first : first + at_once])
            for first in range(0, len(decays), at_once)
        ]
        yield from _choose(Trace.join(traces), inputs, labels, some, decays)


def _task_bytes(inputs: Float[Tensor, "nodes inputs"], num_classes: int, answers: int) -> int:
    """Memory of one split with one weight decay: answers, logits, targets and five weights."""
    numbers = num_classes * (2 * inputs.shape[0] + 5 * inputs.shape[1])
    return answers + inputs.element_size() * numbers


def _choose(
    trace: Trace,
    inputs: Float[Tensor, "nodes inputs"],
    known: Int[Tensor, "splits nodes"],
    splits: Sequence[Split],
    weight_decays: Sequence[float],
) -> Iterator[Answers]:
    """Per split, the weight decay and step that validation prefers, and their test answers."""
    logits = scores_of(trace.weights, inputs).cpu()
    correct, predictions = trace.correct.cpu(), trace.answers.cpu()
    for number, split in enumerate(splits):
        own = logits[:, number].transpose(0, 1)  # [decays, classes, nodes]
        truth = known[number, split.validation].expand(len(own), -1)
        losses = cross_entropy(own[..., split.validation], truth, reduction="none").mean(dim=1)
        decay, step = pick(correct[:, number], losses)
        hits = correct[:, number, decay]
        answers = predictions[:, number, decay, : len(split.test)]
        yield Answers(
            choice=weight_decays[decay],
            step=step + 1,
            validation=PERCENT * int(hits[step]) / len(split.validation),
            predictions=answers[step],
            scores=own[decay][:, split.test],
            records=answers[hits == hits.cummax(dim=0).values],
            weights=trace.weights[:, number, decay],
        )


def pick(correct: Int[Tensor, "steps decays"], losses: Float[Tensor, " decays"]) -> tuple[int, int]:
    """The weight decay with most hits, then with the lower loss; and its first best step."""
    best, step = correct.max(dim=0)
    decay = max(range(len(losses)), key=lambda each: (int(best[each]), -float(losses[each])))
    return decay, int(step[decay])
