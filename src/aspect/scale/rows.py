"""Training and embedding on rows of stored bases: `--scale rows`.

A step reads the rows of a batch, from the disk or from a copy in memory, and computes its loss from
them alone. Negatives come from the batch and from past batches; views with dropped edges from a
pool of bases that were propagated before. A pass over all rows in their order calibrates the method
and embeds the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from aspect.data.files import is_file
from aspect.data.graph import Graph
from aspect.data.rows import RowPlan, Rows, RowView, smoothing_coefficients
from aspect.errors import SettingsError
from aspect.methods.base import Method, Output, Step
from aspect.randomness import generator_for, seed_for
from aspect.scale.bases import FULL_DISK, Bases, BasisSettings, Propagator, compute_bases
from aspect.scale.blocks import JOB, check_disk, row_ranges
from aspect.scale.calibration import calibrate_rows
from aspect.scale.held_bases import DeviceGraph, HeldBases, held_bytes
from aspect.scale.ranks import Ranks
from aspect.scale.store import GraphStore, sample_neighbourhood
from aspect.settings import RowSettings
from aspect.training.data import Check, TrainingData, Update
from aspect.training.gradients import Gradients, Pass

BATCH = {"cpu": 1_024, "cuda": 4_096}  # rows of a step, by kind of device
ONE_BATCH = 4_096  # nodes of a graph that is taken whole: its settings were chosen for such steps

Gather = Callable[[Tensor, int], Tensor]  # rows of all processes along a dimension

STREAMED = 16_384  # rows of a pass over all of them at a time
HELD_BYTES = 4 * 2**30  # of bases that are copied into the main memory
SHARE_OF_GPU = 0.7  # of its free memory, for bases that are held there
RUN = 32  # rows that a disk reads together
SAMPLE = 4_096  # rows by which the health of an embedding is judged
WATCHED, GRADIENT = "watched loss", "norm of the gradient"  # beside the names of a step's numbers


def row_plan_of(method: Method) -> RowPlan:
    """The method's plan; one that needs the whole graph is refused."""
    plan = method.row_plan()
    if plan is None:
        raise SettingsError(
            f"{method.name} needs the whole graph: it has no scale 'rows'. Pass --scale full."
        )
    if getattr(method.config, "norm_statistics", "recomputed") == "graph":
        raise SettingsError(
            "Rows are embedded one by one: norm_statistics must be recomputed or running. "
            "Got 'graph'."
        )
    return plan


# What is read


@dataclass(frozen=True, eq=False)
class StoredViews:
    """The bases that a plan asks for, each kind of view with its pool; the clean ones always."""

    store: GraphStore
    plan: RowPlan
    pools: Mapping[RowView, tuple[Bases | HeldBases, ...]]

    @property
    def num_columns(self) -> int:
        """Columns of the features, after a projection."""
        return self.pools[0.0][0].facts.num_columns

    @property
    def are_held(self) -> bool:
        """Whether they are in the memory of a device, and nowhere else."""
        return isinstance(self.pools[0.0][0], HeldBases)

    @property
    def num_bytes(self) -> int:
        """All of them together."""
        settings = self.pools[0.0][0].facts.settings
        one = settings.num_bytes(self.store.num_nodes, self.store.num_features)
        return one * sum(len(pool) for pool in self.pools.values())


@dataclass(frozen=True)
class Pool:
    """The bases that a method takes: how they are computed, and how many there are of each view."""

    basis: BasisSettings  # of the clean ones
    sizes: Mapping[RowView, int]  # one of the clean graph, and of the shuffled one

    @classmethod
    def of(cls, plan: RowPlan, settings: RowSettings) -> Pool:
        """Those of a plan; the clean ones always."""
        basis = BasisSettings(
            order=max(1, plan.order),
            self_loops=plan.self_loops,
            row_normalise=plan.normalise_rows,
            projection=settings.projection,
            width=settings.projection_width,
            dtype=settings.precision,
        )
        views = (0.0, *plan.views)
        sizes = {view: 1 if view in (0.0, "shuffled") else settings.pool for view in views}
        return cls(basis, sizes)

    @property
    def count(self) -> int:
        """All of them, each of the same size."""
        return sum(self.sizes.values())

    def num_bytes(self, num_nodes: int, num_features: int) -> int:
        """All of them together."""
        return self.count * self.basis.num_bytes(num_nodes, num_features)


def stored_views(
    store: GraphStore,
    folder: Path,
    plan: RowPlan,
    settings: RowSettings,
    *,
    seed: int,
    device: str = "cpu",
    engine: Propagator | None = None,
    is_alone: bool = True,
) -> StoredViews:
    """Propagate what a plan asks for into a folder; what is there already is taken.

    Bases that all fit the memory of a GPU are computed there and stay there instead.

    Args:
        store: The graph.
        folder: Where the bases go, one folder each.
        plan: What the method takes.
        settings: How many, and how they are kept.
        seed: Of dropped edges and shuffled features.
        device: Where it is multiplied.
        engine: Who multiplies, in place of this process: `aspect.scale.ray_engine`.
        is_alone: Whether no other process reads the bases.
    """
    pool = Pool.of(plan, settings)
    clean, sizes = pool.basis, pool.sizes

    def place_of(view: RowView, member: int) -> Path:
        return folder / ("clean" if view == 0.0 else f"{view}-{member}")

    def basis_of(view: RowView, member: int) -> BasisSettings:
        if view == 0.0:
            return clean
        changes: dict[str, object] = {"view_seed": seed_for(seed, "view", str(view), member)}
        changes |= {"shuffled": True} if view == "shuffled" else {"edge_drop": view}
        return clean.model_copy(update=changes)

    where, graph = torch.device(device), None
    if engine is None and is_alone and _fits_gpu(store, pool, where):
        graph = DeviceGraph(store, clean, where)
    else:
        members = [(view, member) for view, size in sizes.items() for member in range(size)]
        missing = sum(not is_file(place_of(*each) / JOB) for each in members)
        one = clean.num_bytes(store.num_nodes, store.num_features)
        check_disk(folder, missing * one, f"{FULL_DISK} --pool makes fewer bases.")

    def bases_of(view: RowView, member: int) -> Bases | HeldBases:
        basis = basis_of(view, member)
        if graph is not None:
            return graph.bases(basis)
        return compute_bases(store, place_of(view, member), basis, device=device, engine=engine)

    pools = {
        view: tuple(bases_of(view, member) for member in range(size))
        for view, size in sizes.items()
    }
    return StoredViews(store, plan, pools)


def _fits_gpu(store: GraphStore, pool: Pool, device: torch.device) -> bool:
    """Whether all bases can be computed and held in its free memory."""
    if device.type == "cpu":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    size = store.num_nodes, 2 * store.num_edges, store.num_features
    return held_bytes(*size, pool.basis, pool.count) <= SHARE_OF_GPU * free


class _Reader:
    """Rows of one basis, as the plan wants them, from a copy in memory or from the disk."""

    def __init__(
        self, bases: Bases | HeldBases, plan: RowPlan, device: torch.device, *, held: bool
    ) -> None:
        self.bases, self.device = bases, device
        self.weights = smoothing_coefficients(plan.order) if plan.smoothed else None
        self.held = bases.terms if isinstance(bases, HeldBases) else None
        if held and (self.held is None or self.weights is not None):
            nodes, first = bases.facts.num_nodes, self._smoothed(self.stored(slice(0, 1)))
            copy = first.new_empty(len(first), nodes, first.shape[2])
            for start, end in row_ranges(nodes, STREAMED):
                copy[:, start:end] = self._smoothed(self.stored(slice(start, end)))
            self.held = copy

    def __call__(self, rows: Tensor | slice) -> Float[Tensor, "terms rows features"]:
        """On the device, to be computed with."""
        return self.ready(self.stored(rows))

    def stored(self, rows: Tensor | slice) -> Tensor:
        """As they lie in memory or on the disk."""
        if self.held is None:
            assert isinstance(self.bases, Bases)
            found = self.bases.rows(rows if isinstance(rows, slice) else rows.numpy())
            return torch.from_numpy(found)
        return self.held[:, rows] if isinstance(rows, slice) else self.held.index_select(1, rows)

    def ready(self, stored: Tensor) -> Float[Tensor, "terms rows features"]:
        """What was read, on the device."""
        return (stored if self.held is not None else self._smoothed(stored)).float()

    def _smoothed(self, terms: Tensor) -> Tensor:
        """Of the type of the disk, on the device."""
        terms = terms.to(self.device, non_blocking=True)
        if self.weights is None:
            return terms
        weights = self.weights.to(terms.device, torch.float32)
        used = terms[: len(weights)].float()
        return torch.einsum("t,trf->rf", weights, used).unsqueeze(0).to(terms.dtype)


# What is trained on


class RowBatches(TrainingData):
    """A graph as the trainer sees it: an epoch is all rows once, in batches drawn anew.

    Args:
        views: The bases.
        settings: Of batches and negatives.
        seed: Of the order of the rows and the choice of views.
        device: Where batches are computed. Bases that fit are copied there; others are read from
            the disk, a batch ahead.
        ranks: The processes that train one model; each has its share of every batch.
    """

    memory_options: tuple[str, ...] = ("--batch", "--queue")

    def __init__(
        self,
        views: StoredViews,
        settings: RowSettings,
        *,
        seed: int,
        device: torch.device,
        ranks: Ranks | None = None,
    ) -> None:
        self.views, self.settings, self.seed = views, settings, seed
        self.device, self.num_features = device, views.num_columns
        self.ranks = ranks or Ranks()
        self.num_nodes = views.store.num_nodes
        held = views.are_held or views.num_bytes <= _room(device)
        self.readers = {
            view: [_Reader(bases, views.plan, device, held=held) for bases in pool]
            for view, pool in views.pools.items()
        }
        # Row numbers lie where the rows are read.
        self.home = device if held else torch.device("cpu")
        small = self.num_nodes if self.num_nodes <= ONE_BATCH else None
        size = settings.batch or small or BATCH[device.type]
        # Never a batch of one row, of which a batch norm knows no variance.
        self.num_batches = min(-(-self.num_nodes // size), self.num_nodes // 2)
        in_memory = views.are_held or views.num_bytes <= HELD_BYTES
        self.run = settings.run or (1 if in_memory else RUN)
        self.queue = size if settings.queue is None else settings.queue
        if self.num_batches == 1:  # an epoch begins without past rows
            self.queue = 0

    @override
    def prepare(self, method: Method) -> None:
        """Share batch statistics between processes; the weights begin alike in all of them."""
        self.ranks.prepare(method)

    @override
    def gradients(self, method: Method, parameters: list[nn.Parameter]) -> Gradients:
        """Those of a batch's loss."""
        gradients = Gradients(method, self._batch(slice(0, 0), [self.clean]), parameters)
        gradients.may_capture &= self.ranks.world == 1  # what is exchanged is not captured
        return gradients

    @property
    def projection(self) -> Float[Tensor, "features columns"] | None:
        """What features were multiplied by before they were propagated."""
        matrix = self.clean.bases.projection
        return None if matrix is None else torch.from_numpy(matrix).float().to(self.device)

    @property
    def clean(self) -> _Reader:
        """The rows of the graph as it is."""
        return self.readers[0.0][0]

    @override
    def one_pass(
        self, gradients: Gradients, step: Step, update: Update, check: Check | None
    ) -> Pass:
        """A step for every batch.

        The host learns their numbers when all are done: to ask after each would let a GPU wait.
        They are checked then, before a checkpoint is written.
        """
        done: list[Pass] = []
        for number, (batch, gather) in enumerate(self._batches(gradients.method, step.epoch)):
            step = replace(step, rank=self.ranks.rank, gather=gather)
            step.generator.manual_seed(seed_for(self.seed, "batch", step.epoch, number))
            computed = gradients.of_batch(step, batch)
            self.ranks.average(gradients.parameters)
            update()
            done.append(computed.kept())
        means = _means(done)
        if check is not None:
            check(means)
        return means

    def _batches(self, method: Method, epoch: int) -> Iterator[tuple[Graph, Gather]]:
        """Those of an epoch, each read while the one before is computed."""
        order = self._order(epoch)
        if nodes := method.row_neighbourhood(epoch):
            yield self._neighbourhood(nodes, epoch), Ranks().gathering(nodes)  # all have it whole
        batches = [
            (self._members(epoch, number), self.ranks.share(rows), self.ranks.gathering(len(rows)))
            for number, rows in enumerate(order.tensor_split(self.num_batches))
        ]
        if self.home.type == "cuda":  # which reads while the host goes on
            for readers, rows, gather in batches:
                yield self._batch(rows, readers), gather
            return
        with ThreadPoolExecutor(1) as ahead:

            def begun(readers: list[_Reader], rows: Tensor) -> Future[list[Tensor]]:
                return ahead.submit(lambda: [reader.stored(rows) for reader in readers])

            reading = begun(*batches[0][:2])
            for (readers, _, gather), following in zip_longest(batches, batches[1:]):
                stored = reading.result()
                if following is not None:
                    reading = begun(*following[:2])
                yield self._rows(map(_Reader.ready, readers, stored)), gather

    def _order(self, epoch: int) -> Tensor:
        """All rows as an epoch takes them: runs of neighbouring ones, in a random order."""
        draw = generator_for(self.seed, "rows", epoch, device=self.home)
        runs = -(-self.num_nodes // self.run)
        order = torch.randperm(runs, generator=draw, device=self.home)
        if self.run == 1:
            return order
        rows = order.unsqueeze(1) * self.run + torch.arange(self.run, device=self.home)
        return rows.flatten()[rows.flatten() < self.num_nodes]

    def _members(self, epoch: int, number: int) -> list[_Reader]:
        """Those of a step's views; two of one kind are different members of their pool."""
        taken: dict[RowView, int] = {}
        readers = []
        for view in self.views.plan.views:
            pool = self.readers[view]
            first = taken.setdefault(view, seed_for(self.seed, "member", epoch, number, str(view)))
            readers.append(pool[first % len(pool)])
            taken[view] = first + 1
        return readers

    def _batch(self, rows: Tensor | slice, readers: Sequence[_Reader]) -> Rows:
        return self._rows(reader(rows) for reader in readers)

    def _rows(self, views: Iterable[Tensor]) -> Rows:
        return Rows.of(tuple(views), self.num_nodes, self.queue)

    def _neighbourhood(self, nodes: int, epoch: int) -> Graph:
        if self.settings.projection != "none":
            raise SettingsError(
                "A search on a sampled neighbourhood needs the features as they are. "
                "Train ASPECT-S without a projection."
            )
        drawn = np.random.default_rng(seed_for(self.seed, "neighbourhood", epoch))
        return sample_neighbourhood(self.views.store, nodes, drawn).to(self.device)

    # What is embedded

    def stream(self, first: int = 0) -> Iterator[tuple[int, int, Rows]]:
        """Rows of the clean graph in their order, from one on, with their first number and end."""
        for start, end in row_ranges(self.num_nodes, STREAMED):
            if start >= first:
                yield start, end, self._batch(slice(start, end), [self.clean])

    @torch.no_grad()
    def outputs(self, method: Method, first: int = 0) -> Iterator[tuple[int, int, Output]]:
        """Embedding and gate of all rows in their order, from a row on."""
        method.eval()
        for start, end, rows in self.stream(first):
            yield start, end, method.output(rows)

    @override
    def calibrate(self, method: Method) -> None:
        """As `Method.calibrate`, exactly, by passes over all rows."""
        calibrate_rows(method, lambda: (rows for _, _, rows in self.stream()))

    @override
    @torch.no_grad()
    def uncentred(self, method: Method) -> Float[Tensor, "sample dim"]:
        """Of a sample of rows, the same at every call."""
        draw = generator_for(self.seed, "sample", device=self.home)
        sample = torch.randperm(self.num_nodes, generator=draw, device=self.home)[:SAMPLE]
        return method.output(self._batch(sample.sort().values, [self.clean])).uncentred


def _room(device: torch.device) -> int:
    """Bytes of bases that are copied into memory."""
    if device.type == "cpu":
        return HELD_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(SHARE_OF_GPU * free)


def _means(passes: Sequence[Pass]) -> Pass:
    """The numbers of an epoch: of each name, the mean over the steps that have it."""
    sums: dict[str, list[Tensor]] = {}
    terms = dict.fromkeys(term for done in passes for term in done.terms)
    for done in passes:
        for name, value in zip((*done.names, WATCHED, GRADIENT), done.numbers, strict=True):
            sums.setdefault(name, []).append(value)
    watched, gradient = sums.pop(WATCHED), sums.pop(GRADIENT)
    means = [torch.stack(values).mean() for values in (*sums.values(), watched, gradient)]
    return Pass(list(sums), list(terms), torch.stack(means), [])
