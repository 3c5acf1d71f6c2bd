"""MVGRL: nodes of the edge view against the diffusion view's summary, and the reverse."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.config import Choice, Count, Positive, Range, Weight
from aspect.data.graph import Graph
from aspect.losses.mutual_information import two_group_loss
from aspect.methods.base import Method, MethodConfig, PerGraph, Step
from aspect.methods.registry import Citation, register
from aspect.nn.augmentations import draw_order
from aspect.nn.diffusion import DiffusedGraph
from aspect.nn.gcn import GCNStack
from aspect.nn.scorers import BilinearScorer, sigmoid_mean


class MVGRLConfig(MethodConfig):
    """Settings of MVGRL's node version."""

    epochs: Annotated[int, Field(ge=0)] = 500
    """The most steps."""
    patience: Annotated[Count | None, Choice((20, 50))] = 20
    """Epochs without a lower loss before stopping at the best; none: never stop early."""
    row_normalise: Annotated[bool, Choice((True, False))] = True
    """Divide each node's features by the sum of their sizes, as the official code's loader did."""
    width: Annotated[Count, Choice((256, 512, 1024, 2048))] = 512
    """Dimensions of the embedding (d_h)."""
    restart: Annotated[float, Field(gt=0, lt=1), Range(0.1, 0.4, log=True)] = 0.2
    """Probability that the diffusion's walk starts again (alpha)."""
    loop_weight: Weight = 1.0
    """Weight of a self-loop in the view along edges; 2: as the official code has it by accident."""
    threshold: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Entries of the diffusion below it are left out, columns then scaled; none: all, as it is."""
    sampling: Literal["all", "random", "windows"] = "all"
    """Nodes of a step: all, drawn ones, or runs of consecutive numbers as in the official code."""
    sample: Annotated[int, Field(ge=2)] = 2000
    """Nodes drawn, or in a window; a graph with no more of them is taken whole."""
    windows: Count = 4
    """How many windows make a step."""
    learning_rate: Annotated[Positive, Range(1e-4, 1e-2, log=True)] = 1e-3
    """Learning rate of all weights."""
    weight_decay: Annotated[Weight, Range(1e-6, 1e-3, log=True)] = 0.0
    """Weight decay of all weights."""


@register(
    "mvgrl",
    config=MVGRLConfig,
    paper=Citation(
        "K. Hassani, A. H. Khasahmadi",
        "Contrastive Multi-View Representation Learning on Graphs",
        "ICML",
        2020,
    ),
    family="node against summary",
)
class MVGRL(Method):
    """One encoder along edges and one by diffusion; nodes of each against the other's summary.

    `H_k = PReLU_k(M_k X W_k + b_k)` for M_1 the normalised adjacency and M_2 personalised PageRank
    `S = a (I - (1 - a) A-hat)^(-1)`; one scorer serves nodes of view 2 against the summary of view
    1 and the reverse, for X and for X with its rows in a fresh order. The embedding is H_1 + H_2.

    Different from the official code: self-loops count once (`loop_weight` 2 for its double ones);
    a step sees the whole graph (`sampling` for its windows, which depend on the order of nodes and
    need 2,000 of them, or for drawn nodes as in DGL's version); S is applied by a series and never
    formed, unless a `threshold` is given, which is a number here and chosen from four there.
    """

    def __init__(self, config: MVGRLConfig, num_features: int) -> None:
        super().__init__()
        self.config: MVGRLConfig = config
        self.edge_encoder = GCNStack([num_features, config.width])
        self.diffusion_encoder = GCNStack([num_features, config.width])
        self.scorer = BilinearScorer(config.width, config.width)
        self._views = PerGraph(
            partial(
                DiffusedGraph.of,
                normalise_rows=config.row_normalise,
                loop_weight=config.loop_weight,
                restart=config.restart,
                threshold=config.threshold,
            )
        )

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        windows = self._draw_windows(graph, step.generator)
        order = draw_order(windows[0].num_nodes, step.generator)
        losses = [self._loss(window, order) for window in windows]
        return {"discrimination": torch.stack(losses).mean()}

    def _draw_windows(self, graph: Graph, generator: torch.Generator) -> list[DiffusedGraph]:
        """The windows of a step, all of equal size."""
        whole, config = self._views(graph), self.config
        nodes, size = graph.num_nodes, config.sample
        if config.sampling == "all" or nodes <= size:
            return [whole]
        if config.sampling == "random":
            return [whole.within(draw_order(nodes, generator)[:size])]
        shape, device = (config.windows, 1), graph.device
        first = torch.randint(nodes - size + 1, shape, generator=generator, device=device)
        return [whole.within(run) for run in first + torch.arange(size, device=device)]

    def _loss(self, window: DiffusedGraph, order: Int[Tensor, " nodes"]) -> Float[Tensor, ""]:
        along, spread = (
            encoder.propagate_both(encoder.project(window.features), operator, order)
            for encoder, operator in (
                (self.edge_encoder, window.edges),
                (self.diffusion_encoder, window.diffusion),
            )
        )
        edge_summary, diffusion_summary = sigmoid_mean(along[0]), sigmoid_mean(spread[0])
        real, corrupted = (
            torch.stack([self.scorer(two, edge_summary), self.scorer(one, diffusion_summary)])
            for one, two in zip(along, spread, strict=True)
        )
        return two_group_loss(real, corrupted)

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        whole = self._views(graph)
        along: Tensor = self.edge_encoder(whole.features, whole.edges)
        spread: Tensor = self.diffusion_encoder(whole.features, whole.diffusion)
        return along + spread
