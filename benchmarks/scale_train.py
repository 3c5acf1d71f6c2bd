"""Time and memory of a training on generated graphs: propagation, an epoch, the embedding.

    python benchmarks/scale_train.py 10000:100000 100000:1000000
    python benchmarks/scale_train.py 1000000:10000000 --device cuda --precision float16
    python benchmarks/scale_train.py 300000:3000000 --device cuda --scale full --methods aspect

With `--scale full` the training alone is measured. Every line is a process of its own, which tells
what it has done. Memory is the most that the process held, and what its tensors took on the GPU.
The exponents compare two lines of a method, one below the other: 1 is linear growth in the number
of nodes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402 - the path comes first
import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from aspect.data.files import available_bytes  # noqa: E402
from aspect.estimator import Embedder  # noqa: E402
from aspect.provenance import peak_bytes  # noqa: E402
from aspect.scale.blocks import check_disk  # noqa: E402
from aspect.scale.embedding import embed_store  # noqa: E402
from aspect.scale.generate import generate_store  # noqa: E402
from aspect.scale.options import MixedModel  # noqa: E402
from aspect.scale.rows import RowBatches, row_plan_of, stored_views  # noqa: E402
from aspect.scale.store import induced_graph  # noqa: E402
from aspect.settings import RowSettings  # noqa: E402
from aspect.training.trainer import EpochReport, Recorder, train  # noqa: E402

COLUMNS = (
    "generate_s",
    "propagate_s",
    "load_s",
    "epoch_s",
    "train_s",
    "embed_s",
    "rss_gib",
    "gpu_gib",
)


def main() -> int:
    """Measure every size with every method, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sizes", nargs="+", metavar="NODES:EDGES")
    parser.add_argument("--methods", nargs="+", default=["aspect", "ggd"])
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--order", type=int, default=5, help="of ASPECT's filters (5)")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--queue", type=int, default=None)
    parser.add_argument("--pool", type=int, default=2)
    parser.add_argument("--precision", choices=["float32", "float16"], default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=Path, default=Path("runs/scale"), help="for all files")
    parser.add_argument("--scale", choices=["rows", "full"], default="rows")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.one:
        print(json.dumps(measure(wanted, wanted.one, wanted.methods[0])))
        return 0
    rows = []
    table = Table("method", "nodes", "edges", *COLUMNS)
    for method in wanted.methods:
        for size in wanted.sizes:
            found = in_own_process(size, method)
            rows.append(found)
            cells = ("-" if found[name] is None else f"{found[name]:.2f}" for name in COLUMNS)
            table.add_row(method, f"{found['nodes']:,}", f"{found['edges']:,}", *cells)
            print(json.dumps(found), flush=True)
    Console(width=140).print(table)
    for small, large in pairwise(rows):
        if small["method"] == large["method"]:
            print(exponents(small, large))
    return 0


def in_own_process(size: str, method: str) -> dict[str, Any]:
    """A line of the table."""
    command = [sys.executable, __file__, *sys.argv[1:], "--methods", method, "--one", size]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - this very file
    if done.returncode:
        raise SystemExit(f"{method} on {size} failed.")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(wanted: argparse.Namespace, size: str, name: str) -> dict[str, Any]:
    """Generate the graph, unless it is there, and train; embed what was trained on as rows."""
    nodes, edges = map(int, size.split(":"))
    device = torch.device(wanted.device)
    seconds = dict.fromkeys(COLUMNS[:6])
    place = wanted.folder / f"{nodes}-{edges}-{wanted.features}-{wanted.precision}"

    @contextmanager
    def timed(step: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds[f"{step}_s"] = time.perf_counter() - started
        tell(f"{name}, {size}: {step} {seconds[f'{step}_s']:.2f} s")

    if wanted.scale == "rows":  # told now rather than after the training
        check_disk(wanted.folder, 4 * nodes * (2 * wanted.width + 40), "Lower --width.")
    with timed("generate"):
        model = MixedModel(nodes=nodes, edges=edges, features=wanted.features)
        room = available_bytes() // 4
        store = generate_store(model, place / "store", dtype=wanted.precision, memory_bytes=room)
    settings = {"width": wanted.width, "epochs": wanted.epochs, "patience": None}
    if name.startswith("aspect"):
        settings["order"] = wanted.order
    embedder = Embedder(name, device=wanted.device, scale=wanted.scale, **settings)
    method, clock = embedder.untrained(store.num_features), Clock()
    if wanted.scale == "full":
        with timed("load"):
            graph = induced_graph(store, np.arange(nodes)).to(device)
        with timed("train"):
            train(method, graph, seed=0, recorder=clock)
    else:
        rows = RowSettings(
            batch=wanted.batch, queue=wanted.queue, pool=wanted.pool, precision=wanted.precision
        )
        work = place / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        plan = row_plan_of(method)
        with timed("propagate"):
            views = stored_views(store, work / "bases", plan, rows, seed=0, device=wanted.device)
        with timed("load"):
            data = RowBatches(views, rows, seed=0, device=device)
        with timed("train"):
            train(method, data, seed=0, recorder=clock)
        with timed("embed"):
            embed_store(data, method, work)
        shutil.rmtree(work)
    seconds["epoch_s"] = statistics.median(clock.seconds[1:] or clock.seconds)
    gpu = peak_bytes(device) / 2**30 if device.type == "cuda" else None
    rss = peak_bytes(torch.device("cpu")) / 2**30
    facts = {"method": name, "nodes": nodes, "edges": store.num_edges, "epochs": wanted.epochs}
    return {
        **facts,
        **seconds,
        "rss_gib": rss,
        "gpu_gib": gpu,
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }


def tell(words: str) -> None:
    """What is known so far, should the rest be cut off."""
    print(words, file=sys.stderr, flush=True)


class Clock(Recorder):
    """Seconds of every epoch."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.last = time.perf_counter()

    def epoch_done(self, report: EpochReport, snapshot: object) -> None:  # noqa: ARG002
        """Note an epoch; its numbers were read, so that a GPU was waited for."""
        now = time.perf_counter()
        self.seconds.append(now - self.last)
        self.last = now
        tell(f"epoch {report.epoch}: {self.seconds[-1]:.2f} s, loss {report.values['loss']:.4f}")


def exponents(small: dict[str, Any], large: dict[str, Any]) -> str:
    """How time and memory grow with the nodes between two lines."""
    growth = math.log(large["nodes"] / small["nodes"])
    words = [
        f"{name} {math.log(large[name] / small[name]) / growth:.2f}"
        for name in ("propagate_s", "epoch_s", "embed_s", "rss_gib")
        if small[name] and large[name]
    ]
    return f"{large['method']}, {small['nodes']:,} to {large['nodes']:,} nodes: {', '.join(words)}"


if __name__ == "__main__":
    sys.exit(main())
