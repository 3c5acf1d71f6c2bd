"""Settings shipped with the package: `<method>/<graph>.yaml` (ours) and `.published.yaml`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from aspect.attacks.pruning import Pruning
from aspect.config import Config, Count, load_yaml, make_config
from aspect.data.source import MIXED, GraphSource, Reading
from aspect.errors import SettingsError

__all__ = [
    "OFFICIAL",
    "ChosenBy",
    "Experiment",
    "PerturbedBy",
    "PublishedProbe",
    "RowSettings",
    "Scale",
    "find_experiment",
    "load_experiment",
    "shipped",
]

FOLDER = Path(__file__).parent

Source = Literal["ours", "published"]
# Who chose settings: nobody; the search by one rule for all methods (benchmarks/settings.py), which
# begins with the defaults or the authors' settings, for ASPECT-S with those found for ASPECT; the
# authors; an earlier search, or a hand; a search that a plan names; or a plan that changes any.
ChosenBy = Literal["", "defaults", "searched", "official", "earlier", "own search", "by hand"]

# How the origin of settings that others published begins, and that of the search by one rule.
OFFICIAL = ("Official", "Settings of the", "The letter of the paper")
BY_ONE_RULE = re.compile(
    r"Highest mean validation (accuracy|ROC AUC), \S+, of 20 trials .* of aspect tune .* "
    r"search splits .* by the neutral probe\. .* Start: "
    r"(defaults|official settings of [^,]+|settings shipped for (?P<base>\S+) on \w+), "
)
BASE = {"aspect-s": "aspect"}  # whose settings on a graph that search begins with, and keeps
Scale = Literal["auto", "full", "rows"]


class PublishedProbe(Config):
    """How the linear probe is trained where it is not our protocol's way."""

    learning_rate: float
    weight_decay: float
    steps: int


class PerturbedBy(Config):
    """What is done to a graph before it is trained on: a file of flips, and how much of it."""

    file: str
    """The perturbation file; an absolute path in the settings that a run leaves behind."""
    budget: Annotated[float, Field(gt=0, le=1)] | None = None
    """Flips as a share of the edges, and the rate of the feature mask; none: all that it holds."""
    features: bool = True
    """Mask features as well; off: edges alone."""
    sha256: str | None = None
    """Checksum of the flips and of the mask's seed, in the settings that a run leaves behind."""


class RowSettings(Config):
    """How a graph is trained on as rows; the method has its own settings besides."""

    batch: Annotated[int, Field(ge=2)] | None = None
    """Rows of a step, about equally many in all of them and at least 2; none: all of up to 4,096
    nodes, of a larger graph 1,024 on a CPU and 4,096 on a GPU."""
    queue: Annotated[int, Field(ge=0)] | None = None
    """Rows of past batches that serve a contrast as further negatives; none: as many as a batch
    has."""
    run: Count | None = None
    """Neighbouring rows that stay together when batches are drawn; none: 1, or 32 where the bases
    are larger than 4 GiB, since a disk reads single rows slowly."""
    pool: Count = 4
    """Bases with dropped edges, for every drop rate of the method."""
    precision: Literal["float32", "float16"] = "float32"
    """Type of the numbers in the bases."""
    projection: Literal["none", "gaussian", "svd"] = "none"
    """Map wide features to fewer columns before propagation: at random, or on the leading singular
    vectors."""
    projection_width: Count | None = None
    """Columns after the projection."""


class Experiment(Config):
    """A method with its settings, for one graph or for any."""

    method: str = "aspect"
    """Name of the method."""
    graph: str | None = None
    """Name of the data set, or path of the graph, that the settings were chosen for."""
    reading: Reading = Reading()
    """How the graph's files are read."""
    graph_sha256: str | None = None
    """Checksum of the graph that was trained on, in the settings that a run leaves behind."""
    perturbation: PerturbedBy | None = None
    """What the graph suffers before it is trained on; none: it is trained on as it is."""
    prune: Pruning | None = None
    """Edges that are pruned before the method sees a graph; none: no edge goes."""
    seed: int = 0
    """Seed of first weights and of every draw in training."""
    scale: Scale = "auto"
    """Train on the whole graph at every step (`full`), on batches of rows (`rows`), or on rows
    where the whole does not fit the memory (`auto`)."""
    rows: RowSettings | None = None
    """How it is trained on as rows; none: as `RowSettings` has it."""
    settings_of: str = ""
    """In a shipped file: the method whose settings for the same graph these are changes of."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """The method's settings; those left out keep their defaults."""
    probe: PublishedProbe | None = None
    """The published probe; none: our protocol."""
    reported: dict[str, float] = Field(default_factory=dict)
    """Accuracy that the source reports, in percent: mean and std."""
    origin: str = ""
    """Where the settings come from and how they were chosen."""

    @property
    def source(self) -> GraphSource:
        """The graph that it is about; the embedded one if it names none."""
        graph = MIXED if self.graph is None else self.graph
        return GraphSource(graph=graph, reading=self.reading)

    @property
    def chosen_by(self) -> ChosenBy:
        """The same in a word."""
        if not self.settings:
            return "defaults"
        if self.origin.startswith(OFFICIAL):
            return "official"
        rule = BY_ONE_RULE.match(self.origin)
        is_searched = rule is not None and rule["base"] in (None, BASE.get(self.method))
        return "searched" if is_searched else "earlier"


def shipped(method: str, graph: str, source: Source = "ours") -> Path | None:
    """The file shipped for a method and a graph, if there is one."""
    name = f"{graph}.yaml" if source == "ours" else f"{graph}.published.yaml"
    path = FOLDER / method / name
    return path if path.is_file() else None


def load_experiment(path: Path) -> Experiment:
    """Read a settings file: a whole experiment, or a method's settings alone."""
    values = load_yaml(path)
    if "settings" not in values and not set(values) <= set(Experiment.model_fields):
        values = {"settings": values}
    own = make_config(Experiment, values, owner=str(path))
    return _with_base(own, path.name) if own.settings_of else own


def _with_base(own: Experiment, file_name: str) -> Experiment:
    """The settings in full, where they are told as changes of another method's."""
    path = FOLDER / own.settings_of / file_name
    if not path.is_file():
        raise SettingsError(f"No settings of {own.settings_of!r} are shipped as {file_name}.")
    base = load_experiment(path)
    return own.model_copy(
        update={
            "settings_of": "",
            "settings": {**base.settings, **own.settings},
            "probe": own.probe or base.probe,
        }
    )


def find_experiment(method: str, graph: str | None, choice: str | None) -> tuple[Experiment, str]:
    """The settings to train with, and a word on where they come from.

    Args:
        method: a method's name.
        graph: a data set's name, or None for a graph of the user's own.
        choice: `defaults`, `published`, `paper`, a file, or None for what is shipped for the graph.
    """
    if choice == "defaults":
        return Experiment(method=method, graph=graph), "defaults"
    if choice == "published":
        path = shipped(method, graph, "published") if graph else None
        if path is None:
            raise SettingsError(
                f"No published settings are shipped for {method!r} on {graph or 'your graph'!r}."
            )
        return load_experiment(path), f"published settings of {method} on {graph}"
    if choice == "paper":
        path = shipped(method, "paper")
        if path is None:
            raise SettingsError(f"No preset 'paper' is shipped for {method!r}.")
        return load_experiment(path), f"preset paper of {method}"
    if choice is not None:
        return load_experiment(Path(choice)), choice
    path = shipped(method, graph) if graph else None
    if path is not None:
        return load_experiment(path), f"settings shipped for {method} on {graph}"
    return Experiment(method=method, graph=graph), "defaults"
