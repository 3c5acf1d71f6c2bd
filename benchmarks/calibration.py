"""Which variant of Metattack harms as much as the one of the paper's table of perturbed graphs?

The paper poisons 10% of the edges and masks as many feature entries, and does not name the variant.
Here CCA-SSG and ASPECT are trained at their shipped settings on the clean graph and on graphs
poisoned by each variant, for the same class-balanced splits, and scored by both probes. The table
shows accuracy and drop, (clean - perturbed) / clean, beside the paper's. A variant is given as
settings of Metattack, or as the name of another attack. Rows are written as they are done to
results/calibration.csv, and a second call goes on with what is missing. The graphs' files lie in
the folder that ASPECT_DATA names.

python benchmarks/calibration.py 'solver=unrolled train_weight=meta-train' random --graph cora

With --tables nothing is trained.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import pandas as pd  # noqa: E402 - the path comes first
import torch  # noqa: E402

from aspect.attacks.file import PerturbationFile  # noqa: E402
from aspect.attacks.run import AttackRequest, plan_attacks, run_attack  # noqa: E402
from aspect.config import parse_overrides  # noqa: E402
from aspect.data.graph import Graph, LabelledGraph  # noqa: E402
from aspect.data.source import load_named  # noqa: E402
from aspect.data.splits import make_splits  # noqa: E402
from aspect.estimator import choose_device  # noqa: E402
from aspect.evaluation.linear_probe import linear_probe, probe_named  # noqa: E402
from aspect.report.benchmark_tables import published_figures  # noqa: E402
from commands import positive, run_all, told_in_a_line  # noqa: E402
from evasion import Training, append, settings_digest  # noqa: E402

RESULTS = ROOT / "results" / "calibration.csv"
GRAPHS = ("cora", "chameleon")
METHODS = ("cca-ssg", "aspect")  # and changes of their shipped settings
CLEAN = "clean"
VARIANTS = (
    "random",
    "solver=unrolled train_weight=meta-train",
    "solver=unrolled train_weight=meta-both",
    "solver=unrolled train_weight=meta-self",
    "solver=unrolled train_weight=meta-train first_order=true",
    "solver=unrolled train_weight=meta-self first_order=true",
    "solver=unrolled train_weight=meta-self flips_per_gradient=1",
    "solver=implicit train_weight=meta-train",
    "solver=implicit train_weight=meta-self",
)
BUDGET = 0.1  # flips as a ratio of the edges, and the rate of the feature mask
PROBES = ("neutral", "paper")
KEY = ["graph", "variant", "method", "split"]


@dataclass(frozen=True)
class Poisoning:
    """A graph, clean or poisoned for one split, and what is trained on it."""

    graph: str
    variant: str
    splits: tuple[int, ...]  # one, unless it is clean
    methods: tuple[str, ...]
    device: str | None = None

    def poisoned(self, labelled: LabelledGraph) -> Graph:
        """The graph that is trained on."""
        if self.variant == CLEAN:
            return labelled.graph
        words = self.variant.split()
        kind = "metattack" if "=" in words[0] else words.pop(0)
        request = AttackRequest(kind=kind, settings=parse_overrides(words), budget=BUDGET)
        device = choose_device(self.device)
        (planned,) = plan_attacks(labelled, self.graph, request, list(self.splits), device)
        file = run_attack(planned, PerturbationFile(planned.facts))
        return file.apply(labelled, BUDGET)


def scores_of(poisoning: Poisoning) -> list[dict[str, Any]]:
    """A row for each method, split and probe."""
    labelled = load_named(poisoning.graph)
    graph, labels, classes = poisoning.poisoned(labelled), labelled.labels, labelled.num_classes
    splits = make_splits("class-balanced", labels, classes)
    chosen = [splits[number] for number in poisoning.splits]
    rows: list[dict[str, Any]] = []
    for method in poisoning.methods:
        training = Training(poisoning.graph, method, 0, 1, False, device=poisoning.device)
        model = training.model().fit(graph, progress=False)
        embedded = model.embed(graph, normalise="none").to(model.device)
        for name in PROBES:
            probe = probe_named(name)
            probed = linear_probe(embedded, labels, chosen, num_classes=classes, probe=probe)
            rows += [
                {
                    "graph": poisoning.graph,
                    "variant": poisoning.variant,
                    "method": method,
                    "split": number,
                    "probe": name,
                    "accuracy": round(score.strict, 3),
                    "settings": settings_digest(model),
                }
                for number, score in zip(poisoning.splits, probed.splits, strict=True)
            ]
    return rows


def poisonings(given: argparse.Namespace, known: pd.DataFrame) -> Iterator[Poisoning]:
    """What is missing in the table, clean graphs first."""
    done = set(map(tuple, known[KEY].to_numpy().tolist()))
    for graph in given.graph or GRAPHS:
        for variant in (CLEAN, *given.variants):
            missing: dict[tuple[str, ...], list[int]] = {}  # splits by methods
            for split in given.split:
                keys = {
                    method: (graph, variant, method, split) for method in given.method or METHODS
                }
                methods = tuple(method for method, key in keys.items() if key not in done)
                missing.setdefault(methods, []).append(split)
            missing.pop((), None)
            for methods, left in missing.items():
                for splits in [tuple(left)] if variant == CLEAN else [(split,) for split in left]:
                    yield Poisoning(graph, variant, splits, methods, given.device)


def table(scores: pd.DataFrame) -> pd.DataFrame:
    """Accuracy and drop of each variant, over the splits that it shares with the clean graph."""
    clean = scores[scores.variant == CLEAN]
    keys = ["graph", "method", "split", "probe"]
    both = scores[scores.variant != CLEAN].merge(clean, on=keys, suffixes=("", "_clean"))
    figures = published_figures().set_index(["method", "graph", "table"])["mean"].to_dict()
    lines = []
    order = ["graph", "method", "probe", "variant"]
    for (graph, method, probe, variant), some in both.groupby(order, sort=False):
        before, after = some.accuracy_clean.mean(), some.accuracy.mean()
        base = str(method).split()[0]
        paper, paper_clean = (figures[base, graph, of] for of in ("perturbed", CLEAN))
        lines.append(
            {
                **dict(zip(order, (graph, method, probe, variant), strict=True)),
                "splits": len(some),
                "clean": before,
                "perturbed": after,
                "drop": 100 * (before - after) / before,
                "paper": paper,
                "paper's drop": 100 * (paper_clean - paper) / paper_clean,
            }
        )
    return pd.DataFrame(lines).sort_values(order[:3], kind="stable").round(1)


def closest(lines: pd.DataFrame) -> str:
    """For each graph, method and probe the variant whose drop is nearest to the paper's."""
    away = (lines["drop"] - lines["paper's drop"]).abs()
    nearest = lines.loc[away.groupby([lines.graph, lines.method, lines.probe]).idxmin()]
    columns = ["graph", "method", "probe", "paper's drop", "variant", "drop"]
    return "\n".join(
        f"{graph}, {method}, {probe} probe: nearest to the paper's drop of {paper:.1f}% is "
        f"{variant!r} with {drop:.1f}%."
        for graph, method, probe, paper, variant, drop in nearest[columns].itertuples(index=False)
    )


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Attack and train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("variants", nargs="*", default=VARIANTS, help="as those of the table")
    parser.add_argument("--graph", choices=GRAPHS, action="append", default=[])
    parser.add_argument(
        "--method", action="append", default=[], help="such as 'aspect epochs=50'; several times"
    )
    parser.add_argument("--split", type=int, nargs="+", choices=range(10), default=[0])
    parser.add_argument("--workers", type=positive, default=1)
    parser.add_argument("--device", help="as of aspect train")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="train nothing, print the table")
    given = parser.parse_args(arguments)
    known = pd.read_csv(given.out) if given.out.exists() else pd.DataFrame(columns=KEY)
    missing = [] if given.tables else list(poisonings(given, known))
    lost = run_all(scores_of, missing, given.workers, lambda _, rows: append(given.out, rows))
    if not given.out.exists():
        print(f"{given.out} is not there, and nothing was trained.", file=sys.stderr)
        return 2
    lines = table(pd.read_csv(given.out))
    print(lines.to_string(index=False))
    print(closest(lines))
    return 2 if lost else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(None))
