"""A graph that is trained on in batches of rows: what the trainer asks of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aspect.data.graph import Graph
from aspect.methods.base import Method

__all__ = ["Batches"]


@runtime_checkable
class Batches(Protocol):
    """Stands in for the graph where it is too large for a single step; see `aspect.scale.rows`."""

    rank: int  # of this process among those that train one model

    @property
    def device(self) -> torch.device:
        """Where batches lie."""
        ...

    @property
    def num_features(self) -> int:
        """Columns of the features."""
        ...

    def of_epoch(self, epoch: int) -> Iterator[Graph]:
        """The batches of an epoch in their order: the same at every call."""
        ...

    def gather(self, rows: Tensor, dim: int) -> Tensor:
        """Rows of all processes along a dimension, with gradients."""
        ...

    def average(self, parameters: Sequence[nn.Parameter]) -> None:
        """Give all processes the mean of their gradients."""
        ...

    def calibrate(self, method: Method) -> None:
        """As `Method.calibrate`, exactly, over all rows."""
        ...

    def uncentred(self, method: Method) -> Float[Tensor, "sample dim"]:
        """Embeddings before any centring, of nodes enough to judge their health by."""
        ...
