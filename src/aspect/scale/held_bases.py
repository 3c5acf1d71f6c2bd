"""Chebyshev bases that are computed on a device and stay in its memory: nothing goes to the disk.

On a GPU propagation takes seconds where writing and reading its terms takes minutes. The numbers
are those of `aspect.scale.bases` up to rounding, and the same edges are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from aspect.scale.bases import (
    BasisFacts,
    BasisSettings,
    kept_entries,
    projection_matrix,
    row_pieces,
    seen_rows,
    shuffled_order,
)
from aspect.scale.store import GraphStore, check_neighbours

ENTRIES = 2**25  # of the adjacency that are multiplied at a time
ENTRY_BYTES = 96  # of one of them meanwhile


@dataclass(frozen=True, eq=False)
class HeldBases:
    """The same as `Bases` in the memory of a device."""

    facts: BasisFacts
    terms: Float[Tensor, "terms nodes columns"]  # T_0(L)X, ..., T_K(L)X
    projection: NDArray[np.float64] | None  # what the features were multiplied by


def held_bytes(
    num_nodes: int, num_entries: int, num_features: int, settings: BasisSettings, num_bases: int
) -> int:
    """What so many bases take on a device, with all that is needed to compute them."""
    word = settings.working_type.itemsize
    terms = 3 * num_nodes * settings.columns(num_features) * word  # previous, next, features
    entries = num_entries * (4 + 4 + word) + ENTRY_BYTES * min(ENTRIES, num_entries)
    return num_bases * settings.num_bytes(num_nodes, num_features) + terms + entries


class DeviceGraph:
    """A store on a device: its adjacency, and its features as all bases begin with them.

    Args:
        store: The graph.
        settings: Of its bases, of which views differ by their edges and by the order of the rows.
        device: Where it is multiplied.
    """

    def __init__(self, store: GraphStore, settings: BasisSettings, device: torch.device) -> None:
        self.store, self.device = store, device
        self.kind: torch.dtype = getattr(torch, settings.working_type.name)
        self.pointers = torch.zeros(store.num_nodes + 1, dtype=torch.long)
        torch.cumsum(torch.from_numpy(store.degrees), 0, out=self.pointers[1:])
        entries = int(self.pointers[-1])
        self.neighbours = torch.empty(entries, dtype=torch.int32, device=device)
        is_weighted = store.facts.weight_scale is not None
        self.weights = torch.empty(entries, device=device) if is_weighted else None
        for block, (start, end) in enumerate(store.blocks):
            adjacency = store.adjacency(block)
            check_neighbours(adjacency.neighbours, store.num_nodes)
            places = slice(int(self.pointers[start]), int(self.pointers[end]))
            self.neighbours[places] = torch.from_numpy(adjacency.neighbours).to(device)
            if self.weights is not None and adjacency.weights is not None:
                self.weights[places] = torch.from_numpy(adjacency.weights).to(device)
        self.parts = list(row_pieces(self.pointers.numpy(), ENTRIES, store.num_nodes))
        self.projection = projection_matrix(store, settings)
        stored: torch.dtype = getattr(torch, settings.dtype)
        columns = settings.columns(store.num_features)
        self.features = torch.empty(store.num_nodes, columns, dtype=stored, device=device)
        for block, (start, end) in enumerate(store.blocks):
            rows = seen_rows(store.features.block(block), settings, device)
            if self.projection is not None:
                rows = rows @ torch.from_numpy(self.projection).to(rows)
            self.features[start:end] = rows

    @torch.no_grad()
    def bases(self, settings: BasisSettings) -> HeldBases:
        """Those of the graph, or of a view of it."""
        store, nodes = self.store, self.store.num_nodes
        terms = self.features.new_empty(settings.order + 1, *self.features.shape)
        if settings.shuffled:
            order = torch.from_numpy(shuffled_order(nodes, settings)).to(self.device)
            torch.index_select(self.features, 0, order, out=terms[0])
        else:
            terms[0] = self.features
        values, diagonal = self._laplacian(settings)
        for term in range(1, settings.order + 1):
            previous = terms[term - 1].to(self.kind)
            for start, end in self.parts:
                product = self._product(values, start, end, previous)
                product.addcmul_(diagonal[start:end, None], previous[start:end])
                if term > 1:
                    product.mul_(2).sub_(terms[term - 2, start:end])
                terms[term, start:end] = product
        facts = BasisFacts(
            settings=settings,
            num_nodes=nodes,
            num_columns=terms.shape[2],
            rows_per_block=store.facts.rows_per_block,
        )
        return HeldBases(facts, terms, self.projection)

    def _laplacian(
        self, settings: BasisSettings
    ) -> tuple[Float[Tensor, " entries"], Float[Tensor, " nodes"]]:
        """The rescaled Laplacian, but for its pattern: the values of its entries, its diagonal."""
        factor = 2 / settings.lambda_max
        degrees = torch.full((self.store.num_nodes,), float(settings.self_loops))
        degrees = degrees.to(self.device, torch.float64)
        values = torch.ones(len(self.neighbours), dtype=self.kind, device=self.device)
        if self.weights is not None:
            values.copy_(self.weights)
        for start, end in self.parts:
            places, offsets = self._places(start, end)
            if settings.edge_drop:
                rows = self._rows(start, end)
                values[places] *= kept_entries(
                    rows, self.neighbours[places], settings.edge_drop, settings.view_seed
                )
            degrees[start:end] += torch.segment_reduce(
                values[places].double(), "sum", offsets=offsets, initial=0
            )
        scales = torch.where(degrees > 0, degrees.clamp(min=1e-300).rsqrt(), 0).to(self.kind)
        for start, end in self.parts:
            places, _ = self._places(start, end)
            values[places] *= -factor * scales[self._rows(start, end)]
            values[places] *= scales[self.neighbours[places].long()]
        diagonal = torch.full_like(scales, factor - 1)
        if settings.self_loops:
            diagonal -= factor * scales.square()
        return values, diagonal

    def _product(
        self,
        values: Float[Tensor, " entries"],
        start: int,
        end: int,
        previous: Float[Tensor, "nodes columns"],
    ) -> Float[Tensor, "rows columns"]:
        places, offsets = self._places(start, end)
        # Copies, since cuSPARSE reads several numbers at a time and asks for their alignment.
        matrix = torch.sparse_csr_tensor(
            offsets.int(),
            self.neighbours[places].clone(),
            values[places].clone(),
            (end - start, len(previous)),
            check_invariants=False,
        )
        product: Tensor = matrix @ previous
        return product

    def _places(self, start: int, end: int) -> tuple[slice, Int[Tensor, " pointers"]]:
        """Where the entries of some rows lie, and their pointers from 0 on."""
        pointers = self.pointers[start : end + 1]
        places = slice(int(pointers[0]), int(pointers[-1]))
        return places, (pointers - pointers[0]).to(self.device)

    def _rows(self, start: int, end: int) -> Int[Tensor, " entries"]:
        """The row of every entry of some rows."""
        counts = self.pointers[start : end + 1].diff().to(self.device)
        total = int(self.pointers[end] - self.pointers[start])
        numbers = torch.arange(start, end, device=self.device)
        return torch.repeat_interleave(numbers, counts, output_size=total)
