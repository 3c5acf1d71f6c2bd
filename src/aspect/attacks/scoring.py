"""The best flips of all pairs of nodes, exactly, in memory of a few rows.

Most pairs are never scored. Within a block of rows, `l_i · r_j` is at most the product of r_j with
the block's largest or smallest l, entry by entry, as its sign asks; columns that cannot reach the
last of the best pairs so far are left out. Blocks hold nodes that are alike, which makes the bound
tight, and come after a few nodes that can reach most, which makes the best pairs known early.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.attacks.adjacency import AttackedEdges
from aspect.attacks.meta_gradient import PairScores
from aspect.data.graph import pair_keys
from aspect.data.sparse import Pattern

__all__ = ["ROWS_AT_ONCE", "Candidates", "best_additions", "best_flips"]

ROWS_AT_ONCE = {"cpu": 64, "cuda": 2048}
BLOCKS_BOUNDED_AT_ONCE = 16
PAIRS_AT_ONCE = 8192  # whose factors stay in the processor's cache

# Bounds are wider by this share of the largest one, so that rounding never leaves a pair out.
SLACK = 1e-5


@dataclass(frozen=True, eq=False)
class Candidates:
    """Pairs with their scores."""

    keys: Int[Tensor, " pairs"]  # smaller end * nodes + larger end
    scores: Float[Tensor, " pairs"]  # how fast the attack loss grows with the flip

    def first(self, count: int) -> Candidates:
        """The best of them, highest score first; equal ones in the order of their keys."""
        by_key = torch.argsort(self.keys)
        order = by_key[torch.argsort(self.scores[by_key], descending=True, stable=True)][:count]
        return Candidates(self.keys[order], self.scores[order])

    def joined(self, other: Candidates) -> Candidates:
        """Both, in no order."""
        keys = torch.cat([self.keys, other.keys])
        return Candidates(keys, torch.cat([self.scores, other.scores]))


def best_flips(
    scores: PairScores, edges: AttackedEdges, count: int, groups: Int[Tensor, " nodes"]
) -> Candidates:
    """The best of all flips that are left: pairs to be joined, and edges to be taken away.

    Args:
        scores: Of all pairs; that of an edge counts against its removal.
        edges: As they are now.
        count: How many are wanted; fewer come if there are not so many.
        groups: Numbers of nodes that are alike, for speed alone.
    """
    rows = ROWS_AT_ONCE["cpu" if scores.left.device.type == "cpu" else "cuda"]
    additions = best_additions(scores, edges.closed(), count, rows, groups)
    worth = -_pair_scores(scores, edges)
    floor = additions.scores[-1] if len(additions.keys) == count else -torch.inf
    removals = Candidates(edges.removable[worth >= floor], worth[worth >= floor])
    return additions.joined(removals).first(count)


def best_additions(
    scores: PairScores,
    closed: Pattern,
    count: int,
    rows_at_once: int,
    groups: Int[Tensor, " nodes"],
) -> Candidates:
    """The best pairs outside of a symmetric pattern, which holds each node with itself."""
    search = _Search(scores, closed, count, rows_at_once, groups)
    blocks = range(0, closed.shape[0], rows_at_once)
    for first in range(0, len(blocks), BLOCKS_BOUNDED_AT_ONCE):
        search.look_at(blocks[first : first + BLOCKS_BOUNDED_AT_ONCE])
    return search.found.first(count)


class _Search:
    """What has been found so far, and what a pair has to reach to be worth a look."""

    def __init__(
        self,
        scores: PairScores,
        closed: Pattern,
        count: int,
        rows_at_once: int,
        groups: Int[Tensor, " nodes"],
    ) -> None:
        self.count, self.rows_at_once, self.closed = count, rows_at_once, closed
        self.num_nodes = closed.shape[0]
        reach = scores.left.abs() @ scores.right.abs().amax(dim=0)
        self.slack = SLACK * float(reach.max())
        self.order = _promising_first(reach, groups, rows_at_once)
        self.place = torch.empty_like(self.order)  # where a node stands in this order
        self.place[self.order] = torch.arange(self.num_nodes, device=self.order.device)
        self.left, self.right = scores.left[self.order], scores.right[self.order]
        self.signed = torch.cat([self.right.clamp(min=0), self.right.clamp(max=0)], dim=1)
        self.floor = -torch.inf
        self.found = Candidates(self.order[:0], self.left.new_empty(0))

    def look_at(self, starts: range) -> None:
        """Search the blocks of rows that start here."""
        extremes = []
        for start in starts:
            block = self.left[start : start + self.rows_at_once]
            extremes.append(torch.cat([block.amax(dim=0), block.amin(dim=0)]))
        most = torch.stack(extremes) @ self.signed[starts[0] :].t() + self.slack
        for start, bound in zip(starts, most, strict=True):
            columns = (bound >= self.floor).nonzero().squeeze(1) + starts[0]
            columns = columns[int(torch.searchsorted(columns, start)) :]
            if len(columns):
                self._search(start, columns)

    def _search(self, start: int, columns: Int[Tensor, " columns"]) -> None:
        """Score one block in full, but for what is closed; keep what reaches the floor."""
        end = min(start + self.rows_at_once, self.num_nodes)
        block = self.left[start:end] @ self.right[columns].t()
        self._close(block, start, end, columns)
        best = block.amax(dim=0)
        floor = self._floor_of(best)
        worth = ((best >= floor) & (best > -torch.inf)).nonzero().squeeze(1)
        if len(worth) == 0:
            return
        inside = block[:, worth]
        row, column = ((inside >= floor) & (inside > -torch.inf)).nonzero(as_tuple=True)
        one, other = self.order[start + row], self.order[columns[worth[column]]]
        keys = pair_keys(one, other, self.num_nodes)
        self.found = self.found.joined(Candidates(keys, inside[row, column])).first(self.count)
        if len(self.found.keys) == self.count:
            self.floor = float(self.found.scores[-1])

    def _close(
        self,
        block: Float[Tensor, "rows columns"],
        start: int,
        end: int,
        columns: Int[Tensor, " columns"],
    ) -> None:
        """Put what is not to be looked at out of reach: closed pairs, and pairs met before."""
        within = int(torch.searchsorted(columns, end))
        rows = torch.arange(start, end, device=columns.device)
        block[:, :within].masked_fill_(columns[:within] <= rows.unsqueeze(1), -torch.inf)
        nodes, pointers = self.order[start:end], self.closed.row_pointers
        begins = pointers[nodes].long()
        counts = pointers[nodes + 1].long() - begins
        row = torch.repeat_interleave(rows - start, counts)
        shift = begins - (counts.cumsum(0) - counts)
        entry = torch.arange(len(row), device=row.device) + shift[row]
        places = self.place[self.closed.columns[entry]]
        column = torch.searchsorted(columns, places).clamp(max=len(columns) - 1)
        hit = columns[column] == places
        block[row[hit], column[hit]] = -torch.inf

    def _floor_of(self, best: Float[Tensor, " columns"]) -> float:
        """What a block's own best pairs show to be needed, one per column."""
        if self.floor > -torch.inf or len(best) < self.count:
            return self.floor
        return float(best.topk(self.count, sorted=False).values.min())


def _promising_first(
    reach: Float[Tensor, " nodes"], groups: Int[Tensor, " nodes"], num_first: int
) -> Int[Tensor, " nodes"]:
    """A block of nodes that can reach most, then group by group, in each from most to least."""
    falling = torch.argsort(reach, descending=True, stable=True)
    rest = falling[num_first:]
    return torch.cat([falling[:num_first], rest[torch.argsort(groups[rest], stable=True)]])


def _pair_scores(scores: PairScores, edges: AttackedEdges) -> Float[Tensor, " edges"]:
    """The scores of all edges that may be taken away."""
    chunks = [
        edges.removable[start : start + PAIRS_AT_ONCE]
        for start in range(0, len(edges.removable), PAIRS_AT_ONCE)
    ]
    pieces = [scores.of(*edges.ends(chunk)) for chunk in chunks]
    return torch.cat([scores.left.new_empty(0), *pieces])
