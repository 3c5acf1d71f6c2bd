"""Which nodes are each node's positives, where there are several."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from aspect.data.graph import Graph
from aspect.data.sparse import SparseMatrix

__all__ = ["Positives"]


@dataclass(frozen=True, eq=False)
class Positives:
    """A node and others that should be like it; all that are not its positives are negatives.

    The relation need not be symmetric: a node's nearest neighbour may have nearer ones.
    """

    matrix: SparseMatrix  # ones, row i at i's positives

    @classmethod
    def from_neighbours(
        cls, neighbours: Int[Tensor, "nodes count"], dtype: torch.dtype = torch.float32
    ) -> Positives:
        """Every node and those given for it; its own number may be among them (GREET, S3GCL)."""
        nodes = len(neighbours)
        own = torch.arange(nodes, device=neighbours.device).unsqueeze(1)
        keys = torch.unique(own * nodes + torch.cat([own, neighbours], dim=1))
        return cls._from_keys(keys, nodes, dtype)

    @classmethod
    def from_graph(cls, graph: Graph) -> Positives:
        """Every node and its neighbours in the graph (S3GCL)."""
        nodes = graph.num_nodes
        own = torch.arange(nodes, device=graph.device)
        source, target = graph.edge_index
        keys = torch.cat([source * nodes + target, own * nodes + own])
        return cls._from_keys(keys, nodes, graph.dtype)

    @classmethod
    def _from_keys(cls, keys: Tensor, nodes: int, dtype: torch.dtype) -> Positives:
        ones = torch.ones(len(keys), dtype=dtype, device=keys.device)
        return cls(SparseMatrix.from_entries(keys // nodes, keys % nodes, ones, (nodes, nodes)))

    @property
    def num_nodes(self) -> int:
        """Nodes in all."""
        return self.matrix.shape[0]

    @cached_property
    def mean(self) -> SparseMatrix:
        """The matrix that takes the mean over each node's positives."""
        counts = self.matrix.pattern.row_pointers.diff().to(self.matrix.dtype)
        return self.matrix.with_values(1 / counts[self.matrix.pattern.rows])

    @cached_property
    def is_mutual(self) -> Bool[Tensor, " entries"]:
        """Whether a node's positive has that node among its own."""
        rows, columns = self.matrix.pattern.rows, self.matrix.pattern.columns.long()
        return torch.isin(
            columns * self.num_nodes + rows, rows * self.num_nodes + columns, assume_unique=True
        )

    def among(self, nodes: Int[Tensor, " batch"]) -> Positives:
        """The same of some nodes alone, numbered in the order given (GREET's batches)."""
        places = torch.full((self.num_nodes,), -1, dtype=torch.long, device=nodes.device)
        places[nodes] = torch.arange(len(nodes), device=nodes.device)
        rows = places[self.matrix.pattern.rows]
        columns = places[self.matrix.pattern.columns.long()]
        kept = (rows >= 0) & (columns >= 0)
        keys = rows[kept] * len(nodes) + columns[kept]
        return self._from_keys(keys, len(nodes), self.matrix.dtype)
