"""What methods share whose embedding is one encoder's output on the clean graph."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from aspect.config import Choice
from aspect.data.graph import Graph
from aspect.methods.base import Method, MethodConfig
from aspect.nn.augmentations import View, ViewSource
from aspect.nn.per_graph import PerGraph

__all__ = ["OneEncoder", "OneEncoderConfig"]


class OneEncoderConfig(MethodConfig):
    """Settings of every method with one encoder."""

    row_normalise: Annotated[bool, Choice((True, False))] = True
    """Divide each node's features by the sum of their sizes, as most official codes do."""


class OneEncoder(Method):
    """A method that is left with its encoder and its loss to say.

    `source` gives the clean view of a graph, and corrupted ones; it is found once for a graph. The
    encoder is built after `super().__init__(config)`.
    """

    config: OneEncoderConfig
    encoder: nn.Module  # of a view's features and operator, and of a generator or None

    def __init__(self, config: OneEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.source = PerGraph(partial(ViewSource, normalise_rows=config.row_normalise))
        self.monitored: dict[str, Tensor] = {}  # by a step that has more to tell than its loss

    @override
    def prepare(self, graph: Graph) -> None:
        self.source(graph)

    def see(
        self, view: View, generator: torch.Generator | None = None
    ) -> Float[Tensor, "nodes dim"]:
        """What the encoder makes of a view; without a generator nothing in it is drawn."""
        embeddings: Tensor = self.encoder(view.features, view.operator, generator)
        return embeddings

    @override
    def monitors(self) -> dict[str, Tensor]:
        return self.monitored

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        return self.see(self.source(graph).clean)
