"""Read embeddings with several tools: both probes, three kinds of splits, scikit-learn, health.

One training a method, graph and seed; then everything that can be asked of its embedding. The
records go to results/probes.jsonl; `make tables` writes their tables. Run by `make probes`; with
`--tables` they are printed alone. Wants a GPU; the graphs' files lie in the folder that ASPECT_DATA
names.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402 - the path comes first
import torch  # noqa: E402
from jaxtyping import Float  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from torch import Tensor  # noqa: E402

from aspect.config import load_yaml  # noqa: E402
from aspect.data.graph import LabelledGraph  # noqa: E402
from aspect.data.source import load_named  # noqa: E402
from aspect.data.splits import make_splits  # noqa: E402
from aspect.estimator import Embedder  # noqa: E402
from aspect.evaluation.linear_probe import (  # noqa: E402
    linear_probe,
    probe_named,
    validation_scores,
)
from aspect.evaluation.significance import paired_test  # noqa: E402
from aspect.nn.normalisation import MEAN_LENGTH  # noqa: E402
from aspect.settings import find_experiment  # noqa: E402
from commands import markdown, positive, run_all, told_in_a_line  # noqa: E402

RECORDS = ROOT / "results" / "probes.jsonl"
OLD_SETTINGS = ROOT / "benchmarks" / "settings_0.1"

GRAPHS = (
    *("cora", "citeseer", "pubmed", "cornell", "cornell_old", "texas", "wisconsin"),
    *("actor", "chameleon", "squirrel"),
)
CONTROLS = ("raw", "propagated", "spectral")
METHODS = ("aspect", "polygcl", "s3gcl", "sp-gcl")
KINDS = ("random", "published", "class-balanced")
PROBES = ("neutral", "paper")

# Version 0.1's settings with its batch norm, and with the statistics recomputed; nothing else
# differs, neither a weight nor a draw.
BEFORE, AFTER = "aspect 0.1", "aspect 0.1, recomputed"
BATCH_NORM = {BEFORE: "running", AFTER: "recomputed"}

TOOL_SPLITS = 3  # of the random ones, for scikit-learn
LENGTHS = (1.0, 2.0, 4.0, 8.0, 16.0)  # of rows, to choose the one that `embed` exports by
MOST_NODES = 10_000  # of a graph that the lengths are tried on


@dataclass(frozen=True)
class Job:
    """One training."""

    row: str
    graph: str
    seed: int


def jobs(rows: Sequence[str], graphs: Sequence[str], seeds: int) -> Iterator[Job]:
    """The slow graphs first; controls draw nothing, and baselines have one seed."""
    slow = ("pubmed", "squirrel", "actor", "citeseer")
    for graph in sorted(graphs, key=lambda name: slow.index(name) if name in slow else len(slow)):
        for row in rows:
            if row in BATCH_NORM and not (OLD_SETTINGS / f"{graph}.yaml").is_file():
                continue
            count = seeds if row == "aspect" or row in BATCH_NORM else 1
            yield from (Job(row, graph, seed) for seed in range(count))


def run(job: Job, device: str | None, probes: Sequence[str] = PROBES) -> dict[str, Any]:
    """Train, and ask."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning, module="sklearn")
    labelled = load_named(job.graph)
    model = _model(job, device).fit(labelled.graph)
    # As version 0.1 probed them: the paper probe sees where embeddings lie, the neutral does not.
    embeddings = model.embed(labelled.graph, normalise="none").to(model.device)
    record = {
        **asdict(job),
        "health": model.health(labelled.graph).to_dict(),
        "scores": {kind: _scores(embeddings, labelled, kind, probes) for kind in KINDS},
        "device": model.device.type,
    }
    rows = model.embed(labelled.graph).numpy()  # as they are exported
    if job.row in ("raw", "aspect") and job.seed == 0:
        nearest = partial(KNeighborsClassifier, metric="cosine")
        record["knn"] = _read(nearest, rows, labelled, "random", "test")
    if job.row == "aspect" and job.seed == 0:
        standard = model.embed(labelled.graph, normalise="standard").numpy()
        record["logistic"] = {
            "centre": _read(LogisticRegression, rows, labelled, "random", "test"),
            "standard": _read(LogisticRegression, standard, labelled, "random", "test"),
        }
        if len(rows) <= MOST_NODES:
            record["lengths"] = _lengths(rows, labelled)
    return record


def _model(job: Job, device: str | None) -> Embedder:
    if job.row not in BATCH_NORM:
        settings = find_experiment(job.row, job.graph, None)[0].settings
        return Embedder(job.row, seed=job.seed, device=device, **settings)
    settings = load_yaml(OLD_SETTINGS / f"{job.graph}.yaml")["settings"]
    changes: dict[str, Any] = {
        "norm_statistics": BATCH_NORM[job.row],
        "centred": False,
        "unit_rows": False,
    }
    return Embedder("aspect", seed=job.seed, device=device, **settings, **changes)


def _scores(
    embeddings: Float[Tensor, "nodes dim"],
    labelled: LabelledGraph,
    kind: str,
    probes: Sequence[str],
) -> dict[str, Any]:
    """Test accuracy of every split, and how often validation chose an end of the path."""
    found = {}
    for name in probes:
        probe = probe_named(name)
        result = linear_probe(
            embeddings,
            labelled.labels,
            kind,
            num_classes=labelled.num_classes,
            masks=labelled.masks,
            probe=probe,
        )
        ends = [_is_end(probe, score) for score in result.splits]
        found[name] = {
            "strict": [score.strict for score in result.splits],
            "ends": sum(ends) / len(ends),
        }
    return found


def _is_end(probe: Any, score: Any) -> bool:  # noqa: ANN401
    """Whether more, or less, regularisation or training might have been better."""
    if probe.name == "neutral":
        return bool(score.at_path_end)
    decays = probe.weight_decays
    return score.choice in (min(decays), max(decays)) or score.step == probe.steps


def _lengths(rows: np.ndarray[Any, Any], labelled: LabelledGraph) -> dict[str, float]:
    """Validation accuracy of a plain logistic regression by the mean length of the rows."""
    splits = make_splits("search", labelled.labels, labelled.num_classes)[:TOOL_SPLITS]
    best = validation_scores(rows, labelled.labels, splits, num_classes=labelled.num_classes)
    found = {"probe": sum(best) / len(best)}
    for length in LENGTHS:
        scaled = rows * (length / MEAN_LENGTH)
        found[f"{length:g}"] = _read(LogisticRegression, scaled, labelled, "search", "validation")
    return found


def _read(
    reader: Callable[[], Any],
    rows: np.ndarray[Any, Any],
    labelled: LabelledGraph,
    kind: str,
    part: str,
) -> float:
    splits = make_splits(kind, labelled.labels, labelled.num_classes)[:TOOL_SPLITS]
    labels, scores = labelled.labels.numpy(), []
    for split in splits:
        fitted = reader().fit(rows[split.train], labels[split.train])
        nodes = getattr(split, part)
        scores.append(100 * float(fitted.score(rows[nodes], labels[nodes])))
    return sum(scores) / len(scores)


# Tables


def per_split(
    records: Sequence[dict[str, Any]], row: str, graph: str, kind: str, probe: str
) -> np.ndarray[Any, Any] | None:
    """Accuracy by split, averaged over the seeds; None without a record."""
    found = [
        record["scores"][kind][probe]["strict"]
        for record in records
        if record["row"] == row and record["graph"] == graph and probe in record["scores"][kind]
    ]
    return np.mean(found, axis=0) if found else None


def accuracy_table(records: Sequence[dict[str, Any]], kind: str) -> str:
    """All rows on all graphs, both probes side by side: `neutral / paper`."""

    def cell(row: str, graph: str) -> str:
        means = [per_split(records, row, graph, kind, probe) for probe in PROBES]
        return " / ".join("-" if mean is None else f"{mean.mean():.1f}" for mean in means)

    rows = [[row, *(cell(row, graph) for graph in GRAPHS)] for row in (*CONTROLS, *METHODS)]
    return markdown([kind, *GRAPHS], rows)


def ends_table(records: Sequence[dict[str, Any]]) -> str:
    """Share of all probes whose choice is an end of what there was to choose from, in percent."""

    def share(row: str, probe: str) -> str:
        ends = [
            scores[probe]["ends"]
            for record in records
            if record["row"] == row
            for scores in record["scores"].values()
            if probe in scores
        ]
        return f"{100 * sum(ends) / len(ends):.1f}" if ends else "-"

    rows = [[row, *(share(row, probe) for probe in PROBES)] for row in (*CONTROLS, *METHODS)]
    return markdown(["chosen at an end, %", *PROBES], rows)


def against_table(records: Sequence[dict[str, Any]], rival: str) -> str:
    """ASPECT less a control under the neutral probe, with the paired test's 95% interval."""

    def cell(graph: str, kind: str) -> str:
        ours = per_split(records, "aspect", graph, kind, "neutral")
        theirs = per_split(records, rival, graph, kind, "neutral")
        if ours is None or theirs is None:
            return "-"
        paired = paired_test(ours, theirs)
        mark = " **below**" if paired.high < 0 else ""
        return f"{paired.difference:+.1f} ± {paired.high - paired.difference:.1f}{mark}"

    rows = [[kind, *(cell(graph, kind) for graph in GRAPHS)] for kind in KINDS[:2]]
    return markdown([f"ASPECT less {rival}", *GRAPHS], rows)


def health_table(records: Sequence[dict[str, Any]]) -> str:
    """Of every shipped setting, before centring; the worst seed."""
    rows = []
    for graph in GRAPHS:
        health = [
            record["health"]
            for record in records
            if record["row"] == "aspect" and record["graph"] == graph
        ]
        if not health:
            continue
        worst = max(health, key=lambda each: each["mean_cosine"])
        numbers = ("mean_cosine", "variance_share", "effective_rank", "min_norm", "max_norm")
        rows.append([graph, *(f"{worst[name]:.3g}" for name in numbers), str(worst["dim"])])
    return markdown(
        [
            "health",
            "mean cosine",
            "variance share",
            "effective rank",
            "min norm",
            "max norm",
            "width",
        ],
        rows,
    )


def batch_norm_table(records: Sequence[dict[str, Any]]) -> str:
    """Version 0.1's settings by running and by recomputed statistics, seed by seed."""
    rows = []
    for graph in GRAPHS:
        for row, statistics in BATCH_NORM.items():
            found = [r for r in records if r["row"] == row and r["graph"] == graph]
            if not found:
                continue
            cells = [
                ", ".join(
                    f"{sum(scores) / len(scores):.1f}"
                    for scores in (record["scores"][kind][probe]["strict"] for record in found)
                )
                for kind, probe in (
                    ("random", "neutral"),
                    ("random", "paper"),
                    ("class-balanced", "paper"),
                )
            ]
            cosines = ", ".join(f"{record['health']['mean_cosine']:.3f}" for record in found)
            rows.append([graph, statistics, *cells, cosines])
    head = ["graph", "statistics", "random, neutral", "random, paper", "class-balanced, paper"]
    return markdown([*head, "mean cosine"], rows)


def tools_table(records: Sequence[dict[str, Any]]) -> str:
    """scikit-learn with its defaults on the exported file beside our probe, on the same splits."""
    rows = []
    for graph in GRAPHS:
        found = {r["row"]: r for r in records if r["graph"] == graph and "knn" in r}
        if not {"aspect", "raw"} <= set(found):
            continue
        ours = found["aspect"]["scores"]["random"]["neutral"]["strict"][:TOOL_SPLITS]
        probe, plain = sum(ours) / len(ours), found["aspect"]["logistic"]
        knn, raw = (found[row]["knn"] for row in ("aspect", "raw"))
        cells = [probe, plain["centre"], plain["centre"] - probe, plain["standard"], knn, raw]
        rows.append([graph, *(f"{value:.1f}" for value in cells)])
    head = [
        "exported",
        "our probe",
        "LogisticRegression()",
        "difference",
        "the same, standard",
        "5-NN",
        "5-NN on raw features",
    ]
    return markdown(head, rows)


def lengths_table(records: Sequence[dict[str, Any]]) -> str:
    """LogisticRegression() less our probe on validation nodes, by the mean length of the rows."""
    rows = []
    for record in records:
        if "lengths" in record:
            found = record["lengths"]
            gaps = [found[f"{length:g}"] - found["probe"] for length in LENGTHS]
            rows.append([record["graph"], *(f"{gap:+.1f}" for gap in gaps)])
    rows.sort(key=lambda row: GRAPHS.index(row[0]))
    return markdown(["mean length", *(f"{length:g}" for length in LENGTHS)], rows)


def tables(records: Sequence[dict[str, Any]]) -> str:
    """All of them."""
    parts = [
        "# Embeddings, read by several tools",
        "Made by `make probes`. Test accuracy in percent, ten splits; `neutral / paper` probe. "
        "ASPECT: three seeds; the others: one. Class-balanced test sets lack whole classes.",
        *(accuracy_table(records, kind) for kind in KINDS),
        ends_table(records),
        *(against_table(records, rival) for rival in CONTROLS),
        "Health of the shipped settings, measured before centring; the worst of the seeds.",
        health_table(records),
        "Version 0.1's settings, by its running statistics of batch norm and by recomputed ones; "
        "the same weights, three seeds.",
        batch_norm_table(records),
        "scikit-learn with its defaults on what `aspect embed` exports; "
        f"{TOOL_SPLITS} random splits.",
        tools_table(records),
        "How the exported length of rows was chosen: LogisticRegression() less our probe, on "
        f"validation nodes of {TOOL_SPLITS} splits that no table reports.",
        lengths_table(records),
    ]
    return "\n\n".join(parts) + "\n"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    rows = (*CONTROLS, *METHODS, *BATCH_NORM)
    parser.add_argument("--row", choices=rows, action="append", help="one row only")
    parser.add_argument("--graph", choices=GRAPHS, action="append", help="one graph only")
    parser.add_argument("--seeds", type=positive, default=3, help="of ASPECT")
    parser.add_argument("--workers", type=positive, default=2, help="trainings at a time")
    parser.add_argument("--device", help="as of aspect train")
    parser.add_argument("--probe", choices=PROBES, action="append", help="one probe only")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--tables", action="store_true", help="train nothing, print the tables")
    return parser.parse_args(arguments)


def read_records(path: Path) -> list[dict[str, Any]]:
    """Those that there are, a line each."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Train what has no record yet, and print the tables."""
    given = parse(arguments)
    records, lost = read_records(given.records), 0
    if not given.tables:
        rows = given.row or (*CONTROLS, *METHODS, *BATCH_NORM)
        done = {(record["row"], record["graph"], record["seed"]) for record in records}
        todo = [
            job
            for job in jobs(rows, given.graph or GRAPHS, given.seeds)
            if (job.row, job.graph, job.seed) not in done
        ]
        os.environ["OMP_NUM_THREADS"] = "1"

        def keep(_: Job, record: dict[str, Any]) -> None:
            records.append(record)
            print(json.dumps(record["scores"]["random"]["neutral"]["strict"]), flush=True)
            with given.records.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

        work = partial(run, device=given.device, probes=given.probe or PROBES)
        lost = run_all(work, todo, given.workers, keep)
    print(tables(records))
    return 2 if lost else 0


if __name__ == "__main__":
    sys.exit(main(None))
