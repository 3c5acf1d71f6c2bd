"""The edges of a graph under attack, and the best flips of all its pairs of nodes.

Most pairs are never scored. Within a block of rows, `l_i · r_j` is at most the product of r_j with
the block's largest or smallest l, entry by entry, by the sign of r_j; columns that cannot reach the
last of the best pairs so far are left out. Blocks hold similar nodes, which makes the bound tight,
and come after a few nodes that can reach most, which makes the best pairs known early.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum, log

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aspect.data.graph import Graph, edge_keys, pair_keys
from aspect.data.sparse import LARGEST_INT32, Pattern, SparseMatrix

ROWS_AT_ONCE = {"cpu": 64, "cuda": 2048}
BLOCKS_BOUNDED_AT_ONCE = 16
PAIRS_AT_ONCE = 8192  # whose factors stay in the processor's cache

# Bounds are wider by this share of the largest one, so that rounding never leaves a pair out.
SLACK = 1e-5

SMALLEST_DEGREE = 2  # of those modelled

THRESHOLD = 0.004  # of the ratio, the original's: a chance of 0.95 to see no difference


class AttackedEdges:
    """Which pairs are joined now, and which may still be flipped: a pair is flipped at most once.

    A pair is a key, smaller end * nodes + larger end. Sets of keys are kept ascending, so that a
    few flips cost one pass over the edges and no sorting.
    """

    def __init__(self, graph: Graph) -> None:
        self.num_nodes, self.dtype = graph.num_nodes, graph.dtype
        loops = torch.arange(graph.num_nodes, device=graph.device) * (graph.num_nodes + 1)
        source, target = graph.edge_index
        entries = _inserted(source * graph.num_nodes + target, loops)
        self.degrees: Int[Tensor, " nodes"] = graph.degrees()  # without self-loops
        self.removable: Int[Tensor, " edges"] = edge_keys(graph)  # edges not flipped yet
        self._entries = entries  # both directions and self-loops: where the adjacency is not zero
        self._closed = entries  # the same, of pairs that no edge may be added to any more

    def flip(self, keys: Int[Tensor, " flips"]) -> None:
        """Take away the edges among the pairs and join the others; none was flipped before."""
        removed = _contains(self.removable, keys)
        self.removable = _without(self.removable, keys[removed])
        self._entries = _without(self._entries, self._both_ways(keys[removed]))
        added = self._both_ways(keys[~removed])
        self._entries = _inserted(self._entries, added)
        self._closed = _inserted(self._closed, added)
        change = torch.where(removed, -1, 1)
        for ends in self.ends(keys):
            self.degrees = self.degrees.index_add(0, ends, change)

    def joined(self, keys: Int[Tensor, " pairs"]) -> Bool[Tensor, " pairs"]:
        """Which of the pairs are edges now."""
        return _contains(self._entries, keys)

    def ends(self, keys: Int[Tensor, " pairs"]) -> tuple[Tensor, Tensor]:
        """The smaller and the larger node of every pair."""
        return keys // self.num_nodes, keys % self.num_nodes

    def normalised(self) -> SparseMatrix:
        """`Â = D^(-1/2) (A + I) D^(-1/2)`, D the degrees of A + I."""
        pattern = self._pattern(self._entries)
        scale = (self.degrees + 1).to(self.dtype).rsqrt()
        length = len(pattern.columns)  # without which a GPU would have to be waited for
        rows = torch.repeat_interleave(scale, self.degrees + 1, output_size=length)
        return SparseMatrix(pattern, rows * scale[pattern.columns])

    def open(self, keys: Int[Tensor, " pairs"]) -> Bool[Tensor, " pairs"]:
        """Which of the pairs may still become an edge."""
        return ~_contains(self._closed, keys)

    def closed(self) -> Pattern:
        """The pairs, in both directions, that cannot become an edge: edges, flipped, loops."""
        return self._pattern(self._closed)

    def _pattern(self, entries: Int[Tensor, " entries"]) -> Pattern:
        n = self.num_nodes
        starts = torch.arange(n + 1, device=entries.device) * n
        pointers = torch.searchsorted(entries, starts)
        kind = torch.int32 if max(len(entries), n) <= LARGEST_INT32 else torch.int64
        return Pattern(pointers.to(kind), (entries % n).to(kind), (n, n))

    def _both_ways(self, keys: Int[Tensor, " pairs"]) -> Int[Tensor, " entries"]:
        low, high = self.ends(keys)
        return torch.cat([keys, high * self.num_nodes + low]).sort().values


def _contains(ascending: Int[Tensor, " some"], keys: Int[Tensor, " keys"]) -> Bool[Tensor, " keys"]:
    """Which of the keys are in the set."""
    if len(ascending) == 0:
        return torch.zeros_like(keys, dtype=torch.bool)
    places = torch.searchsorted(ascending, keys).clamp(max=len(ascending) - 1)
    is_inside: Tensor = ascending[places] == keys
    return is_inside


def _without(ascending: Int[Tensor, " some"], keys: Int[Tensor, " keys"]) -> Int[Tensor, " fewer"]:
    """The set without keys that are in it."""
    keep = torch.ones(len(ascending), dtype=torch.bool, device=ascending.device)
    keep[torch.searchsorted(ascending, keys)] = False
    return ascending[keep]


def _inserted(ascending: Int[Tensor, " some"], keys: Int[Tensor, " keys"]) -> Int[Tensor, " more"]:
    """The set with further keys, ascending themselves and not in it."""
    places = torch.searchsorted(ascending, keys)
    places += torch.arange(len(keys), device=keys.device)
    result = ascending.new_empty(len(ascending) + len(keys))
    old = torch.ones(len(result), dtype=torch.bool, device=ascending.device)
    old[places] = False
    result[old] = ascending
    result[places] = keys
    return result


@dataclass(frozen=True, eq=False)
class PairScores:
    """`s_ij = l_i · r_j = s_ji` for i != j: the derivative of the loss along A_ij = A_ji."""

    left: Float[Tensor, "nodes rank"]  # l
    right: Float[Tensor, "nodes rank"]  # r

    def of(
        self, low: Int[Tensor, " pairs"], high: Int[Tensor, " pairs"]
    ) -> Float[Tensor, " pairs"]:
        """The scores of some pairs."""
        return (self.left[low] * self.right[high]).sum(dim=1)


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

    def where(self, is_kept: Bool[Tensor, " pairs"]) -> Candidates:
        """Some of them, in the same order."""
        return Candidates(self.keys[is_kept], self.scores[is_kept])

    def joined(self, other: Candidates) -> Candidates:
        """Both, in no order."""
        keys = torch.cat([self.keys, other.keys])
        return Candidates(keys, torch.cat([self.scores, other.scores]))


def best_flips(
    scores: PairScores, edges: AttackedEdges, count: int, groups: Int[Tensor, " nodes"]
) -> Candidates:
    """The best of all flips that are left: pairs to be joined, and edges to be taken away.

    An edge's score counts against its removal. Fewer come if there are not so many. Groups number
    nodes that are alike, for speed alone.
    """
    rows = ROWS_AT_ONCE["cpu" if scores.left.device.type == "cpu" else "cuda"]
    additions = best_additions(scores, edges.closed(), count, rows, groups)
    removals = best_flips_among(scores, edges, edges.removable, count)
    return additions.joined(removals).first(count)


def best_flips_among(
    scores: PairScores, edges: AttackedEdges, keys: Int[Tensor, " pairs"], count: int
) -> Candidates:
    """The best of all flips of these pairs that are left; fewer if there are not so many."""
    best = Candidates(edges.removable[:0], scores.left.new_empty(0))
    for chunk in torch.split(keys, PAIRS_AT_ONCE):
        some = chunk.long()
        is_removal = _contains(edges.removable, some)
        worth = torch.where(is_removal, -1, 1) * scores.of(*edges.ends(some))
        is_left = is_removal | edges.open(some)
        if len(best.keys) == count:
            is_left &= worth >= best.scores[-1]
        best = best.joined(Candidates(some, worth).where(is_left)).first(count)
    return best


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
    return search.best.first(count)


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
        # A block of nodes that can reach most, then group by group, in each from most to least.
        falling = torch.argsort(reach, descending=True, stable=True)
        rest = falling[rows_at_once:]
        by_group = rest[torch.argsort(groups[rest], stable=True)]
        self.order = torch.cat([falling[:rows_at_once], by_group])
        self.place = torch.empty_like(self.order)  # where a node stands in this order
        self.place[self.order] = torch.arange(self.num_nodes, device=self.order.device)
        self.left, self.right = scores.left[self.order], scores.right[self.order]
        self.signed = torch.cat([self.right.clamp(min=0), self.right.clamp(max=0)], dim=1)
        self.floor = -torch.inf
        self.best = Candidates(self.order[:0], self.left.new_empty(0))

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
        self.best = self.best.joined(Candidates(keys, inside[row, column])).first(self.count)
        if len(self.best.keys) == self.count:
            self.floor = float(self.best.scores[-1])

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
        row, entry = self.closed.entries_of(self.order[start:end])
        places = self.place[self.closed.columns[entry]]
        column = torch.searchsorted(columns, places).clamp(max=len(columns) - 1)
        hit = columns[column] == places
        block[row[hit], column[hit]] = -torch.inf

    def _floor_of(self, best: Float[Tensor, " columns"]) -> float:
        """What a block's own best pairs show to be needed, one per column."""
        if self.floor > -torch.inf or len(best) < self.count:
            return self.floor
        return float(best.topk(self.count, sorted=False).values.min())


def choose(
    candidates: Candidates,
    edges: AttackedEdges,
    most: int,
    keep_last_edges: bool,
    test: DegreeTest | None,
) -> Int[Tensor, " flips"]:
    """The best candidates, at most one per node, none that is not allowed; keys, best first.

    A flip changes what its ends' other flips are worth, so that a second one at the same node has
    to wait for the next gradient. A score of zero or below is taken only if there is none above.

    With `keep_last_edges` an edge stays if it is the last one of an end; what a test of the degrees
    would notice stays as well.
    """
    taken: list[int] = []
    met: set[int] = set()
    for place, (score, (one, other, *degrees, by)) in enumerate(_flips(candidates, edges)):
        if len(taken) == most or (taken and score <= 0):
            break
        if one in met or other in met or (keep_last_edges and by < 0 and 1 in degrees):
            continue
        if test is not None and not test.take(degrees, by):
            continue
        taken.append(place)
        met |= {one, other}
    return candidates.keys[taken]


def _flips(candidates: Candidates, edges: AttackedEdges) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Of each its score, both ends, their degrees, and the edges that it adds: one or minus one."""
    parts = torch.split(candidates.keys, PAIRS_AT_ONCE)
    for keys, scores in zip(parts, torch.split(candidates.scores, PAIRS_AT_ONCE), strict=True):
        low, high = edges.ends(keys)
        change = torch.where(edges.joined(keys), -1, 1)
        flips = torch.stack([low, high, edges.degrees[low], edges.degrees[high], change], dim=1)
        yield from zip(scores.tolist(), flips.tolist(), strict=True)


# Unnoticeable flips: a likelihood-ratio test of the degrees. Degrees of 2 and more are modelled as
# a power law; the ratio compares one law for both graphs with one for each (Zügner & Günnemann;
# Bessi, 2015, for the estimate of its exponent).


@dataclass(frozen=True)
class DegreeLaw:
    """A power law of a graph's degrees, by their count and the sum of their logarithms."""

    count: int  # of those modelled
    logarithms: float  # their sum

    @classmethod
    def of(cls, degrees: Sequence[int]) -> DegreeLaw:
        """The law that fits these degrees best."""
        modelled = [degree for degree in degrees if degree >= SMALLEST_DEGREE]
        return cls(len(modelled), fsum(log(degree) for degree in modelled))

    def changed(self, by: DegreeLaw, sign: int = 1) -> DegreeLaw:
        """With further degrees, or without some."""
        return DegreeLaw(self.count + sign * by.count, self.logarithms + sign * by.logarithms)

    @property
    def exponent(self) -> float:
        """The likeliest, by the usual approximation for whole numbers."""
        return 1 + self.count / (self.logarithms - self.count * log(SMALLEST_DEGREE - 0.5))

    def likelihood(self) -> float:
        """The logarithm of the degrees' likelihood."""
        if self.count == 0:
            return 0.0
        scale = self.count * self.exponent * log(SMALLEST_DEGREE)
        return self.count * log(self.exponent) + scale - (self.exponent + 1) * self.logarithms


class DegreeTest:
    """The ratio after every flip that was taken, in constant time each."""

    def __init__(self, clean: Int[Tensor, " nodes"], now: Int[Tensor, " nodes"]) -> None:
        self._clean, self._now = DegreeLaw.of(clean.tolist()), DegreeLaw.of(now.tolist())

    def take(self, degrees: Sequence[int], change: int) -> bool:
        """Change these degrees by one edge, and say so, unless that would be noticed."""
        before = self._now
        without = before.changed(DegreeLaw.of(degrees), -1)
        self._now = without.changed(DegreeLaw.of([degree + change for degree in degrees]))
        if self.ratio >= THRESHOLD:
            self._now = before
            return False
        return True

    @property
    def ratio(self) -> float:
        """Of the graph as it is now to the clean one; zero where they are alike."""
        separate = self._clean.likelihood() + self._now.likelihood()
        return 2 * (separate - self._clean.changed(self._now).likelihood())
