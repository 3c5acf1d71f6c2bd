"""Headroom: what node-wise fusion could win on a graph, and what the learned gate wins of it.

The bands of a trained model are fused in seven ways and probed by one and the same probe. What a
gate without labels can hope for lies between one mix for all nodes and a gate that is trained with
the labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import Split, SplitKind, make_splits
from aspect.errors import SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.linear_probe import NEUTRAL
from aspect.evaluation.metrics import Spread
from aspect.evaluation.result import Answers, ProbeInput, ProbeResult, without_test_labels
from aspect.evaluation.significance import paired_test
from aspect.methods.aspect import AspectMethod
from aspect.nn.gate import fuse, read_out
from aspect.randomness import generator_for
from aspect.training.progress import Advance

FusionName = Literal[
    "low", "high", "one-mix", "concatenated", "gate", "shuffled-gate", "supervised-gate"
]
FUSIONS: tuple[FusionName, ...] = get_args(FusionName)  # in the order of the table
BASES: tuple[FusionName, ...] = ("one-mix", "concatenated")  # what the others are compared with

MIXES = tuple(step / 10 for step in range(11))  # weight of the low band in one mix for all
HALF = 0.5  # the mix that is plain concatenation

SUPERVISED_SPLITS = 5  # at most: every split has a gate of its own to train
GATE_EPOCHS = 200
GATE_LEARNING_RATE = 0.003
GATE_DECAYS = (0.01, 0.1, 1.0)  # to choose from, for bands whose entries are about one

LITTLE = 1.0  # points of accuracy: a smaller gain hardly pays for a gate

SKIP_NOTICE = (
    "The skip connection of the model is left out: the bands alone are compared, so that these "
    "accuracies differ from those of `aspect evaluate`."
)


@dataclass(frozen=True)
class Gain:
    """How much more accurate one fusion is than another on the same splits, in points."""

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
        """Over the first splits, which both were probed on."""
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


@dataclass(frozen=True)
class HeadroomRow:
    """One fusion of the bands: test accuracy in percent, and its gains."""

    name: FusionName
    accuracy: Spread
    gains: Mapping[FusionName, Gain]  # over those of `BASES`, itself left out

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        gains = [{"over": base, **asdict(gain)} for base, gain in self.gains.items()]
        return {"name": self.name, "accuracy": asdict(self.accuracy), "gains": gains}


@dataclass(frozen=True)
class Headroom:
    """Whether node-wise fusion can pay on a graph."""

    method: str
    nodes: int
    splits: str  # their kind; "own" if they were given
    gate: Mapping[str, float]  # mean and std of the low band's weight, over nodes and models
    rows: tuple[HeadroomRow, ...]
    notices: tuple[str, ...]  # what a reader must know beside the numbers

    def row(self, name: FusionName) -> HeadroomRow:
        """One fusion by its name."""
        return self.rows[FUSIONS.index(name)]

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
        rows = [row.to_dict() for row in self.rows]
        return {**asdict(self), "rows": rows, "conclusion": self.conclusion}


def _verdict(possible: Gain, reached: Gain) -> str:
    """What the two intervals allow to say; single splits have none, and say the least."""
    if reached.low is not None and reached.low > 0:
        return "node-wise fusion pays here"
    if possible.low is not None and possible.low > 0:
        return "node-wise fusion can pay here"
    if all(gain.high is not None and gain.high < LITTLE for gain in (possible, reached)):
        return "node-wise fusion has little to win here"
    return "these splits show no gain of node-wise fusion"


def headroom(
    models: Embedder | Sequence[Embedder],
    labelled: LabelledGraph,
    splits: SplitKind | Sequence[Split] = "random",
    *,
    num_splits: int | None = None,
    seed: int = 0,
    on_step: Advance = lambda *_: None,
) -> Headroom:
    """Fuse the bands of trained models in seven ways, each probed on the same splits.

    A skip connection is no band and is left out.

    Args:
        models: Of ASPECT or ASPECT-S; several are the pre-training seeds of one setting.
        labelled: The graph that they were trained on.
        splits: A kind of split to draw, or the splits themselves.
        num_splits: How many of that kind; all of them if None.
        seed: Of the draw that shuffles the gate over the nodes.
        on_step: Called before each probe.
    """
    models = [models] if isinstance(models, Embedder) else list(models)
    if not models:
        raise SettingsError("Headroom needs one or more trained models. Got none.")
    fused = [centred_bands(model, labelled.graph) for model in models]
    kind = splits if isinstance(splits, str) else "own"
    if isinstance(splits, str):
        classes, masks = labelled.num_classes, labelled.masks
        splits = make_splits(splits, labelled.labels, classes, count=num_splits, masks=masks)
    probes = len(MIXES) + 2 + min(len(splits), SUPERVISED_SPLITS)  # 2: the gate and its shuffle
    steps = count()
    results = [
        probe_bands(
            bands,
            weights,
            labelled,
            splits,
            generator=generator_for(seed, "headroom", number),
            on_probe=lambda word: on_step(next(steps), len(models) * probes, word),
        )
        for number, (bands, weights) in enumerate(fused)
    ]
    gate = torch.cat([weights[:, 0].double() for _, weights in fused])
    return Headroom(
        method=models[0].name,
        nodes=labelled.graph.num_nodes,
        splits=kind,
        gate={"mean": float(gate.mean()), "std": float(gate.std())},
        rows=tuple(_rows(results)),
        notices=(
            *results[0]["concatenated"].notices_naming(labelled.class_names),
            *([SKIP_NOTICE] if any(_has_skip(model) for model in models) else []),
        ),
    )


def _has_skip(model: Embedder) -> bool:
    return isinstance(model.method, AspectMethod) and model.method.skip is not None


def centred_bands(
    model: Embedder, graph: Graph
) -> tuple[Float[Tensor, "2 nodes dim"], Float[Tensor, "nodes 2"]]:
    """The bands of a trained model as they are read out, low one first, and its gate weights."""
    method = model.method
    if not isinstance(method, AspectMethod) or len(method.bands) == 1:
        raise SettingsError(
            f"Headroom needs a method with two bands and a gate: aspect or aspect-s. "
            f"Got {model.name}."
        )
    with torch.no_grad():
        embedding = method.centred(method.eval().encode(model.as_seen(graph)))
    return embedding.bands, embedding.weights


def _rows(results: Sequence[Mapping[FusionName, ProbeResult]]) -> Iterator[HeadroomRow]:
    tables = {
        name: torch.tensor(
            [[score.strict for score in result[name].splits] for result in results],
            dtype=torch.float64,
        )
        for name in FUSIONS
    }
    ratios = [score.test_to_train for score in results[0]["concatenated"].splits]
    ratio = sum(ratios) / len(ratios)
    for name, scores in tables.items():
        gains = {base: Gain.of(scores, tables[base], ratio) for base in BASES if base != name}
        yield HeadroomRow(name, Spread.of_scores(scores.tolist()), gains)


def probe_bands(
    bands: Float[Tensor, "2 nodes dim"],
    weights: Float[Tensor, "nodes 2"],
    labelled: LabelledGraph,
    splits: Sequence[Split],
    *,
    generator: torch.Generator,
    on_probe: Callable[[str], object] = lambda _: None,
) -> dict[FusionName, ProbeResult]:
    """Fuse two bands in seven ways; where there are candidates, validation chooses by split.

    Test labels are read after every choice. The gate that is trained with labels knows those of a
    split's training nodes.

    Args:
        bands: Centred, the low band first.
        weights: Of the learned gate; rows sum to one.
        labelled: Labels of the nodes.
        splits: One probe each; at most five for the gate that is trained with labels.
        generator: For the shuffle of the gate, on the CPU.
        on_probe: Called with a word before each probe.
    """
    both = torch.cat(list(bands), dim=1)
    given = ProbeInput.read(both, labelled.labels, splits, labelled.num_classes).used()
    low, high = given.embeddings.chunk(2, dim=1)
    known = without_test_labels(given.labels, given.splits)
    used = torch.unique(torch.cat([torch.cat(split.parts) for split in splits]))
    shuffled = weights[torch.randperm(len(weights), generator=generator).to(weights.device)]
    bands = torch.stack([low, high]).to(bands.dtype)

    def probe(word: str, gate: Tensor, numbers: Sequence[int]) -> list[Answers]:
        on_probe(word)
        rows = read_out(bands, gate, "weighted")
        some = [given.splits[number] for number in numbers]
        return list(NEUTRAL.answer(rows, known[list(numbers)], some, given.num_classes))

    every = range(len(given.splits))
    constant = {mix: bands.new_tensor([mix, 1 - mix]).expand(bands.shape[1], 2) for mix in MIXES}
    by_mix = {mix: probe(f"mix {mix:g}", gate, every) for mix, gate in constant.items()}
    used = used.to(weights.device)
    chosen: dict[FusionName, list[Answers]] = {
        "low": by_mix[MIXES[-1]],
        "high": by_mix[MIXES[0]],
        "one-mix": [
            max(some, key=lambda tried: (tried.validation, -tried.loss))
            for some in zip(*by_mix.values(), strict=True)
        ],
        "concatenated": by_mix[HALF],
        "gate": probe("learned gate", weights[used], every),
        "shuffled-gate": probe("shuffled gate", shuffled[used], every),
        "supervised-gate": [],
    }
    for number in every[:SUPERVISED_SPLITS]:
        gate = supervised_gate(bands, known[number], given.splits[number], given.num_classes)
        chosen["supervised-gate"] += probe(f"gate trained on split {number}", gate, [number])
    return {
        name: ProbeInput(
            given.embeddings, given.labels, given.splits[: len(answers)], given.num_classes
        ).scored(NEUTRAL.name, NEUTRAL.choice_name, answers)
        for name, answers in chosen.items()
    }


def supervised_gate(
    bands: Float[Tensor, "2 nodes dim"],
    known: Int[Tensor, " nodes"],
    split: Split,
    num_classes: int,
) -> Float[Tensor, "nodes 2"]:
    """Weights of a gate on frozen bands, trained with a linear classifier on training labels.

    A linear classifier of weighted bands is the fusion of one linear classifier per band. The gate
    is a further output of each: the sigmoid of a linear function of both bands. It starts as
    concatenation. Weight decay and epoch are chosen by validation accuracy, equals by validation
    loss; labels of test nodes are not used. All weight decays are trained together: the bands are
    multiplied once.
    """
    bands = bands.detach()
    size = bands.square().mean().sqrt()
    bands = bands / torch.where(size > 0, size, 1)
    known, train, validation = (
        part.to(bands.device) for part in (known, split.train, split.validation)
    )
    tried, outputs = range(len(GATE_DECAYS)), 1 + num_classes
    slopes = [bands.new_zeros(2, bands.shape[2], outputs, requires_grad=True) for _ in tried]
    intercepts = [bands.new_zeros(outputs, requires_grad=True) for _ in tried]
    groups: list[dict[str, Any]] = []
    for number, decay in enumerate(GATE_DECAYS):
        groups.append({"params": [slopes[number]], "weight_decay": decay})
        groups.append({"params": [intercepts[number]], "weight_decay": 0.0})
    optimiser = torch.optim.Adam(groups, lr=GATE_LEARNING_RATE)
    best_merit = [(-math.inf, -math.inf)] * len(GATE_DECAYS)
    chosen = [bands.new_empty(0, 2)] * len(GATE_DECAYS)
    for _ in range(GATE_EPOCHS):
        products = bands @ torch.cat(slopes, dim=2)
        loss = bands.new_zeros(())
        for number, part in enumerate(products.chunk(len(GATE_DECAYS), dim=2)):
            low = torch.sigmoid(part[..., 0].sum(dim=0) + intercepts[number][0])
            weights = torch.stack([low, 1 - low], dim=1)
            logits = fuse(part[..., 1:], weights) + intercepts[number][1:]
            merit = _merit(logits[validation].detach(), known[validation])
            if merit > best_merit[number]:
                best_merit[number], chosen[number] = merit, weights.detach()
            loss = loss + cross_entropy(logits[train], known[train])
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
    return chosen[max(tried, key=best_merit.__getitem__)]


def _merit(
    logits: Float[Tensor, "nodes classes"], labels: Int[Tensor, " nodes"]
) -> tuple[float, float]:
    correct = float((logits.argmax(dim=1) == labels).double().mean())
    return correct, -float(cross_entropy(logits, labels))
