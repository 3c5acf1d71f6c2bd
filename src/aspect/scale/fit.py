"""A graph in memory trained on and embedded as rows, and the choice between that and the whole."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.features import dense, seen_features
from aspect.data.files import available_bytes
from aspect.data.graph import Graph
from aspect.data.operators import Propagation
from aspect.data.rows import RowPlan, Rows, smoothing_coefficients
from aspect.errors import UnknownNameError
from aspect.losses.blocked import KEPT_BYTES
from aspect.methods.base import Method, Output
from aspect.nn.filters import chebyshev_basis
from aspect.scale.blocks import row_ranges
from aspect.scale.rows import (
    STREAMED,
    Pool,
    RowBatches,
    row_plan_of,
    stored_views,
)
from aspect.scale.store import GraphStore
from aspect.settings import RowSettings, Scale

SCALES: tuple[Scale, ...] = ("auto", "full", "rows")

FLOAT_BYTES = 4
WORTH_TELLING = 2**30  # bytes on the disk
SHARE_OF_MEMORY = 0.8  # of what is free, that a training may take


def check_scale(scale: object) -> Scale | RowSettings:
    """What was given, if it is a scale."""
    for known in SCALES:
        if scale == known:
            return known
    if isinstance(scale, RowSettings):
        return scale
    raise UnknownNameError("scale", str(scale), SCALES)


def choose_rows(scale: Scale | RowSettings, method: Method, graph: Graph) -> RowSettings | None:
    """How the graph is trained on as rows; None: whole.

    `auto` takes rows where a step on the whole graph would not fit the free memory of its device.
    """
    if isinstance(scale, RowSettings):
        return scale
    if scale == "full":
        return None
    if scale == "rows":
        return RowSettings()
    needed = step_bytes(method, graph.num_nodes, graph.num_features, graph.device.type)
    fits = needed <= SHARE_OF_MEMORY * _free_bytes(graph.device)
    return None if fits or method.row_plan() is None else RowSettings()


def row_outlook(
    method: Method, graph: Graph, settings: RowSettings, *, is_chosen: bool
) -> Iterator[str]:
    """What to know before a training on rows, one sentence each."""
    pool = Pool.of(row_plan_of(method), settings)
    if is_chosen:
        size = graph.num_nodes, graph.num_features
        needed = step_bytes(method, *size, graph.device.type) / 2**30
        yield (
            f"A step on the whole graph would take about {needed:,.1f} GiB, more than is free: the "
            "graph is trained on as rows (--scale rows)."
        )
    num_bytes = pool.num_bytes(graph.num_nodes, graph.num_features)
    if num_bytes > WORTH_TELLING:
        yield (
            f"Rows take {pool.count} bases of {num_bytes / pool.count / 2**30:,.2f} GiB each "
            "on the disk while they are trained on."
        )


def step_bytes(method: Method, nodes: int, features: int, device: str = "cuda") -> int:
    """About what a step on so many nodes holds: activations of two views, and similarities."""
    config = method.config.model_dump()
    width, terms = config.get("width", features), config.get("order", 0) + 1
    # Basis and bands of both views, each held a few times on the way to the loss and back; on a
    # GPU kernels keep less, and the basis in half the bytes.
    bases, inputs, outputs = (1.0, 3.0, 4.5) if device == "cuda" else (3.0, 4.0, 6.0)
    if config.get("layer_order") == "project-first":  # dropout and batch norm have the full width
        outputs += 1.5
    numbers = 2 * nodes * (bases * terms * features + 2 * (inputs * features + outputs * width))
    if method.cost == "quadratic":
        drawn = min(nodes, config.get("negatives") or 8_192)
        # Of three contrasts in both directions; more are computed again, a block at a time.
        kept = drawn == nodes or FLOAT_BYTES * nodes * drawn <= KEPT_BYTES
        numbers += 12 * nodes * drawn if kept else 4 * KEPT_BYTES // FLOAT_BYTES
    return int(FLOAT_BYTES * numbers)


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_bytes()


@contextmanager
def row_batches(
    method: Method, graph: Graph, settings: RowSettings, *, seed: int
) -> Iterator[RowBatches]:
    """The graph as batches of rows; store and bases lie in a temporary folder meanwhile."""
    with tempfile.TemporaryDirectory(prefix="aspect-rows-") as folder:
        store = GraphStore.from_graph(graph.to("cpu"), Path(folder) / "store")
        device = graph.device
        views = stored_views(
            store,
            Path(folder) / "bases",
            row_plan_of(method),
            settings,
            seed=seed,
            device=str(device),
        )
        yield RowBatches(views, settings, seed=seed, device=device)


def as_rows(
    graph: Graph, plan: RowPlan, projection: Float[Tensor, "features columns"] | None = None
) -> Rows:
    """All nodes of a graph in memory as rows, with their clean view alone."""
    features = dense(seen_features(graph.features, normalise_rows=plan.normalise_rows))
    if projection is not None:
        features = features @ projection.to(features)
    operator = Propagation(graph, self_loops=plan.self_loops).operator()
    basis = torch.stack(list(chebyshev_basis(operator, features, max(1, plan.order))))
    if plan.smoothed:
        weights = smoothing_coefficients(plan.order).to(basis)
        basis = torch.einsum("t,tnf->nf", weights, basis[: len(weights)]).unsqueeze(0)
    return Rows.of((basis,), graph.num_nodes)


def output_of(method: Method, graph: Graph) -> Output:
    """As `Method.output`; rows are taken some at a time."""
    if not isinstance(graph, Rows):
        return method.output(graph)
    parts = [
        method.output(Rows.of((graph.views[0][:, start:end],), graph.whole))
        for start, end in row_ranges(graph.num_nodes, STREAMED)
    ]
    gates = [part.gate for part in parts if part.gate is not None]
    return Output(
        torch.cat([part.embedding for part in parts]),
        torch.cat([part.uncentred for part in parts]),
        torch.cat(gates) if gates else None,
    )
