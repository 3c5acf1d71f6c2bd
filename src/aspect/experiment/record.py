"""One cell of the grid and the record that it leaves: plain values, written once, never changed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from aspect.config import Config
from aspect.data.source import NO_READING, Reading
from aspect.experiment.perturbation import Perturbation

if TYPE_CHECKING:
    from aspect.evaluation.result import SplitScore

__all__ = ["FORMAT", "AttackNote", "Cell", "GraphFacts", "Record", "SplitScores", "Work"]

FORMAT = 1

# As of `aspect.data.splits` and `aspect.evaluation.linear_probe`, which would import torch.
SplitName = Literal["random", "published", "class-balanced"]
ProbeName = Literal["neutral", "paper"]

# Left out of a work where they say nothing: older records, which lack them, keep their keys.
SILENT = ("splits_sha256", "perturbation_sha256", "doubt", "probe")


class Work(Config):
    """Everything that decides the numbers of a cell, and nothing that does not.

    Its key names the work, not its last digits: the number of threads, the model of the processor,
    and on a GPU every repetition round otherwise.
    """

    method: str
    """Name in the registry."""
    settings: dict[str, Any]
    """The method's settings in full."""
    graph_sha256: str
    """Content of the graph, labels included."""
    splits: SplitName
    """Kind of splits."""
    splits_sha256: str | None = None
    """Content of published splits; none: they are drawn, the same from the same labels."""
    split_numbers: tuple[int, ...]
    """Which of them; a poisoned graph is trained on for exactly one."""
    probe: ProbeName | None = None
    """What scores the embeddings; none: the paper's probe, which version 0.1 had alone."""
    perturbation: Perturbation | None = None
    """What is done to the graph; none: it is clean."""
    perturbation_sha256: tuple[str, ...] | None = None
    """What the perturbation files do at the budget, split by split, so that a record is bound to
    its very flips; none: they are drawn, or there was no file since the attack failed."""
    doubt: tuple[float, ...] | None = None
    """Shares of doubtful edges to leave out, of which validation chooses; none: all are read."""
    seed: int
    """Pre-training seed."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Kind of device: each draws other numbers from the same seed."""
    version: str
    """Of aspect."""

    @property
    def key(self) -> str:
        """Twenty letters that no other work shares."""
        plain = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(plain.encode()).hexdigest()[:20]

    @model_serializer(mode="wrap")
    def _without_silence(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As it is written, so that a key is the hash of what the file shows."""
        content: dict[str, Any] = handler(self)
        return {
            name: value
            for name, value in content.items()
            if value is not None or name not in SILENT
        }


class Cell(Config):
    """A piece of work, and what it is called in tables."""

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
    graph: str
    """Name of a data set, or path of a file."""
    reading: Reading = NO_READING
    """How the file is read."""
    work: Work
    """What is computed."""

    @property
    def key(self) -> str:
        """Of the work: labels decide nothing."""
        return self.work.key


class SplitScores(Config):
    """How one split went, in percent."""

    split: int
    validation: float
    strict: float
    """Test accuracy of what validation chose: the number to report."""
    optimistic: float | None = None
    """The best test accuracy at a validation record: only for comparison with published tables."""
    macro_f1: float
    roc_auc: float | None = None
    choice: float
    """The penalty (neutral probe) or weight decay (paper's probe) that validation chose."""
    at_path_end: bool | None = None
    """Whether that penalty is the smallest or largest of the path; none: not told."""
    step: int | None = None
    """The step that validation chose; none where the probe is solved to convergence."""
    doubt: float | None = None
    """The share of doubtful edges left out that validation chose; none: it was not asked."""
    missing_in_train: tuple[int, ...] = ()
    """Classes without a training node."""
    missing_in_test: tuple[int, ...] = ()
    """Classes without a test node."""
    majority: float | None = None
    """Test accuracy of the majority-class baseline: the class that most validation nodes have;
    none: not told."""
    twins: float | None = None
    """Test accuracy of the nearest neighbour by neighbour sets; none: not told."""
    per_class_recall: tuple[float | None, ...] = ()
    """By class, in percent; none for a class without a test node."""
    test_to_train: float | None = None
    """Test nodes for each training node, which says how much splits overlap; none: not told."""

    @classmethod
    def of(cls, split: int, score: SplitScore, **beside: float | None) -> SplitScores:
        """A probe's score of a split, with what else is told of that split."""
        values = asdict(score)
        recall = tuple(one["recall"] for one in values.pop("per_class"))
        return cls(split=split, per_class_recall=recall, **values, **beside)


class GraphFacts(Config):
    """What a reader should know of the graph."""

    name: str
    """Short name, for columns."""
    nodes: int
    edges: int
    features: int
    classes: int
    homophily: float | None = None
    """Share of the edges that join nodes of one class; none where labels are missing."""


class AttackNote(Config):
    """How the flips of a perturbation file were found."""

    flips: int
    """Pairs flipped at the cell's budget."""
    settings: dict[str, Any]
    """Of the attack, in full; kind and solver stand in the cell's perturbation."""
    seed: int
    """As given to the attack, which adds the split's number."""
    device: str
    """Kind of the device that it ran on."""
    version: str
    """Of aspect."""


class Record(Config):
    """What became of a cell."""

    format: int = FORMAT
    status: Literal["done", "failed"]
    cell: Cell
    error: str | None = None
    """Why it failed, in a sentence."""
    graph: GraphFacts | None = None
    attack: AttackNote | None = None
    """Where the flips come from, if they come from a file."""
    scores: tuple[SplitScores, ...] = ()
    epochs: int = 0
    stopped_early: bool = False
    loss: dict[str, float] = Field(default_factory=dict)
    """Values of the last epoch: loss, its terms, and what the method monitors."""
    dim: int = 0
    """Width of the embedding."""
    parameters: int = 0
    """Trained numbers."""
    gate: dict[str, float] | None = None
    """Mean and std of the low band's weight over the nodes; none without a policy."""
    health: dict[str, float] | None = None
    """Of the embedding before any centring (`aspect.training.health`); none: not told."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """Of training (`train`), embedding (`embed`) and probing (`probe`)."""
    peak_memory_bytes: int | None = None
    """Of the worker on the CPU, of the device on a GPU; an upper bound for this cell."""
    notices: tuple[str, ...] = ()
    """What a reader must know beside the numbers."""
    warnings: tuple[str, ...] = ()
    """What the training warns of: collapses, for example."""
    device: str = ""
    """The device itself: its name."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Of the packages that matter."""

    @property
    def key(self) -> str:
        """Of the cell's work."""
        return self.cell.key
