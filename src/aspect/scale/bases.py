"""Chebyshev bases T_0(L)X, ..., T_K(L)X of a store, computed out of core, block by block.

Filters are linear: with the bases on disk, training reads rows and propagates nothing. A block of a
term is a function of the previous terms alone (`propagate_block`). A killed run keeps its blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from aspect.config import Config, Count, Share
from aspect.data.features import seen_features
from aspect.data.files import is_file
from aspect.errors import RunError, SettingsError
from aspect.randomness import seed_for
from aspect.scale.blocks import (
    JOB,
    BlockedRows,
    BlockFolder,
    block_name,
    converted,
    row_ranges,
)
from aspect.scale.store import AdjacencyBlock, GraphStore, check_neighbours
from aspect.workspace import MANIFEST, FolderKind, Workspace, read_json

FACTS = "bases.json"
BASES = FolderKind(
    foreign="holds no Chebyshev bases", owns=lambda names: bool(names & {FACTS, JOB})
)
PROJECTION = "projection.npy"
FULL_DISK = "Free some space, take float16, a projection of smaller width, or a lower order."
MEMORY_BYTES = 2 * 2**30
FIX = "Compute the bases anew."
ENTRY_BYTES = 40  # of an entry of the adjacency while it is multiplied, but for its column's row
CACHED_ROWS = 4_096
SHARE_OF_GPU = 0.6  # of its free memory, for a whole term

Numbers = NDArray[np.floating[Any]]


class BasisSettings(Config):
    """What is propagated along what, and how the terms are kept."""

    order: Count = 5
    """Order of the Chebyshev filters (K); there are K + 1 terms."""
    self_loops: bool = True
    """Add a self-loop to every node before propagation."""
    lambda_max: Annotated[float, Field(ge=1, le=2)] = 2.0
    """Largest eigenvalue used to rescale the Laplacian."""
    row_normalise: bool = True
    """Divide each node's features by the sum of their sizes."""
    projection: Literal["none", "gaussian", "svd"] = "none"
    """Map wide features to fewer columns: at random, or on the leading singular vectors."""
    width: Count | None = None
    """Columns after the projection."""
    projection_seed: int = 0
    """Of the random projection."""
    edge_drop: Share = 0.0
    """Drop rate of edges; degrees follow."""
    shuffled: bool = False
    """Give every node the features of another one."""
    view_seed: int = 0
    """Of the dropped edges and of the shuffled features."""
    dtype: Literal["float16", "float32", "float64"] = "float32"
    """Type of the numbers on disk; computed in float32, or in float64 where that is asked for."""

    def columns(self, num_features: int) -> int:
        """Columns of every term."""
        if (self.projection == "none") != (self.width is None):
            raise SettingsError(
                "A projection and its width go together. "
                f"Got the projection {self.projection!r} and the width {self.width}."
            )
        if self.width is not None and self.width > num_features:
            raise SettingsError(
                f"A projection must have at most the {num_features} columns of the features. "
                f"Got {self.width}."
            )
        return self.width or num_features

    def num_bytes(self, num_nodes: int, num_features: int) -> int:
        """What the terms take on disk."""
        size = np.dtype(self.dtype).itemsize
        return (self.order + 1) * num_nodes * self.columns(num_features) * size

    @property
    def working_type(self) -> np.dtype[Any]:
        """The type of numbers that is computed in."""
        return np.dtype("float64" if self.dtype == "float64" else "float32")


class BasisFacts(Config):
    """What a folder of bases holds."""

    format: int = 1
    settings: BasisSettings
    num_nodes: int
    num_columns: int
    rows_per_block: int


class Bases:
    """Complete bases on disk, read-only; open them with `Bases.open`."""

    def __init__(self, path: Path, facts: BasisFacts) -> None:
        self.path, self.facts = path, facts

    @classmethod
    def open(cls, path: Path) -> Bases:
        """The bases in a folder; they are not read through: see `verify`."""
        if not is_file(path / MANIFEST):
            raise RunError(f"{path} holds no complete Chebyshev bases. {FIX}")
        return cls(path, read_json(path / FACTS, BasisFacts, fix=FIX, newest=1))

    def verify(self) -> None:
        """Read every file and refuse one that is cut off, changed or missing, by its SHA-256."""
        Workspace(self.path, BASES).verify(FIX)

    @cached_property
    def terms(self) -> tuple[BlockedRows, ...]:
        """T_0(L)X, ..., T_K(L)X, each [nodes, columns]."""
        order = self.facts.settings.order
        return tuple(term_rows(self.path, self.facts, k) for k in range(order + 1))

    def rows(self, numbers: slice | NDArray[np.integer[Any]]) -> NDArray[Any]:
        """All terms of some nodes: [terms, rows, columns], in memory."""
        return np.stack([term[numbers] for term in self.terms])

    @property
    def projection(self) -> NDArray[Any] | None:
        """[features, columns], by which the features were multiplied; none: by nothing."""
        if self.facts.settings.projection == "none":
            return None
        matrix: NDArray[Any] = np.load(self.path / PROJECTION, allow_pickle=False)
        return matrix


def compute_bases(
    store: GraphStore,
    path: Path,
    settings: BasisSettings,
    *,
    memory_bytes: int = MEMORY_BYTES,
    device: str = "cpu",
    engine: Propagator | None = None,
) -> Bases:
    """The bases of a store in a folder; an interrupted run goes on where it stopped.

    Args:
        store: The graph.
        path: The folder.
        settings: What is propagated along what.
        memory_bytes: Bound of what is held of a term at a time. A whole previous term that fits is
            held; otherwise the rows that a part of a block needs are gathered from the disk.
        device: A GPU multiplies there; a term that fits its memory is held there.
        engine: Who multiplies the blocks, in place of this process.
    """
    columns = settings.columns(store.num_features)
    facts = BasisFacts(
        settings=settings,
        num_nodes=store.num_nodes,
        num_columns=columns,
        rows_per_block=store.facts.rows_per_block,
    )
    job = {"store": store.digest, **facts.model_dump(mode="json")}
    num_bytes = settings.num_bytes(store.num_nodes, store.num_features)
    with BlockFolder.open(path, BASES, job, FULL_DISK, num_bytes) as folder:
        if not folder.is_complete:
            alone = partial(_one_by_one, memory_bytes=memory_bytes, device=device)
            _compute_terms(store, folder, facts, engine or alone)
            folder.finish(FACTS, facts)
    return Bases.open(path)


# One block


def propagate_block(  # noqa: PLR0913 - a pure function of all that it needs
    adjacency: AdjacencyBlock,
    rows: tuple[int, int],
    scales: Numbers,
    previous: Numbers | torch.Tensor | BlockedRows,
    own: Numbers,
    before: Numbers | None,
    settings: BasisSettings,
    *,
    memory_bytes: int = MEMORY_BYTES,
    device: str = "cpu",
) -> Numbers:
    """Rows of the next term: L T_1 = L T_0, and T_(k+1) = 2 L T_k - T_(k-1) beyond.

    L is the rescaled Laplacian, as in `aspect.data.operators`. The parts into which the memory
    bound cuts the rows do not change a bit of the result.

    Args:
        adjacency: The rows of the adjacency.
        rows: First of them, and their end.
        scales: [nodes], see `inverse_roots`.
        previous: [nodes, columns] of the previous term, in memory, on the device or on disk.
        own: Its rows of this block; they may be mapped, and of the type on disk.
        before: Those of the term before it; none for the first product.
        settings: What is propagated along what.
        memory_bytes: Bound of what is gathered at a time.
        device: Where it is multiplied.
    """
    start, factor = rows[0], 2 / settings.lambda_max
    result = np.empty(own.shape, scales.dtype)
    most = max(1, memory_bytes // (ENTRY_BYTES + own.shape[1] * scales.itemsize))
    # Arrays of a few MiB stay in the caches; on a GPU one launch is better than many.
    most_rows = CACHED_ROWS if device == "cpu" else len(own)
    for low, high in row_pieces(adjacency.pointers, most, most_rows):
        piece = _piece(adjacency, low, high)
        check_neighbours(piece.neighbours, len(scales))
        numbers = np.repeat(np.arange(start + low, start + high), np.diff(piece.pointers))
        values = -factor * scales[numbers] * scales[piece.neighbours]
        values = values if piece.weights is None else values * piece.weights.astype(scales.dtype)
        if settings.edge_drop:
            values *= _kept(numbers, piece, settings)
        product = _multiply(piece, values, previous, device)
        diagonal = np.full(high - low, factor - 1, scales.dtype)
        if settings.self_loops:
            diagonal -= factor * scales[start + low : start + high] ** 2
        if diagonal.any():
            product += diagonal[:, None] * converted(own[low:high], scales.dtype)
        if before is not None:
            product *= 2
            product -= converted(before[low:high], scales.dtype)
        result[low:high] = product
    return result


def inverse_roots(
    adjacency: AdjacencyBlock, rows: tuple[int, int], settings: BasisSettings
) -> NDArray[np.float64]:
    """`D^(-1/2)` of a block's rows: degrees of what is kept, self-loops included; zero for zero."""
    degrees = np.full(rows[1] - rows[0], float(settings.self_loops))
    most = MEMORY_BYTES // (4 * ENTRY_BYTES)
    for low, high in row_pieces(adjacency.pointers, most, len(degrees)):
        piece = _piece(adjacency, low, high)
        owners = np.repeat(np.arange(low, high), np.diff(piece.pointers))
        weights = np.ones(len(owners)) if piece.weights is None else piece.weights.astype(float)
        if settings.edge_drop:
            weights *= _kept(owners + rows[0], piece, settings)
        degrees[low:high] += np.bincount(owners - low, weights, minlength=high - low)
    return np.where(degrees > 0, 1 / np.sqrt(np.where(degrees > 0, degrees, 1)), 0.0)


def _kept(
    rows: NDArray[np.int64], piece: AdjacencyBlock, settings: BasisSettings
) -> NDArray[np.bool_]:
    columns = torch.from_numpy(piece.neighbours.astype(np.int64))
    kept = kept_entries(torch.from_numpy(rows), columns, settings.edge_drop, settings.view_seed)
    return np.asarray(kept)


def kept_entries(
    rows: Int[Tensor, " entries"], columns: Int[Tensor, " entries"], rate: float, seed: int
) -> Bool[Tensor, " entries"]:
    """Which entries survive dropping edges at that rate: the same for both directions of an edge.

    Every edge is kept or dropped by a hash of the seed and of its ends, so that neither the blocks
    nor their order nor the device matter.
    """
    low, high = torch.minimum(rows, columns).long(), torch.maximum(rows, columns).long()
    mixed = _mixed(_mixed(low + _signed(seed_for(seed, "edge drop"))) ^ high)
    # Unsigned order is signed order with the highest bit turned.
    return (mixed ^ _signed(2**63)) >= _signed(int(rate * 2**64) ^ 2**63)


def _signed(number: int) -> int:
    """The signed number with the same 64 bits: torch has no others of them."""
    return (number + 2**63) % 2**64 - 2**63


def _mixed(numbers: Int[Tensor, " entries"]) -> Int[Tensor, " entries"]:
    """A bijection of 64-bit numbers whose every bit depends on all bits (SplitMix64)."""

    def shifted(bits: int) -> Tensor:  # to the right, filling in zeros
        moved: Tensor = (numbers >> bits) & (2 ** (64 - bits) - 1)
        return moved

    numbers = numbers + _signed(0x9E3779B97F4A7C15)
    numbers = (numbers ^ shifted(30)) * _signed(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ shifted(27)) * _signed(0x94D049BB133111EB)
    return numbers ^ shifted(31)


def row_pieces(
    pointers: NDArray[np.int64], most_entries: int, most_rows: int
) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most so many rows and entries each, but at least one row."""
    low, last = 0, len(pointers) - 1
    while low < last:
        high = int(np.searchsorted(pointers, pointers[low] + most_entries, side="right")) - 1
        high = min(max(high, low + 1), low + most_rows, last)
        yield low, high
        low = high


def _piece(adjacency: AdjacencyBlock, low: int, high: int) -> AdjacencyBlock:
    pointers = adjacency.pointers[low : high + 1]
    first, end = int(pointers[0]), int(pointers[-1])
    weights = adjacency.weights
    return AdjacencyBlock(
        pointers - first,
        adjacency.neighbours[first:end],
        None if weights is None else weights[first:end],
    )


def _multiply(
    piece: AdjacencyBlock,
    values: Numbers,
    previous: Numbers | torch.Tensor | BlockedRows,
    device: str,
) -> Numbers:
    """The rows of a sparse matrix times a term."""
    columns: NDArray[np.integer[Any]] = piece.neighbours
    if isinstance(previous, BlockedRows):
        needed = np.unique(columns)
        columns = np.searchsorted(needed, columns).astype(np.int32)
        previous = converted(previous[needed], values.dtype)
        if device != "cpu":
            previous = torch.from_numpy(previous).to(device)
    if isinstance(previous, torch.Tensor):
        matrix = torch.sparse_csr_tensor(
            torch.from_numpy(piece.pointers).to(device),
            torch.from_numpy(columns.astype(np.int64)).to(device),
            torch.from_numpy(values).to(device),
            (len(piece.pointers) - 1, len(previous)),
            check_invariants=False,
        )
        on_host: Numbers = (matrix @ previous).cpu().numpy()
        return on_host
    shape = (len(piece.pointers) - 1, len(previous))
    product: Numbers = scipy.sparse.csr_array((values, columns, piece.pointers), shape) @ previous
    return product


# All blocks


@dataclass(frozen=True, eq=False)
class MissingBlocks:
    """Blocks of a term that are to be computed; the terms before it are complete in the folder."""

    store: GraphStore
    path: Path  # of the bases
    facts: BasisFacts
    scales: Numbers  # of the nodes, by their degrees
    term: int
    blocks: Sequence[int]

    @property
    def previous(self) -> BlockedRows:
        """The term before, on disk."""
        return term_rows(self.path, self.facts, self.term - 1)

    def computed(
        self,
        block: int,
        previous: Numbers | torch.Tensor | BlockedRows,
        *,
        memory_bytes: int,
        device: str = "cpu",
    ) -> Numbers:
        """One of them, of the type on disk; `previous` as in `propagate_block`."""
        before = None if self.term == 1 else term_rows(self.path, self.facts, self.term - 2)
        rows = propagate_block(
            self.store.adjacency(block),
            self.store.blocks[block],
            self.scales,
            previous,
            self.previous.block(block),
            None if before is None else before.block(block),
            self.facts.settings,
            memory_bytes=memory_bytes,
            device=device,
        )
        return converted(rows, self.facts.settings.dtype)


# Who multiplies the blocks of a term: a loop in this process, or a cluster.
Propagator = Callable[[MissingBlocks], Iterator[tuple[int, Numbers]]]


def _one_by_one(
    missing: MissingBlocks, *, memory_bytes: int, device: str
) -> Iterator[tuple[int, Numbers]]:
    """One block after the other; the previous term is held where it fits."""
    previous = _held(missing.previous, missing.facts.settings, memory_bytes, device)
    for block in missing.blocks:
        yield block, missing.computed(block, previous, memory_bytes=memory_bytes, device=device)


def _compute_terms(
    store: GraphStore, folder: BlockFolder, facts: BasisFacts, engine: Propagator
) -> None:
    _first_term(store, folder, facts)
    scales = _scales(store, folder, facts.settings)
    for term in range(1, facts.settings.order + 1):
        names = [block_name(f"term{term}", block) for block in range(len(store.blocks))]
        missing = [block for block, name in enumerate(names) if not folder.has(name)]
        if missing:
            path = folder.path.absolute()  # workers may be elsewhere
            todo = MissingBlocks(store, path, facts, scales, term, missing)
            for block, rows in engine(todo):
                folder.write(names[block], rows)


def _held(
    term: BlockedRows, settings: BasisSettings, memory_bytes: int, device: str
) -> Numbers | torch.Tensor | BlockedRows:
    """A whole term in the memory of the machine or of the GPU if it fits, else as it is on disk."""
    dtype = settings.working_type
    num_bytes = int(np.prod(term.shape)) * dtype.itemsize
    if device != "cpu":
        free, _ = torch.cuda.mem_get_info(torch.device(device))
        if num_bytes > SHARE_OF_GPU * free:
            return term
        held = torch.empty(term.shape, dtype=getattr(torch, dtype.name), device=device)
        for block, (start, end) in enumerate(term.ranges):
            held[start:end] = torch.from_numpy(converted(term.block(block), dtype)).to(device)
        return held
    return term.between(0, len(term), dtype) if num_bytes <= memory_bytes else term


def _first_term(store: GraphStore, folder: BlockFolder, facts: BasisFacts) -> None:
    """T_0: the features, row-normalised, shuffled and projected as the settings have it."""
    settings, order = facts.settings, None
    if settings.projection != "none" and not folder.has(PROJECTION):
        matrix = projection_matrix(store, settings)
        assert matrix is not None
        folder.write(PROJECTION, matrix)
    projection = None if settings.projection == "none" else folder.read(PROJECTION)
    if settings.shuffled:
        order = shuffled_order(store.num_nodes, settings)
    for block, (start, end) in enumerate(store.blocks):
        name = block_name("term0", block)
        if not folder.has(name):
            numbers = slice(start, end) if order is None else order[start:end]
            rows: Numbers = seen_rows(store.features[numbers], settings).numpy()
            rows = rows if projection is None else rows @ projection.astype(rows.dtype)
            folder.write(name, converted(rows, settings.dtype))


def seen_rows(
    rows: NDArray[Any], settings: BasisSettings, device: torch.device | str = "cpu"
) -> Float[Tensor, "rows features"]:
    """Features as they are propagated, before a projection."""
    kind: torch.dtype = getattr(torch, settings.working_type.name)
    features = torch.from_numpy(rows).to(device).to(kind)
    seen = seen_features(features, normalise_rows=settings.row_normalise)
    assert isinstance(seen, Tensor)
    return seen


def shuffled_order(num_nodes: int, settings: BasisSettings) -> NDArray[np.int64]:
    """Whose features every node gets."""
    drawn = np.random.default_rng(seed_for(settings.view_seed, "shuffled features"))
    return drawn.permutation(num_nodes)


def projection_matrix(store: GraphStore, settings: BasisSettings) -> NDArray[np.float64] | None:
    """[features, width]; drawn, or fitted once to the features of all nodes."""
    if settings.projection == "none":
        return None
    assert settings.width is not None
    if settings.projection == "svd":
        return _leading_directions(store, settings, settings.width)
    drawn = np.random.default_rng(seed_for(settings.projection_seed, "projection"))
    matrix: NDArray[np.float64] = drawn.standard_normal((store.num_features, settings.width))
    matrix /= np.sqrt(settings.width)
    return matrix


def _leading_directions(
    store: GraphStore, settings: BasisSettings, width: int
) -> NDArray[np.float64]:
    """The right singular vectors of the features with the largest singular values.

    They are the eigenvectors of X^T X, which is summed up block by block. The largest entry of each
    is positive.
    """
    gram = np.zeros((store.num_features, store.num_features))
    for start, end in store.blocks:
        rows = seen_rows(store.features[start:end], settings).double().numpy()
        gram += rows.T @ rows
    _, vectors = np.linalg.eigh(gram)
    leading: NDArray[np.float64] = vectors[:, ::-1][:, :width]
    signs: NDArray[np.float64] = np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(width)])
    return leading * signs


def _scales(store: GraphStore, folder: BlockFolder, settings: BasisSettings) -> Numbers:
    """`D^(-1/2)` of all nodes."""
    for block, rows in enumerate(store.blocks):
        name = block_name("scales", block)
        if not folder.has(name):
            folder.write(name, inverse_roots(store.adjacency(block), rows, settings))
    scales = BlockedRows(folder.path, "scales", store.blocks)
    return scales.between(0, store.num_nodes, settings.working_type)


def term_rows(path: Path, facts: BasisFacts, term: int) -> BlockedRows:
    """A term in a folder of bases: [nodes, columns]."""
    return BlockedRows(path, f"term{term}", row_ranges(facts.num_nodes, facts.rows_per_block))
