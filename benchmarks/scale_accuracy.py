"""Accuracy of `--scale rows` beside `--scale full`, by the neutral probe on random splits.

    python benchmarks/scale_accuracy.py cora citeseer chameleon --seeds 2
    python benchmarks/scale_accuracy.py pubmed squirrel actor coauthor_phy --device cuda
    python benchmarks/scale_accuracy.py --mixed 1000000:10000000 --epochs 20 --device cuda

Named graphs are trained with the settings shipped for the method, in both ways with the same seeds.
A generated mixed graph is trained on as rows with node-wise and with global fusion, and read beside
its raw and its propagated features, by region. Scores are printed as they come; after `--seconds`
nothing more is begun.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402 - the path comes first
import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from torch import Tensor  # noqa: E402

from aspect.data.graph import LabelledGraph  # noqa: E402
from aspect.data.source import load_named  # noqa: E402
from aspect.data.splits import Split, make_splits  # noqa: E402
from aspect.estimator import Embedder  # noqa: E402
from aspect.evaluation.linear_probe import linear_probe  # noqa: E402
from aspect.scale.generate import generate_store  # noqa: E402
from aspect.scale.options import MixedModel  # noqa: E402
from aspect.scale.rows import RowBatches, row_plan_of, stored_views  # noqa: E402
from aspect.scale.store import GraphStore  # noqa: E402
from aspect.settings import RowSettings, find_experiment  # noqa: E402
from aspect.training.trainer import train  # noqa: E402

MOST_BELOW = 1.0  # points that rows may be below the whole graph
PROBED = (20_000, 10_000, 50_000)  # training, validation and test nodes of a store's probe


def main() -> int:
    """Print a table; 1 if rows are too far below on a graph."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("graphs", nargs="*", default=[])
    parser.add_argument("--mixed", metavar="NODES:EDGES", default=None)
    parser.add_argument("--folder", type=Path, default=Path("runs/scale"), help="of mixed graphs")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--method", default="aspect")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=None, help="in place of the shipped ones")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="of the method")
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--queue", type=int, default=None)
    parser.add_argument("--pool", type=int, default=4)
    parser.add_argument("--precision", choices=["float32", "float16"], default="float32")
    parser.add_argument("--device", default="cpu")
    wanted = parser.parse_args()
    wanted.deadline = time.perf_counter() + wanted.seconds
    if wanted.mixed is not None:
        return by_region(wanted)
    table = Table(
        "graph",
        "seeds",
        "full",
        "rows",
        "difference",
        "validation: full",
        "rows",
        "seconds: full",
        "rows",
    )
    worst = 0.0
    for name in wanted.graphs or ["cora", "citeseer", "chameleon"]:
        labelled = load_named(name)
        found = {}
        for scale in ("rows", "full"):
            if time.perf_counter() < wanted.deadline:
                found[scale] = scores(wanted, name, labelled, scale)
                print(name, scale, found[scale], flush=True)
        if len(found) < 2:  # noqa: PLR2004 - both ways
            print(f"{name} was not finished within {wanted.seconds:.0f} seconds.")
            continue
        difference = found["rows"]["test"] - found["full"]["test"]
        worst = min(worst, difference)
        cells = [f"{found[scale]['test']:.2f}" for scale in ("full", "rows")]
        cells.append(f"{difference:+.2f}")
        cells += [f"{found[scale]['validation']:.2f}" for scale in ("full", "rows")]
        cells += [f"{found[scale]['seconds']:.0f}" for scale in ("full", "rows")]
        table.add_row(name, str(wanted.seeds), *cells)
    Console(width=120).print(table)
    return int(worst < -MOST_BELOW)


def row_settings(wanted: argparse.Namespace) -> RowSettings:
    """Those of the command line."""
    return RowSettings(
        batch=wanted.batch, queue=wanted.queue, pool=wanted.pool, precision=wanted.precision
    )


def settings_of(wanted: argparse.Namespace, graph: str | None) -> dict[str, Any]:
    """Shipped settings with what the command line changes."""
    from aspect.config import parse_overrides

    shipped, _ = find_experiment(wanted.method, graph, None)
    epochs = {} if wanted.epochs is None else {"epochs": wanted.epochs}
    return {**shipped.settings, **epochs, **parse_overrides(wanted.set)}


def scores(
    wanted: argparse.Namespace, name: str, labelled: LabelledGraph, scale: str
) -> dict[str, float]:
    """Means over ten random splits and the seeds, in percent."""
    splits = make_splits("random", labelled.labels, labelled.num_classes)
    settings, results, started = settings_of(wanted, name), [], time.perf_counter()
    for seed in range(wanted.seeds):
        how = row_settings(wanted) if scale == "rows" else "full"
        model = Embedder(wanted.method, seed=seed, device=wanted.device, scale=how, **settings)
        model.fit(labelled.graph, progress=False)
        embedding = model.embed(labelled.graph, normalise="none").to(wanted.device)
        results.append(
            linear_probe(embedding, labelled.labels, splits, num_classes=labelled.num_classes)
        )
    return {
        "test": float(np.mean([result.strict.mean for result in results])),
        "validation": float(np.mean([result.validation.mean for result in results])),
        "seconds": (time.perf_counter() - started) / wanted.seeds,
    }


# A store with regions


def by_region(wanted: argparse.Namespace) -> int:
    """Node-wise against global fusion, raw and propagated features, in each region."""
    nodes_given, edges_given = map(int, wanted.mixed.split(":"))
    model = MixedModel(nodes=nodes_given, edges=edges_given)
    place = wanted.folder / f"{model.nodes}-{model.edges}-{model.features}-{wanted.precision}"
    store = generate_store(model, place / "store", dtype=wanted.precision)
    assert store.labels is not None
    drawn = np.random.default_rng(0).permutation(store.num_nodes)[: sum(PROBED)]
    nodes = np.sort(drawn)
    labels = torch.from_numpy(store.labels[nodes].astype(np.int64))
    region = None if store.region is None else torch.from_numpy(store.region[nodes].astype(int))
    split = _split(len(nodes))
    table = Table("embedding", "all", "homophilic", "heterophilic", "validation", "seconds")
    for name, settings in (
        ("node-wise fusion", {"fusion": "node-wise"}),
        ("global fusion", {"fusion": "global"}),
    ):
        started = time.perf_counter()
        if started > wanted.deadline:
            break
        embedding, features = _embedded(wanted, store, settings, nodes)
        seconds = time.perf_counter() - started
        _add(table, name, embedding, labels, split, region, wanted.device, seconds)
    for name, rows in features.items():
        _add(table, name, rows, labels, split, region, wanted.device, 0.0)
    Console(width=120).print(table)
    return 0


def _split(count: int) -> Split:
    order = torch.randperm(count, generator=torch.Generator().manual_seed(1))
    first, second = PROBED[0] * count // sum(PROBED), (PROBED[0] + PROBED[1]) * count // sum(PROBED)
    return Split(order[:first], order[first:second], order[second:])


def _embedded(
    wanted: argparse.Namespace,
    store: GraphStore,
    changes: dict[str, Any],
    nodes: np.ndarray[Any, Any],
) -> tuple[Tensor, dict[str, Tensor]]:
    """Embeddings of some nodes, and their raw and propagated features."""
    rows, device = row_settings(wanted), torch.device(wanted.device)
    settings = {**settings_of(wanted, None), **changes}
    model = Embedder(wanted.method, device=wanted.device, scale=rows, **settings)
    method = model.untrained(store.num_features)
    with tempfile.TemporaryDirectory(dir=store.path.parent) as folder:
        plan = row_plan_of(method)
        views = stored_views(store, Path(folder), plan, rows, seed=0, device=wanted.device)
        data = RowBatches(views, rows, seed=0, device=device)
        train(method, data, seed=0)
        parts = []
        for start, end, output in data.outputs(method):
            chosen = nodes[(nodes >= start) & (nodes < end)] - start
            parts.append(output.embedding[torch.from_numpy(chosen).to(device)].cpu())
        terms = data.clean(torch.from_numpy(nodes).to(data.home)).cpu()
    smooth = -terms[1]  # S X, and S^2 X = (T_2 + X) / 2
    twice = (terms[2] + terms[0]) / 2
    features = {
        "raw features": terms[0],
        "propagated features": torch.cat([terms[0], smooth, twice], 1),
    }
    return torch.cat(parts), features


def _add(
    table: Table,
    name: str,
    rows: Tensor,
    labels: Tensor,
    split: Split,
    region: Tensor | None,
    device: str,
    seconds: float,
) -> None:
    result = linear_probe(rows.to(device), labels, [split])
    right = result.predictions[0].cpu() == labels[split.test]
    cells = [f"{100 * float(right.double().mean()):.2f}"]
    for number in (0, 1):
        part = None if region is None else region[split.test] == number
        cells.append("-" if part is None else f"{100 * float(right[part].double().mean()):.2f}")
    table.add_row(name, *cells, f"{result.validation.mean:.2f}", f"{seconds:.0f}")
    print(name, *cells, f"{result.validation.mean:.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
