"""A plan: which methods, graphs, perturbations, splits and seeds; `lay_out` makes its runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    field_validator,
    model_validator,
)

from aspect import __version__
from aspect.attacks.perturbation import Budget, Mode, Perturbation
from aspect.attacks.pruning import Pruning
from aspect.attacks.registry import AttackName, attack_info, check_solver
from aspect.config import Config, Share, load_yaml, make_config
from aspect.data.files import is_file
from aspect.data.source import GraphSource, Reading
from aspect.errors import GraphError, SettingsError, UnknownNameError
from aspect.experiment.search import BEST_SETTINGS
from aspect.experiment.spec import Cell, ProbeName, Spec, SplitName, method_source, metric_for
from aspect.methods.registry import find_method, require_method_name, short_name
from aspect.plugins import is_reference
from aspect.settings import (
    ChosenBy,
    Experiment,
    find_experiment,
    load_experiment,
)

if TYPE_CHECKING:
    from aspect.experiment.perturbations import BenchFiles, NeededFile

logger = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "plans"
LETTERS = 12  # of a checksum, enough to tell graphs apart

Seeds = Annotated[int, Field(ge=1, le=1000)]


PRECOMPUTED = "aspect.experiment.embeddings:Precomputed"  # which is too heavy for a plan
CLEAN = "none"  # the perturbation of a clean graph, in a plan


class PlannedPerturbation(Config):
    """One kind of perturbation at one or several budgets."""

    kind: AttackName
    solver: str = ""
    """Of an attack that has several. There is no default: the tables of record use `unrolled` of
    metattack, the original's, and `aspect attack` begins with `implicit`: either would surprise."""
    mode: Mode = "poison"
    budgets: Annotated[tuple[Budget, ...], Field(min_length=1)] = (0.1,)
    features: bool = True
    seeds: Seeds = 1
    """At most so many pre-training seeds; a perturbation of its own for every split is one run."""
    without: tuple[str, ...] = ()
    """Entries that it leaves out, such as those that embed no graph but their own."""

    @model_validator(mode="after")
    def _can_be_planned(self) -> PlannedPerturbation:
        check_solver(self.kind, self.solver)
        if attack_info(self.kind).targeted:
            raise ValueError(f"{self.kind} attacks single nodes, which a plan does not name")
        return self

    def by_budget(self) -> Iterator[Perturbation]:
        """One for every budget."""
        shared = self.model_dump(exclude={"budgets", "seeds", "without"})
        for budget in self.budgets:
            yield Perturbation(**shared, budget=budget)


def _from_word(given: object) -> object:
    """None for the word of a clean graph; no other word is one."""
    if isinstance(given, str) and given != CLEAN:
        raise ValueError(f"must be {CLEAN!r}, or name kind and budgets")
    return None if given == CLEAN else given


def _to_word(planned: PlannedPerturbation | None, write: SerializerFunctionWrapHandler) -> object:
    return CLEAN if planned is None else write(planned)


# None: the graph as it is; `none` in a file.
AnyPerturbation = Annotated[
    PlannedPerturbation | None, BeforeValidator(_from_word), WrapSerializer(_to_word)
]


class Entry(Config):
    """A line of the table: a method, or a variant of one."""

    name: str
    """Unique in the plan; a method's name needs nothing else."""
    method: str = ""
    """Name in the registry, if the entry is called otherwise."""
    embeddings: str = ""
    """File of embeddings that were made elsewhere, in place of a method; `{graph}` and `{seed}` in
    it stand for those of a run. Paths are from the folder that the bench is started in."""
    title: str = ""
    """For readers; the name, if there is none."""
    note: str = ""
    """A word on it."""
    group: str = ""
    """The entry that it is a variant of, for an ablation table; that entry names itself."""
    settings_of: str = ""
    """Method whose shipped settings are taken; the entry's own, if there is none."""
    seeds: Seeds | None = None
    """At most so many pre-training seeds: one, where nothing is drawn."""
    num_splits: Seeds | None = None
    """At most so many of the plan's splits, clean or perturbed; none: as many as the plan."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Changes to the settings."""
    prune: Annotated[tuple[Share, ...], Field(min_length=1)] | Pruning | None = None
    """Edges to prune in training, and from every graph that is embedded: a ratio, auto, or the
    fields of `Pruning`. A list of ratios prunes before the embedding alone, and validation chooses
    one for each split."""

    @field_validator("prune", mode="before")
    @classmethod
    def _in_training_unless_listed(cls, prune: object) -> object:
        return prune if isinstance(prune, list | tuple) else Pruning.of(prune)

    @field_validator("prune")
    @classmethod
    def _no_pruning_is_a_choice(
        cls, prune: tuple[float, ...] | Pruning | None
    ) -> tuple[float, ...] | Pruning | None:
        """Smallest first, as `evaluate --prune` tries them: of equals, the least is pruned."""
        return tuple(sorted({0.0, *prune})) if isinstance(prune, tuple) else prune

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, given: object) -> object:
        if isinstance(given, Mapping) and "settings" in given:
            raise SettingsError("An entry of a plan changes settings by the key set. Got settings.")
        return {"name": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _is_a_method_or_a_file(self) -> Entry:
        given = [name for name in ("method", "settings_of", "set", "prune") if getattr(self, name)]
        if self.embeddings and given:
            raise ValueError(f"embeddings stand in place of a method: leave {given[0]!r} out")
        return self

    @property
    def registered(self) -> str:
        """The method's name in the registry."""
        return PRECOMPUTED if self.embeddings else self.method or self.name

    def file_of(self, graph: str, seed: int) -> str:
        """The file of embeddings for a run; empty where a method is trained."""
        if not self.embeddings:
            return ""
        path = self.embeddings.replace("{graph}", graph).replace("{seed}", str(seed))
        return str(Path(path).absolute())

    def resolved(self) -> Entry:
        """The same with the method's name as any process finds it."""
        if self.embeddings:
            return self
        name = require_method_name(self.registered)
        return self if name == self.registered else self.model_copy(update={"method": name})


class OtherSplits(Config):
    """Another kind of splits that the same trainings are evaluated on, and by which probe."""

    splits: SplitName
    probe: ProbeName = "neutral"
    graphs: tuple[str, ...] = ()
    """On these graphs alone; none: on all."""


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
    searches: str = ""
    """Folder of a search by `aspect tune`, or of several: the best settings of a method on a graph
    that it holds come before all others."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Changes to the settings of all entries that have them."""
    splits: SplitName = "random"
    """Kind of splits."""
    probe: ProbeName = "neutral"
    """What scores the embeddings."""
    also: tuple[OtherSplits, ...] = ()
    """Other kinds of splits for clean graphs: one training serves them all."""
    num_splits: Seeds | None = None
    """The first so many, if there are; none: all that there are."""
    seeds: Seeds = 1
    """Pre-training seeds from 0 on."""
    seeds_of: dict[str, Seeds] = Field(default_factory=dict)
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
        wanted += [name for planned in self.perturbations if planned for name in planned.without]
        for name in wanted:
            if name not in known:
                raise ValueError(f"{name!r} is not an entry of this plan")
        named = {
            "seeds_of": tuple(self.seeds_of),
            "also": tuple(graph for other in self.also for graph in other.graphs),
        }
        for field, graphs in named.items():
            for name in graphs:
                if name not in self.graphs:
                    raise ValueError(f"{field}: {name!r} is not a graph of this plan")
        kinds = [self.splits, *(other.splits for other in self.also)]
        if len(set(kinds)) < len(kinds):
            raise ValueError("also: every kind of splits must come once")
        return self

    def resolved(self) -> Plan:
        """The same with names that any process finds; unknown methods and graphs are refused.

        What is of aspect keeps its name, and nothing heavy is imported for it.
        """
        for entry in self.entries:
            if entry.settings_of:
                require_method_name(entry.settings_of)
        self._check_searches()
        stored = {graph: GraphSource.named(graph).graph for graph in self.graphs}
        for entry in self.entries:
            files = [entry.file_of(self.source(graph).name, 0) for graph in stored.values()]
            if entry.embeddings and len(set(files)) < len(files):
                raise SettingsError(
                    f"Entry {entry.name!r} of the plan {self.name!r} has one file of embeddings "
                    "for several graphs. Put {graph} into its name, and call no two graphs alike."
                )
        if all(self.source(graph).is_named for graph in self.graphs):
            GraphSource.named(self.graphs[0], self.reading)  # options for files, but no file
        return self.model_copy(
            update={
                "entries": tuple(entry.resolved() for entry in self.entries),
                "graphs": tuple(stored.values()),
                "seeds_of": {stored[graph]: seeds for graph, seeds in self.seeds_of.items()},
                "also": tuple(
                    other.model_copy(
                        update={"graphs": tuple(stored[graph] for graph in other.graphs)}
                    )
                    for other in self.also
                ),
            }
        )

    def _check_searches(self) -> None:
        """Refuse a folder that holds nothing for the plan."""
        if not self.searches:
            return
        methods = [short_name(entry.settings_of or entry.registered) for entry in self.entries]
        pairs = {(self.source(graph).name, name) for graph in self.graphs for name in methods}
        searched = {
            (best.source.name, short_name(best.method)) for best in _searched(self.searches)
        }
        if not pairs & searched:
            raise SettingsError(
                f"{self.searches!r} holds no search of a method of the plan on a graph of it. "
                f"Make one with: aspect tune GRAPH --method METHOD --out {self.searches}."
            )

    def check_changes(self) -> None:
        """Refuse changes for all entries that none of them knows; imports every method."""
        settings_of_entries = [
            {} if entry.embeddings else find_method(entry.registered).config.model_fields
            for entry in self.entries
        ]
        for name in self.set:
            if not any(name in settings for settings in settings_of_entries):
                known = {setting for settings in settings_of_entries for setting in settings}
                raise UnknownNameError("setting in `set` of the plan", name, known)

    def only(self, entries: tuple[str, ...] = (), graphs: tuple[str, ...] = ()) -> Plan:
        """The part of the plan with these entries and graphs; all where none are named."""
        names = [entry.name for entry in self.entries]
        named = short_names(self.graphs).items()
        stored = {name: graph for graph, name in named if is_reference(graph)}
        graphs = tuple(stored.get(graph, graph) for graph in graphs)
        for kind, wanted, known in (("entry", entries, names), ("graph", graphs, self.graphs)):
            for name in wanted:
                if name not in known:
                    raise UnknownNameError(f"{kind} of the plan", name, known)
        kept = tuple(entry for entry in self.entries if not entries or entry.name in entries)
        left = {entry.name for entry in kept}
        return self.model_copy(
            update={
                "entries": kept,
                "graphs": tuple(graph for graph in self.graphs if not graphs or graph in graphs),
                "details": tuple(name for name in self.details if name in left),
            }
        )

    def source(self, graph: str) -> GraphSource:
        """Where a graph of the plan comes from."""
        return GraphSource(graph=graph, reading=self.reading)

    def evaluations(self, graph: str) -> list[OtherSplits]:
        """Kinds of splits and probes for a clean graph, the plan's first kind first."""
        first = OtherSplits(splits=self.splits, probe=self.probe)
        return [first, *(also for also in self.also if not also.graphs or graph in also.graphs)]

    def seeds_for(self, entry: Entry, graph: str) -> int:
        """How many pre-training seeds a clean graph gets."""
        planned = self.seeds_of.get(graph, self.seeds)
        return min(planned, entry.seeds or planned)

    def planned(self, entry: str = "") -> Iterator[tuple[Perturbation | None, int]]:
        """Every perturbation, none included, with the most seeds that it is worth.

        Args:
            entry: Name of the only entry that is asked about.
        """
        for planned in self.perturbations:
            if planned is None:
                yield None, max(self.seeds, *self.seeds_of.values(), 0)
            elif entry not in planned.without:
                yield from ((one, planned.seeds) for one in planned.by_budget())


def short_names(graphs: Iterable[str]) -> dict[str, str]:
    """Graphs as tables call them: files without their folders, unless two share a name."""
    short = {graph: GraphSource(graph=graph).name for graph in graphs}
    names = list(short.values())
    return {graph: name if names.count(name) == 1 else graph for graph, name in short.items()}


def plan_names() -> list[str]:
    """The plans that are shipped."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_plan(plan: str, searches: Path | None = None) -> Plan:
    """A shipped plan by its name, or one in a file; names in it are checked.

    Args:
        plan: Name or path.
        searches: In place of those that the plan names.
    """
    is_path = bool(Path(plan).suffix) or len(Path(plan).parts) > 1
    if not is_path and plan not in plan_names():
        raise UnknownNameError("plan or file", plan, plan_names())
    path = Path(plan) if is_path else FOLDER / f"{plan}.yaml"
    values = {"name": path.stem, **load_yaml(path)}
    if searches is not None:
        values["searches"] = str(searches)
    loaded = make_config(Plan, values, owner=f"the plan {plan}")
    return loaded.resolved()


@dataclass(frozen=True)
class ReadFacts:
    """What a plan must know of a graph to lay out its runs."""

    sha256: str
    # How many splits there are of every kind that the plan names, and the checksum of published
    # ones; in the order of `Plan.evaluations`.
    kinds: tuple[tuple[int, str | None], ...]
    nodes: int = 0
    edges: int = 0
    files: tuple[NeededFile, ...] = ()  # perturbation files of the whole plan
    is_encoded: bool = False  # its features come from columns of a node table


def read_facts(
    plan: Plan, data_dir: str | None, graphs: Sequence[str] = ()
) -> Iterator[tuple[str, ReadFacts]]:
    """Read one graph after the other; what no probe or attack could use is refused here.

    Args:
        plan: The whole plan, since a part of it must find the same files.
        data_dir: Where files of named data sets lie.
        graphs: Of the plan; all, if none are named.
    """
    from aspect.data.archives import content_sha256
    from aspect.data.splits import make_splits, published_sha256
    from aspect.experiment.perturbations import needed_files

    names = short_names(plan.graphs)
    for graph in graphs or plan.graphs:
        labelled = plan.source(graph).read(data_dir)
        sha256, name = content_sha256(labelled), plan.source(graph).name
        if names[graph] != name:  # two graphs of one name must not share a perturbation file
            name = f"{name}-{sha256[:LETTERS]}"
        kinds = []
        for splits in (evaluation.splits for evaluation in plan.evaluations(graph)):
            try:
                made = make_splits(
                    splits, labelled.labels, labelled.num_classes, masks=labelled.masks
                )
            except GraphError as error:
                raise GraphError(f"The graph {graph!r} cannot be split. {error}") from error
            kinds.append((len(made), published_sha256(splits, labelled.masks)))
        num_splits = kinds[0][0]
        used = min(num_splits, plan.num_splits or num_splits)
        yield (
            graph,
            ReadFacts(
                sha256=sha256,
                kinds=tuple(kinds),
                nodes=labelled.graph.num_nodes,
                edges=labelled.graph.num_edges,
                files=needed_files(plan, graph, name, labelled, used),
                is_encoded=labelled.graph.is_encoded,
            ),
        )


def lay_out(
    plan: Plan,
    facts: Mapping[str, ReadFacts],
    device: Literal["cpu", "cuda"],
    files: BenchFiles | None = None,
) -> list[Cell]:
    """All runs, graph by graph; a plan that has one twice, or an impossible one, is refused.

    Args:
        plan: What is asked for.
        facts: By graph.
        device: Kind of device that they run on.
        files: Perturbation files, as far as there are; without its own a run has another key.
    """
    cells = [
        Cell(
            plan=plan.name,
            entry=entry.name,
            title=entry.title or entry.name,
            note=entry.note,
            group=entry.group,
            graph=graph,
            chosen_by=chosen_by,
            reading=plan.reading,
            embeddings=entry.file_of(plan.source(graph).name, spec.seed),
            spec=spec.model_copy(
                update={"device": device, "perturbation_sha256": _sha256(graph, spec, files)}
            ),
        )
        for graph in plan.graphs
        for entry in plan.entries
        for settings, chosen_by in [_settings(plan, entry, graph, facts[graph])]
        for spec in _specs(plan, entry, graph, facts[graph], settings)
    ]
    seen: dict[str, Cell] = {}
    for cell in cells:
        other = seen.setdefault(cell.key, cell)
        if other is not cell:
            raise SettingsError(_same_spec(plan, other, cell))
    return cells


def _sha256(graph: str, spec: Spec, files: BenchFiles | None) -> tuple[str, ...] | None:
    """What is done to the graph, split by split; None where no file tells, or not yet."""
    perturbed = files.perturbed(graph, spec.perturbation, spec.split_numbers) if files else ()
    return tuple(one.sha256 for one in perturbed if one.sha256) or None


def _specs(
    plan: Plan, entry: Entry, graph: str, facts: ReadFacts, settings: dict[str, Any]
) -> Iterator[Spec]:
    """Those of one line and one column of the table."""
    method = find_method(entry.registered).name
    first, *others = _evaluations(plan, entry, graph, facts)
    most = plan.seeds_for(entry, graph)
    if entry.embeddings and "{seed}" not in entry.embeddings:
        most = 1
    for perturbation, seeds in plan.planned(entry.name):
        if entry.embeddings and perturbation is not None:
            raise SettingsError(
                f"Entry {entry.name!r} of the plan {plan.name!r} cannot be perturbed: its "
                "embeddings are of the graph as it is. Put it into a plan without perturbations."
            )
        evades = perturbation is not None and perturbation.mode == "evade"
        _refuse_evasion(plan, entry, evades=evades)
        # A perturbed graph is trained on for its own split; else a training serves all splits.
        poisons = perturbation is not None and not evades
        evaluations = [first]
        if poisons:
            evaluations = [{**first, "split_numbers": (one,)} for one in first["split_numbers"]]
        elif perturbation is None:
            evaluations = [first, *others]
        for evaluation in evaluations:
            for seed in range(min(most, seeds)):
                yield Spec(
                    method=method,
                    source=_source(entry, plan.source(graph).name, seed),
                    settings=settings,
                    graph_sha256=facts.sha256,
                    **evaluation,
                    perturbation=perturbation,
                    prune=entry.prune if isinstance(entry.prune, tuple) else None,
                    pruning=entry.prune if isinstance(entry.prune, Pruning) else None,
                    seed=seed,
                    version=__version__,
                )


def _evaluations(plan: Plan, entry: Entry, graph: str, facts: ReadFacts) -> list[dict[str, Any]]:
    """How a training on a clean graph is scored, as fields of its specs; the plan's kind first.

    An entry with fewer splits has them everywhere, so that a drop compares the same ones.
    """
    limits = [limit for limit in (plan.num_splits, entry.num_splits) if limit]
    return [
        {
            "splits": each.splits,
            "splits_sha256": sha256,
            "split_numbers": tuple(range(min([number, *limits]))),
            "probe": each.probe,
            "metric": None if metric == "accuracy" else metric,
        }
        for each, (number, sha256) in zip(plan.evaluations(graph), facts.kinds, strict=True)
        for metric in [metric_for(each.probe, plan.source(graph))]
    ]


def _source(entry: Entry, graph: str, seed: int) -> str | None:
    """What the numbers come from: the method's source, or the embeddings of a file."""
    if not entry.embeddings:
        return method_source(find_method(entry.registered).name)
    from aspect.experiment.embeddings import EmbeddingFile

    return EmbeddingFile.read(entry.file_of(graph, seed)).sha256


def _settings(
    plan: Plan, entry: Entry, graph: str, facts: ReadFacts
) -> tuple[dict[str, Any], ChosenBy]:
    """In full: shipped ones, changed by the plan and then by the entry; and who chose them."""
    from aspect.estimator import settings_for

    if entry.embeddings:
        return {}, ""
    config = find_method(entry.registered).config
    chooser = entry.settings_of or entry.registered
    experiment, chosen_by = _experiment(plan, chooser, plan.source(graph), facts.sha256)

    def known(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name in config.model_fields}

    def in_full(values: Mapping[str, Any]) -> dict[str, Any]:
        return make_config(config, values, owner=entry.name).model_dump(mode="json")

    def is_changed() -> bool:
        try:
            return full != in_full(chosen)
        except SettingsError:  # only with the changes are they whole
            return True

    # Another method's settings and changes for all may not all exist here; the entry's own must.
    chosen = known(experiment.settings) if entry.settings_of else experiment.settings
    chosen = {**settings_for(config, is_encoded=facts.is_encoded), **chosen}
    changes = {**known(plan.set), **entry.set}
    full = in_full({**chosen, **changes})
    if find_method(chooser).family == "control":  # nothing about it is chosen
        return full, ""
    return full, "by hand" if changes and is_changed() else chosen_by


def _experiment(
    plan: Plan, method: str, source: GraphSource, sha256: str
) -> tuple[Experiment, ChosenBy]:
    """What a method is trained with on a graph, before any change, and who chose it."""
    for best in _searched(plan.searches) if plan.searches else ():
        # Many files are called edges.csv, and one may have changed since: the content decides.
        is_same = best.source.absolute() == source.absolute()
        is_same = best.graph_sha256 == sha256 if best.graph_sha256 else is_same
        if is_same and short_name(best.method) == short_name(method):
            return best, "own search"
    experiment, _ = find_experiment(
        method,
        source.name if source.is_named else None,
        None if plan.settings == "shipped" else plan.settings,
    )
    return experiment, experiment.chosen_by


@cache  # asked for every entry on every graph
def _searched(folder: str) -> tuple[Experiment, ...]:
    """The best settings of the searches in a folder."""
    paths = [Path(folder, BEST_SETTINGS), *sorted(Path(folder).glob(f"*/{BEST_SETTINGS}"))]
    return tuple(load_experiment(path) for path in paths if is_file(path))


def _refuse_evasion(plan: Plan, entry: Entry, *, evades: bool) -> None:
    """Refuse before any training what cannot be embedded, or chosen, after it."""
    from aspect.evaluation.pruning import check_pruning
    from aspect.experiment.evaluate import check_inductive

    try:
        if evades:
            check_inductive(entry.registered)
        if isinstance(entry.prune, tuple):
            check_pruning(entry.registered, entry.prune, evades=evades)
    except SettingsError as error:
        raise SettingsError(f"Entry {entry.name!r} of the plan {plan.name!r}: {error}") from error


def _same_spec(plan: Plan, first: Cell, second: Cell) -> str:
    """Why two runs are one, in a sentence."""
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
        f"The plan {plan.name!r} asks for a run of {first.entry!r} on {first.graph} twice: "
        "name every graph and every budget once."
    )
