"""An attack from start to end: masked labels in, a perturbation file out, resumable any moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from aspect.attacks.base import (
    Attack,
    SearchProblem,
    Target,
    check_flips,
    check_memory,
    flips_within,
    one_thread,
)
from aspect.attacks.file import AttackFacts, PerturbationFile
from aspect.attacks.registry import attack_info, check_flips_edges, find_attack
from aspect.config import Config
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import Split, SplitKind, make_splits
from aspect.errors import GraphError, SettingsError

DTYPE = torch.float32
SECONDS_BETWEEN_WRITES = 2.0  # what a kill costs at most, but for one gradient

# Trains the model that an attack searches on, by graph and seed.
TrainModel = Callable[[Graph, int], SearchProblem]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AttackRequest:
    """An attack, whatever the split; either a budget or a number of flips is given.

    Of a targeted attack it is the number at each target, and neither is a default of its own.
    """

    kind: str = "metattack"
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the kind, the solver among them
    budget: float | None = None  # flips per edge
    flips: int | None = None
    splits: SplitKind = "class-balanced"
    seed: int = 0

    def given_settings(self) -> dict[str, Any]:
        """The settings; the flips at each target of a targeted attack are one of them."""
        if not attack_info(self.kind).targeted:
            return dict(self.settings)
        if self.budget is not None:
            raise SettingsError(
                f"{self.kind} takes a number of flips at each target, and no budget. "
                f"Got {self.budget:g}."
            )
        return {**self.settings, **({} if self.flips is None else {"flips": self.flips})}

    def count(self, graph: Graph) -> int:
        """The flips of this graph."""
        if (self.budget is None) == (self.flips is None):
            raise SettingsError(
                "An attack takes a budget or a number of flips. "
                f"Got {'neither' if self.flips is None else 'both'}."
            )
        if self.flips is None:
            assert self.budget is not None  # one of them is given
            return flips_within(self.budget, graph)
        check_flips(self.flips, graph)
        if self.flips > graph.num_edges and not attack_info(self.kind).nested:
            raise SettingsError(
                f"The flips of {self.kind} serve one budget, which is at most 1: ask for at most "
                f"{graph.num_edges}, the edges. Got {self.flips}."
            )
        return self.flips


@dataclass(frozen=True, eq=False)
class PlannedAttack:
    """An attack that was checked as far as possible, and not begun."""

    facts: AttackFacts  # as the file will have them, but for the time
    target: Target
    attack: type[Attack]
    config: Config
    train_model: TrainModel | None = None

    @property
    def working_bytes(self) -> int | None:
        """Memory that it will take beside what is taken already, about; None: it is not known."""
        return self.attack.working_bytes(self.target, self.config)

    def begin(self, file: PerturbationFile | None = None) -> Attack:
        """Begin the attack, or go on with what a file holds."""
        target, seed = self.target, self.facts.seed + self.facts.split
        if self.attack.info.needs_model:
            assert self.train_model is not None  # see `plan_attacks`
            target = replace(target, search_problem=self.train_model(target.graph, seed))
        state = file.state if file is not None and len(file.keys) else None
        return self.attack(target, self.config, seed=seed, state=state)


@dataclass(frozen=True)
class FlipProgress:
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
    train_model: TrainModel | None = None,
) -> list[PlannedAttack]:
    """One attack for each of the splits; what is wrong is refused here.

    Args:
        labelled: The clean graph; of its labels an attack sees those of its training nodes.
        name: Of the graph, for the files.
        request: The attack.
        numbers: Of the splits; None: all that there are.
        device: Where the attacks will run.
        train_model: For an attack that searches on a model: trains a stand-in.
    """
    attack = find_attack(request.kind)
    check_flips_edges(request.kind)
    if attack.info.needs_model and train_model is None:
        raise SettingsError(f"{request.kind} searches on a trained model, and none is given.")
    config = attack.settle(request.given_settings(), labelled.graph)
    wanted = attack.count(config, labelled.graph) or request.count(labelled.graph)
    splits: Mapping[int, Split | None]
    if attack.info.needs_labels or labelled.num_classes >= 2:  # noqa: PLR2004 - else no split
        splits = splits_by_number(labelled, request.splits, numbers)
        for number, chosen in splits.items():
            if len(torch.unique(labelled.labels[chosen.train])) < 2:  # noqa: PLR2004
                raise GraphError(
                    "An attack needs training nodes of at least 2 classes. "
                    f"{request.splits.capitalize()} split {number} has one."
                )
    elif numbers is None:
        raise SettingsError(
            "The graph has fewer than 2 classes, hence no splits. Leave --all-splits out."
        )
    else:
        splits = dict.fromkeys(numbers)
    if labelled.graph.weights is not None and not attack.info.needs_model:
        logger.warning(
            "%s knows no edge weights: it chooses its flips on the unweighted graph. Where they "
            "are applied, edges keep their weights, and an added one has the mean of them.",
            request.kind,
        )
    all_facts = AttackFacts.by_split(
        labelled,
        name,
        splits,
        kind=request.kind,
        splits=request.splits,
        seed=request.seed,
        solver=getattr(config, "solver", ""),
        surrogate=attack.surrogate,
        settings=config.model_dump(mode="json", exclude={"solver"}),
        wanted=wanted,
        device=device.type,
    )
    placed = replace(labelled, graph=labelled.graph.to(DTYPE).to(device))
    planned = []
    for facts, split in zip(all_facts, splits.values(), strict=True):
        target = Target(placed.graph) if split is None else Target.of(placed, split)
        planned.append(PlannedAttack(facts, target, attack, config, train_model))
        needed = planned[-1].working_bytes or 0
        check_memory(needed, device, "Attack a smaller graph, or use a machine with more.")
    return planned


def splits_by_number(
    labelled: LabelledGraph, kind: SplitKind, numbers: Sequence[int] | None
) -> dict[int, Split]:
    """The splits of these numbers; None: all that there are."""
    splits = make_splits(kind, labelled.labels, labelled.num_classes, masks=labelled.masks)
    chosen = range(len(splits)) if numbers is None else numbers
    for number in chosen:
        if not 0 <= number < len(splits):
            raise SettingsError(
                f"Split must be from 0 to {len(splits) - 1}, the {kind} splits of this graph. "
                f"Got {number}."
            )
    return {number: splits[number] for number in chosen}


def run_attack(
    planned: PlannedAttack,
    file: PerturbationFile,
    on_progress: Callable[[FlipProgress], object] | None = None,
    *,
    seconds_between_writes: float = SECONDS_BETWEEN_WRITES,
) -> PerturbationFile:
    """Find the flips and keep them in the file, with the attack's state until they are complete.

    What the file already holds is not done again. One thread is used, whatever the machine.
    """
    facts = planned.facts
    if file.facts.complete:
        return file
    before, earlier = len(file.keys), file.facts.seconds
    started = last_write = time.perf_counter()

    def keep(state: Mapping[str, Tensor], *, complete: bool) -> None:
        seconds = earlier + time.perf_counter() - started
        file.facts = facts.model_copy(update={"seconds": seconds, "complete": complete})
        file.state = state
        file.write()

    with one_thread():
        attack = planned.begin(file) if before < facts.wanted else None
        begun = time.perf_counter()
        while attack is not None and len(file.keys) < facts.wanted:
            flips = attack.advance(facts.wanted - len(file.keys)).cpu()
            keys = flips[:, 0] * facts.graph.nodes + flips[:, 1]
            file.keys = torch.cat([file.keys, keys])
            if not attack.info.nested:
                break  # there is no more to find, and what is found is complete
            now, left = time.perf_counter(), facts.wanted - len(file.keys)
            if on_progress is not None:
                pace = (now - begun) / (len(file.keys) - before)
                on_progress(FlipProgress(len(file.keys), facts.wanted, pace * left))
            if left and now - last_write >= seconds_between_writes:
                keep(attack.state(), complete=False)
                last_write = time.perf_counter()
    if len(file.keys) == 0:
        raise GraphError(f"{facts.attack} finds no flip of this graph that does harm.")
    keep({}, complete=True)
    return file
