"""Headroom: what node-wise fusion could win on a graph, and what the learned gate wins of it.

The bands of a trained model are read in seven ways by one and the same probe. What a gate without
labels can hope for lies between one mix for all nodes and a gate that is trained with the labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import Split, SplitKind, make_splits
from aspect.errors import SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.linear_probe import NEUTRAL
from aspect.evaluation.protocol import Spread
from aspect.evaluation.result import (
    Answers,
    ProbeInput,
    ProbeResult,
    renumbered,
    without_test_labels,
)
from aspect.evaluation.significance import paired_test
from aspect.methods.aspect import AspectMethod
from aspect.nn.fusion import fuse, read_out
from aspect.randomness import generator_for

__all__ = [
    "MIXES",
    "Gain",
    "Headroom",
    "HeadroomRow",
    "ReadingName",
    "centred_bands",
    "headroom",
    "probe_bands",
    "supervised_gate",
]

ReadingName = Literal[
    "low", "high", "one-mix", "concatenated", "gate", "shuffled-gate", "supervised-gate"
]
READINGS: tuple[ReadingName, ...] = get_args(ReadingName)  # in the order of the table
BASES: tuple[ReadingName, ...] = ("one-mix", "concatenated")  # what the others are compared with

MIXES = tuple(step / 10 for step in range(11))  # weight of the low band in one mix for all
HALF = 0.5  # the mix that is plain concatenation

SUPERVISED_SPLITS = 5  # at most: every split has a gate of its own to train
GATE_EPOCHS = 200
GATE_LEARNING_RATE = 0.003
GATE_DECAYS = (0.01, 0.1, 1.0)  # to choose from, for bands whose entries are about one

LITTLE = 1.0  # points of accuracy: a smaller gain hardly pays for a gate

OnStep = Callable[[int, int, str], object]  # steps done, of how many, and what comes now


def _ignore(done: int, total: int, word: str) -> None:
    """Nobody asked to be told."""


@dataclass(frozen=True)
class Gain:
    """How much more accurate one reading is than another on the same splits, in points."""

    mean: float
    low: float | None  # ends of the paired 95% interval; None for a single split
    high: float | None
    splits: int

    @classmethod
    def of(
        cls,
        scores: Float[Tensor, "models splits"],
        base: Float[Tensor, "models others"],
        test_to_train: float,
    ) -> Gain:
        """Over the first splits, which both were read on."""
        splits = min(scores.shape[1], base.shape[1])
        first, second = scores[:, :splits], base[:, :splits]
        if splits == 1:
            return cls(float((first - second).mean()), None, None, splits)
        test = paired_test(first, second, test_to_train=test_to_train)
        return cls(test.difference, test.low, test.high, splits)

    @property
    def in_words(self) -> str:
        """For a sentence: gains or loses so much, give or take half the interval."""
        half = "" if self.high is None else f" ± {self.high - self.mean:.1f}"
        return f"{'gains' if self.mean >= 0 else 'loses'} {abs(self.mean):.1f}{half}"

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class HeadroomRow:
    """One reading of the bands: test accuracy in percent, and its gains."""

    name: ReadingName
    accuracy: Spread
    gains: Mapping[ReadingName, Gain]  # over the readings of `BASES`, itself left out

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = self.accuracy.to_dict()
        gains = [{"over": base, **gain.to_dict()} for base, gain in self.gains.items()]
        accuracy = {"mean": values.pop("mean"), "std": values.pop("std_splits"), **values}
        return {"name": self.name, "accuracy": accuracy, "gains": gains}


@dataclass(frozen=True)
class Headroom:
    """Whether node-wise fusion can pay on a graph."""

    method: str
    nodes: int
    splits: str  # their kind; "own" if they were given
    gate: Mapping[str, float]  # mean and std of the low band's weight, over nodes and models
    rows: tuple[HeadroomRow, ...]
    notices: tuple[str, ...]  # what a reader must know beside the numbers

    def row(self, name: ReadingName) -> HeadroomRow:
        """One reading by its name."""
        return self.rows[READINGS.index(name)]

    @property
    def conclusion(self) -> str:
        """What follows for this graph, in a sentence."""
        possible = self.row("supervised-gate").gains["one-mix"]
        reached = self.row("gate").gains["one-mix"]
        return (
            f"Against one mix for all, a gate trained with labels {possible.in_words} points on "
            f"this graph, the learned gate {reached.in_words}: {_verdict(possible, reached)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "method": self.method,
            "nodes": self.nodes,
            "splits": self.splits,
            "gate": dict(self.gate),
            "rows": [row.to_dict() for row in self.rows],
            "conclusion": self.conclusion,
            "notices": list(self.notices),
        }


def _verdict(possible: Gain, reached: Gain) -> str:
    """What the two intervals allow to say; single splits have none, and say the least."""
    ends = [(gain.low, gain.high) for gain in (reached, possible)]
    (reached_low, _), (possible_low, _) = ends
    if reached_low is not None and reached_low > 0:
        return "node-wise fusion pays here"
    if possible_low is not None and possible_low > 0:
        return "node-wise fusion can pay here"
    if all(high is not None and high < LITTLE for _, high in ends):
        return "node-wise fusion has little to win here"
    return "these splits show no gain of node-wise fusion"


def headroom(
    models: Embedder | Sequence[Embedder],
    labelled: LabelledGraph,
    splits: SplitKind | Sequence[Split] = "random",
    *,
    num_splits: int | None = None,
    seed: int = 0,
    on_step: OnStep = _ignore,
) -> Headroom:
    """Read the bands of trained models in seven ways, each by the same probe on the same splits.

    Args:
        models: Of ASPECT or ASPECT-S; several are the pre-training seeds of one setting.
        labelled: The graph that they were trained on.
        splits: A kind of split to draw, or the splits themselves.
        num_splits: How many of that kind; all of them if None.
        seed: Of the draw that shuffles the gate over the nodes.
        on_step: Told how far it is.
    """
    every = [models] if isinstance(models, Embedder) else list(models)
    if not every:
        raise SettingsError("Headroom needs one or more trained models. Got none.")
    kind = splits if isinstance(splits, str) else "own"
    if isinstance(splits, str):
        classes, masks = labelled.num_classes, labelled.masks
        splits = make_splits(splits, labelled.labels, classes, count=num_splits, masks=masks)
    probes = len(MIXES) + 2 + min(len(splits), SUPERVISED_SPLITS)  # 2: the gate and its shuffle
    steps, total = count(), len(every) * probes
    results, gates = [], []
    for number, model in enumerate(every):
        bands, weights = centred_bands(model, labelled.graph)
        results.append(
            probe_bands(
                bands,
                weights,
                labelled,
                splits,
                generator=generator_for(seed, "headroom", number),
                on_reading=lambda word: on_step(next(steps), total, word),
            )
        )
        gates.append(weights[:, 0].double())
    gate = torch.cat(gates)
    return Headroom(
        method=every[0].name,
        nodes=labelled.graph.num_nodes,
        splits=kind,
        gate={"mean": float(gate.mean()), "std": float(gate.std())},
        rows=tuple(_rows(results)),
        notices=results[0]["concatenated"].notices_naming(labelled.class_names),
    )


def centred_bands(
    model: Embedder, graph: Graph
) -> tuple[Float[Tensor, "2 nodes dim"], Float[Tensor, "nodes 2"]]:
    """The bands of a trained model as they are read out, the low one first, and its gate weights."""
    method = model.method
    if not isinstance(method, AspectMethod) or len(method.bands) == 1:
        raise SettingsError(
            f"Headroom needs a method with two bands and a gate: aspect or aspect-s. "
            f"Got {model.name}."
        )
    with torch.no_grad():
        seen = method.eval().see_centred(model.as_seen(graph))
    return seen.views, seen.weights


def _rows(results: Sequence[Mapping[ReadingName, ProbeResult]]) -> Iterator[HeadroomRow]:
    """Over the models, one line of scores each."""
    tables = {
        name: torch.tensor(
            [[score.strict for score in result[name].splits] for result in results],
            dtype=torch.float64,
        )
        for name in READINGS
    }
    ratios = [score.test_to_train for score in results[0]["concatenated"].splits]
    ratio = sum(ratios) / len(ratios)
    for name, scores in tables.items():
        gains = {base: Gain.of(scores, tables[base], ratio) for base in BASES if base != name}
        yield HeadroomRow(name, Spread.of(scores), gains)


def probe_bands(
    bands: Float[Tensor, "2 nodes dim"],
    weights: Float[Tensor, "nodes 2"],
    labelled: LabelledGraph,
    splits: Sequence[Split],
    *,
    generator: torch.Generator,
    on_reading: Callable[[str], object] = lambda _: None,
) -> dict[ReadingName, ProbeResult]:
    """Read two bands in seven ways; where there are candidates, validation chooses by split.

    Test labels are read after every choice. The gate that is trained with labels knows those of a
    split's training nodes.

    Args:
        bands: Centred, the low band first.
        weights: Of the learned gate; rows sum to one.
        labelled: Labels of the nodes.
        splits: One probe each; at most five for the gate that is trained with labels.
        generator: For the shuffle of the gate, on the CPU.
        on_reading: Told what is probed next.
    """
    readings = _Readings(bands, labelled, splits, on_reading)
    shuffled = weights[torch.randperm(len(weights), generator=generator).to(weights.device)]
    by_mix = {mix: readings.probe(f"mix {mix:g}", _constant(mix, bands)) for mix in MIXES}
    chosen: dict[ReadingName, Sequence[_Candidate]] = {
        "low": by_mix[MIXES[-1]],
        "high": by_mix[MIXES[0]],
        "one-mix": _best(list(by_mix.values())),
        "concatenated": by_mix[HALF],
        "gate": readings.probe("learned gate", weights),
        "shuffled-gate": readings.probe("shuffled gate", shuffled),
        "supervised-gate": readings.supervised(),
    }
    return {name: readings.score(candidates) for name, candidates in chosen.items()}


def _constant(mix: float, bands: Float[Tensor, "2 nodes dim"]) -> Float[Tensor, "nodes 2"]:
    """The weights of a gate that answers every node alike."""
    return bands.new_tensor([mix, 1 - mix]).expand(bands.shape[1], 2)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A probe of one split, and how it validates."""

    answers: Answers
    loss: float  # validation cross-entropy

    @property
    def merit(self) -> tuple[float, float]:
        """What validation prefers is larger."""
        return self.answers.validation, -self.loss


def _best(candidates: Sequence[Sequence[_Candidate]]) -> list[_Candidate]:
    """Of each split the one that validation prefers, the first of equals."""
    return [max(some, key=lambda one: one.merit) for some in zip(*candidates, strict=True)]


class _Readings:
    """Bands, splits and the labels that may be known, the same for every reading."""

    def __init__(
        self,
        bands: Float[Tensor, "2 nodes dim"],
        labelled: LabelledGraph,
        splits: Sequence[Split],
        on_reading: Callable[[str], object],
    ) -> None:
        classes = labelled.num_classes
        given = ProbeInput.read(torch.cat(list(bands), dim=1), labelled.labels, splits, classes)
        nodes, self.splits = renumbered(given.splits)
        self.nodes = nodes.to(bands.device)
        self.bands = bands[:, self.nodes]
        self.labels, self.num_classes = given.labels[nodes], classes
        self.known = without_test_labels(self.labels, self.splits)
        self.on_reading = on_reading

    def probe(self, word: str, weights: Float[Tensor, "nodes 2"]) -> list[_Candidate]:
        """The bands scaled by weights, side by side, on every split."""
        self.on_reading(word)
        rows = read_out(self.bands, weights[self.nodes], "weighted")
        return self._candidates(rows, range(len(self.splits)))

    def supervised(self) -> list[_Candidate]:
        """A gate per split, read by the probe as all others are."""
        candidates = []
        for number, split in enumerate(self.splits[:SUPERVISED_SPLITS]):
            self.on_reading(f"gate trained on split {number}")
            gate = supervised_gate(self.bands, self.known[number], split, self.num_classes)
            candidates += self._candidates(read_out(self.bands, gate, "weighted"), [number])
        return candidates

    def _candidates(
        self, rows: Float[Tensor, "nodes both"], numbers: Sequence[int]
    ) -> list[_Candidate]:
        splits, known = [self.splits[number] for number in numbers], self.known[list(numbers)]
        answers = NEUTRAL.answer(rows, known, splits, self.num_classes)
        return [
            _Candidate(answer, _validation_loss(answer, rows, labels, split))
            for answer, labels, split in zip(answers, known, splits, strict=True)
        ]

    def score(self, chosen: Sequence[_Candidate]) -> ProbeResult:
        """Compare with the test labels: the only place where they are read."""
        given = ProbeInput(self.bands[0], self.labels, self.splits[: len(chosen)], self.num_classes)
        answers = [candidate.answers for candidate in chosen]
        return given.scored(NEUTRAL.name, NEUTRAL.choice_name, answers)


def _validation_loss(
    answer: Answers,
    rows: Float[Tensor, "nodes both"],
    known: Int[Tensor, " nodes"],
    split: Split,
) -> float:
    """Cross-entropy of the validation nodes whose class was trained on; 0 if there is none."""
    assert answer.weights is not None  # linear probes have some
    labels = known[split.validation]
    is_trained = torch.isin(labels, known[split.train])
    if not bool(is_trained.any()):
        return 0.0
    nodes = split.validation[is_trained].to(rows.device)
    inputs = NEUTRAL.inputs(rows[nodes]).to(answer.weights)
    return float(cross_entropy(inputs @ answer.weights.t(), labels[is_trained].to(inputs.device)))


class _GatedClassifier(nn.Module):
    """Classes from two bands that a gate weighs node by node; it starts as concatenation.

    A linear classifier of weighted bands is the fusion of one linear classifier per band. The gate
    is a further output of each: the sigmoid of a linear function of both bands.
    """

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.zeros(2, dim, 1 + num_classes))
        self.intercepts = nn.Parameter(torch.zeros(1 + num_classes))

    def forward(
        self, bands: Float[Tensor, "2 nodes dim"]
    ) -> tuple[Float[Tensor, "nodes 2"], Float[Tensor, "nodes classes"]]:
        """Gate weights and logits."""
        answers = bands @ self.slopes
        low = torch.sigmoid(answers[..., 0].sum(dim=0) + self.intercepts[0])
        weights = torch.stack([low, 1 - low], dim=1)
        return weights, fuse(answers[..., 1:], weights) + self.intercepts[1:]


def supervised_gate(
    bands: Float[Tensor, "2 nodes dim"],
    known: Int[Tensor, " nodes"],
    split: Split,
    num_classes: int,
) -> Float[Tensor, "nodes 2"]:
    """Weights of a gate on frozen bands, trained with a linear classifier on training labels.

    Weight decay and epoch are chosen by validation accuracy, equals by validation loss; labels of
    test nodes are not looked at.
    """
    bands = bands.detach()
    size = bands.square().mean().sqrt()
    bands = bands / torch.where(size > 0, size, 1)
    known, train, validation = (
        part.to(bands.device) for part in (known, split.train, split.validation)
    )
    best, chosen = (-math.inf, -math.inf), bands.new_empty(0, 2)
    for decay in GATE_DECAYS:
        for weights, logits in _train(bands, known, train, num_classes, decay):
            merit = _merit(logits[validation].detach(), known[validation])
            if merit > best:
                best, chosen = merit, weights.detach()
    return chosen


def _train(
    bands: Float[Tensor, "2 nodes dim"],
    known: Int[Tensor, " nodes"],
    train: Int[Tensor, " train"],
    num_classes: int,
    decay: float,
) -> Iterator[tuple[Float[Tensor, "nodes 2"], Float[Tensor, "nodes classes"]]]:
    """Gate weights and logits of all nodes, before every step."""
    model = _GatedClassifier(bands.shape[2], num_classes).to(bands.device, bands.dtype)
    groups = [
        {"params": [model.slopes], "weight_decay": decay},
        {"params": [model.intercepts], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.Adam(groups, lr=GATE_LEARNING_RATE)
    for _ in range(GATE_EPOCHS):
        weights, logits = model(bands)
        yield weights, logits
        optimiser.zero_grad()
        loss: Tensor = cross_entropy(logits[train], known[train])
        torch.autograd.backward(loss)
        optimiser.step()


def _merit(
    logits: Float[Tensor, "nodes classes"], labels: Int[Tensor, " nodes"]
) -> tuple[float, float]:
    correct = float((logits.argmax(dim=1) == labels).double().mean())
    return correct, -float(cross_entropy(logits, labels))
