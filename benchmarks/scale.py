"""Time and memory of every step at scale, over sizes that grow tenfold; prints a table.

    python benchmarks/scale.py --nodes 10000 100000 1000000

Every step runs in a process of its own with one thread; memory is the peak of its resident set.
Graphs are mixed ones with ten edges a node. `build` reads the same graph back from Parquet: edges
between 64-bit ids, and a node table with a column for each feature. The last rows are the
exponents of growth between neighbouring sizes. On a machine that others use, the processor's
seconds say more than those of the clock. With --plan, what `aspect
plan` foresees of the bases is printed too.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

from aspect.data.source import Reading
from aspect.provenance import peak_bytes
from aspect.scale.bases import BasisSettings, compute_bases
from aspect.scale.build import build_store
from aspect.scale.generate import generate_store
from aspect.scale.options import MixedModel
from aspect.scale.plan import GraphSize, basis_need, calibrate
from aspect.scale.store import GraphStore
from aspect.settings import RowSettings
from commands import json_of

EDGES_PER_NODE = 10
ORDER = 5
GIB = 2**30
STEP = 0x9E3779B97F4A7C15  # odd: multiplication by it makes other 64-bit ids of row numbers


def generate(folder: Path, model: MixedModel) -> None:
    """Draw the graph into a store."""
    generate_store(model, folder / "store")


def write_tables(folder: Path, model: MixedModel) -> None:  # noqa: ARG001
    """The same graph as Parquet; not a step that is measured for its own sake."""
    store = GraphStore.open(folder / "store")
    ids = (np.arange(store.num_nodes, dtype=np.uint64) * np.uint64(STEP)) >> np.uint64(1)
    ids = ids.astype(np.int64)
    names = [f"x{k}" for k in range(store.num_features)]
    schema = pa.schema([("id", pa.int64()), *((name, pa.float32()) for name in names)])
    ends = pa.schema([("source", pa.int64()), ("target", pa.int64())])
    with (
        pyarrow.parquet.ParquetWriter(folder / "nodes.parquet", schema) as nodes,
        pyarrow.parquet.ParquetWriter(folder / "edges.parquet", ends) as edges,
    ):
        for block, (start, end) in enumerate(store.blocks):
            columns = store.features.block(block).T
            nodes.write_table(pa.table([ids[start:end], *columns], schema=schema))
            pointers, neighbours, _ = store.adjacency(block)
            rows = np.repeat(np.arange(start, end), np.diff(pointers))
            low = rows < neighbours
            edges.write_table(pa.table([ids[rows[low]], ids[neighbours[low]]], schema=ends))


def build(folder: Path, model: MixedModel) -> None:  # noqa: ARG001
    """A store of the tables."""
    reading = Reading(nodes=str(folder / "nodes.parquet"), feature_scaling="none")
    build_store(folder / "edges.parquet", folder / "built", reading)


def bases(folder: Path, model: MixedModel) -> None:  # noqa: ARG001
    """Its Chebyshev bases of order 5 in float32."""
    settings = BasisSettings(order=ORDER)
    compute_bases(GraphStore.open(folder / "store"), folder / "bases", settings)


STAGES: dict[str, Callable[[Path, MixedModel], None]] = {
    "generate": generate,
    "tables": write_tables,
    "build": build,
    "bases": bases,
}
MEASURED = ("generate", "build", "bases")
MADE = {"generate": "store", "build": "built", "bases": "bases"}


def measure(stage: str, folder: Path, model: MixedModel) -> dict[str, float]:
    """Run a step in a process of its own."""
    words = ["--stage", stage, "--folder", str(folder), "--features", str(model.features)]
    result: dict[str, float] = json_of(stage, [__file__, *words, "--nodes", str(model.nodes)])
    made = folder / MADE.get(stage, "none")
    result["disk"] = sum(file.stat().st_size for file in made.glob("*"))
    return result


def run_stage(stage: str, folder: Path, model: MixedModel) -> None:
    """In the child: the step, then its time and memory as JSON."""
    torch.set_num_threads(1)
    started, before = time.perf_counter(), time.process_time()
    STAGES[stage](folder, model)
    result = {
        "wall": time.perf_counter() - started,
        "cpu": time.process_time() - before,
        "memory": peak_bytes(torch.device("cpu")),
    }
    print(json.dumps(result))


def table(sizes: list[int], features: int, home: Path | None) -> None:
    """Measure all steps of all sizes, and print them with the exponents of growth."""
    measured: dict[str, list[dict[str, float]]] = {stage: [] for stage in MEASURED}
    titles = " | ".join(f"{stage}: wall s, CPU s, GiB, disk GiB" for stage in MEASURED)
    print(f"| nodes | edges | {titles} |")
    print("|" + "---|" * (len(MEASURED) + 2))
    for nodes in sizes:
        model = MixedModel(nodes=nodes, edges=EDGES_PER_NODE * nodes, features=features)
        folder = Path(tempfile.mkdtemp(prefix="aspect-scale-", dir=home))
        try:
            for stage in STAGES:
                result = measure(stage, folder, model)
                if stage in measured:
                    measured[stage].append(result)
        finally:
            shutil.rmtree(folder)
        cells = [_cell(measured[stage][-1]) for stage in MEASURED]
        print(f"| {nodes:,} | {model.edges:,} | {' | '.join(cells)} |", flush=True)
    for (k, small), (_, large) in pairwise(enumerate(sizes)):
        cells = [
            _exponents(measured[stage][k], measured[stage][k + 1], large / small)
            for stage in MEASURED
        ]
        print(f"| {small:,} to {large:,} | exponents | {' | '.join(cells)} |")


def _cell(result: dict[str, float]) -> str:
    memory, disk = result["memory"] / GIB, result["disk"] / GIB
    return f"{result['wall']:.1f}, {result['cpu']:.1f}, {memory:.2f}, {disk:.2f}"


def _exponents(small: dict[str, float], large: dict[str, float], growth: float) -> str:
    return ", ".join(
        f"{math.log(large[key] / small[key]) / math.log(growth):.2f}"
        for key in ("wall", "cpu", "memory", "disk")
    )


def foresee_bases(sizes: list[int], features: int) -> None:
    """What `aspect plan` says of the bases: by a calibration with the largest graph."""
    largest = GraphSize(sizes[-1], EDGES_PER_NODE * sizes[-1], features)
    speeds = calibrate(largest, "aspect", RowSettings())
    print("\n| nodes | bases foreseen: wall s, GiB, disk GiB |\n|---|---|")
    for nodes in sizes:
        size = GraphSize(nodes, EDGES_PER_NODE * nodes, features)
        need = basis_need(size, BasisSettings(order=ORDER), speeds)
        memory, disk = need.memory_bytes / GIB, need.disk_bytes / GIB
        print(f"| {nodes:,} | {need.seconds:.1f}, {memory:.2f}, {disk:.2f} |")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--folder", type=Path, help="Where files are made, and removed again.")
    parser.add_argument("--plan", action="store_true", help="Print what is foreseen as well.")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stage:
        edges = EDGES_PER_NODE * given.nodes[0]
        model = MixedModel(nodes=given.nodes[0], edges=edges, features=given.features)
        run_stage(given.stage, given.folder, model)
    else:
        table(given.nodes, given.features, given.folder)
        if given.plan:
            foresee_bases(given.nodes, given.features)


if __name__ == "__main__":
    main()
