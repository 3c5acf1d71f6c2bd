"""ARIEL: GRACE with a third view, made to disagree with the first as much as it can."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor
from typing_extensions import override

from aspect.adversarial.climb import slopes_of
from aspect.adversarial.flippable import AllPairs, within_budget
from aspect.blocks.activations import ActivationName
from aspect.blocks.gcn import StartingWeights
from aspect.blocks.propagation import SymmetricPropagation
from aspect.blocks.subgraphs import sample_subgraph
from aspect.blocks.views import View
from aspect.config import Choice, Range
from aspect.graph.data import Graph
from aspect.graph.features import dense, mean_size
from aspect.graph.pairs import flip_pairs
from aspect.methods.base import Step
from aspect.methods.citation import Citation
from aspect.methods.grace import Grace, GraceConfig, Positive, Share, Weight
from aspect.methods.registry import register
from aspect.objectives.info_nce import LOWEST_FLOAT32_TEMPERATURE
from aspect.objectives.information import information_hinge
from aspect.objectives.intra_view import intra_view_info_nce
from aspect.randomness import generator_for

__all__ = ["Adversary", "Ariel", "ArielConfig"]


class ArielConfig(GraceConfig):
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
    first_edge_drop: Annotated[Share, Range(0.0, 0.6)] = 0.3
    """Share of edge directions dropped in the first view (p_e,1)."""
    second_edge_drop: Annotated[Share, Range(0.0, 0.6)] = 0.4
    """Share of edge directions dropped in the second view (p_e,2)."""
    first_column_mask: Annotated[Share, Range(0.0, 0.6)] = 0.1
    """Share of feature columns masked in the first view (p_f,1)."""
    second_column_mask: Annotated[Share, Range(0.0, 0.6)] = 0.0
    """Share of feature columns masked in the second view (p_f,2)."""
    learning_rate: Annotated[Positive, Range(5e-4, 1e-2, log=True)] = 1e-3
    """Learning rate of encoder and projector."""

    # The third view
    adversarial_weight: Annotated[Weight, Choice((0.5, 1.0, 1.5, 2.0))] = 1.0
    """Weight of the contrast between the first view and the third (eps); zero: no search."""
    information_weight: Annotated[Weight, Choice((0.0, 0.5, 1.0, 1.5, 2.0))] = 0.0
    """Weight of keeping two views no closer to each other than to the original (lamb)."""
    perturbation_budget: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Expected flips at most, as a share of the subgraph's edges."""
    perturbation_steps: Annotated[int, Field(ge=1)] = 5
    """Steps of ascent, over edges and features at once."""
    edge_step: Annotated[Weight, Choice((50.0, 200.0, 600.0))] = 50.0
    """Size of the first step over edges, of the mean loss's own gradient (alpha)."""
    feature_step: Annotated[Weight, Choice((0.001, 0.01))] = 0.01
    """Size of a step over features, as a multiple of their mean size (beta)."""
    feature_box: Weight = 0.04
    """The largest move of a feature entry, as a multiple of their mean size."""

    @model_validator(mode="after")
    def _exponentials_are_finite(self) -> ArielConfig:
        if self.information_weight > 0 and self.temperature < LOWEST_FLOAT32_TEMPERATURE:
            raise ValueError(
                f"temperature must be at least {LOWEST_FLOAT32_TEMPERATURE} where "
                f"information_weight is above 0, since float32 cannot hold its exponentials below"
            )
        return self


@dataclass(frozen=True, eq=False)
class Adversary:
    """What a search found: the third view, and the point that it was drawn from."""

    view: View
    flips: Int[Tensor, " flips"]  # pairs, smaller end * nodes + larger end
    shares: Float[Tensor, "nodes nodes"]  # above the diagonal: the probability of every flip


@register(
    "ariel",
    config=ArielConfig,
    paper=Citation(
        "S. Feng, B. Jing, Y. Zhu, H. Tong",
        "Adversarial Graph Contrastive Learning with Information Regularization",
        "WWW",
        2022,
    ),
    family="adversarial training",
)
class Ariel(Grace):
    """GRACE on a sampled subgraph, and the first view against the worst graph that is near.

    A search climbs the contrast with the first view, from the subgraph as it is and with encoder
    and projector as they embed, over shares of flips and moves of all feature entries; the third
    view flips each pair with the probability that its share has come to. The last point counts,
    not the best. Without the two added terms a step is GRACE's on the subgraph, draw for draw.

    The official code asks for features whose rows sum to one, but takes the data before that is
    done: it trains on zeros and ones, and raw features are the default here. Moves of 0.04 would
    drown normalised ones, and the embeddings collapse. So moves are in units of the mean size of
    the entries that are not zero, which on zeros and ones is one.

    Where else it differs: all nodes may be sampled (there, none of the last ones by number where
    others are isolated); the budget of shares holds exactly (there, to a tolerance of 1e-3 a pair);
    a subgraph without edges is no error. Its seeds, which were searched on test accuracy, are not
    taken over.
    """

    cost: ClassVar[Literal["linear", "quadratic"]] = "linear"
    mini_batch: ClassVar[bool] = True
    starting_weights: ClassVar[StartingWeights] = "uniform"

    def __init__(self, config: ArielConfig, num_features: int) -> None:
        super().__init__(config, num_features)
        self.config: ArielConfig = config
        self._monitors: dict[str, Tensor] = {}

    @override
    def prepare(self, graph: Graph) -> None:
        """Nothing: every step sees another subgraph."""

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        config, generator = self.config, step.generator
        part = sample_subgraph(graph, config.sample, generator).graph
        first, second = self.corrupted(part, generator)
        one, other = self._known_by(first, generator), self._known_by(second, generator)
        terms = {"contrast": self._contrast(one, other)}
        if config.adversarial_weight > 0:
            own = generator_for(generator.initial_seed(), "perturbation", device=graph.device)
            adversary = self.search(part, first, own)
            third = self._known_by(adversary.view, generator)
            terms["adversarial"] = config.adversarial_weight * self._contrast(one, third)
            self._monitors = {"search_flips": one.new_tensor(len(adversary.flips))}
        if config.information_weight > 0:
            with torch.no_grad():
                clean = self._known_by(self.source(part).clean, generator)
            hinge = information_hinge(one, other, clean, config.temperature)
            terms["information"] = config.information_weight * hinge
        return terms

    def _known_by(
        self, view: View, generator: torch.Generator | None = None
    ) -> Float[Tensor, "nodes dim"]:
        """A view's projections; without a generator `rrelu` has its mean slope."""
        projected: Tensor = self.projector(self.encoder(view.features, view.operator, generator))
        return projected

    def _contrast(
        self, one: Float[Tensor, "nodes dim"], other: Float[Tensor, "nodes dim"]
    ) -> Float[Tensor, ""]:
        return intra_view_info_nce(one, other, self.config.temperature).symmetric.mean()

    @torch.no_grad()
    def search(self, graph: Graph, against: View, generator: torch.Generator) -> Adversary:
        """The third view: a changed graph whose contrast with another view is high.

        It is high for the model as it is now; parameters get no gradient.
        """
        config, pairs = self.config, AllPairs.of(graph)
        features, known = dense(self.source(graph).features), self._known_by(against)
        unit = mean_size(features)
        shares, moves = pairs.nothing(), torch.zeros_like(features)
        budget, box = config.perturbation_budget * graph.num_edges, config.feature_box

        def loss(shares: Tensor, moves: Tensor) -> Tensor:
            seen = self.encoder(features + unit * moves, pairs.smoothing(shares))
            return self._contrast(self.projector(seen), known)

        for number in range(1, config.perturbation_steps + 1):
            _, (over_edges, over_features) = slopes_of(loss, shares, moves)
            step = config.edge_step / math.sqrt(number)
            shares = within_budget(shares + step * over_edges, budget)
            moves = (moves + config.feature_step * over_features.sign()).clamp(-box, box)
        flips = pairs.keys(torch.bernoulli(shares, generator=generator))
        operator = SymmetricPropagation(flip_pairs(graph, flips)).smoothing()
        return Adversary(View(features + unit * moves, operator), flips, shares)

    @override
    def monitors(self) -> dict[str, Tensor]:
        return self._monitors
