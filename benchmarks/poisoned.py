"""Methods beside each other on graphs that are poisoned, with and without edge pruning.

A folder holds what `danielzuegner/gnn-meta-attack` and `ChandlerBang/Pro-GNN` publish: the clean
graph (`cora_ml_source.npz`), Metattack's adjacencies at 5 to 25% (`cora_ml_meta_adj_RATE.npz`) and
the split (`cora_ml_prognn_splits.json`). A file is one of `aspect attack`, on a known data set: its
flips alone, on its own split. Every method trains on each graph as it is and pruned by the rule
without labels (`auto`); with --ratios also pruned at several ratios, of which the split's
validation nodes choose one; with `--score known` without the edges that were added, as no rule
can know them: the most that pruning could give. Rows are written as they are done, and a run that
was stopped goes on.

python benchmarks/poisoned.py FOLDER FILE... --workers 8 --seconds 100 --out poisoned.csv

`--set` changes a method's defaults, and the rows say so. On a CPU ASPECT draws negatives on such
graphs; `--method aspect --set negatives=5000` takes all of them, as a GPU does.

Without a folder or file it prints the table of what is in `results/poisoned.csv`; `--column` shows
validation accuracy, or the ratio of edges that went, in place of test accuracy. `make tables` puts
the defaults on Cora-ML, and attacks that avoid the edge score, into docs/robustness.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402 - the path comes first
import pandas as pd  # noqa: E402
import scipy.sparse as sp  # noqa: E402
import torch  # noqa: E402
from scipy.sparse.csgraph import connected_components  # noqa: E402

from aspect.attacks.base import apply_flips  # noqa: E402
from aspect.attacks.file import PerturbationFile  # noqa: E402
from aspect.attacks.imported import read_perturbed  # noqa: E402
from aspect.attacks.pruning import AUTO, DEFAULT  # noqa: E402
from aspect.config import parse_overrides  # noqa: E402
from aspect.data.graph import (  # noqa: E402
    Graph,
    LabelledGraph,
    edge_keys,
    label_graph,
    with_pairs,
)
from aspect.data.source import load_named  # noqa: E402
from aspect.data.splits import Split, make_splits  # noqa: E402
from aspect.errors import FileError  # noqa: E402
from aspect.estimator import Embedder  # noqa: E402
from aspect.evaluation.linear_probe import linear_probe  # noqa: E402
from aspect.experiment.plan import load_plan  # noqa: E402
from aspect.workspace import write_text  # noqa: E402
from commands import markdown, positive, run_all, told_in_a_line  # noqa: E402

RATES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)
BUDGET = 0.1  # of a file
KNOWN = "known"  # in place of a score
RATIOS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
METHODS = ("aspect", "cca-ssg", "grace", "propagated", "raw", "s3gcl", "greet", "polygcl")
COLUMNS = {"test": 1, "validation": 1, "pruned": 3}  # what a table may show, and its digits
AVOIDING = "-avoiding-auto"  # files of attacks that avoid the edge score of today
PARTS = {"train": "idx_train", "validation": "idx_val", "test": "idx_test"}


@cache
def clean_graph(folder: Path) -> LabelledGraph:
    """The largest component of the published graph, with the published split."""
    path = folder / "cora_ml_source.npz"
    if not path.is_file():
        raise FileError(f"A folder must hold {path.name} and the files beside it. Got {folder}.")
    parts = np.load(path)  # names of nodes, which are pickled, stay unread
    matrices = [
        sp.csr_matrix(
            tuple(parts[f"{name}_{part}"] for part in ("data", "indices", "indptr")),
            shape=parts[f"{name}_shape"],
        )
        for name in ("adj", "attr")
    ]
    _, component = connected_components(matrices[0], directed=False)
    kept = np.flatnonzero(component == np.bincount(component).argmax())
    pairs = torch.from_numpy(np.stack(matrices[0][kept][:, kept].nonzero())).long()
    features = torch.from_numpy(matrices[1][kept].toarray()).float()
    split = json.loads((folder / "cora_ml_prognn_splits.json").read_text(encoding="utf-8"))
    masks = {name: torch.zeros(1, len(kept), dtype=torch.bool) for name in PARTS}
    for name, key in PARTS.items():
        masks[name][0, split[key]] = True
    labels = torch.from_numpy(parts["labels"][kept]).long()
    return label_graph(Graph.build(features, pairs), labels, masks=masks)


@cache
def read_case(source: Path, rate: float) -> tuple[LabelledGraph, Graph, Split]:
    """Labels, the graph at hand, and the split to judge on."""
    if source.is_dir():
        labelled = clean_graph(source)
        graph = labelled.graph
        kinds = make_splits(
            "published", labelled.labels, labelled.num_classes, masks=labelled.masks
        )
        if rate:
            adjacency = source / f"cora_ml_meta_adj_{rate:g}.npz"
            graph = apply_flips(graph, read_perturbed(adjacency, graph))
        return labelled, graph, kinds[0]
    file = PerturbationFile.read(source)
    labelled = load_named(file.facts.graph.name)
    graph = file.apply(labelled, rate, features=False) if rate else labelled.graph
    return labelled, graph, file.split_of(labelled)


@dataclass(frozen=True)
class Run:
    """One training."""

    source: str
    rate: float
    method: str
    score: str  # of the edges; empty: none is pruned; known: the added ones are
    ratio: str
    seed: int
    settings: str = ""  # changes of the method's defaults


def result_of(task: tuple[Run, Path, str | None]) -> dict[str, Any]:
    """Train, embed and probe; a test label chooses nothing."""
    run, source, device = task
    labelled, graph, split = read_case(source, run.rate)
    prune = None
    if run.score == KNOWN:
        keys = edge_keys(graph)
        graph = with_pairs(graph, keys[torch.isin(keys, edge_keys(labelled.graph))])
    elif run.score:
        ratio = run.ratio if run.ratio == AUTO else float(run.ratio)
        prune = {"ratio": ratio, "score": run.score}
    settings, started = parse_overrides(run.settings.split()), time.perf_counter()
    model = Embedder(run.method, seed=run.seed, device=device, prune=prune, **settings).fit(graph)
    rows = model.embed(graph, normalise="none").to(model.device)
    probed = linear_probe(rows, labelled.labels, [split], num_classes=labelled.num_classes)
    pruned = 1 - model.as_seen(graph).num_edges / read_case(source, run.rate)[1].num_edges
    return {
        **asdict(run),
        "pruned": round(pruned, 4),
        "validation": round(probed.splits[0].validation, 3),
        "test": round(probed.splits[0].strict, 3),
        "seconds": round(time.perf_counter() - started, 2),
    }


def runs(given: argparse.Namespace) -> Iterator[tuple[Run, Path]]:
    """Those that say most first: the methods of the first places, the largest rates."""
    ratios = (AUTO, *map(str, RATIOS)) if given.ratios else (AUTO,)
    ways = [("", "")]
    if not given.unpruned:
        scores = given.score or [DEFAULT]
        ways += [(KNOWN, "")] * (KNOWN in scores)
        ways += itertools.product([score for score in scores if score != KNOWN], ratios)
    cases = [
        (source, rate)
        for source in given.sources
        for rate in given.budget or (RATES[::-1] if source.is_dir() else [BUDGET])
    ]
    for method, seed in itertools.product(given.method or METHODS, range(given.seeds)):
        if seed and method in ("propagated", "raw"):
            continue
        for (source, rate), (score, ratio) in itertools.product(cases, ways):
            if not (method == "raw" and score):  # which reads no edge
                changes = " ".join(given.set)
                yield Run(source.stem, rate, method, score, ratio, seed, changes), source


def read(path: Path) -> pd.DataFrame:
    """The rows that are there; words may be empty."""
    return pd.read_csv(path, keep_default_na=False) if path.exists() else pd.DataFrame()


def table(results: pd.DataFrame, column: str = "test") -> str:
    """Test accuracy by rate: all edges, the rule, the ratio that validation prefers."""
    results = results.sort_values("ratio", kind="stable")
    tried = results[(results.ratio != AUTO) & (results.score != KNOWN)]
    best = []
    keys = ["source", "rate", "method", "seed", "settings"]
    for score in sorted(set(tried.score) - {""}):
        choice = tried[tried.score.isin(["", score])]
        choice = choice.merge(tried[tried.score == score][keys].drop_duplicates(), on=keys)
        first = choice.sort_values("validation", ascending=False, kind="stable")
        best.append(first.groupby(keys).head(1).assign(way=f"by validation, {score}"))
    ways = [
        results[results.score == ""].assign(way="all edges"),
        *(
            rows.assign(way=f"auto, {score}")
            for score, rows in results[results.ratio == AUTO].groupby("score")
        ),
        *best,
        results[results.score == KNOWN].assign(way="added edges known"),
    ]
    joined = pd.concat(ways)
    row = ["source", "method", "settings", "way"]
    shown = joined.pivot_table(column, row, "rate", aggfunc="mean").round(COLUMNS[column])
    if {RATES[0], RATES[-1]} <= set(shown):
        shown["lost"] = (shown[RATES[0]] - shown[RATES[-1]]).round(COLUMNS[column])
    counts = joined.groupby([*row, "rate"]).size().groupby(row)
    shown["trainings"] = counts.min().astype(str) + " to " + counts.max().astype(str)
    return str(shown.to_string())


def blocks(results: pd.DataFrame) -> dict[str, str]:
    """Markdown of test accuracy for docs/robustness.md, by the names of its tables."""
    titles = {entry.name: entry.title for entry in load_plan("perturbed").entries}
    results = results[results.score != KNOWN].assign(title=results.method.map(titles))
    published = results[(results.source == "poisoned") & (results.settings == "")]
    adaptive = results[results.source.str.endswith(AVOIDING) & (results.score == "")]
    return {"poisoned-cora-ml": _by_rate(published), "poisoned-avoiding": _by_attack(adaptive)}


def _by_rate(results: pd.DataFrame) -> str:
    """All edges / pruned by the rule; what scores best at the largest rate stands first."""
    ordered = results.sort_values(["score", "rate"])  # all edges before pruned ones
    means = ordered.groupby(["title", "rate", "score"]).test.mean().groupby(["title", "rate"])
    shown = means.agg(lambda both: " / ".join(f"{mean:.1f}" for mean in both)).unstack()
    best = means.last().unstack().iloc[:, -1].sort_values(ascending=False, kind="stable")
    shown.columns = pd.Index([f"{rate:.0%}" for rate in shown])
    shown["seeds"] = results.groupby("title").seed.nunique().astype(str)
    return _markdown(shown.loc[best.index])


def _by_attack(results: pd.DataFrame) -> str:
    """A row for each method, those with many and high scores first; `-` where it was not run."""
    means = results.pivot_table("test", "title", "source", aggfunc="mean")
    means = means.loc[means.sum(axis="columns").sort_values(ascending=False).index]
    words = [str(name).split("-") for name in means]
    kinds = {"metattack": "Metattack", "pr": "PR-BCD"}
    means.columns = pd.Index([f"{graph.capitalize()}, {kinds[kind]}" for graph, kind, *_ in words])
    return _markdown(means.map("{:.1f}".format, na_action="ignore").fillna("-"))


def _markdown(shown: pd.DataFrame) -> str:
    """The method first, then numbers."""
    rows = [list(map(str, row)) for row in shown.itertuples()]
    return f"{markdown(['method', *shown], rows, '--:')}\n"


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is not there yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sources", type=Path, nargs="*", help="folder or perturbation file")
    parser.add_argument(
        "--budget", type=float, nargs="+", help="ratio of flips (default: all, 0.1)"
    )
    parser.add_argument("--method", action="append", default=[])
    parser.add_argument("--score", action="append", default=[])
    parser.add_argument("--ratios", action="store_true", help="let validation choose a ratio, too")
    parser.add_argument("--unpruned", action="store_true", help="on all edges alone")
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--workers", type=positive, default=1)
    parser.add_argument("--device")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing later")
    parser.add_argument("--column", choices=COLUMNS, default="test", help="what the table shows")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "poisoned.csv")
    given = parser.parse_args(arguments)
    for source in given.sources:
        read_case(source, 0.0)  # what is not there is said once
    started = time.monotonic()
    kept = read(given.out)
    rows: list[dict[Any, Any]] = kept.to_dict("records")
    done = {tuple(str(row[name]) for name in Run.__annotations__) for row in rows}
    wanted = [
        (run, source, given.device)
        for run, source in runs(given)
        if tuple(map(str, astuple(run))) not in done
    ]
    tasks = itertools.takewhile(lambda _: time.monotonic() - started < given.seconds, wanted)

    def keep(_: object, row: dict[str, Any]) -> None:
        rows.append(row)
        write_text(given.out, pd.DataFrame(rows).to_csv(index=False))

    lost = run_all(result_of, tasks, given.workers, keep)
    if given.out.exists():
        print(table(read(given.out), given.column))
    return 2 if lost else 0


if __name__ == "__main__":
    sys.exit(main(None))
