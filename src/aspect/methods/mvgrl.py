"""MVGRL: nodes seen along edges against a summary seen by diffusion, and the other way round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.blocks.diffusion import PersonalisedPageRank
from aspect.blocks.drawing import draw_order
from aspect.blocks.gcn import GCNStack
from aspect.blocks.per_graph import PerGraph
from aspect.blocks.propagation import MatrixOperator, SymmetricPropagation
from aspect.blocks.scorers import BilinearScorer, sigmoid_mean
from aspect.config import Choice, Range
from aspect.graph.data import Features, Graph
from aspect.graph.features import row_normalise, take_rows
from aspect.graph.operators import Operator
from aspect.graph.sparse import SparseMatrix
from aspect.methods.base import Method, MethodConfig, Step
from aspect.methods.citation import Citation
from aspect.methods.registry import register
from aspect.objectives.two_groups import two_group_loss

__all__ = ["MVGRL", "MVGRLConfig", "Structure", "Window", "scale_columns"]


class MVGRLConfig(MethodConfig):
    """Settings of MVGRL's node version."""

    epochs: Annotated[int, Field(ge=0)] = 500
    """The most steps."""
    patience: Annotated[Annotated[int, Field(ge=1)] | None, Choice((20, 50))] = 20
    """Epochs without a lower loss before stopping at the best; none: never stop early."""
    row_normalise: Annotated[bool, Choice((True, False))] = True
    """Divide each node's features by the sum of their sizes, as the official code's loader did."""
    width: Annotated[int, Field(ge=1), Choice((256, 512, 1024))] = 512
    """Dimensions of the embedding (d_h)."""
    restart: Annotated[float, Field(gt=0, lt=1), Range(0.1, 0.4, log=True)] = 0.2
    """Probability that the diffusion's walk starts again (alpha)."""
    loop_weight: Annotated[float, Field(ge=0)] = 1.0
    """Weight of a self-loop in the view along edges; 2: as the official code has it by accident."""
    threshold: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Entries of the diffusion below it are left out, columns then scaled; none: all, as it is."""
    sampling: Literal["all", "random", "windows"] = "all"
    """Nodes of a step: all, drawn ones, or runs of consecutive numbers as in the official code."""
    sample: Annotated[int, Field(ge=2)] = 2000
    """Nodes drawn, or in a window; a graph with no more of them is taken whole."""
    windows: Annotated[int, Field(ge=1)] = 4
    """How many windows make a step."""
    learning_rate: Annotated[float, Field(gt=0), Range(1e-4, 1e-2, log=True)] = 1e-3
    """Learning rate of all weights."""
    weight_decay: Annotated[float, Field(ge=0), Range(1e-6, 1e-3, log=True)] = 0.0
    """Weight decay of all weights."""


@dataclass(frozen=True, eq=False)
class Window:
    """A graph, or some nodes of it, in both views."""

    features: Features
    edges: Operator  # D^(-1/2) (A + l I) D^(-1/2)
    diffusion: Operator  # S


@dataclass(frozen=True, eq=False)
class Structure:
    """Both views of a whole graph; the diffusion is formed only where small entries are dropped."""

    features: Features
    edges: MatrixOperator
    diffusion: MatrixOperator | PersonalisedPageRank

    @classmethod
    def of(cls, graph: Graph, config: MVGRLConfig) -> Structure:
        """What every step on a graph needs."""
        features = row_normalise(graph.features) if config.row_normalise else graph.features
        edges = SymmetricPropagation(graph, loop_weight=config.loop_weight).smoothing()
        once = SymmetricPropagation(graph).smoothing()
        rank = PersonalisedPageRank(once.matrix, config.restart)
        if config.threshold is None:
            return cls(features, edges, rank)
        kept = rank.sparse(threshold=config.threshold)
        return cls(features, edges, MatrixOperator(scale_columns(kept)))

    @property
    def whole(self) -> Window:
        """All nodes."""
        return Window(self.features, self.edges, self.diffusion)

    def within(self, nodes: Int[Tensor, " window"]) -> Window:
        """Some nodes: matrices are cropped and not normalised anew."""
        features = take_rows(self.features, nodes)
        edges, diffusion = partial(self.edges.within, nodes), partial(self.diffusion.within, nodes)
        return Window(features, edges, diffusion)


def scale_columns(matrix: SparseMatrix) -> SparseMatrix:
    """Every column shifted and stretched to [0, 1]; one with an entry left out has 0 for least."""
    flipped = matrix.transposed
    pointers = flipped.pattern.row_pointers.long()
    largest = torch.segment_reduce(flipped.values, "max", offsets=pointers, initial=0)
    smallest = torch.segment_reduce(flipped.values, "min", offsets=pointers, initial=torch.inf)
    least = torch.where(pointers.diff() == matrix.shape[0], smallest, 0)
    extent = torch.where(largest > least, largest - least, 1)
    columns = matrix.pattern.columns.long()
    return matrix.with_values((matrix.values - least[columns]) / extent[columns])


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
    """One encoder along edges and one by diffusion; nodes of each meet the other's summary.

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
        self._structure = PerGraph(partial(Structure.of, config=config))

    @override
    def prepare(self, graph: Graph) -> None:
        self._structure(graph)

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        windows = self._draw_windows(graph, step.generator)
        order = draw_order(windows[0].features.shape[0], step.generator)
        losses = [self._loss(window, order) for window in windows]
        return {"discrimination": torch.stack(losses).mean()}

    def _draw_windows(self, graph: Graph, generator: torch.Generator) -> list[Window]:
        """What a step sees: windows of equal size."""
        structure, config = self._structure(graph), self.config
        nodes, size = graph.num_nodes, config.sample
        if config.sampling == "all" or nodes <= size:
            return [structure.whole]
        if config.sampling == "random":
            return [structure.within(draw_order(nodes, generator)[:size])]
        shape, device = (config.windows, 1), graph.device
        first = torch.randint(nodes - size + 1, shape, generator=generator, device=device)
        return [structure.within(run) for run in first + torch.arange(size, device=device)]

    def _loss(self, window: Window, order: Int[Tensor, " nodes"]) -> Float[Tensor, ""]:
        along, along_corrupted = _both(self.edge_encoder, window.features, window.edges, order)
        spread, spread_corrupted = _both(
            self.diffusion_encoder, window.features, window.diffusion, order
        )
        edge_summary, diffusion_summary = sigmoid_mean(along), sigmoid_mean(spread)

        def scores(
            along: Float[Tensor, "nodes dim"], spread: Float[Tensor, "nodes dim"]
        ) -> Float[Tensor, "2 nodes"]:
            pairs = (spread, edge_summary), (along, diffusion_summary)
            return torch.stack([self.scorer(nodes, summary) for nodes, summary in pairs])

        return two_group_loss(scores(along, spread), scores(along_corrupted, spread_corrupted))

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        whole = self._structure(graph).whole
        along: Tensor = self.edge_encoder(whole.features, whole.edges)
        spread: Tensor = self.diffusion_encoder(whole.features, whole.diffusion)
        return along + spread


def _both(
    encoder: GCNStack, features: Features, operator: Operator, order: Int[Tensor, " nodes"]
) -> tuple[Float[Tensor, "nodes dim"], Float[Tensor, "nodes dim"]]:
    """Embeddings of the nodes, and of the same nodes with each other's features."""
    projected = encoder.project(features)
    real = encoder.propagate(projected, operator)
    return real, encoder.propagate(projected.index_select(0, order), operator)
