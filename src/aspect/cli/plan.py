"""`aspect plan`: time, memory and disk that a graph needs in each mode, before all the work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aspect.cli.session import Session, command
from aspect.config import Config, Count, Positive
from aspect.data.source import GraphSource, Reading
from aspect.errors import SettingsError, counted
from aspect.methods.registry import require_method_name
from aspect.settings import RowSettings
from aspect.training.progress import duration

if TYPE_CHECKING:
    from aspect.scale.plan import GraphSize, Outlook

GIB = 2**30
GB = 1e9
EPOCH = "an epoch"


class SizeOptions(Config):
    """A graph that need not be there."""

    nodes: Count | None = None
    """Nodes of a graph, in place of GRAPH."""
    edges: Count | None = None
    """Its edges."""
    features: Count | None = None
    """Columns of its features."""


class MachineOptions(Config):
    """What there is to run on, if not this machine as it is."""

    workers: Count = 1
    """Workers such as this machine, which share the blocks and the batches."""
    memory: Annotated[Positive | None, typer.Option(metavar="GIB")] = None
    """Memory of each worker, in GiB.  [default: what is free here]"""
    disk: Annotated[Positive | None, typer.Option(metavar="GIB")] = None
    """Disk that they share, in GiB.  [default: what is free here]"""
    gpu_memory: Annotated[Positive | None, typer.Option(metavar="GIB")] = None
    """Memory of each worker's GPU, in GiB.  [default: that of the GPU here, if there is one]"""


class TrainingOptions(Config):
    """What is trained."""

    method: Annotated[str, typer.Option(metavar="NAME")] = "aspect"
    """A method of `aspect methods`."""
    epochs: Count = 1
    """Epochs of the training."""


@command(without=("device",))
def plan(
    session: Session,
    size: SizeOptions,
    machine: MachineOptions,
    training: TrainingOptions,
    rows: RowSettings,
    graph: Annotated[
        str | None,
        typer.Argument(help="A store, a data set or a file of a graph.", metavar="GRAPH"),
    ] = None,
) -> None:
    """Foresee time, memory and disk of a graph in each mode, and advise which to take.

    Bytes follow from the sizes. Times follow from a calibration of this machine, which takes half
    a minute. Without GRAPH, give --nodes, --edges and --features.
    """
    measured = tuple(size.model_dump().values())
    if (graph is None) == (None in measured):
        raise SettingsError("Give a graph, or its --nodes, --edges and --features.")
    if graph is not None and any(measured):
        raise SettingsError("--nodes, --edges and --features belong to a plan without GRAPH.")
    require_method_name(training.method)
    with session.screen.activity("Starting"):
        from aspect.scale.plan import Machine, calibrate, foresee, method_of

        graph_size, is_stored = _size_of(session, graph, size)
        method = method_of(training.method, graph_size.num_features)
        if method.row_plan() is None:
            raise SettingsError(
                f"A plan compares rows with the whole graph. Got {training.method}, which needs "
                "the whole graph at every step."
            )
    with session.screen.activity("Measuring this machine"):
        speeds = calibrate(graph_size, training.method, rows, seed=session.seed or 0)
        given = {
            "memory_bytes": machine.memory,
            "disk_bytes": machine.disk,
            "gpu_bytes": machine.gpu_memory,
        }
        sizes = {name: int(value * GIB) for name, value in given.items() if value is not None}
        here = replace(Machine.here(Path.cwd()), workers=machine.workers, **sizes)
        outlooks, advice = foresee(graph_size, method, rows, here, speeds, is_stored=is_stored)
    content = {
        "nodes": graph_size.num_nodes,
        "edges": graph_size.num_edges,
        "features": graph_size.num_features,
        "workers": machine.workers,
        "modes": {outlook.mode: _content(outlook, training.epochs) for outlook in outlooks},
        "advice": advice,
    }
    session.screen.answer(content, lambda: _show(session, content))


def _size_of(session: Session, graph: str | None, size: SizeOptions) -> tuple[GraphSize, bool]:
    """The size of what was named, and whether it is a store."""
    from aspect.scale.plan import GraphSize
    from aspect.scale.store import GraphStore, is_store

    if graph is None:
        return GraphSize(size.nodes or 0, size.edges or 0, size.features or 0), False
    if is_store(Path(graph)):
        store = GraphStore.open(Path(graph))
        return GraphSize(store.num_nodes, store.num_edges, store.num_features), True
    read = GraphSource.named(graph, Reading()).read(session.data_dir).graph
    return GraphSize(read.num_nodes, read.num_edges, read.num_features), False


def _content(outlook: Outlook, epochs: int) -> dict[str, Any]:
    steps = [
        {
            "step": f"{epochs} epochs" if need.step == EPOCH and epochs > 1 else need.step,
            "seconds": need.seconds * (epochs if need.step == EPOCH else 1),
            "memory_bytes": need.memory_bytes,
            "disk_bytes": need.disk_bytes,
        }
        for need in outlook.needs
    ]
    return {
        "fits": outlook.fits,
        "seconds": sum(step["seconds"] for step in steps),
        "memory_bytes": outlook.memory_bytes,
        "disk_bytes": outlook.disk_bytes,
        "gpu_bytes": outlook.gpu_bytes,
        "steps": steps,
    }


def _show(session: Session, content: dict[str, Any]) -> None:
    rows = []
    for mode, outlook in content["modes"].items():
        total = {"step": "in all" if outlook["fits"] else "in all (does not fit)", **outlook}
        for step in (*outlook["steps"], total):
            sizes = (f"{step[key] / GB:,.1f}" for key in ("memory_bytes", "disk_bytes"))
            gpu = f"{outlook['gpu_bytes'] / GB:,.1f}" if step["step"] == EPOCH else ""
            rows.append([mode, step["step"], duration(step["seconds"]), *sizes, gpu])
    title = (
        f"{content['nodes']:,} nodes, {content['edges']:,} edges, "
        f"{content['features']:,} features, "
        f"{counted(content['workers'], 'worker')}"
    )
    names = ["mode", "step", "time", "memory GB", "disk GB", "or GPU GB"]
    session.screen.table(names, rows, title)
    session.screen.say(content["advice"])
