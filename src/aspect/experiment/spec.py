"""What decides a result: the spec of a run, its key, and what the run is called in tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import override

from aspect.attacks.perturbation import Perturbation
from aspect.attacks.pruning import Pruning
from aspect.config import Config
from aspect.data.source import NO_READING, GraphSource, Metric, Reading
from aspect.errors import RunError
from aspect.methods.registry import find_method
from aspect.plugins import source_sha256
from aspect.settings import ChosenBy, RowSettings

# As of `aspect.data.splits` and `aspect.evaluation.probe`, which would import torch for a plan.
SplitName = Literal["random", "published", "class-balanced"]
ProbeName = Literal["neutral", "paper"]

# Left out where they hold nothing: older records, which lack them, keep their keys.
OPTIONAL = (
    "splits_sha256",
    "perturbation_sha256",
    "prune",
    "probe",
    "metric",
    "source",
    "rows",
    "pruning",
)

RELEASED = Path(__file__).parent / "released.json"  # SHA-256 of the methods' modules, by name


class Spec(Config):
    """Everything that decides the numbers of a run, and nothing that does not.

    The key names the spec, not the last digits of its result: the number of threads, the model of
    the processor, and on a GPU every repetition round otherwise. It is the hash of the spec as it
    is written.
    """

    method: str
    """Name in the registry; `module:Class` of a method from outside."""
    source: str | None = None
    """SHA-256 of the method's source; none: it is the released one, see `method_source`."""
    settings: dict[str, Any]
    """The method's settings in full."""
    graph_sha256: str
    """Content of the graph, labels included."""
    splits: SplitName
    """Kind of splits."""
    splits_sha256: str | None = None
    """Content of published splits; none: they are drawn, the same from the same labels."""
    split_numbers: tuple[int, ...]
    """Which of them; a poisoned graph is trained on for exactly one. Empty: nothing is probed."""
    probe: ProbeName | None = None
    """What scores the embeddings; none: the paper's probe."""
    metric: Metric | None = None
    """What validation chooses by; none: accuracy."""
    perturbation: Perturbation | None = None
    """What is done to the graph; none: it is clean."""
    perturbation_sha256: tuple[str, ...] | None = None
    """What the perturbation files do at the budget, split by split, so that a record is bound to
    its very flips; none: they are drawn, or there was no file since the attack failed."""
    prune: tuple[float, ...] | None = None
    """Ratios of edges to prune, of which validation chooses; none: all edges are kept."""
    pruning: Pruning | None = None
    """Edges that are pruned before the method sees a graph, in training and after it."""
    rows: RowSettings | None = None
    """How the graph is trained on as rows; none: the whole graph at every step."""
    seed: int
    """Pre-training seed."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Kind of device: each draws other numbers from the same seed."""
    version: str
    """Of aspect."""

    @cached_property
    def key(self) -> str:
        """Twenty letters that no other spec shares."""
        plain = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(plain.encode()).hexdigest()[:20]

    @property
    def training(self) -> str:
        """Key of the training: runs that share it evaluate one model in different ways."""
        evaluated: dict[str, Any] = {"prune": None}
        if self.perturbation is None or self.perturbation.mode == "evade":
            evaluated |= {"perturbation": None, "perturbation_sha256": None}
            evaluated |= {"probe": None, "metric": None}
            evaluated |= {"splits": "random", "splits_sha256": None, "split_numbers": ()}
        return self.model_copy(update=evaluated).key

    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copy = super().model_copy(update=update, deep=deep)
        copy.__dict__.pop("key", None)  # of the content before the update
        return copy

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        return {
            name: value
            for name, value in content.items()
            if value is not None or name not in OPTIONAL
        }


class Cell(Config):
    """One run of a plan: its spec, and what it is called in tables."""

    model_config = ConfigDict(
        validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )

    plan: str
    """Name of the plan."""
    entry: str
    """The line of the table: a method's name, or that of a variant."""
    title: str
    """The same for readers."""
    note: str = ""
    """A word on it."""
    group: str = ""
    """The entry that a variant belongs to, itself included; empty outside of ablations."""
    embeddings: str = ""
    """File of embeddings that were made elsewhere, in place of a training; the spec has its digest
    as `source`."""
    graph: str
    """Name of a data set, or path of a file."""
    chosen_by: ChosenBy = ""
    """Who chose the settings; empty: nothing is to be chosen, or the record is older than this
    word."""
    reading: Reading = NO_READING
    """How the file is read."""
    spec: Spec = Field(alias="work")
    """What is computed."""

    @classmethod
    def outside_plans(cls, plan: str, entry: str, source: GraphSource, spec: Spec) -> Cell:
        """A run that no plan names; `plan` says which command carries it out."""
        return cls(
            plan=plan,
            entry=entry,
            title=entry,
            graph=source.graph,
            reading=source.reading,
            spec=spec,
        )

    @property
    def key(self) -> str:
        """Of the spec: labels decide nothing."""
        return self.spec.key

    @property
    def graph_source(self) -> GraphSource:
        """Where the graph comes from."""
        return GraphSource(graph=self.graph, reading=self.reading)


def metric_for(probe: str, source: GraphSource) -> Metric:
    """What a probe chooses by: the metric of the data set, but accuracy as in published tables."""
    return source.metric if probe == "neutral" else "accuracy"


def check_unchanged(what: str, before: str | None, now: str | None) -> None:
    """Refuse what changed while a command works: its scores would stand under an old key."""
    if before != now:
        raise RunError(
            f"{what} changed since the command began: the sha256 must be "
            f"{before or 'that of the release'}. Got {now}. Start the command again."
        )


@cache
def method_source(method: str) -> str | None:
    """SHA-256 of the source that a method is written in; None if it is the released one.

    `released.json` beside this file holds the digests of the release (`benchmarks/released.py`
    writes it). A method that was edited since, or that lies outside of the package, gets a digest
    into its specs, and therefore other keys: it is run again. Of a method of aspect the module is
    looked at, of another one its package (`aspect.plugins`), and nothing that these import.
    """
    kind = find_method(method).method
    digest = source_sha256(kind)
    released: dict[str, str] = json.loads(RELEASED.read_text(encoding="utf-8"))
    return None if released.get(kind.__module__) == digest else digest
