"""What the study of a mixed graph leaves behind: plain numbers, read back by the report."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["WHOLE", "Curve", "GraphFacts", "MixtureRecord", "Role", "Row", "Spectrum"]

WHOLE = "whole"  # the place in which all regions are scored together

# The method itself, rivals with other settings, controls, and one that knows what no method knows.
Role = Literal["method", "rival", "control", "oracle"]

Table = tuple[tuple[float, ...], ...]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GraphFacts(_Part):
    """The graph, and what its nodes are like."""

    name: str
    edges: int
    crossing: int
    """Edges that join two regions."""
    features: int
    classes: int
    regions: tuple[str, ...]
    """Names of the regions."""
    region: tuple[int, ...]
    """The region of every node."""
    agreement: tuple[float | None, ...]
    """Share of each node's neighbours that are of its class; none without neighbours."""

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.region)


class Row(_Part):
    """One entrant and its test accuracies in percent."""

    name: str
    title: str
    note: str
    role: Role
    scores: dict[str, Table]
    """For the whole graph and for each region: [seeds, splits]; one seed where nothing is drawn."""


class Curve(_Part):
    """How one training went."""

    seed: int
    values: dict[str, tuple[float, ...]]
    """Loss, its terms and what the method monitors, one number an epoch."""
    gate_epochs: tuple[int, ...]
    """After which epochs the gate was looked at."""
    gate: dict[str, tuple[float, ...]]
    """The gate's mean in every region, on the clean graph."""


class Spectrum(_Part):
    """The graph's frequencies, its classes among them, and what the learned filters pass."""

    edges: tuple[float, ...]
    """Borders of the bins of frequency."""
    nodes: tuple[float, ...]
    """Share of the graph's frequencies in every bin."""
    classes: dict[str, tuple[float, ...]]
    """Share of the classes' energy in every bin, by region."""
    frequencies: tuple[float, ...]
    """Where the filters' responses were taken."""
    responses: dict[str, Table]
    """Response of every band: [seeds, frequencies]."""


class MixtureRecord(_Part):
    """All that was found, and all that is needed to find it again."""

    format: Literal[1] = 1
    kind: Literal["mixture"] = "mixture"
    command: str = ""
    """What makes this record again."""
    graph: GraphFacts
    settings: dict[str, Any]
    """Settings of the method, in full."""
    settings_from: str
    """Where they come from."""
    seeds: tuple[int, ...]
    splits: int
    """Random splits of 60% for training, 20% for validation and 20% for test."""
    rows: tuple[Row, ...]
    gates: dict[str, Table]
    """Weight of the low band by entrant: [seeds, nodes]."""
    curves: tuple[Curve, ...]
    """Of the method's own trainings, one per seed."""
    spectrum: Spectrum
    versions: dict[str, str] = Field(default_factory=dict)
    """Of the packages; filled in by who writes it."""
    device: str
    seconds: dict[str, float]
    """Time taken: all, and trainings by entrant. The only part that differs when run again."""
