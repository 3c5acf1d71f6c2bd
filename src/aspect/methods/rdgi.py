"""RDGI: DGI trained on an adversarially perturbed graph where that raises its loss."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.attacks.view_search import AdversarialView, either, find_in_turn
from aspect.config import Choice, Count, Weight
from aspect.data.graph import Graph
from aspect.data.operators import Operator
from aspect.data.rows import RowPlan
from aspect.data.sparse import SparseMatrix
from aspect.methods.base import Step
from aspect.methods.dgi import DGI, DGIConfig
from aspect.methods.registry import Citation, Cost, register

WARNED_BYTES = 10**9  # of uncompressed features, from which on the user is warned


class RDGIConfig(DGIConfig):
    """DGI's settings and those of the search; symbols of the official code in parentheses.

    The defaults are the official ones of Cora and Citeseer.
    """

    # When the graph that was found is trained on
    margin: Annotated[float, Choice((0.005, 0.01, 0.05))] = 0.005
    """By how much the found graph's loss must exceed the clean one's to take its place (tau)."""

    # The search
    perturbation_budget: Annotated[float, Field(ge=0, le=1), Choice((0.1, 0.2, 0.4))] = 0.4
    """Pairs flipped at most, as a ratio of the edges (alpha); zero: edges are left alone."""
    perturbation_steps: Count = 10
    """Steps of ascent over edges, and as many over features."""
    edge_step: Weight = 20.0
    """Size of a step over edges, of the mean loss's own gradient."""
    feature_box: Weight = 0.1
    """The largest move of a feature entry (epsilon); zero: no search over features."""
    feature_step: Weight = 1e-5
    """Size of a step over features; the official one never comes near the box. The search holds all
    entries, zeros included; zero: no search over features."""
    exact_up_to: Annotated[int, Field(ge=0)] = 10_000
    """Nodes of the largest graph of which every pair may be flipped; a search holds about nine
    numbers for each ordered pair of nodes: 4 GB for 10,000 nodes."""
    candidates: Annotated[int, Field(ge=0)] = 10
    """On larger graphs, other pairs that may be joined for each edge: half of them two hops apart,
    drawn anew in every epoch."""
    official_additions: bool = False
    """Add what was to be flipped, as the official code: an edge to be removed weighs two."""


@register(
    "rdgi",
    config=RDGIConfig,
    paper=Citation(
        "J. Xu, Y. Yang, J. Chen, X. Jiang, C. Wang, J. Lu, Y. Sun",
        "Unsupervised Adversarially Robust Representation Learning on Graphs",
        "AAAI",
        2022,
    ),
    family="adversarial training",
)
class RDGI(DGI):
    """DGI's loss on a graph that was changed to raise it, or on the clean one if it rose little.

    Every epoch climbs from the clean graph over flip probabilities, keeps the best point on the way
    and draws flips from it; then it climbs over the features. The loss is the changed graph's
    where it exceeds the clean one's by the margin, else the clean one's; early stopping compares
    whichever it was. Every loss has a corruption of its own. Clean losses draw as DGI does: with a
    margin out of reach, a training is DGI's number by number.

    Where it differs from the official code: flips are flips (`official_additions` is its graph);
    both entries of a pair share one gradient and the budget holds exactly, where it keeps the upper
    triangle's after projecting both, so that nothing hangs on the order of nodes; features are
    searched on the graph just found, not on the last epoch's, and kept within the range that they
    have where it is wider than [0, 1]. With `official_additions`, the last point is still judged
    on true flips. Beyond `exact_up_to` nodes only candidates may be flipped, which is an
    approximation of ours.
    """

    cost: ClassVar[Cost] = "quadratic"
    draws_apart: ClassVar[tuple[str, ...]] = ("perturbation",)

    config: RDGIConfig
    _is_exact: bool = False  # every pair of the step's graph may be flipped

    @override
    def row_plan(self) -> RowPlan | None:
        return None  # its views are drawn from the whole graph

    @override
    def before_step(self, graph: Graph, step: Step) -> None:
        self._is_exact = graph.num_nodes <= self.config.exact_up_to

    @override
    def capture_key(self, step: Step) -> Hashable | None:
        # The number of candidates differs from draw to draw.
        return super().capture_key(step) if self._is_exact else None

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        generator = step.apart("perturbation")
        found = self.search(graph, generator)
        clean = self.discriminate(graph, self.source(graph).clean, step)
        changed = self.discriminate(graph, found.view, replace(step, generator=generator))
        is_worse = (changed - clean).detach() >= self.config.margin
        self.monitored = {
            "clean_loss": clean.detach(),
            "changed_loss": changed.detach(),
            "search_flips": found.num_flips,
        }
        return {"discrimination": either(is_worse, changed, clean)}

    def search(self, graph: Graph, generator: torch.Generator) -> AdversarialView:
        """A graph within reach whose loss is high for the model as it is now."""
        clean = self.source(graph).clean

        def loss(projected: Float[Tensor, "nodes dim"], operator: Operator) -> Tensor:
            return self.tell_apart(graph, projected, operator, Step(1, generator))

        return find_in_turn(graph, clean, self.encoder.project, loss, self.config, generator)

    @override
    def outlook(self, graph: Graph) -> Iterable[str]:
        config, nodes = self.config, graph.num_nodes
        if config.perturbation_budget > 0 and nodes > config.exact_up_to:
            yield (
                f"RDGI searches among the edges and up to {config.candidates * graph.num_edges:,} "
                f"other pairs, drawn in every epoch, not among all pairs: the graph has {nodes:,} "
                f"nodes, and exact_up_to is {config.exact_up_to:,}."
            )
        size = nodes * graph.num_features * graph.dtype.itemsize
        moves_features = min(config.feature_box, config.feature_step) > 0
        if moves_features and isinstance(graph.features, SparseMatrix) and size > WARNED_BYTES:
            yield (
                f"RDGI's search over features holds them with their zeros, {size / 1e9:,.1f} GB, "
                f"several times over: feature_step=0 leaves it out."
            )
