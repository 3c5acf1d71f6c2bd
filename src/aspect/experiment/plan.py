"""A plan: which methods, graphs, perturbations, splits and seeds; `layout` makes its cells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from aspect.config import Config, Count, Share, load_yaml, make_config
from aspect.data.source import GraphSource, Reading, check_graph_name
from aspect.errors import UnknownNameError
from aspect.experiment.perturbation import AnyPerturbation, Perturbation
from aspect.experiment.record import ProbeName, SplitName
from aspect.methods.registry import find_method, require_method_name

__all__ = ["Entry", "Plan", "load_plan", "plan_names"]

FOLDER = Path(__file__).parent / "plans"


class Entry(Config):
    """A line of the table: a method, or a variant of one."""

    name: str
    """Unique in the plan; a method's name needs nothing else."""
    method: str = ""
    """Name in the registry, if the entry is called otherwise."""
    title: str = ""
    """For readers; the name, if there is none."""
    note: str = ""
    """A word on it."""
    group: str = ""
    """The entry that it is a variant of, for an ablation table; that entry names itself."""
    settings_of: str = ""
    """Method whose shipped settings are taken; the entry's own, if there is none."""
    seeds: Count | None = None
    """At most so many pre-training seeds: one, where nothing is drawn."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Changes to the settings."""
    doubt: Annotated[tuple[Share, ...], Field(min_length=1)] | None = None
    """Shares of doubtful edges to leave out of the embedding; validation chooses one a split."""

    @field_validator("doubt")
    @classmethod
    def _all_edges_are_a_choice(cls, doubt: tuple[float, ...] | None) -> tuple[float, ...] | None:
        """Smallest first, as `evaluate --doubt` tries them: of equals, the least is left out."""
        return None if doubt is None else tuple(sorted({0.0, *doubt}))

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: object) -> object:
        return {"name": given} if isinstance(given, str) else given

    @property
    def registered(self) -> str:
        """The method's name in the registry."""
        return self.method or self.name


class Plan(Config):
    """The grid."""

    name: str = "plan"
    """The file's name, unless it says otherwise."""
    title: str = ""
    """For the head of a report."""
    entries: Annotated[tuple[Entry, ...], Field(min_length=1)]
    """Methods and variants."""
    graphs: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of data sets, or paths of files, from the folder that the bench is started in."""
    reading: Reading = Reading()
    """How files are read."""
    settings: Literal["shipped", "defaults", "published", "paper"] = "shipped"
    """Where settings come from; shipped: those of the graph, or the defaults where none are."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Changes to the settings of all entries that have them."""
    splits: SplitName = "random"
    """Kind of splits."""
    probe: ProbeName = "neutral"
    """What scores the embeddings."""
    num_splits: Count | None = None
    """The first so many, if there are; none: all that there are."""
    seeds: Count = 1
    """Pre-training seeds from 0 on."""
    seeds_of: dict[str, Count] = Field(default_factory=dict)
    """Other numbers of seeds for some graphs."""
    perturbations: Annotated[tuple[AnyPerturbation, ...], Field(min_length=1)] = (None,)
    """What is done to the graphs; `none` leaves them clean."""
    details: tuple[str, ...] = ()
    """Entries whose first clean seed is shown node by node in the report."""

    @field_validator("name")
    @classmethod
    def _name_is_a_folders(cls, name: str) -> str:
        if name in ("", "..") or Path(name).name != name:
            raise ValueError("a plan's name must be fit for a folder")
        return name

    @field_validator("entries")
    @classmethod
    def _entries_are_unique(cls, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        names = [entry.name for entry in entries]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"entries must have different names, {twice[0]!r} comes twice")
        return entries

    @model_validator(mode="after")
    def _names_are_known(self) -> Plan:
        known = [entry.name for entry in self.entries]
        wanted = [*self.details, *(entry.group for entry in self.entries if entry.group)]
        for name in wanted:
            if name not in known:
                raise ValueError(f"{name!r} is not an entry of this plan")
        for name in self.seeds_of:
            if name not in self.graphs:
                raise ValueError(f"seeds_of: {name!r} is not a graph of this plan")
        return self

    def check_names(self) -> None:
        """Refuse unknown methods and graphs before anything heavy is done."""
        for entry in self.entries:
            require_method_name(entry.registered)
            if entry.settings_of:
                require_method_name(entry.settings_of)
        for graph in self.graphs:
            check_graph_name(graph)
        if all(self.source(graph).is_named for graph in self.graphs):
            GraphSource.named(self.graphs[0], self.reading)  # options for files, but no file

    def check_changes(self) -> None:
        """Refuse changes for all entries that none of them knows; imports every method."""
        fields = [find_method(entry.registered).config.model_fields for entry in self.entries]
        for name in self.set:
            if not any(name in own for own in fields):
                known = {each for own in fields for each in own}
                raise UnknownNameError("setting in `set` of the plan", name, known)

    def only(self, entries: tuple[str, ...] = (), graphs: tuple[str, ...] = ()) -> Plan:
        """The part of the plan with these entries and graphs; all where none are named."""
        names = [entry.name for entry in self.entries]
        for kind, wanted, known in (("entry", entries, names), ("graph", graphs, self.graphs)):
            for name in wanted:
                if name not in known:
                    raise UnknownNameError(f"{kind} of the plan", name, known)
        kept = tuple(entry for entry in self.entries if not entries or entry.name in entries)
        left = {entry.name for entry in kept}
        return self.model_copy(
            update={
                "entries": kept,
                "graphs": tuple(each for each in self.graphs if not graphs or each in graphs),
                "details": tuple(name for name in self.details if name in left),
            }
        )

    def source(self, graph: str) -> GraphSource:
        """Where a graph of the plan comes from."""
        return GraphSource(graph=graph, reading=self.reading)

    def short_names(self) -> dict[str, str]:
        """Graphs as tables call them: files without their folders, unless two share a name."""
        short = {graph: self.source(graph).name for graph in self.graphs}
        names = list(short.values())
        return {graph: name if names.count(name) == 1 else graph for graph, name in short.items()}

    def planned(self) -> Iterator[tuple[Perturbation | None, int]]:
        """Every perturbation, none included, with the most seeds that it is worth."""
        for planned in self.perturbations:
            if planned is None:
                yield None, max(self.seeds, *self.seeds_of.values(), 0)
            else:
                yield from ((each, planned.seeds) for each in planned.each())


def plan_names() -> list[str]:
    """The plans that are shipped."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_plan(plan: str) -> Plan:
    """A shipped plan by its name, or one in a file; names in it are checked."""
    is_path = bool(Path(plan).suffix) or len(Path(plan).parts) > 1
    if not is_path and plan not in plan_names():
        raise UnknownNameError("plan or file", plan, plan_names())
    path = Path(plan) if is_path else FOLDER / f"{plan}.yaml"
    values = {"name": path.stem, **load_yaml(path)}
    loaded = make_config(Plan, values, owner=f"the plan {plan}")
    loaded.check_names()
    return loaded
