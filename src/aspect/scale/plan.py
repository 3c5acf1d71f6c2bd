"""What a graph needs before anything is begun: time, memory and disk of each mode, and advice.

Bytes follow from formulas. Times follow from a short calibration of this machine: it sorts edges,
propagates a block, writes to the disk, trains some batches of rows and an epoch of a small graph;
the last two also on a GPU where there is one.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from aspect.data.files import available_bytes
from aspect.data.graph import Graph
from aspect.methods.base import Method
from aspect.methods.registry import find_method
from aspect.provenance import forget_peak, peak_bytes
from aspect.randomness import isolated_seed
from aspect.scale.bases import ENTRY_BYTES, BasisSettings, propagate_block
from aspect.scale.bases import MEMORY_BYTES as HELD_TERM
from aspect.scale.blocks import BlockedRows, BlockFolder, block_name
from aspect.scale.build import MEMORY_BYTES as SORTING_BYTES
from aspect.scale.fit import step_bytes
from aspect.scale.generate import generate_store
from aspect.scale.held_bases import DeviceGraph, held_bytes
from aspect.scale.options import ROWS_PER_BLOCK, MixedModel
from aspect.scale.rows import (
    BATCH,
    HELD_BYTES,
    SHARE_OF_GPU,
    STREAMED,
    Pool,
    RowBatches,
    row_plan_of,
    stored_views,
)
from aspect.scale.sorting import RUN_BYTES, merge_runs, write_run
from aspect.scale.store import STORE, AdjacencyBlock, GraphStore, induced_graph, store_bytes
from aspect.settings import RowSettings
from aspect.training.trainer import try_epochs

Mode = Literal["full", "rows"]
Previous = NDArray[np.float32] | BlockedRows
Measured = TypeVar("Measured")

FLOAT = 4  # bytes
SHARE_OF_MEMORY = 0.8  # of what a machine has, that a mode may take
BLOCK_COPIES = 4  # of a block's rows, as terms are combined, converted and written
TRIAL_NODES = 2_500  # of the graph that is trained on whole: beyond, ASPECT draws its negatives
TRIAL_BATCHES = {"cpu": 3, "cuda": 64}  # on a GPU many: steps are captured once they repeat
TRIAL_ON_GPU = 60_000  # nodes of the graph that is trained on whole there
MOST_DEGREE = 50  # of a trial graph
TRIAL_TERM = 2**28  # bytes of the term whose rows a trial block gathers: more than caches hold
TRIAL_ENTRIES = 400_000
TRIAL_EDGES = 500_000
TRIAL_WRITE = 2**26  # bytes


@dataclass(frozen=True)
class GraphSize:
    """What decides the needs of a graph."""

    num_nodes: int
    num_edges: int  # undirected, each counted once
    num_features: int

    @property
    def num_entries(self) -> int:
        """Entries of the adjacency: every edge in both its rows."""
        return 2 * self.num_edges


@dataclass(frozen=True)
class Machine:
    """What there is to run on: each of so many workers has this memory; they share the disk."""

    memory_bytes: int
    disk_bytes: int
    workers: int = 1
    gpu_bytes: int | None = None  # of each worker's GPU, if it has one

    @classmethod
    def here(cls, folder: Path) -> Machine:
        """This machine as it is now."""
        gpu = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else None
        return cls(available_bytes(), shutil.disk_usage(folder).free, gpu_bytes=gpu)


@dataclass(frozen=True)
class GpuSpeeds:
    """What a calibration measured on a GPU, in seconds."""

    load: float  # of a byte of a store
    propagate: float  # of an entry of the adjacency and a column
    batch: float  # of a step on a batch of rows
    row: float  # of a row that is embedded
    node: float  # of a node in an epoch on the whole graph


@dataclass(frozen=True)
class Speeds:
    """What a calibration measured, in seconds, and bytes of memory."""

    sort: float  # of an edge, until it stands in its rows
    write: float  # of a byte, with its checksum, until it is on the disk
    propagate: float  # of an entry of the adjacency and a column
    gather: float  # the same, where the previous term is read from the disk, or from its cache
    combine: float  # of a number of a term, read and combined with others
    process: int  # bytes that a process has before any work
    batch: float  # of a step on a batch of rows
    batch_bytes: int
    row: float  # of a row that is embedded
    row_bytes: float
    width: int  # of an embedding
    node: float  # of a node in an epoch on the whole graph
    node_bytes: float
    gpu: GpuSpeeds | None = None  # where there is one


@dataclass(frozen=True)
class Need:
    """What a step takes."""

    step: str
    seconds: float
    memory_bytes: int  # at most at any time, of a worker
    disk_bytes: int  # that stay


TrainingNeeds = tuple[Need, Need]  # of an epoch, and of the embedding


@dataclass(frozen=True)
class Outlook:
    """What a mode takes."""

    mode: Mode
    needs: tuple[Need, ...]
    gpu_bytes: int  # of a step, where it is computed on a GPU
    machine: Machine

    @property
    def seconds(self) -> float:
        """All steps together."""
        return sum(need.seconds for need in self.needs)

    @property
    def memory_bytes(self) -> int:
        """The most of any step, of a worker."""
        return max(need.memory_bytes for need in self.needs)

    @property
    def disk_bytes(self) -> int:
        """All that stays."""
        return sum(need.disk_bytes for need in self.needs)

    @property
    def fits(self) -> bool:
        """Whether the machine has that much."""
        machine = self.machine
        fits = self.disk_bytes <= machine.disk_bytes
        if machine.gpu_bytes is None or self.mode == "rows":
            fits = fits and self.memory_bytes <= SHARE_OF_MEMORY * machine.memory_bytes
        if machine.gpu_bytes is not None:
            fits = fits and self.gpu_bytes <= SHARE_OF_MEMORY * machine.gpu_bytes
        return fits


def foresee(
    size: GraphSize,
    method: Method,
    rows: RowSettings,
    machine: Machine,
    speeds: Speeds,
    *,
    is_stored: bool = False,
) -> tuple[list[Outlook], str]:
    """The needs of both modes on a machine, and a sentence which to take.

    Args:
        size: Of the graph.
        method: What is trained.
        rows: How it is trained on as rows.
        machine: What there is to run on.
        speeds: Of a calibration with the same method.
        is_stored: Whether the graph is a store already, which needs not be made.
    """
    stored = () if is_stored else (_store_need(size, machine, speeds),)
    pool = Pool.of(row_plan_of(method), rows)
    full, trained = _training_needs(size, pool, rows, machine, speeds)
    by_rows: tuple[Need, ...] = (_bases_need(size, pool, machine, speeds), *trained)
    columns = pool.basis.columns(size.num_features)
    batch = min(size.num_nodes, rows.batch or BATCH["cuda"])
    on_gpu = step_bytes(method, batch, columns)
    if (held := _held_on_gpu(size, pool, machine)) is not None:
        on_gpu = max(held, on_gpu + pool.num_bytes(size.num_nodes, size.num_features))
        by_rows = _gpu_needs(size, pool, rows, speeds, trained) or by_rows
    if machine.gpu_bytes is not None and speeds.gpu is not None:
        seconds = size.num_nodes * speeds.gpu.node
        full = replace(full[0], seconds=seconds), replace(full[1], seconds=seconds / 3)
    outlooks = (
        Outlook("full", full, step_bytes(method, size.num_nodes, columns), machine),
        Outlook("rows", (*stored, *by_rows), on_gpu, machine),
    )
    return list(outlooks), _advice(*outlooks, is_stored=is_stored)


def _held_on_gpu(size: GraphSize, pool: Pool, machine: Machine) -> int | None:
    """Bytes of a GPU while bases are computed that all fit it; None: they lie on the disk."""
    if machine.gpu_bytes is None or machine.workers > 1:
        return None
    sizes = size.num_nodes, size.num_entries, size.num_features
    held = held_bytes(*sizes, pool.basis, pool.count)
    return held if held <= SHARE_OF_GPU * machine.gpu_bytes else None


def _gpu_needs(
    size: GraphSize, pool: Pool, rows: RowSettings, speeds: Speeds, trained: TrainingNeeds
) -> tuple[Need, ...]:
    """Those of rows whose bases are held on a GPU; none where it was not measured."""
    gpu, (epoch, embed) = speeds.gpu, trained
    if gpu is None:
        return ()
    stored = store_bytes(size.num_nodes, size.num_edges, size.num_features, "float32")
    pairs = pool.basis.order * size.num_entries * pool.basis.columns(size.num_features)
    batches = -(-size.num_nodes // (rows.batch or BATCH["cuda"]))
    memory = speeds.process + 16 * size.num_nodes
    return (
        Need(
            _title(pool),
            stored * gpu.load + pool.count * pairs * gpu.propagate,
            memory,
            0,
        ),
        Need(epoch.step, batches * gpu.batch, memory, 0),
        Need(
            embed.step,
            size.num_nodes * gpu.row + embed.disk_bytes * speeds.write,
            memory,
            embed.disk_bytes,
        ),
    )


def _advice(full: Outlook, rows: Outlook, *, is_stored: bool) -> str:
    if full.fits and not is_stored:
        return "Take --scale full: it fits the memory, and takes every node at every step."
    if rows.fits:
        if full.fits:
            return "Take --scale rows: a store is always trained on so."
        return "Take --scale rows: the whole graph does not fit the memory."
    nothing = (
        "A store is trained on as rows, which do not fit" if full.fits else "Neither mode fits"
    )
    if rows.disk_bytes > rows.machine.disk_bytes:
        return (
            f"{nothing}: rows need {rows.disk_bytes / 1e9:,.1f} GB of disk. Take a larger "
            "disk, float16, a smaller pool of views, or a projection of the features."
        )
    return (
        f"{nothing}: rows need {rows.memory_bytes / 1e9:,.1f} GB of memory. Take a machine "
        "with more, a smaller batch, or a projection of the features."
    )


# Bytes by formula, times by speeds


def _store_need(size: GraphSize, machine: Machine, speeds: Speeds) -> Need:
    """Sorting the edges and copying the features."""
    disk = store_bytes(size.num_nodes, size.num_edges, size.num_features, "float32")
    block = ROWS_PER_BLOCK * size.num_features * FLOAT
    return Need(
        "make the store",
        size.num_edges * speeds.sort + disk * speeds.write / machine.workers,
        speeds.process + min(SORTING_BYTES, size.num_edges * 2 * RUN_BYTES) + 3 * block,
        disk,
    )


def _bases_need(size: GraphSize, pool: Pool, machine: Machine, speeds: Speeds) -> Need:
    """The bases of all views that the method trains on."""
    need = basis_need(size, pool.basis, speeds)
    return Need(
        _title(pool),
        pool.count * need.seconds / machine.workers,
        need.memory_bytes,
        pool.count * need.disk_bytes,
    )


def _title(pool: Pool) -> str:
    return f"{pool.count} {'basis' if pool.count == 1 else 'bases'} of order {pool.basis.order}"


def basis_need(size: GraphSize, settings: BasisSettings, speeds: Speeds) -> Need:
    """The bases of one view, by one process."""
    columns, word = settings.columns(size.num_features), settings.working_type.itemsize
    numbers = size.num_nodes * columns
    disk = settings.num_bytes(size.num_nodes, size.num_features)
    is_held = numbers * word <= HELD_TERM
    seconds = (
        settings.order
        * size.num_entries
        * columns
        * (speeds.propagate if is_held else speeds.gather)
        + settings.order * numbers * speeds.combine
        + disk * speeds.write
    )
    block_rows = min(ROWS_PER_BLOCK, size.num_nodes)
    block = BLOCK_COPIES * block_rows * columns * word
    entries = block_rows * size.num_entries // max(1, size.num_nodes)
    term = numbers * word if is_held else 0  # gathered, some rows at a time
    memory = speeds.process + size.num_nodes * word + term + block + entries * ENTRY_BYTES
    return Need("one basis", seconds, int(memory), disk + size.num_nodes * 8)


def _training_needs(
    size: GraphSize, pool: Pool, rows: RowSettings, machine: Machine, speeds: Speeds
) -> tuple[TrainingNeeds, TrainingNeeds]:
    """One epoch, and the embedding of all nodes, on the whole graph and on rows."""
    embeddings = FLOAT * size.num_nodes * (speeds.width + 1)
    held = pool.num_bytes(size.num_nodes, size.num_features)
    held = held if held <= HELD_BYTES else 0  # else they are read from the disk
    batches = -(-size.num_nodes // (rows.batch or BATCH["cpu"]))
    process = speeds.process + 8 * size.num_nodes
    streamed = min(size.num_nodes, STREAMED)
    by_rows = (
        Need(
            "an epoch",
            batches * speeds.batch / machine.workers,
            process + held + speeds.batch_bytes,
            0,
        ),
        Need(
            "embed",
            size.num_nodes * speeds.row,
            int(process + held + streamed * speeds.row_bytes),
            embeddings,
        ),
    )
    whole = int(speeds.process + size.num_nodes * speeds.node_bytes)
    in_full = (
        Need("an epoch", size.num_nodes * speeds.node, whole, 0),
        Need("embed", size.num_nodes * speeds.node / 3, whole, embeddings),
    )
    return in_full, by_rows


# Calibration


def calibrate(size: GraphSize, method: str, rows: RowSettings, *, seed: int = 0) -> Speeds:
    """Measure this machine with graphs of this mean degree and these features, in seconds."""
    cpu = torch.device("cpu")
    forget_peak(cpu)
    process = peak_bytes(cpu)
    degree = min(MOST_DEGREE, max(1, 2 * size.num_edges // size.num_nodes))
    pool = Pool.of(row_plan_of(method_of(method, 2, seed)), rows)
    columns = pool.basis.columns(size.num_features)
    with tempfile.TemporaryDirectory(prefix="aspect-plan-") as name:
        folder = Path(name)
        sort, write = _measure_sorting(folder), _measure_writing(folder)
        propagate, gather, combine = _measure_propagation(folder, columns, degree)
        batch, batch_bytes, row, row_bytes, width = _apart(
            _measure_rows, folder, columns, degree, method, seed
        )
        node, node_bytes = _apart(_measure_whole, folder, columns, degree, method, seed)
        gpu = None
        if torch.cuda.is_available():
            nodes = min(size.num_nodes, TRIAL_ON_GPU)
            gpu = _apart(_measure_gpu, folder, columns, degree, method, seed, nodes)
    return Speeds(
        sort=sort,
        write=write,
        propagate=propagate,
        gather=gather,
        combine=combine,
        process=process,
        batch=batch,
        batch_bytes=batch_bytes,
        row=row,
        row_bytes=row_bytes,
        width=width,
        node=node,
        node_bytes=node_bytes,
        gpu=gpu,
    )


def _apart(measure: Callable[..., Measured], *arguments: object) -> Measured:
    """Measure in a process of its own, whose memory holds nothing of what was measured before."""
    with ProcessPoolExecutor(
        1, get_context("spawn"), torch.set_num_threads, (torch.get_num_threads(),)
    ) as executor:
        return executor.submit(measure, *arguments).result()


@contextmanager
def _watch() -> Iterator[list[float]]:
    """Seconds, and bytes beyond those before, of what is done inside; in a list when it is done."""
    cpu, watched = torch.device("cpu"), list[float]()
    forget_peak(cpu)
    before, started = peak_bytes(cpu), time.perf_counter()
    yield watched
    watched += [time.perf_counter() - started, peak_bytes(cpu) - before]


def _measure_sorting(folder: Path) -> float:
    drawn = np.random.default_rng(0)
    nodes = TRIAL_EDGES // 10
    ends = drawn.integers(0, nodes, (2, TRIAL_EDGES))
    with BlockFolder.open(folder / "sorted", STORE, {}, "") as opened:
        with _watch() as watched:
            write_run(opened, "run", ends[0], ends[1], nodes)
            merge_runs(opened, ["run"], nodes, ROWS_PER_BLOCK, memory_bytes=SORTING_BYTES)
        return watched[0] / TRIAL_EDGES


def _measure_writing(folder: Path) -> float:
    block = np.random.default_rng(0).random(TRIAL_WRITE // 8)
    with BlockFolder.open(folder / "written", STORE, {}, "") as opened:
        with _watch() as watched:
            opened.write("block.npy", block)
        return watched[0] / TRIAL_WRITE


def _measure_propagation(folder: Path, columns: int, degree: int) -> tuple[float, float, float]:
    """Seconds of an entry and a column, held and gathered, and of a number of a term."""
    drawn = np.random.default_rng(0)
    nodes = TRIAL_TERM // (columns * FLOAT)
    rows = min(nodes, TRIAL_ENTRIES // degree)
    term = drawn.random((nodes, columns), dtype=np.float32)
    np.save(folder / block_name("term", 0), term)
    on_disk = BlockedRows(folder, "term", [(0, nodes)])
    scales, own = np.ones(nodes, np.float32), np.array(term[:rows])

    def seconds(entries: int, previous: Previous) -> float:
        pointers = np.arange(rows + 1, dtype=np.int64) * entries
        neighbours = drawn.integers(0, nodes, rows * entries).astype(np.int32)
        block = AdjacencyBlock(pointers, neighbours, None)
        with _watch() as watched:
            propagate_block(block, (0, rows), scales, previous, own, own, BasisSettings())
        return watched[0]

    combine = seconds(0, term)
    held, gathered = (max(0.0, seconds(degree, each) - combine) for each in (term, on_disk))
    pairs = rows * degree * columns
    return held / pairs, gathered / pairs, combine / (rows * columns)


def _measure_rows(
    folder: Path, columns: int, degree: int, name: str, seed: int
) -> tuple[float, int, float, float, int]:
    """Seconds and bytes of a batch, those of a row that is embedded, and the embedding's width."""
    store = _trial_store(folder / "rows", TRIAL_BATCHES["cpu"] * BATCH["cpu"], columns, degree)
    # A graph of so few nodes would be one batch.
    method, settings = method_of(name, columns, seed), RowSettings(pool=1, batch=BATCH["cpu"])
    views = stored_views(store, folder / "bases", row_plan_of(method), settings, seed=seed)
    with _watch() as watched:
        data = RowBatches(views, settings, seed=seed, device=torch.device("cpu"))
        seconds = try_epochs(method, data, seed=seed, epochs=2)[1]  # libraries are loaded in one
    with _watch() as embedding:
        widths = {output.embedding.shape[1] for *_, output in data.outputs(method)}
    held = views.num_bytes if views.num_bytes <= HELD_BYTES else 0
    return (
        seconds / data.num_batches,
        max(0, int(watched[1] - held)),
        embedding[0] / store.num_nodes,
        embedding[1] / store.num_nodes,
        max(widths),
    )


def _measure_whole(
    folder: Path, columns: int, degree: int, name: str, seed: int
) -> tuple[float, float]:
    """Seconds and bytes of a node in an epoch on the whole graph."""
    store = _trial_store(folder / "whole", TRIAL_NODES, columns, degree)
    graph, method = _in_memory(store), method_of(name, columns, seed)
    with _watch() as watched:
        seconds = try_epochs(method, graph, seed=seed, epochs=2)[1]
    return seconds / graph.num_nodes, watched[1] / graph.num_nodes


def _measure_gpu(
    folder: Path, columns: int, degree: int, name: str, seed: int, nodes: int
) -> GpuSpeeds:
    """The steps of rows whose bases are held there, and an epoch on a whole graph of some nodes."""
    device, settings = torch.device("cuda"), RowSettings(pool=1)
    store = _trial_store(folder / "gpu", TRIAL_BATCHES["cuda"] * BATCH["cuda"], columns, degree)
    method = method_of(name, columns, seed).to(device)
    plan = row_plan_of(method)

    def timed(work: Callable[[], Measured]) -> tuple[float, Measured]:
        torch.cuda.synchronize()
        started = time.perf_counter()
        done = work()
        torch.cuda.synchronize()
        return time.perf_counter() - started, done

    basis = Pool.of(plan, settings).basis
    DeviceGraph(store, basis, device).bases(basis)  # libraries are loaded
    loading, graph = timed(lambda: DeviceGraph(store, basis, device))
    propagating, _ = timed(lambda: graph.bases(basis))
    views = stored_views(store, folder / "none", plan, settings, seed=seed, device="cuda")
    data = RowBatches(views, settings, seed=seed, device=device)
    epoch = try_epochs(method, data, seed=seed, epochs=2)[1]
    embedding, _ = timed(lambda: [each.embedding.cpu() for *_, each in data.outputs(method)])
    whole = _in_memory(_trial_store(folder / "whole-gpu", nodes, columns, degree)).to(device)
    # Captured in the third epoch.
    steps = try_epochs(method_of(name, columns, seed).to(device), whole, seed=seed, epochs=5)
    stored = store_bytes(store.num_nodes, store.num_edges, columns, "float32")
    return GpuSpeeds(
        load=loading / stored,
        propagate=propagating / (basis.order * 2 * store.num_edges * columns),
        batch=epoch / data.num_batches,
        row=embedding / store.num_nodes,
        node=steps[-1] / nodes,
    )


def _trial_store(path: Path, nodes: int, columns: int, degree: int) -> GraphStore:
    model = MixedModel(nodes=nodes, edges=nodes * degree // 2 or 1, features=columns)
    return generate_store(model, path)


def _in_memory(store: GraphStore) -> Graph:
    return induced_graph(store, np.arange(store.num_nodes))


def method_of(name: str, columns: int, seed: int = 0) -> Method:
    """An untrained method with its default settings."""
    entry = find_method(name)
    with isolated_seed(seed):
        method: Method = entry.method(entry.config(), columns)
    return method
