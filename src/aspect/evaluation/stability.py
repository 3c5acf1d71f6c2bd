"""How far a trained model moves when its graph is perturbed a little, and what a probe loses.

The model stays as it is. Any registered attack can be tried, at several budgets each. Of the labels
a perturbation sees those of a split's training nodes at most, the probe those of training and
validation nodes; test nodes are scored at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from aspect.attacks.base import Target, apply_flips, flips_within, least_budget, one_thread
from aspect.attacks.feature_mask import mask_features, mask_generator
from aspect.attacks.file import PerturbationFile
from aspect.attacks.projected_ascent import InnerProblem, SearchScope
from aspect.attacks.registry import attack_info, attack_title, find_attack
from aspect.attacks.run import AttackRequest, plan_attacks
from aspect.data.features import num_entries
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import Split, SplitKind, check_splits, make_splits
from aspect.errors import GraphError, SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.linear_probe import TrainedProbe
from aspect.evaluation.metrics import PERCENT, Summary
from aspect.evaluation.result import SplitScore
from aspect.evaluation.shifts import Look, Movement, Shift, look_at, movement
from aspect.evaluation.stability_request import (
    DEFAULT_BUDGETS,
    DEFAULT_KINDS,
    DEFAULT_SPLIT_KIND,
    DEFAULT_SPLITS,
    TRANSFERRED,
    StabilityRequest,
)

__all__ = [
    "GivenSplits",
    "Measurement",
    "SearchableEmbedder",
    "StabilityResult",
    "StabilityRow",
    "study_stability",
    "train_stand_in",
]

# Where a model cannot be searched: ASPECT at its defaults, narrow and soon stopped.
STAND_IN = {"width": 128, "epochs": 30}

OnStep = Callable[[int, int, str], object]  # steps done, of how many, and what comes now


# The model that a search for flips needs


@dataclass(frozen=True, eq=False)
class SearchableEmbedder:
    """A fitted model that flips can be searched on: it sees a graph through filters."""

    model: Embedder

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    def search_problem(
        self, graph: Graph, scope: SearchScope, generator: torch.Generator
    ) -> InnerProblem:
        """The problem on the model as it embeds, with its gate frozen."""
        method = self.model.method.eval()
        return method.search_problem(self.model.as_seen(graph), scope, generator)


def train_stand_in(
    graph: Graph, seed: int, device: torch.device | None = None
) -> SearchableEmbedder:
    """An ASPECT trained on the same graph, where no gradient of a model reaches the edges."""
    where = str(graph.device if device is None else device)
    return SearchableEmbedder(Embedder("aspect", seed=seed, device=where, **STAND_IN).fit(graph))


# What comes out: a row for every attack and budget


@dataclass(frozen=True)
class Measurement:
    """One perturbed graph, and how the model's output moved on it."""

    split: int | None  # the split that it is for; None: for all of them
    changed: int  # pairs flipped, or entries masked
    movement: Movement
    strict: Mapping[int, float]  # accuracy by split, in percent; nothing without a probe

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "split": self.split,
            "changed": self.changed,
            **self.movement.to_dict(),
            "strict": [{"split": split, "strict": value} for split, value in self.strict.items()],
        }


@dataclass(frozen=True)
class StabilityRow:
    """One line of the table: an attack at a budget, over all of its draws."""

    kind: str
    title: str  # the kind, with a word on how it was done
    budget: float
    measurements: tuple[Measurement, ...]
    clean: Mapping[int, float]  # accuracy on the graph as it was, on the splits of the row

    @property
    def changed(self) -> float:
        """Pairs flipped, or entries masked; a mean over the draws."""
        return _mean(measured.changed for measured in self.measurements)

    @property
    def movement(self) -> Movement:
        """Each number a mean over the draws."""
        moves = [measured.movement for measured in self.measurements]
        gates = [move.gate for move in moves if move.gate is not None]
        return Movement(
            turn=_mean_shift([move.turn for move in moves]),
            relative=_mean_shift([move.relative for move in moves]),
            gate=_mean(gates) if gates else None,
            bands={
                band: _mean_shift([move.bands[band] for move in moves]) for band in moves[0].bands
            },
        )

    @property
    def strict(self) -> Summary | None:
        """Accuracy on the perturbed graphs, over the splits."""
        scores = [measured.strict for measured in self.measurements]
        return _summary({split: value for values in scores for split, value in values.items()})

    @property
    def drop(self) -> float | None:
        """What the perturbation takes: (clean - perturbed) / clean of the means, in percent."""
        before, after = _summary(self.clean), self.strict
        if before is None or after is None or before.mean == 0:
            return None
        return PERCENT * (before.mean - after.mean) / before.mean

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; accuracies and the drop in percent."""
        clean, strict = _summary(self.clean), self.strict
        is_mask = attack_info(self.kind).changes == "features"
        return {
            "kind": self.kind,
            "title": self.title,
            "budget": self.budget,
            "flips": 0 if is_mask else self.changed,
            "masked_entries": self.changed if is_mask else 0,
            **self.movement.to_dict(),
            "clean": clean and clean.to_dict(),
            "perturbed": strict and strict.to_dict(),
            "drop": self.drop,
            "measurements": [measured.to_dict() for measured in self.measurements],
        }


@dataclass(frozen=True)
class StabilityResult:
    """How stable a model is under small perturbations of the graph that it is used on."""

    method: str
    nodes: int
    edges: int
    entries: int  # features that are not zero
    seed: int  # of every draw
    splits: SplitKind | None  # None without a probe
    clean: Mapping[int, SplitScore]  # by split, on the graph as it is
    rows: tuple[StabilityRow, ...]
    notices: tuple[str, ...]  # what a reader must know beside the numbers

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        clean = _summary({number: score.strict for number, score in self.clean.items()})
        return {
            "method": self.method,
            "nodes": self.nodes,
            "edges": self.edges,
            "feature_entries": self.entries,
            "seed": self.seed,
            "splits": self.splits,
            "split_numbers": list(self.clean),
            "clean": clean and clean.to_dict(),
            "clean_scores": [
                {"split": number, **asdict(score)} for number, score in self.clean.items()
            ],
            "rows": [row.to_dict() for row in self.rows],
            "notices": list(self.notices),
        }


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return math.fsum(every) / len(every)


def _mean_shift(shifts: Sequence[Shift]) -> Shift:
    return Shift(
        _mean(shift.mean for shift in shifts),
        _mean(shift.median for shift in shifts),
        _mean(shift.p95 for shift in shifts),
    )


def _summary(values: Mapping[int, float]) -> Summary | None:
    return Summary.of(list(values.values())) if values else None


# What can be done on a graph; the rest is refused or left out, and said


@dataclass(frozen=True)
class GivenSplits:
    """Splits that are given by perturbation files, by kind and numbers."""

    kind: SplitKind
    numbers: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StabilityTerms:
    """A request, made definite for one graph."""

    kinds: tuple[str, ...]
    budgets: tuple[float, ...]  # rising
    kind_of_splits: SplitKind
    splits: Mapping[int, Split]  # by their numbers; nothing where no probe can be trained
    draws: tuple[int, ...]  # of what is random, by number: one for every split
    notices: tuple[str, ...]  # what was left out, a sentence each


def settle(
    labelled: LabelledGraph,
    request: StabilityRequest,
    *,
    given: GivenSplits | None = None,
    has_files: bool = False,
) -> StabilityTerms:
    """Decide what is done; what is requested by name and cannot be done is refused.

    Args:
        labelled: The graph that the model is used on.
        request: What is requested.
        given: The splits, where they are not for the request to choose.
        has_files: Perturbation files stand in for the metattack that would be made.
    """
    kind_of_splits = given.kind if given else request.splits or DEFAULT_SPLIT_KIND
    splits, missing = _splits(labelled, request, kind_of_splits, given)
    kinds, left_out = _kinds(labelled.graph, request, has_splits=bool(splits), has_files=has_files)
    budgets, too_small = _budgets(labelled.graph, request, kinds, has_files=has_files)
    return StabilityTerms(
        kinds=kinds,
        budgets=budgets,
        kind_of_splits=kind_of_splits,
        splits=splits,
        draws=tuple(splits) or tuple(range(request.num_splits or DEFAULT_SPLITS)),
        notices=(*missing, *left_out, *too_small),
    )


def _splits(
    labelled: LabelledGraph, request: StabilityRequest, kind: SplitKind, given: GivenSplits | None
) -> tuple[dict[int, Split], list[str]]:
    """The splits by their numbers, or a sentence on why there are none."""
    count = max(given.numbers) + 1 if given else request.num_splits
    labels, masks = labelled.labels, labelled.masks
    try:
        drawn = make_splits(kind, labels, labelled.num_classes, count=count, masks=masks)
        check_splits(drawn, labels)
    except GraphError as error:
        if given or request.splits:
            raise
        return {}, [f"Only the shifts are measured, since no probe can be trained. {error}"]
    numbers: Sequence[int] = range(len(drawn))
    if given is not None:
        numbers = given.numbers
    elif request.num_splits is None:
        numbers = numbers[:DEFAULT_SPLITS]
    return {number: drawn[number] for number in numbers}, []


def _kinds(
    graph: Graph, request: StabilityRequest, *, has_splits: bool, has_files: bool
) -> tuple[tuple[str, ...], list[str]]:
    """The kinds that are made here, and a sentence on each that is left out."""
    kinds = request.kinds or DEFAULT_KINDS
    wanted = [kind for kind in kinds if not (has_files and kind == "metattack")]
    reasons = {kind: _obstacle(graph, kind, has_splits=has_splits) for kind in wanted}
    for kind in request.kinds:
        if reasons.get(kind):
            raise GraphError(f"There can be no {kind} perturbation: {reasons[kind]}.")
    kinds = tuple(kind for kind in wanted if not reasons[kind])
    left_out = {kind: reason for kind, reason in reasons.items() if reason}
    if not kinds and not has_files:
        listed = "; ".join(left_out.values())
        raise GraphError(f"Nothing of this graph can be perturbed: {listed}.")
    return kinds, [f"{kind} is left out: {reason}." for kind, reason in left_out.items()]


def _obstacle(graph: Graph, kind: str, *, has_splits: bool) -> str:
    """Why an attack cannot be made on a graph; nothing where it can."""
    info = attack_info(kind)
    if info.changes == "features":
        return "" if num_entries(graph.features) else "all features are zero"
    if graph.num_edges == 0:
        return "the graph has no edges"
    return "it needs the classes of training nodes" if info.needs_labels and not has_splits else ""


def _budgets(
    graph: Graph, request: StabilityRequest, kinds: Sequence[str], *, has_files: bool
) -> tuple[tuple[float, ...], list[str]]:
    """The budgets that change something, and a sentence on those that do not."""
    changed = {attack_info(kind).changes for kind in kinds}
    counts = {}
    if has_files or "edges" in changed:
        counts["edges"] = graph.num_edges
    if "features" in changed:
        counts["feature entries"] = num_entries(graph.features)
    fewest = min(counts, key=lambda unit: counts[unit])
    budgets = request.budgets or DEFAULT_BUDGETS
    fitting = tuple(budget for budget in budgets if round(budget * counts[fewest]) > 0)
    if len(fitting) < len(request.budgets) or not fitting:
        raise SettingsError(
            f"Budget of {budgets[0]:g} allows no change of {counts[fewest]} {fewest}. "
            f"It must be {least_budget(counts[fewest]):g} or more."
        )
    listed = ", ".join(f"{budget:g}" for budget in budgets if budget not in fitting)
    told = f"No budget of {listed} is tried: it allows no change of {counts[fewest]} {fewest}."
    return fitting, [told] if listed else []


# The study


def study_stability(
    model: Embedder,
    labelled: LabelledGraph,
    request: StabilityRequest | None = None,
    *,
    files: Mapping[str, Sequence[PerturbationFile]] | None = None,
    given: GivenSplits | None = None,
    name: str = "",
    on_step: OnStep | None = None,
) -> StabilityResult:
    """Perturb the graph in several ways, and see how far embeddings, gate and a probe follow.

    Args:
        model: Fitted; of a method that embeds graphs it was not trained on.
        labelled: The graph that the perturbations start from.
        request: What is requested; the default kinds at the usual budgets if nothing is.
        files: Attacks that were made before, by title, in place of metattack.
        given: The splits, where the files decide them.
        name: Of the graph, for an attack's record.
        on_step: Called with how far it is.
    """
    if not model.method.inductive:
        raise SettingsError(
            f"{model.name} cannot embed a graph that it was not trained on, "
            "so that its stability on a perturbed graph cannot be measured."
        )
    request, files = request or StabilityRequest(), files or {}
    terms = settle(labelled, request, given=given, has_files=bool(files))
    return _Study(model, labelled, request, terms, files, name, on_step).result()


@dataclass(frozen=True, eq=False)
class _PerturbedGraph:
    graph: Graph
    budget: float
    changed: int  # pairs flipped, or entries masked
    split: int | None  # the split that it is for; None: for all of them


@dataclass(frozen=True, eq=False)
class _Series:
    """The perturbed graphs of one attack, made when it is their turn."""

    kind: str
    title: str
    graphs: Iterator[_PerturbedGraph]
    steps: int


class _Study:
    """The rows as they come in."""

    def __init__(
        self,
        model: Embedder,
        labelled: LabelledGraph,
        request: StabilityRequest,
        terms: StabilityTerms,
        files: Mapping[str, Sequence[PerturbationFile]],
        name: str,
        on_step: OnStep | None,
    ) -> None:
        self.model, self.labelled, self.terms, self.seed = model, labelled, terms, request.seed
        self.graph, self.name = labelled.graph, name
        self.series = [*map(self._made, terms.kinds)]
        for title, stored in files.items():
            steps = len(stored) * len(terms.budgets)
            graphs = self._from_files(stored)
            self.series.append(_Series(stored[0].facts.kind, title, graphs, steps))
        self._on_step, self._steps = on_step, 0
        self._total = 1 + bool(terms.splits) + sum(series.steps for series in self.series)

    def result(self) -> StabilityResult:
        """Look at the graph as it is, then at all the others."""
        self._tell("the graph as it is")
        before = look_at(self.model, self.graph)
        self._steps += 1
        probe = self._probe(before)
        rows = [row for series in self.series for row in self._rows(series, before, probe)]
        scores = () if probe is None else probe.clean.splits
        notices = () if probe is None else probe.clean.notices_naming(self.labelled.class_names)
        return StabilityResult(
            method=self.model.name,
            nodes=self.graph.num_nodes,
            edges=self.graph.num_edges,
            entries=num_entries(self.graph.features),
            seed=self.seed,
            splits=self.terms.kind_of_splits if probe else None,
            clean=dict(zip(self.terms.splits, scores, strict=True)),
            rows=tuple(rows),
            notices=(*self.terms.notices, *notices),
        )

    def _tell(self, word: str) -> None:
        if self._on_step is not None:
            self._on_step(self._steps, self._total, word)

    def _probe(self, before: Look) -> TrainedProbe | None:
        if not self.terms.splits:
            return None
        self._tell("probe")
        probe = TrainedProbe.fit(
            before.embeddings.to(self.model.device),
            self.labelled.labels,
            self.terms.splits,
            num_classes=self.labelled.num_classes,
        )
        self._steps += 1
        return probe

    def _rows(
        self, series: _Series, before: Look, probe: TrainedProbe | None
    ) -> Iterator[StabilityRow]:
        """One row a budget, whatever the order in which the graphs come."""
        by_budget: dict[float, list[Measurement]] = {budget: [] for budget in self.terms.budgets}
        self._tell(series.title)
        for perturbed in series.graphs:
            by_budget[perturbed.budget].append(self._measure(perturbed, before, probe))
            self._steps += 1
            self._tell(series.title)
        clean = {} if probe is None else dict(zip(probe.splits, probe.clean.splits, strict=True))
        for budget, measured in by_budget.items():
            numbers = [number for measurement in measured for number in measurement.strict]
            before_it = {number: clean[number].strict for number in numbers}
            yield StabilityRow(series.kind, series.title, budget, tuple(measured), before_it)

    def _measure(
        self, perturbed: _PerturbedGraph, before: Look, probe: TrainedProbe | None
    ) -> Measurement:
        after = look_at(self.model, perturbed.graph)
        numbers = self.terms.splits if perturbed.split is None else (perturbed.split,)
        strict = {}
        if probe is not None:
            strict = {number: probe.strict(number, after.embeddings) for number in numbers}
        return Measurement(perturbed.split, perturbed.changed, movement(before, after), strict)

    # Where the perturbed graphs come from

    def _made(self, kind: str) -> _Series:
        """An attack that is made here."""
        info, budgets = attack_info(kind), len(self.terms.budgets)
        drawn = len(self.terms.draws) * budgets
        if info.changes == "features":
            return _Series(kind, kind, self._masked(kind), drawn)
        if info.needs_model:
            title = kind if self.model.method.searchable else f"{kind} {TRANSFERRED}"
            return _Series(kind, title, self._searched(kind), budgets)
        solver = getattr(find_attack(kind).settle({}, self.graph), "solver", "")
        made = self._attacked(kind) if info.needs_labels else self._drawn(kind)
        return _Series(kind, attack_title(kind, solver), made, drawn)

    def _counts(self) -> list[int]:
        return [flips_within(budget, self.graph) for budget in self.terms.budgets]

    def _flipped(
        self, flips: Iterable[torch.Tensor], split: int | None
    ) -> Iterator[_PerturbedGraph]:
        """The graphs after the flips of every budget."""
        for budget, pairs in zip(self.terms.budgets, flips, strict=True):
            yield _PerturbedGraph(apply_flips(self.graph, pairs), budget, len(pairs), split)

    def _masked(self, kind: str) -> Iterator[_PerturbedGraph]:
        """Feature entries set to zero; what is masked at a rate stays so above."""
        before = num_entries(self.graph.features)
        for number in self.terms.draws:
            for budget in self.terms.budgets:
                generator = mask_generator(kind, self.seed + number)
                features = mask_features(self.graph.features, budget, generator)
                graph = replace(self.graph, features=features)
                yield _PerturbedGraph(graph, budget, before - num_entries(features), number)

    def _drawn(self, kind: str) -> Iterator[_PerturbedGraph]:
        """Flips without labels, one attack a draw, as `aspect attack` makes them for a split."""
        for number in self.terms.draws:
            attack = find_attack(kind).begin(Target(self.graph), seed=self.seed + number)
            yield from self._flipped(attack.find_each(self._counts()), number)

    def _searched(self, kind: str) -> Iterator[_PerturbedGraph]:
        """Flips for this model, or for a stand-in from which they are transferred."""
        model = SearchableEmbedder(self.model)
        if not self.model.method.searchable:
            model = train_stand_in(self.graph, self.seed, self.model.device)
        attack = find_attack(kind).begin(Target(self.graph, model=model), seed=self.seed)
        yield from self._flipped(attack.find_each(self._counts()), None)

    def _attacked(self, kind: str) -> Iterator[_PerturbedGraph]:
        """Flips with the training labels of each split, to the largest budget at once."""
        terms, counts = self.terms, self._counts()
        request = AttackRequest(kind, flips=counts[-1], splits=terms.kind_of_splits, seed=self.seed)
        numbers, device = list(terms.splits), self.model.device
        for planned in plan_attacks(self.labelled, self.name, request, numbers, device):
            split = planned.facts.split

            def tell(made: int, split: int = split) -> None:
                self._tell(f"{kind} on split {split}, {made} of {counts[-1]} flips")

            with one_thread():
                attack = planned.begin()
            yield from self._flipped(attack.find_each(counts, tell), split)

    def _from_files(self, files: Sequence[PerturbationFile]) -> Iterator[_PerturbedGraph]:
        """The first flips of perturbation files, each for its split; features are left alone."""
        for file in files:
            flips = [file.flips(budget) for budget in self.terms.budgets]
            yield from self._flipped(flips, file.facts.split)
