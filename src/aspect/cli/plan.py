"""From the words of the command line to an experiment.

Wrong names are answered here, before anything heavy is imported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aspect.cli.options import SettingsOptions
from aspect.config import parse_overrides
from aspect.data.source import MIXED, NO_READING, GraphSource, Reading
from aspect.errors import SettingsError
from aspect.methods.registry import require_method_name
from aspect.settings import Experiment, PerturbedBy, find_experiment

if TYPE_CHECKING:
    from aspect.perturbation import FilePerturbation

__all__ = ["Plan", "plan_run"]

NAMED_CHOICES = ("defaults", "published", "paper")


@dataclass(frozen=True)
class Plan:
    """What will be trained, and where its settings come from."""

    experiment: Experiment
    source: GraphSource
    settings_from: str
    perturbed_by: FilePerturbation | None = None  # as read; what the experiment names is a path

    @property
    def default_out(self) -> Path:
        """Where the run goes if the user does not say."""
        words = [self.source.name, self.experiment.method, str(self.experiment.seed)]
        if self.perturbed_by is not None:
            words.append(self.perturbed_by.name)
        return Path("runs") / "-".join(words)

    @property
    def title(self) -> str:
        """What is trained on what, for a line on the screen."""
        perturbed = "" if self.perturbed_by is None else f", perturbed by {self.perturbed_by.title}"
        seed = f"with seed {self.experiment.seed}"
        return f"{self.experiment.method} {seed} on {self.source.name}{perturbed}"

    def on_clean_graph(self) -> Plan:
        """The same without a perturbation."""
        experiment = self.experiment.model_copy(update={"perturbation": None})
        return replace(self, experiment=experiment, perturbed_by=None)

    def on_perturbed_graph(self, perturbation: FilePerturbation) -> Plan:
        """The same on a perturbed graph."""
        update = {"perturbation": perturbation.described}
        experiment = self.experiment.model_copy(update=update)
        return replace(self, experiment=experiment, perturbed_by=perturbation)


def plan_run(
    graph: str | None,
    wanted: SettingsOptions,
    reading: Reading,
    seed: int | None,
    perturbation: PerturbedBy | None = None,
) -> Plan:
    """Join graph, method, settings, seed and perturbation.

    What the command line says wins over a settings file, and that over what is shipped.
    """
    if graph is not None:
        GraphSource.named(graph, reading)
    if wanted.method is not None:
        require_method_name(wanted.method)
    is_file = wanted.config is not None and wanted.config not in NAMED_CHOICES
    named = None if is_file else _name_of(graph)
    found, settings_from = find_experiment(wanted.method or "aspect", named, wanted.config)
    overrides = parse_overrides(wanted.settings or [])
    source = _source(graph, reading, found if is_file else None)
    experiment = found.model_copy(
        update={
            "method": require_method_name(wanted.method or found.method),
            "graph": source.graph,
            "reading": source.reading,
            "perturbation": perturbation or found.perturbation,
            "seed": found.seed if seed is None else seed,
            "settings": {**found.settings, **overrides},
        }
    )
    changed = f", {' '.join(wanted.settings)}" if wanted.settings else ""
    return Plan(experiment, source, f"{settings_from}{changed}")


def _source(graph: str | None, reading: Reading, file: Experiment | None) -> GraphSource:
    """The graph of the command line, else the settings file's, else the embedded one."""
    if graph is not None or file is None or file.graph is None:
        return GraphSource.named(graph or MIXED, reading)
    if reading != NO_READING:
        raise SettingsError(
            f"Options of reading belong to a graph on the command line. Name {file.graph!r} there."
        )
    return GraphSource.named(file.graph, file.reading)


def _name_of(graph: str | None) -> str | None:
    """The name under which settings may be shipped; None for a file of the user's."""
    source = GraphSource(graph=MIXED if graph is None else graph)
    return source.name if source.is_named else None
