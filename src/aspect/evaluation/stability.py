"""How far a trained model moves when its graph is perturbed a little, and what a probe loses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from aspect.attacks.metattack import MetattackConfig
from aspect.attacks.run import AttackRequest, PlannedAttack, Progress, find_flips, plan_attacks
from aspect.attacks.trace import Trace
from aspect.data.features import num_entries
from aspect.data.graph import LabelledGraph
from aspect.errors import SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.linear_probe import TrainedProbe
from aspect.evaluation.perturbing import (
    Perturbed,
    draw_flips,
    draw_masks,
    follow_traces,
    is_searchable,
    search_flips,
)
from aspect.evaluation.shifts import Look, look_at, movement
from aspect.evaluation.stability_request import TRANSFERRED, Kind, StabilityRequest
from aspect.evaluation.stability_result import Measurement, Stability, StabilityRow
from aspect.evaluation.stability_terms import JudgedSplits, Terms, settle

__all__ = ["study_stability"]

OnStep = Callable[[int, int, str], object]  # steps done, of how many, and what comes now


def _ignore(done: int, total: int, word: str) -> None:
    """Nobody asked to be told."""


def study_stability(
    model: Embedder,
    labelled: LabelledGraph,
    request: StabilityRequest | None = None,
    *,
    traces: Mapping[str, Mapping[int, Trace]] | None = None,
    judged: JudgedSplits | None = None,
    name: str = "",
    on_step: OnStep = _ignore,
) -> Stability:
    """Perturb the graph in several ways, and see how far embeddings, gate and a probe follow.

    The model stays as it is. Of the labels a change sees those of a split's training nodes at
    most, the probe those of training and validation nodes; test nodes are scored at the end.

    Args:
        model: Fitted; of a method that embeds graphs it was not trained on.
        labelled: The graph that the changes start from.
        request: What is asked; all kinds at the usual budgets if nothing is.
        traces: Attacks that were made before, by title and split, in place of metattack.
        judged: The splits, where the attacks decide them.
        name: Of the graph, for an attack's record.
        on_step: Told how far it is.
    """
    if not model.method.inductive:
        raise SettingsError(
            f"{model.name} cannot embed a graph that it was not trained on, "
            "so that its stability on a perturbed graph cannot be measured."
        )
    request, given = request or StabilityRequest(), traces or {}
    terms = settle(labelled, request, judged=judged, has_files=bool(given))
    return _Study(model, labelled, request, terms, given, name, on_step).result()


@dataclass(frozen=True, eq=False)
class _Series:
    """The perturbed graphs of one kind, made when it is their turn."""

    kind: str
    title: str
    changes: Callable[[], Iterator[Perturbed]]
    steps: int


class _Study:
    """The rows as they come in."""

    def __init__(
        self,
        model: Embedder,
        labelled: LabelledGraph,
        request: StabilityRequest,
        terms: Terms,
        traces: Mapping[str, Mapping[int, Trace]],
        name: str,
        on_step: OnStep,
    ) -> None:
        self.model, self.labelled, self.terms, self.seed = model, labelled, terms, request.seed
        self.graph, self.name = labelled.graph, name
        read = [self._read(title, own) for title, own in traces.items()]
        self.series = [*map(self._made, terms.kinds), *read]
        self._on_step, self._steps = on_step, 0
        self._total = 1 + bool(terms.splits) + sum(each.steps for each in self.series)

    def result(self) -> Stability:
        """Look at the graph as it is, then at all the others."""
        self._begin("the graph as it is")
        before = look_at(self.model, self.graph)
        self._steps += 1
        probe = self._probe(before)
        rows = [row for each in self.series for row in self._rows(each, before, probe)]
        scores = () if probe is None else probe.clean.splits
        notices = () if probe is None else probe.clean.notices_naming(self.labelled.class_names)
        return Stability(
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

    def _begin(self, word: str) -> None:
        self._on_step(self._steps, self._total, word)

    def _probe(self, before: Look) -> TrainedProbe | None:
        if not self.terms.splits:
            return None
        self._begin("probe")
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
        found: dict[float, list[Measurement]] = {budget: [] for budget in self.terms.budgets}
        self._begin(series.title)
        for perturbed in series.changes():
            found[perturbed.budget].append(self._measure(perturbed, before, probe))
            self._steps += 1
            self._begin(series.title)
        clean = {} if probe is None else dict(zip(probe.splits, probe.clean.splits, strict=True))
        for budget, measured in found.items():
            judged = {number: clean[number].strict for each in measured for number in each.strict}
            yield StabilityRow(series.kind, series.title, budget, tuple(measured), judged)

    def _measure(
        self, perturbed: Perturbed, before: Look, probe: TrainedProbe | None
    ) -> Measurement:
        after = look_at(self.model, perturbed.graph)
        own = self.terms.splits if perturbed.split is None else (perturbed.split,)
        strict = {}
        if probe is not None:
            strict = {number: probe.strict(number, after.embeddings) for number in own}
        return Measurement(perturbed.split, perturbed.changed, movement(before, after), strict)

    def _made(self, kind: Kind) -> _Series:
        """A kind of change that is made here."""
        graph, budgets, draws = self.graph, self.terms.budgets, self.terms.draws
        drawn = len(draws) * len(budgets)
        if kind == "random":
            return _Series(kind, kind, lambda: draw_flips(graph, budgets, draws, self.seed), drawn)
        if kind == "feature":
            return _Series(kind, kind, lambda: draw_masks(graph, budgets, draws, self.seed), drawn)
        if kind == "gradient":
            title = kind if is_searchable(self.model) else TRANSFERRED
            return _Series(
                kind,
                title,
                lambda: search_flips(self.model, graph, budgets, self.seed),
                len(budgets),
            )
        return _Series(kind, f"{kind} ({MetattackConfig().solver})", self._attacked, drawn)

    def _read(self, title: str, traces: Mapping[int, Trace]) -> _Series:
        """An attack that was made before."""
        kind = next(iter(traces.values())).facts.kind
        budgets = self.terms.budgets
        return _Series(
            kind,
            title,
            lambda: follow_traces(self.graph, budgets, traces),
            len(budgets) * len(traces),
        )

    def _attacked(self) -> Iterator[Perturbed]:
        """Metattack with the training labels of each split, to the largest budget at once."""
        request = AttackRequest(
            budget=self.terms.budgets[-1], splits=self.terms.kind_of_splits, seed=self.seed
        )
        planned = plan_attacks(
            self.labelled, self.name, request, list(self.terms.splits), self.model.device
        )
        for attack in planned:
            trace = find_flips(attack, self._telling(attack))
            yield from follow_traces(self.graph, self.terms.budgets, {attack.facts.split: trace})

    def _telling(self, attack: PlannedAttack) -> Callable[[Progress], None]:
        def tell(progress: Progress) -> None:
            made = f"{progress.made} of {progress.wanted} flips"
            self._begin(f"metattack on split {attack.facts.split}, {made}")

        return tell
