"""Plain numbers of one trained model, node by node, for figures and pages."""

from __future__ import annotations

from pydantic import Field

from aspect.config import Config

DETAILS_FORMAT = 2  # 1: no sensitivity, and a curve with gaps was shorter than the others

Numbers = tuple[float, ...]
SomeNumbers = tuple[float | None, ...]


class SpectrumShares(Config):
    """How the graph's eigenvalues are spread, and what the learned filters do to them."""

    edges: Numbers
    """Borders of the bins, from 0 to 2."""
    shares: Numbers
    """Share of the eigenvalues in every bin."""
    is_exact: bool
    """From all eigenvalues; else estimated from Chebyshev moments."""
    frequencies: Numbers
    """Where the responses are taken."""
    responses: dict[str, Numbers]
    """Of every band, at the frequencies."""


class Attacked(Config):
    """The same model on a perturbed graph."""

    label: str
    """The perturbation, such as `random 10%`."""
    gate: Numbers
    homophily: SomeNumbers
    """Measured on the perturbed edges."""


class Sensitivity(Config):
    """How far the bands move under the most harmful small change that a search found."""

    flips: int
    """Pairs of nodes whose edge was flipped."""
    moves: int
    """Feature entries that were moved."""
    distances: dict[str, Numbers]
    """Of every band, lowest first: how far each node's embedding moved."""


class Details(Config):
    """One model and its graph. Lists are over the nodes that are kept, in rising order."""

    format: int = DETAILS_FORMAT
    method: str
    title: str
    """The line of the tables that it belongs to."""
    graph: str
    """Short name."""
    seed: int
    num_nodes: int
    """Of the whole graph."""
    nodes: tuple[int, ...]
    """Numbers of the nodes that are kept: all, or a sample of a large graph."""
    ids: tuple[str, ...] | None = None
    """The user's names of the nodes; untrusted. None: the numbers are the names."""
    class_names: tuple[str, ...] = ()
    """Untrusted as well."""
    labels: tuple[int, ...] = ()
    """-1: unknown. Empty: the graph has none."""
    degrees: tuple[int, ...]
    neighbours: tuple[tuple[int, ...], ...]
    """Places in `nodes`, the first few of each node; those that are not kept are left out."""
    homophily: SomeNumbers = ()
    """Share of each node's neighbours that are of its class; none where nothing is known."""
    gate: Numbers | None = None
    """Weight of the low band; none without a policy."""
    losses: dict[str, Numbers] = Field(default_factory=dict)
    """Contrastive loss of every band, lowest first, as training weighs it for the gate: under
    augmentations and dropout, pooled where neighbours decide together. Empty without bands."""
    cost_gap: Numbers | None = None
    """The high band's normalised cost less the low band's (b_H - b_L)."""
    sensitivity: Sensitivity | None = None
    """None for methods without a policy, and where a search would take too long."""
    map_x: Numbers
    map_y: Numbers
    map_name: str
    """How the embedding was brought into the plane: t-SNE or PCA."""
    spectrum: SpectrumShares | None = None
    """None for methods without filters."""
    curves: dict[str, SomeNumbers] = Field(default_factory=dict)
    """Values of every epoch: loss, its terms, and what the method monitors; none in an epoch that
    had no such value, or no finite one."""
    attacked: tuple[Attacked, ...] = ()
