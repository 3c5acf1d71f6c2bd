"""What a search for settings depends on: method, graph, splits, seeds, and the space of settings.

Every setting with a `Range` or a `Choice` is searched; the others keep the value of the start.
torch and Optuna are imported where they are needed: the command line takes `SearchRequest` without.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from pydantic import Field

from aspect import __version__
from aspect.config import Choice, Config, Count, Range, make_config
from aspect.data.source import METRICS, MIXED, GraphSource, Metric, Reading
from aspect.errors import SettingsError
from aspect.experiment.spec import ProbeName, method_source, metric_for
from aspect.methods.registry import find_method
from aspect.settings import Experiment

if TYPE_CHECKING:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from pydantic.fields import FieldInfo

    from aspect.methods.base import MethodConfig
    from aspect.training.health import Health

    Distribution: TypeAlias = CategoricalDistribution | FloatDistribution | IntDistribution

SearchSplits = Literal["search", "class-balanced-search", "random", "published", "class-balanced"]
BEST_SETTINGS = "settings.yaml"  # in the folder of a search
DIGITS = 4  # significant digits of a searched number
DEFAULT_MAX_EPOCHS = 200  # of a trial whose epochs are searched, unless the start has more
MAX_RUNGS = 6  # the first at a thirty-second of the most epochs
# No trial is pruned before this part of the most epochs: the first ones say too little of the rest.
FIRST_PART = {"median": 8, "halving": 4}
MIN_EPOCHS_APART = 5  # between two rungs: a score takes as long as some epochs
# Of the neutral probe's gradient: looser than that of a table, which takes many times the steps.
TOLERANCE = 1e-3


class SearchRequest(Config):
    """How trials are scored, the same for every graph and method."""

    seeds: Count = 1
    """Pre-trainings of a trial, one seed each."""
    splits: SearchSplits = "search"
    """Kind of splits; all of them count. `search`: stratified random ones that no table reports;
    `class-balanced-search`: those of published tables, drawn with other seeds."""
    probe: ProbeName = "neutral"
    """neutral; paper: the probe of published tables."""
    metric: Metric | None = None
    """What trials are compared by, on validation nodes; roc-auc needs two classes.  [default: what
    the data set's authors report, else accuracy]"""
    max_cosine: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Highest mean cosine of two nodes, before centring, of the best trial, which must not have
    collapsed otherwise; 1: any embedding may be the best."""
    pruner: Literal["median", "halving"] = "median"
    """median: a trial below the median of the complete ones at the same epoch ends there; halving:
    at a quarter and at half of the most epochs the better half of the trials goes on."""
    max_epochs: Annotated[int | None, Field(ge=1)] = None
    """Epochs of a trial at most, but for the start, which keeps its own.  [default: 200, or those
    of the start if more]"""


def search_space(
    method: str, config: type[MethodConfig], fixed: Collection[str] = ()
) -> dict[str, Distribution]:
    """The distribution of every setting that is searched, in the order of declaration.

    Args:
        method: Name of the method, for the error if nothing is left to search.
        config: Class of the method's settings.
        fixed: Settings that are not searched.
    """
    ranged = {
        name: distribution
        for name, field in config.model_fields.items()
        if (distribution := _distribution(field)) is not None
    }
    if not ranged:
        raise SettingsError(
            f"No setting of {method!r} has a search range, so there is nothing to tune."
        )
    space = {name: value for name, value in ranged.items() if name not in fixed}
    if not space:
        raise SettingsError(
            f"All settings of {method!r} with a search range are fixed, so there is nothing to "
            f"tune. Leave one of these open: {', '.join(ranged)}."
        )
    return space


def _distribution(field: FieldInfo) -> Distribution | None:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    kinds = get_args(field.annotation) or (field.annotation,)
    is_integer = int in kinds and float not in kinds
    for hint in field.metadata:
        if isinstance(hint, Choice):
            return CategoricalDistribution(hint.values)
        if isinstance(hint, Range) and is_integer:
            return IntDistribution(int(hint.low), int(hint.high), log=hint.log)
        if isinstance(hint, Range):
            return FloatDistribution(hint.low, hint.high, log=hint.log)
    return None


def rungs(max_epochs: int, start: int) -> tuple[int, ...]:
    """Epochs at which trainings are scored: the most, by halves, and those of the start.

    Some methods are at their best after a few epochs, on small graphs above all.

    >>> rungs(200, 20)
    (7, 13, 20, 25, 50, 100, 200)
    """
    halves = [max_epochs]
    while halves[-1] // 2 >= MIN_EPOCHS_APART and len(halves) < MAX_RUNGS:
        halves.append(math.ceil(halves[-1] / 2))
    return tuple(sorted({*halves, min(start, max_epochs)} - {0}))


class Search(Config):
    """All that decides the trials of a search; equal searches continue each other."""

    method: str
    """Name in the registry; `module:Class` of a method from outside."""
    source_sha256: str | None = None
    """Of the method's code; none: it is the released one, see `method_source`."""
    graph: str
    """Name of a data set, or absolute path of a file."""
    reading: Reading = Reading()
    """How the file is read."""
    graph_sha256: str
    """Content of the graph, labels included."""
    splits: SearchSplits
    """Kind of splits."""
    splits_sha256: str | None = None
    """Content of published splits; None: they are drawn, the same from the same labels."""
    num_splits: int
    """All that there are of that kind."""
    probe: ProbeName = "neutral"
    """The probe that scores an embedding on validation nodes."""
    metric: Metric = "accuracy"
    """What it chooses by, and trials are compared by."""
    tolerance: float = 1e-5
    """At which the neutral probe counts as solved; searches of version 0.1 do not name it."""
    max_cosine: float = 0.9
    """A trial whose embedding, before centring, has a higher mean cosine cannot be the best."""
    seeds: tuple[int, ...]
    """Pre-training seeds; pruning sees the scores of the first one."""
    settings: dict[str, Any]
    """The settings of the first trial, in full."""
    settings_from: str
    """Where those come from."""
    fixed: tuple[str, ...] = ()
    """Settings that keep their value although they have a range."""
    pruner: Literal["median", "halving"] = "median"
    """Which trials end before their last epoch."""
    max_epochs: int
    """Most epochs of a trial; the first trial keeps its own."""
    searches_epochs: bool
    """Whether the best epoch of a trial, of those it is scored at, becomes its setting. Patience is
    then off in its settings, unless the epoch that patience chose is the best."""
    device: Literal["cpu", "cuda"]
    """Kind of device: each draws other numbers from the same seed."""
    version: str = __version__
    """Of aspect."""

    @property
    def source(self) -> GraphSource:
        """The graph, and how it is read."""
        return GraphSource(graph=self.graph, reading=self.reading)

    @property
    def score_name(self) -> str:
        """What trials are compared by, in words."""
        return f"validation {METRICS[self.metric]}"

    @property
    def space(self) -> dict[str, Distribution]:
        """The distribution of every setting that is searched."""
        return search_space(self.method, find_method(self.method).config, self.fixed)

    @property
    def first_pruned(self) -> int:
        """No trial is pruned before this epoch."""
        return math.ceil(self.max_epochs / FIRST_PART[self.pruner])

    @property
    def rungs(self) -> tuple[int, ...]:
        """Epochs at which trials are scored; halving, for large graphs, leaves out the first."""
        scored = rungs(self.max_epochs, self.settings["epochs"])
        first = self.first_pruned / 2 if self.pruner == "halving" else 0
        return tuple(epoch for epoch in scored if epoch >= first)

    def start(self) -> dict[str, Any]:
        """The first trial as a point of the space: a value outside becomes the nearest inside.

        The sampler learns from this point. The trial itself is trained with the start as it is.
        """
        return {name: _nearest(each, self.settings[name]) for name, each in self.space.items()}

    def settings_at(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a trial in full, from its point of the space."""
        rounded = {
            name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
            for name, value in point.items()
        }
        epochs = min(point.get("epochs", self.max_epochs), self.max_epochs)
        values = {**self.settings, **rounded, "epochs": epochs}
        config = make_config(find_method(self.method).config, values, owner=self.method)
        return config.model_dump(mode="json")

    def fault_of(self, health: Health) -> str:
        """Why an embedding is not healthy enough for the best trial; empty if it is."""
        if self.max_cosine == 1:
            return ""
        if health.mean_cosine > self.max_cosine and health.dim > 1:
            return (
                f"The mean cosine of two nodes is {health.mean_cosine:.4f}, "
                f"above the maximum of {self.max_cosine}."
            )
        return " ".join(health.warnings())

    def decisive(self) -> dict[str, Any]:
        """All that two searches must share, setting by setting; where the start is from is not."""
        values = self.model_dump(mode="json", exclude={"settings_from", "settings"})
        return values | {f"setting {name}": value for name, value in self.settings.items()}


def _nearest(distribution: Distribution, value: Any) -> Any:  # noqa: ANN401 - a setting of any type
    from optuna.distributions import CategoricalDistribution

    if isinstance(distribution, CategoricalDistribution):
        return value if value in distribution.choices else distribution.choices[0]
    low, high = distribution.low, distribution.high
    return low if value is None else min(max(value, low), high)


def plan_search(
    experiment: Experiment,
    request: SearchRequest,
    *,
    settings_from: str,
    fixed: Collection[str] = (),
    device: str | None = None,
    data_dir: str | None = None,
) -> Search:
    """Read the graph and refuse what cannot be searched.

    Args:
        experiment: Method, graph, first of the seeds, and the settings of the first trial.
        request: How trials are scored.
        settings_from: Where those settings come from.
        fixed: Settings that keep their value.
        device: As of `aspect train`.
        data_dir: Folder with the files of named data sets.
    """
    from aspect.data.archives import content_sha256
    from aspect.data.splits import make_splits, published_sha256
    from aspect.estimator import choose_device
    from aspect.evaluation.linear_probe import probe_named
    from aspect.evaluation.metrics import check_metric

    method = find_method(experiment.method)
    base = make_config(method.config, experiment.settings, owner=experiment.method)
    search_space(experiment.method, method.config, fixed)
    # A method whose patience is fixed ends at an epoch of its own choice, and at no other.
    is_free = "epochs" not in fixed and (base.patience is None or "patience" not in fixed)
    searches_epochs = is_free and method.method.anytime and method.method.trainable
    max_epochs = request.max_epochs
    if max_epochs is None:
        max_epochs = max(base.epochs, DEFAULT_MAX_EPOCHS) if searches_epochs else base.epochs
    elif "epochs" in fixed:
        raise SettingsError(
            f"The epochs are fixed at {base.epochs}, so there is no maximum. "
            f"Got {max_epochs} for it."
        )
    device_kind = choose_device(device).type
    source = GraphSource(graph=experiment.graph or MIXED, reading=experiment.reading).absolute()
    labelled = source.read(data_dir)
    splits, masks = request.splits, labelled.masks
    metric = request.metric or metric_for(request.probe, source)
    check_metric(probe_named(request.probe, metric).metric, labelled.num_classes)
    return Search(
        method=experiment.method,
        source_sha256=method_source(method.name),
        graph=source.graph,
        reading=source.reading,
        graph_sha256=content_sha256(labelled),
        splits=splits,
        splits_sha256=published_sha256(splits, masks),
        num_splits=len(make_splits(splits, labelled.labels, labelled.num_classes, masks=masks)),
        probe=request.probe,
        metric=metric,
        tolerance=TOLERANCE,
        max_cosine=request.max_cosine,
        seeds=tuple(range(experiment.seed, experiment.seed + request.seeds)),
        settings=base.model_dump(mode="json"),
        settings_from=settings_from,
        fixed=tuple(sorted(fixed)),
        pruner=request.pruner,
        max_epochs=max_epochs,
        searches_epochs=searches_epochs,
        device="cuda" if device_kind == "cuda" else "cpu",
    )
