"""ARIEL: GRACE with a third, adversarial view, searched to disagree with the first."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor
from typing_extensions import override

from aspect.attacks.view_search import AdversarialView, find_at_once
from aspect.config import Choice, Count, Weight
from aspect.data.graph import Graph
from aspect.data.rows import RowPlan
from aspect.losses.info_nce import (
    LOWEST_FLOAT32_TEMPERATURE,
    intra_view_info_nce,
    within_view,
)
from aspect.losses.similarity import information_hinge
from aspect.methods.base import Step
from aspect.methods.grace import GRACE, LaterGRACEConfig
from aspect.methods.registry import Citation, Cost, register
from aspect.nn.augmentations import View, sample_subgraph
from aspect.nn.gcn import StartingWeights
from aspect.nn.mlp import ActivationName


class ARIELConfig(LaterGRACEConfig):
    """GRACE's settings and those of the third view; symbols of the official code in parentheses.

    The defaults are for graphs that the official code leaves out. Lists to choose from are those
    of the authors' own search.
    """

    epochs: Annotated[int, Field(ge=0)] = 1000
    """Subgraphs to train on, one after the other."""
    row_normalise: Annotated[bool, Choice((False, True))] = False
    """Divide each node's features by the sum of their sizes; the official code means to."""
    sample: Annotated[int, Field(ge=2)] = 3000
    """Nodes of a subgraph (s); officially 500, and 3000 advised for large graphs. A step holds a
    few numbers for each pair of them."""
    activation: Annotated[ActivationName, Choice(("prelu", "relu", "rrelu"))] = "prelu"
    """What follows both layers; `rrelu` draws its slopes in training."""

    # The third view
    adversarial_weight: Annotated[Weight, Choice((0.5, 1.0, 1.5, 2.0))] = 1.0
    """Weight of the contrast between the first view and the third (eps); zero: no search."""
    information_weight: Annotated[Weight, Choice((0.0, 0.5, 1.0, 1.5, 2.0))] = 0.0
    """Weight of keeping two views no closer to each other than to the original (lamb)."""
    perturbation_budget: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Expected flips at most, as a ratio of the subgraph's edges."""
    perturbation_steps: Count = 5
    """Steps of ascent, over edges and features at once."""
    edge_step: Annotated[Weight, Choice((50.0, 200.0, 600.0))] = 50.0
    """Size of the first step over edges, of the mean loss's own gradient (alpha)."""
    feature_step: Annotated[Weight, Choice((0.001, 0.01))] = 0.01
    """Size of a step over features, as a multiple of their mean size (beta)."""
    feature_box: Weight = 0.04
    """The largest move of a feature entry, as a multiple of their mean size."""

    @model_validator(mode="after")
    def _exponentials_are_finite(self) -> ARIELConfig:
        if self.information_weight > 0 and self.temperature < LOWEST_FLOAT32_TEMPERATURE:
            raise ValueError(
                f"temperature must be at least {LOWEST_FLOAT32_TEMPERATURE} where "
                f"information_weight is above 0, since float32 cannot hold its exponentials below"
            )
        return self


@register(
    "ariel",
    config=ARIELConfig,
    paper=Citation(
        "S. Feng, B. Jing, Y. Zhu, H. Tong",
        "Adversarial Graph Contrastive Learning with Information Regularization",
        "WWW",
        2022,
    ),
    family="adversarial training",
)
class ARIEL(GRACE):
    """GRACE on a sampled subgraph, and the first view against the worst graph that is near.

    A search climbs the contrast with the first view, from the subgraph as it is and with encoder
    and projector as they embed, over flip probabilities and moves of all feature entries; the third
    view flips each pair with the probability found for it. The last point counts,
    not the best. Without the two added terms a step is GRACE's on the subgraph, draw for draw.

    The official code means to normalise rows of features, but takes the data before that is done:
    it trains on zeros and ones, and raw features are the default here. Moves of 0.04 would
    drown normalised ones, and the embeddings collapse. So moves are in units of the mean size of
    the entries that are not zero, which on zeros and ones is one.

    Where else it differs: all nodes may be sampled (there, none of the last ones by number where
    others are isolated); the budget holds exactly (there, to a tolerance of 1e-3 a pair);
    a subgraph without edges is no error. Its seeds, which were searched on test accuracy, are not
    taken over.
    """

    cost: ClassVar[Cost] = "linear"
    mini_batch: ClassVar[bool] = True
    draws_apart: ClassVar[tuple[str, ...]] = ("perturbation",)
    starting_weights: ClassVar[StartingWeights] = "uniform"

    config: ARIELConfig
    _is_whole: bool = False  # the subgraph of the step is the graph

    @override
    def row_plan(self) -> RowPlan | None:
        return None  # its views are drawn from the whole graph

    @override
    def before_step(self, graph: Graph, step: Step) -> None:
        self._is_whole = self.config.sample >= graph.num_nodes

    @override
    def capture_key(self, step: Step) -> Hashable | None:
        # A subgraph's number of edges differs from draw to draw.
        return super().capture_key(step) if self._is_whole else None

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        config, generator = self.config, step.generator
        part = sample_subgraph(graph, config.sample, generator).graph
        first, second = self.corrupted(part, generator)
        u, v = self.projections(first, generator), self.projections(second, generator)
        terms = {"contrast": self.contrast(u, v)}
        if config.adversarial_weight > 0:
            found = self.search(part, first, step.apart("perturbation"))
            third = self.projections(found.view, generator)
            terms["adversarial"] = config.adversarial_weight * self.contrast(u, third)
            self.monitored = {"search_flips": found.num_flips}
        if config.information_weight > 0:
            with torch.no_grad():
                clean = self.projections(self.source(part).clean, generator)
            hinge = information_hinge(u, v, clean, config.temperature)
            terms["information"] = config.information_weight * hinge
        return terms

    @torch.no_grad()
    def search(self, graph: Graph, against: View, generator: torch.Generator) -> AdversarialView:
        """The third view: a changed graph whose contrast with another view is high.

        It is high for the model as it is now; parameters get no gradient.
        """
        temperature, keys = self.config.temperature, self.projections(against)
        among_keys = within_view(keys, temperature)

        def loss(view: View) -> Tensor:
            queries = self.projections(view)
            losses = intra_view_info_nce(queries, keys, temperature, among_keys=among_keys)
            return losses.symmetric.mean()

        return find_at_once(graph, self.source(graph).clean, loss, self.config, generator)
