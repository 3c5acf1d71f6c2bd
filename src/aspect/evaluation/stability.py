"""How far a trained model moves when its graph is perturbed a little, and what a probe loses.

The model stays as it is. Any registered attack can be tried, at several budgets each. Of the labels
a perturbation sees those of a split's training nodes at most, the probe those of training and
validation nodes; test nodes are scored at the end.

Embeddings have no natural place or unit: what counts is how far a node moves beside how far nodes
lie apart. So rows are centred by the mean before the change, and distances are divided by the mean
distance of two nodes. Shifting, scaling or rotating all embeddings changes no measure, and a
collapsed embedding, whose nodes hardly differ, does not look stable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import cached_property
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pdist

from aspect.attacks.base import SearchProblem, Target, apply_flips, flips_within, least_budget
from aspect.attacks.file import PerturbationFile
from aspect.attacks.perturbation import Perturbation
from aspect.attacks.registry import attack_info, attack_title, find_attack
from aspect.data.features import num_entries
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import Split, SplitKind, check_splits, make_splits
from aspect.errors import GraphError, SettingsError, TrainingError
from aspect.estimator import Embedder
from aspect.evaluation.linear_probe import TrainedProbe
from aspect.evaluation.metrics import PERCENT, Summary
from aspect.evaluation.result import unit_rows
from aspect.evaluation.stability_request import (
    DEFAULT_BUDGETS,
    DEFAULT_KINDS,
    DEFAULT_SPLIT_KIND,
    DEFAULT_SPLITS,
    TRANSFERRED,
    StabilityRequest,
)
from aspect.methods.aspect import AspectMethod
from aspect.randomness import generator_for
from aspect.training.health import check_finite
from aspect.training.progress import Advance

# Where a model cannot be searched: ASPECT at its defaults, narrow and soon stopped.
STAND_IN = {"width": 128, "epochs": 30}

ROWS_AT_ONCE = 65_536  # float64 copies of more would cost more memory than the embeddings do
MOST_EXACT_NODES = 3_000  # beyond, the mean distance is that of a fixed sample of pairs
SAMPLED_PAIRS = 100_000  # their mean is off by about a tenth of a percent
PAIR_NUMBERS = 2**22  # of their rows at once
HIGH = 0.95  # of the nodes move less than the number called p95


# What a model makes of a graph, and how far that moves from one graph to another


@dataclass(frozen=True, eq=False)
class Look:
    """What a model makes of a graph."""

    embeddings: Float[Tensor, "nodes dim"]
    gate: Float[Tensor, " nodes"] | None  # weight of the low band; None without a gate
    bands: Mapping[str, Float[Tensor, "nodes width"]]  # lowest first; none without several bands

    @cached_property
    def distance(self) -> float:
        """The mean distance of two nodes: the unit in which they move."""
        distance = mean_distance(self.embeddings)
        if distance == 0:
            raise TrainingError(
                "All nodes have the same embedding (representation "
                "collapse), so that there is no distance between nodes to measure a shift by."
            )
        return distance


@torch.no_grad()
def look_at(model: Embedder, graph: Graph) -> Look:
    """Embed a graph, with the gate, and with the bands where there are several."""
    seen, method = model.as_seen(graph), model.method
    embeddings = model.embed(seen, normalise="none")  # no measure depends on it
    check_finite(embeddings)
    if not isinstance(method, AspectMethod) or len(method.bands) == 1:
        return Look(embeddings, model.policy(seen), {})
    answer = method.eval().encode(seen)  # bands and gate in one go: every look costs
    bands = dict(zip(method.bands, answer.bands.cpu(), strict=True))
    return Look(embeddings, answer.weights[:, 0].cpu(), bands)


@dataclass(frozen=True)
class Shift:
    """A move of every node, in three numbers."""

    mean: float
    median: float
    p95: float  # the 95th percentile

    @classmethod
    def of(cls, moves: Float[Tensor, " nodes"]) -> Shift:
        """Over the nodes."""
        values = moves.double().numpy()
        median, high = np.quantile(values, [0.5, HIGH]).tolist()
        return cls(float(values.mean()), median, high)

    @classmethod
    def average(cls, shifts: Sequence[Shift]) -> Shift:
        """Each number a mean over the draws."""
        return cls(*(fmean(numbers) for numbers in zip(*map(astuple, shifts), strict=True)))


@dataclass(frozen=True)
class Movement:
    """How far a model's answers moved."""

    shift: Shift  # 1 - cosine of the centred embeddings before and after
    relative_shift: Shift  # distance of the two, divided by the mean distance of two nodes before
    gate_shift: float | None  # mean absolute change of the gate weight; None without a gate
    band_shift: dict[str, Shift]  # 1 - cosine of the centred rows, band by band

    @classmethod
    def average(cls, moves: Sequence[Movement]) -> Movement:
        """Each number a mean over the draws."""
        gates = [move.gate_shift for move in moves if move.gate_shift is not None]
        return cls(
            Shift.average([move.shift for move in moves]),
            Shift.average([move.relative_shift for move in moves]),
            fmean(gates) if gates else None,
            {
                band: Shift.average([move.band_shift[band] for move in moves])
                for band in moves[0].band_shift
            },
        )


def movement(before: Look, after: Look) -> Movement:
    """Compare two looks of one model at the same nodes."""
    gate = None
    if before.gate is not None and after.gate is not None:
        gate = float((after.gate - before.gate).abs().double().mean())
    relative = relative_shifts(before.embeddings, after.embeddings, before.distance)
    return Movement(
        Shift.of(turns(before.embeddings, after.embeddings)),
        Shift.of(relative),
        gate,
        {band: Shift.of(turns(rows, after.bands[band])) for band, rows in before.bands.items()},
    )


def turns(
    before: Float[Tensor, "nodes dim"], after: Float[Tensor, "nodes dim"]
) -> Float[Tensor, " nodes"]:
    """1 - cosine of every row, from 0 to 2, as half the squared distance of the unit rows.

    Both sides are centred by the mean of the rows before. This form is exactly 0 for rows that are
    the same, and exact for small turns. A row at the mean has no direction: it has turned by 1 if
    it was or comes there, by 0 if it stays there.
    """
    sums = [rows.double().sum(dim=0) for rows in torch.split(before, ROWS_AT_ONCE)]
    centre, parts = torch.stack(sums).sum(dim=0) / len(before), []
    for first, second in _chunks(before, after):
        old, new = first - centre, second - centre
        turn = (unit_rows(old) - unit_rows(new)).square().sum(dim=1) / 2
        was_mean, is_mean = ((rows == 0).all(dim=1) for rows in (old, new))
        parts.append(torch.where(was_mean != is_mean, 1.0, turn))
    return torch.cat(parts)


def relative_shifts(
    before: Float[Tensor, "nodes dim"], after: Float[Tensor, "nodes dim"], distance: float
) -> Float[Tensor, " nodes"]:
    """The distance of every row before and after, divided by the mean distance of two nodes."""
    moves = [(second - first).norm(dim=1) for first, second in _chunks(before, after)]
    return torch.cat(moves) / distance


def _chunks(before: Tensor, after: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    sides = (torch.split(rows, ROWS_AT_ONCE) for rows in (before, after))
    for first, second in zip(*sides, strict=True):
        yield first.double(), second.double()


def mean_distance(rows: Float[Tensor, "nodes dim"]) -> float:
    """The mean distance of two different rows, 0 for one; of many rows, of a sample of pairs."""
    count = len(rows)
    if count == 1:
        return 0.0
    if count <= MOST_EXACT_NODES:
        return float(pdist(rows.double()).mean())
    generator = generator_for(0, "mean distance", count)
    first = torch.randint(count, (SAMPLED_PAIRS,), generator=generator)
    ahead = torch.randint(1, count, (SAMPLED_PAIRS,), generator=generator)
    second = (first + ahead) % count  # never the same node
    at_once = max(1, PAIR_NUMBERS // rows.shape[1])
    pairs = zip(torch.split(first, at_once), torch.split(second, at_once), strict=True)
    total = math.fsum(
        float((rows[some].double() - rows[others].double()).norm(dim=1).sum())
        for some, others in pairs
    )
    return total / SAMPLED_PAIRS


# A model that is searched for the flips that move it


def searched(model: Embedder) -> SearchProblem:
    """What a search on a fitted model maximises: the model as it embeds, with its gate frozen."""
    method = model.method.eval()
    return lambda graph, scope, generator: method.search_problem(
        model.as_seen(graph), scope, generator
    )


def train_stand_in(graph: Graph, seed: int) -> SearchProblem:
    """An ASPECT trained on the same graph, where no gradient of a model reaches the edges."""
    model = Embedder("aspect", seed=seed, device=str(graph.device), **STAND_IN)
    return searched(model.fit(graph, progress=False))


# What comes out: a row for every attack and budget


@dataclass(frozen=True)
class SplitAccuracy:
    """What a probe of one split reaches on a perturbed graph, in percent."""

    split: int
    strict: float


@dataclass(frozen=True)
class Measurement(Movement):
    """One perturbed graph, and how the model's output moved on it."""

    split: int | None  # the split that it is for; None: for all of them
    changed: int  # pairs flipped, or entries masked
    strict: tuple[SplitAccuracy, ...]  # nothing without a probe


@dataclass(frozen=True)
class StabilityRow(Movement):
    """One line of the table: an attack at a budget, each number a mean over all of its draws."""

    kind: str
    title: str  # the kind, with a word on how it was done
    budget: float
    flips: float | int
    masked_entries: float | int
    clean: Summary | None  # accuracy on the graph as it was, on the splits of the row
    perturbed: Summary | None  # accuracy on the perturbed graphs, over the splits
    drop: float | None  # (clean - perturbed) / clean of the means, in percent
    measurements: tuple[Measurement, ...]

    @classmethod
    def of(
        cls,
        kind: str,
        title: str,
        budget: float,
        measurements: Sequence[Measurement],
        clean: Mapping[int, float],
    ) -> StabilityRow:
        """Summarise the draws; `clean` is the accuracy on the graph as it was, split by split."""
        changed = fmean(measured.changed for measured in measurements)
        is_mask = attack_info(kind).changes == "features"
        scores = [score for measured in measurements for score in measured.strict]
        before = _summary([clean[score.split] for score in scores])
        after, drop = _summary([score.strict for score in scores]), None
        if before is not None and after is not None and before.mean != 0:
            drop = PERCENT * (before.mean - after.mean) / before.mean
        return cls(
            **vars(Movement.average(measurements)),
            kind=kind,
            title=title,
            budget=budget,
            flips=0 if is_mask else changed,
            masked_entries=changed if is_mask else 0,
            clean=before,
            perturbed=after,
            drop=drop,
            measurements=tuple(measurements),
        )


@dataclass(frozen=True)
class StabilityResult:
    """How stable a model is under small perturbations of the graph that it is used on.

    The fields are the keys of the JSON file of `aspect stability`.
    """

    method: str
    nodes: int
    edges: int
    feature_entries: int  # that are not zero
    seed: int  # of every draw
    splits: SplitKind | None  # None without a probe
    split_numbers: tuple[int, ...]
    clean: Summary | None  # accuracy on the graph as it is
    clean_scores: tuple[dict[str, Any], ...]  # a `SplitScore` for each split, with its number
    rows: tuple[StabilityRow, ...]
    notices: tuple[str, ...]  # what a reader must know beside the numbers


def _summary(values: Sequence[float]) -> Summary | None:
    return Summary.of(values) if values else None


# The study


def study_stability(
    model: Embedder,
    labelled: LabelledGraph,
    request: StabilityRequest | None = None,
    *,
    files: Mapping[str, Sequence[PerturbationFile]] | None = None,
    split_numbers: Sequence[int] | None = None,
    on_step: Advance | None = None,
) -> StabilityResult:
    """Perturb the graph in several ways, and see how far embeddings, gate and a probe follow.

    What is requested by name and cannot be done is refused; what the defaults name and cannot be
    done is left out, with a notice.

    Args:
        model: Fitted; of a method that embeds graphs it was not trained on.
        labelled: The graph that the perturbations start from.
        request: What is requested; the default kinds at the usual budgets if nothing is.
        files: Attacks that were made before, by title, in place of metattack.
        split_numbers: Those of the splits, where the files decide them; of the requested kind.
        on_step: Called with how far it is.
    """
    if not model.method.inductive:
        raise SettingsError(
            f"{model.name} cannot embed a graph that it was not trained on, "
            "so that its stability on a perturbed graph cannot be measured."
        )
    request = request or StabilityRequest()
    return _StabilityStudy(model, labelled, request, files or {}, split_numbers, on_step).result()


# A perturbed graph: its budget, the split it is for (None: all), and how much of it is changed.
_Perturbed = tuple[float, int | None, Graph, int]


class _StabilityStudy:
    """What is done on one graph, and the rows as they come in."""

    def __init__(
        self,
        model: Embedder,
        labelled: LabelledGraph,
        request: StabilityRequest,
        files: Mapping[str, Sequence[PerturbationFile]],
        split_numbers: Sequence[int] | None,
        on_step: Advance | None,
    ) -> None:
        self.model, self.labelled, self.graph = model, labelled, labelled.graph
        self.request, self.files, self.seed = request, files, request.seed
        self.notices: list[str] = []  # what was left out, a sentence each
        self.kind_of_splits = request.splits or DEFAULT_SPLIT_KIND
        self.splits = self._choose_splits(split_numbers)
        self.draws = tuple(self.splits) or tuple(range(request.num_splits or DEFAULT_SPLITS))
        self.kinds = self._choose_kinds()
        self.budgets = self._choose_budgets()
        self._on_step, self._steps = on_step or (lambda *_: None), 0
        graphs = [1 if attack_info(kind).needs_model else len(self.draws) for kind in self.kinds]
        graphs += [len(stored) for stored in files.values()]
        self._total = 1 + bool(self.splits) + sum(graphs) * len(self.budgets)

    def _choose_splits(self, numbers: Sequence[int] | None) -> dict[int, Split]:
        """The splits by their numbers; none, and a notice, where no probe can be trained."""
        labels, masks, kind = self.labelled.labels, self.labelled.masks, self.kind_of_splits
        count = max(numbers) + 1 if numbers else self.request.num_splits
        try:
            drawn = make_splits(kind, labels, self.labelled.num_classes, count=count, masks=masks)
            check_splits(drawn, labels)
        except GraphError as error:
            if self.request.splits:
                raise
            self.notices.append(
                f"Only the shifts are measured, since no probe can be trained. {error}"
            )
            return {}
        default = range(len(drawn))[: self.request.num_splits or DEFAULT_SPLITS]
        return {number: drawn[number] for number in numbers or default}

    def _choose_kinds(self) -> list[str]:
        """The kinds that are made here; files stand in for the metattack that would be made."""
        requested = self.request.kinds
        kinds = [
            kind for kind in requested or DEFAULT_KINDS if not (self.files and kind == "metattack")
        ]
        left_out = {kind: reason for kind in kinds if (reason := self._obstacle(kind))}
        for kind, reason in left_out.items():
            if requested:
                raise GraphError(f"There can be no {kind} perturbation: {reason}.")
            self.notices.append(f"{kind} is left out: {reason}.")
        chosen = [kind for kind in kinds if kind not in left_out]
        if not chosen and not self.files:
            listed = "; ".join(left_out.values())
            raise GraphError(f"Nothing of this graph can be perturbed: {listed}.")
        return chosen

    def _obstacle(self, kind: str) -> str:
        """Why an attack cannot be made on the graph; nothing where it can."""
        info = attack_info(kind)
        if info.changes == "features":
            return "" if num_entries(self.graph.features) else "all features are zero"
        if self.graph.num_edges == 0:
            return "the graph has no edges"
        needs_splits = info.needs_labels and not self.splits
        return "it needs the classes of training nodes" if needs_splits else ""

    def _choose_budgets(self) -> list[float]:
        """The budgets that change something, rising."""
        changed = {attack_info(kind).changes for kind in self.kinds}
        counts = {}
        if self.files or "edges" in changed:
            counts["edges"] = self.graph.num_edges
        if "features" in changed:
            counts["feature entries"] = num_entries(self.graph.features)
        unit, count = min(counts.items(), key=lambda item: item[1])
        budgets = self.request.budgets or DEFAULT_BUDGETS
        fitting = [budget for budget in budgets if round(budget * count) > 0]
        if len(fitting) < len(self.request.budgets) or not fitting:
            raise SettingsError(
                f"Budget of {budgets[0]:g} allows no change of {count} {unit}. "
                f"It must be {least_budget(count):g} or more."
            )
        if len(fitting) < len(budgets):
            listed = ", ".join(f"{budget:g}" for budget in budgets if budget not in fitting)
            self.notices.append(
                f"No budget of {listed} is tried: it allows no change of {count} {unit}."
            )
        return fitting

    def result(self) -> StabilityResult:
        """Look at the graph as it is, then at all the others."""
        self._tell("the graph as it is")
        before = look_at(self.model, self.graph)
        self._steps += 1
        probe = None
        if self.splits:
            self._tell("probe")
            embeddings, labels = before.embeddings.to(self.model.device), self.labelled.labels
            num_classes = self.labelled.num_classes
            probe = TrainedProbe.fit(embeddings, labels, self.splits, num_classes=num_classes)
            self._steps += 1
        sources = [(kind, self._title(kind), self._perturbed(kind)) for kind in self.kinds]
        sources += [
            (stored[0].facts.kind, title, self._from_files(stored))
            for title, stored in self.files.items()
        ]
        clean = {} if probe is None else dict(zip(self.splits, probe.clean.splits, strict=True))
        accuracies = {number: score.strict for number, score in clean.items()}
        rows = [
            StabilityRow.of(kind, title, budget, measured, accuracies)
            for kind, title, graphs in sources
            for budget, measured in self._measured(title, graphs, before, probe).items()
        ]
        notices = () if probe is None else probe.clean.notices_naming(self.labelled.class_names)
        return StabilityResult(
            method=self.model.name,
            nodes=self.graph.num_nodes,
            edges=self.graph.num_edges,
            feature_entries=num_entries(self.graph.features),
            seed=self.seed,
            splits=self.kind_of_splits if probe else None,
            split_numbers=tuple(self.splits),
            clean=None if probe is None else probe.clean.strict,
            clean_scores=tuple(
                {"split": number, **asdict(score)} for number, score in clean.items()
            ),
            rows=tuple(rows),
            notices=(*self.notices, *notices),
        )

    def _tell(self, word: str) -> None:
        self._on_step(self._steps, self._total, word)

    def _measured(
        self, title: str, graphs: Iterator[_Perturbed], before: Look, probe: TrainedProbe | None
    ) -> dict[float, list[Measurement]]:
        """The measurements of each budget, whatever the order in which the graphs come."""
        by_budget: dict[float, list[Measurement]] = {budget: [] for budget in self.budgets}
        self._tell(title)
        for budget, split, graph, changed in graphs:
            after = look_at(self.model, graph)
            scores: list[SplitAccuracy] = []
            if probe is not None:
                tested = self.splits if split is None else (split,)
                scores = [SplitAccuracy(k, probe.strict(k, after.embeddings)) for k in tested]
            moved = vars(movement(before, after))
            measured = Measurement(**moved, split=split, changed=changed, strict=tuple(scores))
            by_budget[budget].append(measured)
            self._steps += 1
            self._tell(title)
        return by_budget

    # Where the perturbed graphs come from

    def _title(self, kind: str) -> str:
        if attack_info(kind).needs_model:
            title = attack_title(kind)
            return title if self.model.method.searchable else f"{title} {TRANSFERRED}"
        return attack_title(kind, getattr(find_attack(kind).settle({}, self.graph), "solver", ""))

    def _perturbed(self, kind: str) -> Iterator[_Perturbed]:
        """The graphs of an attack that is made here, as `aspect attack` would make it."""
        info = attack_info(kind)
        if info.changes == "features":
            before = num_entries(self.graph.features)
            for draw, budget in product(self.draws, self.budgets):
                mask = Perturbation(kind=kind, budget=budget)
                graph = mask.apply(self.labelled, self.seed + draw)
                yield budget, draw, graph, before - num_entries(graph.features)
            return
        counts = [flips_within(budget, self.graph) for budget in self.budgets]
        for number in (None,) if info.needs_model else self.draws:

            def tell(made: int, split: int | None = number) -> None:
                self._tell(f"{kind} on split {split}, {made} of {counts[-1]} flips")

            seed = self.seed + (number or 0)
            attack = find_attack(kind).begin(self._target(kind, number), seed=seed)
            flips = attack.find_each(counts, tell if info.needs_labels else None)
            yield from self._flipped(flips, number)

    def _target(self, kind: str, split: int | None) -> Target:
        """What the attack sees: a model, the training labels of a split, or the graph alone."""
        info = attack_info(kind)
        if info.needs_model:
            graph = self.graph.to(self.model.device)
            if self.model.method.searchable:
                return Target(graph, search_problem=searched(self.model))
            return Target(graph, search_problem=train_stand_in(graph, self.seed))
        if not info.needs_labels or split is None:
            return Target(self.graph)
        graph = self.graph.to(torch.float32).to(self.model.device)
        return Target.of(replace(self.labelled, graph=graph), self.splits[split])

    def _flipped(self, flips: Iterator[Tensor], split: int | None) -> Iterator[_Perturbed]:
        for budget, pairs in zip(self.budgets, flips, strict=True):
            yield budget, split, apply_flips(self.graph, pairs), len(pairs)

    def _from_files(self, files: Sequence[PerturbationFile]) -> Iterator[_Perturbed]:
        """The first flips of perturbation files, each for its split; features are left alone."""
        for file in files:
            yield from self._flipped(map(file.flips, self.budgets), file.facts.split)
