"""An attack from start to end: masked labels in, a perturbation file out, resumable any moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aspect.attacks.budget import check_flips, flips_within
from aspect.attacks.kinds import STRATEGIES, Attack, Sight, Strategy, mask_seed
from aspect.attacks.trace import AttackedGraph, AttackFacts, AttackKind, Trace
from aspect.attacks.trace_file import TraceFile
from aspect.data.archives import content_sha256
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import Split, SplitKind, make_splits, published_sha256
from aspect.errors import GraphError, SettingsError
from aspect.provenance import versions

__all__ = [
    "AttackRequest",
    "PlannedAttack",
    "Progress",
    "find_flips",
    "plan_attacks",
    "run_attack",
]

DTYPE = torch.float32
SECONDS_BETWEEN_WRITES = 2.0  # what a kill costs at most, but for one gradient


@dataclass(frozen=True)
class AttackRequest:
    """What is asked of an attack, whatever the split; either a budget or a number of flips."""

    kind: AttackKind = "metattack"
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the kind, the solver among them
    budget: float | None = None  # a share of the edges
    flips: int | None = None
    splits: SplitKind = "class-balanced"
    seed: int = 0

    def count(self, graph: Graph) -> int:
        """The flips that are wanted of this graph."""
        if (self.budget is None) == (self.flips is None):
            raise SettingsError(
                "An attack takes a budget or a number of flips. "
                f"Got {'neither' if self.flips is None else 'both'}."
            )
        if self.flips is None:
            assert self.budget is not None  # one of them is given
            return flips_within(self.budget, graph)
        check_flips(self.flips, graph)
        return self.flips


@dataclass(frozen=True, eq=False)
class PlannedAttack:
    """An attack that nothing speaks against, so far as one can tell beforehand."""

    facts: AttackFacts  # as the file will have them, but for the time
    sight: Sight
    strategy: Strategy

    @property
    def device(self) -> torch.device:
        """Where it will run."""
        return self.sight.graph.device

    @property
    def working_bytes(self) -> int:
        """Memory that it will take beside what is taken already, about."""
        return self.strategy.working_bytes(self.sight)


@dataclass(frozen=True)
class Progress:
    """How far an attack has come."""

    made: int  # flips
    wanted: int
    seconds_left: float  # by the pace of this process so far


def plan_attacks(
    labelled: LabelledGraph,
    name: str,
    request: AttackRequest,
    numbers: Sequence[int] | None,
    device: torch.device,
) -> list[PlannedAttack]:
    """One attack for each of the splits, or for all of them; what is wrong is said here.

    Args:
        labelled: The clean graph; of its labels an attack sees those of its training nodes.
        name: Of the graph, for the files.
        request: What is asked.
        numbers: Of the splits; None: all that there are.
        device: Where the attacks will run.
    """
    wanted = request.count(labelled.graph)
    strategy = STRATEGIES[request.kind](request.settings, labelled.graph)
    splits = _chosen_splits(labelled, request.splits, numbers)
    attacked = AttackedGraph(
        name=name,
        sha256=content_sha256(labelled),
        nodes=labelled.graph.num_nodes,
        edges=labelled.graph.num_edges,
    )
    placed = replace(labelled, graph=labelled.graph.to(DTYPE).to(device))
    planned = []
    for number, split in splits.items():
        facts = AttackFacts(
            graph=attacked,
            kind=strategy.kind,
            solver=strategy.solver,
            surrogate=strategy.surrogate,
            settings=strategy.settings,
            num_classes=labelled.num_classes,
            splits=request.splits,
            splits_sha256=published_sha256(request.splits, labelled.masks),
            split=number,
            seed=request.seed,
            mask_seed=mask_seed(request.seed + number, strategy.kind),
            wanted=wanted,
            device=device.type,
            versions=versions(),
        )
        planned.append(PlannedAttack(facts, Sight.of(placed, split), strategy))
    return planned


def _chosen_splits(
    labelled: LabelledGraph, kind: SplitKind, numbers: Sequence[int] | None
) -> dict[int, Split]:
    """The splits that are meant, by their numbers."""
    splits = make_splits(kind, labelled.labels, labelled.num_classes, masks=labelled.masks)
    chosen = range(len(splits)) if numbers is None else numbers
    for number in chosen:
        if not 0 <= number < len(splits):
            raise SettingsError(
                f"Split must be from 0 to {len(splits) - 1}, the {kind} splits of this graph. "
                f"Got {number}."
            )
        if len(torch.unique(labelled.labels[splits[number].train])) < 2:  # noqa: PLR2004
            raise GraphError(
                f"An attack needs training nodes of at least 2 classes. {kind.capitalize()} "
                f"split {number} has one."
            )
    return {number: splits[number] for number in chosen}


def run_attack(
    planned: PlannedAttack,
    file: TraceFile,
    on_progress: Callable[[Progress], object] | None = None,
    *,
    seconds_between_writes: float = SECONDS_BETWEEN_WRITES,
) -> Trace:
    """Find the flips and keep them in the file, with the attack's state until they are complete.

    What the file already holds is not done again. One thread is used, whatever the machine: many of
    the products are too small for more, and the rounding of sums depends on their number.
    """
    if file.begun is not None and file.begun.facts.complete:
        return file.begun
    running = _Running(planned, file.begun)
    last_write = time.perf_counter()
    with _one_thread():
        for progress in running.steps():
            if on_progress is not None:
                on_progress(progress)
            is_time = time.perf_counter() - last_write >= seconds_between_writes
            if is_time and progress.made < progress.wanted:
                file.write(running.trace())
                last_write = time.perf_counter()
    trace = running.trace()
    file.write(trace)
    return trace


def find_flips(
    planned: PlannedAttack, on_progress: Callable[[Progress], object] | None = None
) -> Trace:
    """The same without a file, for flips that are used at once."""
    running = _Running(planned, None)
    with _one_thread():
        for progress in running.steps():
            if on_progress is not None:
                on_progress(progress)
    return running.trace()


class _Running:
    """The flips so far, those of earlier processes included."""

    def __init__(self, planned: PlannedAttack, begun: Trace | None) -> None:
        self._planned, self._begun = planned, begun
        self._started = time.perf_counter()
        self._attack: Attack | None = None
        self._keys = torch.empty(0, dtype=torch.long)
        if begun is not None:  # perhaps more than are wanted now
            self._keys = begun.keys[: planned.facts.wanted]

    def steps(self) -> Iterator[Progress]:
        """Go on until there are as many flips as wanted; a step is what one gradient gives."""
        facts, before = self._planned.facts, len(self._keys)
        if before == facts.wanted:
            return
        state = None if self._begun is None else self._begun.state
        self._attack = attack = self._planned.strategy.begin(
            self._planned.sight, facts.seed + facts.split, state
        )
        started = time.perf_counter()
        while len(self._keys) < facts.wanted:
            flips = attack.advance(facts.wanted - len(self._keys)).cpu()
            new = flips[:, 0] * facts.graph.nodes + flips[:, 1]
            self._keys = torch.cat([self._keys, new])
            made = len(self._keys)
            pace = (time.perf_counter() - started) / (made - before)
            yield Progress(made, facts.wanted, pace * (facts.wanted - made))

    def trace(self) -> Trace:
        """As it is to be written now; a complete one needs no state any more."""
        seconds = time.perf_counter() - self._started
        if self._begun is not None:
            seconds += self._begun.facts.seconds
        complete = len(self._keys) == self._planned.facts.wanted
        facts = self._planned.facts.model_copy(update={"seconds": seconds, "complete": complete})
        if complete:
            return Trace(facts, self._keys)
        assert self._attack is not None  # a step was made
        return Trace(facts, self._keys, self._attack.state())


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
