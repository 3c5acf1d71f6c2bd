"""What a run leaves: plain values, written once, never changed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from aspect.config import Config
from aspect.experiment.spec import Cell, Spec

if TYPE_CHECKING:
    from aspect.evaluation.result import SplitScore

FORMAT = 2  # 1: version 0.1 and 0.2, without a digest in every line


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
    prune: float | None = None
    """The ratio of edges to prune that validation chose; none: pruning was no choice."""
    pruned: float | None = None
    """The ratio of edges that went: less than `prune` where nodes with few edges kept one; none:
    not told."""
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


class GraphSummary(Config):
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
    """Pairs flipped at the budget."""
    settings: dict[str, Any]
    """Of the attack, in full; kind and solver stand in the spec's perturbation."""
    seed: int
    """As given to the attack, which adds the split's number."""
    device: str
    """Kind of the device that it ran on."""
    version: str
    """Of aspect."""


class Record(Config):
    """What became of a run."""

    format: int = FORMAT
    status: Literal["done", "failed"]
    cell: Cell
    """What was run, and what it is called."""
    error: str | None = None
    """Why it failed, in a sentence."""
    graph: GraphSummary | None = None
    attack: AttackNote | None = None
    """Where the flips come from, if they come from a file."""
    scores: tuple[SplitScores, ...] = ()
    prune_score: str | None = None
    """The score that edges went by where validation chose how many; none: no such choice."""
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
    """Of training (`train`, unless another run's training was evaluated), embedding (`embed`) and
    probing (`probe`)."""
    peak_memory_bytes: int | None = None
    """Of the worker on the CPU, of the device on a GPU; an upper bound for this run."""
    notices: tuple[str, ...] = ()
    """What a reader must know beside the numbers."""
    warnings: tuple[str, ...] = ()
    """What the training warns of: collapses, for example."""
    device: str = ""
    """The device itself: its name."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Of the packages that matter."""

    @property
    def spec(self) -> Spec:
        """What decided its numbers."""
        return self.cell.spec

    @property
    def key(self) -> str:
        """Of the spec."""
        return self.spec.key
