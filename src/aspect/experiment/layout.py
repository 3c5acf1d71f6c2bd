"""The cells of a plan: one for each piece of work that leaves a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from aspect import __version__
from aspect.config import make_config
from aspect.errors import SettingsError
from aspect.experiment.facts import ReadFacts
from aspect.experiment.flips import Flips
from aspect.experiment.perturbation import Perturbation
from aspect.experiment.plan import Entry, Plan
from aspect.experiment.record import Cell, Work
from aspect.methods.registry import find_method
from aspect.settings import find_experiment

__all__ = ["lay_out"]


def lay_out(
    plan: Plan,
    facts: Mapping[str, ReadFacts],
    device: Literal["cpu", "cuda"],
    flips: Flips | None = None,
) -> list[Cell]:
    """All cells, graph by graph; a plan that asks for the same or for the impossible is refused.

    Args:
        plan: What is asked for.
        facts: By graph.
        device: Kind of device that the cells run on.
        flips: Perturbation files, as far as there are; without its own a cell has another key.
    """
    layout = _Layout(plan, device, flips or Flips())
    cells = [
        cell
        for graph in plan.graphs
        for entry in plan.entries
        for cell in layout.cells_of(entry, graph, facts[graph])
    ]
    seen: dict[str, Cell] = {}
    for cell in cells:
        other = seen.setdefault(cell.key, cell)
        if other is not cell:
            raise SettingsError(_same_work(plan, other, cell))
    return cells


def _same_work(plan: Plan, first: Cell, second: Cell) -> str:
    """Why two cells are one, in a sentence."""
    if first.entry != second.entry:
        return (
            f"Entries {first.entry!r} and {second.entry!r} of the plan {plan.name!r} are the "
            f"same on {first.graph}: their settings must differ."
        )
    if first.graph != second.graph:
        return (
            f"Graphs {first.graph!r} and {second.graph!r} of the plan {plan.name!r} hold the "
            "same graph: name it once."
        )
    return (
        f"The plan {plan.name!r} asks for a cell of {first.entry!r} on {first.graph} twice: "
        "name every graph and every budget once."
    )


@dataclass(frozen=True)
class _Layout:
    """What all cells of a plan share."""

    plan: Plan
    device: Literal["cpu", "cuda"]
    flips: Flips

    def cells_of(self, entry: Entry, graph: str, facts: ReadFacts) -> Iterator[Cell]:
        """Those of one line and one column of the table."""
        plan, settings = self.plan, _settings(self.plan, entry, graph)
        count = min(facts.num_splits, plan.num_splits or facts.num_splits)
        planned = plan.seeds_of.get(graph, plan.seeds)
        most = min(planned, entry.seeds or planned)
        for perturbation, seeds in plan.planned():
            _refuse_evasion(plan, entry, perturbation)
            _refuse_doubt(plan, entry, perturbation)
            for splits in _groups(perturbation, count):
                for seed in range(min(most, seeds)):
                    work = Work(
                        method=entry.registered,
                        settings=settings,
                        graph_sha256=facts.sha256,
                        splits=plan.splits,
                        splits_sha256=facts.splits_sha256,
                        split_numbers=splits,
                        probe=plan.probe,
                        perturbation=perturbation,
                        perturbation_sha256=self.flips.sha256(graph, perturbation, splits),
                        doubt=entry.doubt,
                        seed=seed,
                        device=self.device,
                        version=__version__,
                    )
                    yield self._cell(entry, graph, work)

    def _cell(self, entry: Entry, graph: str, work: Work) -> Cell:
        return Cell(
            plan=self.plan.name,
            entry=entry.name,
            title=entry.title or entry.name,
            note=entry.note,
            group=entry.group,
            graph=graph,
            reading=self.plan.reading,
            work=work,
        )


def _settings(plan: Plan, entry: Entry, graph: str) -> dict[str, Any]:
    """In full: shipped ones, changed by the plan and then by the entry."""
    config = find_method(entry.registered).config
    source = plan.source(graph)
    named = source.name if source.is_named else None
    choice = None if plan.settings == "shipped" else plan.settings
    found, _ = find_experiment(entry.settings_of or entry.registered, named, choice)
    # Other methods' settings and changes for all may not all exist here; its own must.
    borrowed = {**(found.settings if entry.settings_of else {}), **plan.set}
    known = {key: value for key, value in borrowed.items() if key in config.model_fields}
    own = {} if entry.settings_of else found.settings
    values = {**own, **known, **entry.set}
    return make_config(config, values, owner=entry.name).model_dump(mode="json")


def _refuse_evasion(plan: Plan, entry: Entry, perturbation: Perturbation | None) -> None:
    """Refuse before any training to embed a graph that was not trained on, where nothing can."""
    if perturbation is None or perturbation.mode == "poison":
        return
    if not find_method(entry.registered).method.inductive:
        raise SettingsError(
            f"Entry {entry.name!r} of the plan {plan.name!r} cannot be evaded: "
            f"{entry.registered!r} embeds no graph but the one that it was trained on. "
            "Leave the entry out, or let the mode be poison."
        )


def _refuse_doubt(plan: Plan, entry: Entry, perturbation: Perturbation | None) -> None:
    """Refuse to leave edges out where nothing can be read then, or no validation node knows why."""
    if entry.doubt is None:
        return
    if not find_method(entry.registered).method.inductive:
        raise SettingsError(
            f"Entry {entry.name!r} of the plan {plan.name!r} cannot doubt edges: "
            f"{entry.registered!r} embeds no graph but the one that it was trained on. "
            "Leave `doubt` out."
        )
    if perturbation is not None and perturbation.mode == "evade":
        raise SettingsError(
            f"Entry {entry.name!r} of the plan {plan.name!r} cannot doubt edges in mode evade: "
            "its probe, and what chooses for it, see the clean graph. Let the mode be poison, or "
            "leave `doubt` out."
        )


def _groups(perturbation: Perturbation | None, count: int) -> list[tuple[int, ...]]:
    """The splits of one cell: all of a pre-training; a poisoned graph has one, and one split."""
    every = tuple(range(count))
    is_poisoned = perturbation is not None and perturbation.mode == "poison"
    return [(split,) for split in every] if is_poisoned else [every]
