"""What a search is asked for: everything that decides its trials, and nothing that does not."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Literal

from aspect import __version__
from aspect.config import Config, make_config
from aspect.data.npz import content_sha256
from aspect.data.source import GraphSource, Reading
from aspect.data.splits import SplitKind, make_splits, published_sha256
from aspect.errors import SettingsError
from aspect.estimator import choose_device
from aspect.evaluation.linear_probe import ProbeName
from aspect.experiment.runs import source_of
from aspect.experiment.tuning.space import Space
from aspect.methods.registry import find_method
from aspect.settings import Experiment
from aspect.training.health import Health

__all__ = ["LEAST_MOST_EPOCHS", "MAX_COSINE", "Search", "plan_search", "rungs"]

# Trials whose epochs are searched train for so many at least, unless the user says otherwise.
LEAST_MOST_EPOCHS = 200

MAX_COSINE = 0.9  # of two nodes, on average; a higher one is close to representation collapse

MOST_RUNGS = 6  # the first at a thirty-second of the most epochs
LEAST_APART = 5  # epochs between two rungs; a score takes as long as some epochs


class Search(Config):
    """One search; two that are equal may go on from each other's trials."""

    method: str
    """Name in the registry."""
    graph: str
    """Name of a data set, or absolute path of a file."""
    reading: Reading = Reading()
    """How the file is read."""
    graph_sha256: str
    """Content of the graph, labels included."""
    splits: SplitKind
    """Kind of splits."""
    splits_sha256: str | None = None
    """Content of published splits; none: they are drawn, the same from the same labels."""
    num_splits: int
    """All that there are of that kind."""
    probe: ProbeName = "neutral"
    """What scores an embedding on validation nodes."""
    max_cosine: float = MAX_COSINE
    """A trial whose embedding, before centring, has a higher mean cosine cannot be the best."""
    seeds: tuple[int, ...]
    """Pre-training seeds; the first one's scores on the way decide whether a trial goes on."""
    settings: dict[str, Any]
    """What the search starts from, in full."""
    settings_from: str
    """A word on where those come from."""
    fixed: tuple[str, ...] = ()
    """Settings that no trial changes, although they have a range."""
    max_epochs: int
    """Epochs that a trial trains for at most; the start keeps its own."""
    searches_epochs: bool
    """Whether the best epoch of a trial, of those it is scored at, becomes its setting; patience is
    off in the settings then, unless the epoch of its own choice is the best."""
    device: Literal["cpu", "cuda"]
    """Kind of device: each draws other numbers from the same seed."""
    version: str = __version__
    """Of aspect."""

    @property
    def source(self) -> GraphSource:
        """Where the graph comes from."""
        return GraphSource(graph=self.graph, reading=self.reading)

    @property
    def space(self) -> Space:
        """What is drawn."""
        return Space.of(self.method, self.settings, self.fixed)

    @property
    def rungs(self) -> tuple[int, ...]:
        """Epochs at which all trials are scored."""
        return rungs(self.max_epochs, self.settings["epochs"])

    def fault_of(self, health: Health) -> str:
        """Why an embedding is not healthy enough for the best trial; empty if it is."""
        if health.mean_cosine > self.max_cosine and health.dim > 1:
            return (
                f"The mean cosine of two nodes is {health.mean_cosine:.4f}, "
                f"above the maximum of {self.max_cosine}."
            )
        return " ".join(health.warnings())


def rungs(most: int, start: int) -> tuple[int, ...]:
    """Epochs to score trainings at: the most, by halves, and those that the search starts from.

    Some methods are at their best after a few epochs, on small graphs above all.

    >>> rungs(200, 20)
    (7, 13, 20, 25, 50, 100, 200)
    """
    kept = [most]
    while kept[-1] // 2 >= LEAST_APART and len(kept) < MOST_RUNGS:
        kept.append(math.ceil(kept[-1] / 2))
    own = {start} if start < most else set()
    return tuple(sorted({*kept, *own} - {0}))


def plan_search(  # noqa: PLR0913 - all that a search may be asked for
    experiment: Experiment,
    *,
    settings_from: str,
    fixed: Collection[str] = (),
    splits: SplitKind = "search",
    seeds: int = 1,
    max_cosine: float = MAX_COSINE,
    max_epochs: int | None = None,
    device: str | None = None,
    data_dir: str | None = None,
) -> Search:
    """Join what is asked for with what the graph offers; all that is wrong is refused here.

    Args:
        experiment: Method, graph and seed, and the settings to start from.
        settings_from: A word on where those settings come from.
        fixed: Names of settings that no trial may change.
        splits: Kind of splits; validation accuracy is averaged over all of them.
        seeds: Pre-trainings of a trial, from the experiment's seed on.
        max_cosine: Highest mean cosine of two nodes that the best trial may have.
        max_epochs: Epochs that a trial trains for at most; the start keeps its own.
        device: As of `aspect train`.
        data_dir: Folder with the files of named data sets.
    """
    if seeds < 1:
        raise SettingsError(f"Number of seeds must be 1 or more. Got {seeds}.")
    if not 0 < max_cosine <= 1:
        raise SettingsError(f"Maximum of the mean cosine must be in (0, 1]. Got {max_cosine}.")
    entry = find_method(experiment.method)
    base = make_config(entry.config, experiment.settings, owner=experiment.method)
    Space.around(experiment.method, base, fixed)
    # A method whose patience is fixed ends at an epoch of its own choice, and at no other.
    is_free = "epochs" not in fixed and (base.patience is None or "patience" not in fixed)
    searches_epochs = is_free and entry.method.anytime and entry.method.trainable
    place = choose_device(device)
    source = source_of(experiment).absolute()
    labelled = source.read(data_dir)
    found = make_splits(splits, labelled.labels, labelled.num_classes, masks=labelled.masks)
    return Search(
        method=experiment.method,
        graph=source.graph,
        reading=source.reading,
        graph_sha256=content_sha256(labelled),
        splits=splits,
        splits_sha256=published_sha256(splits, labelled.masks),
        num_splits=len(found),
        max_cosine=max_cosine,
        seeds=tuple(range(experiment.seed, experiment.seed + seeds)),
        settings=base.model_dump(mode="json"),
        settings_from=settings_from,
        fixed=tuple(sorted(fixed)),
        max_epochs=_most_epochs(base.epochs, max_epochs, fixed, searches_epochs),
        searches_epochs=searches_epochs,
        device="cuda" if place.type == "cuda" else "cpu",
    )


def _most_epochs(start: int, wanted: int | None, fixed: Collection[str], searches: bool) -> int:
    if wanted is None:
        return max(start, LEAST_MOST_EPOCHS) if searches else start
    if "epochs" in fixed:
        raise SettingsError(
            f"The epochs are fixed at {start}, so there is no maximum. Got {wanted} for it."
        )
    if wanted < 1:
        raise SettingsError(f"Maximum of epochs must be 1 or more. Got {wanted}.")
    return wanted
