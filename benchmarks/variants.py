"""Validation accuracy of a method's defaults and of variants of them, graph by graph.

What a user's graph gets are the defaults: a change of them must pay on most graphs before anything
is tuned. Scored as trials of a search are, on splits that no table reports; no test label is read.
Several trainings at a time share a GPU much faster under NVIDIA's MPS. The graphs' files lie in the
folder that ASPECT_DATA names. Run by `make variants`; results/variants.csv has what came out, and
keeps what it has of other variants.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import pandas as pd  # noqa: E402 - the path comes first

from aspect.config import parse_overrides  # noqa: E402
from aspect.experiment.search import SearchRequest, plan_search  # noqa: E402
from aspect.experiment.trial import load_problem, score_settings  # noqa: E402
from aspect.settings import Experiment  # noqa: E402
from aspect.workspace import write_text  # noqa: E402
from commands import markdown, positive, run_all, told_in_a_line  # noqa: E402
from settings import GRAPHS, SEEDS_ON_SMALL, SMALL  # noqa: E402

RESULTS = ROOT / "results" / "variants.csv"
VARIANTS = (
    "skip_weight=0",
    "skip_weight=1",
    "width=2048",
    "layer_order=filter-first",
    "epochs=400",
)


@dataclass(frozen=True)
class Variant:
    """Settings of a method on a graph, as `--set` takes them; none: the defaults."""

    method: str
    graph: str
    changes: tuple[str, ...]
    device: str | None

    @property
    def name(self) -> str:
        """What the table calls it."""
        return " ".join(self.changes) or "defaults"


def scores_of(variant: Variant) -> list[dict[str, Any]]:
    """The score at every epoch at which a training is scored."""
    settings = parse_overrides(list(variant.changes))
    experiment = Experiment(method=variant.method, graph=variant.graph, settings=settings)
    request = SearchRequest(seeds=SEEDS_ON_SMALL if variant.graph in SMALL else 1, max_cosine=1.0)
    search = plan_search(experiment, request, settings_from=variant.name, device=variant.device)
    problem = load_problem(search.model_dump_json(), None)
    scores = score_settings(problem, search, search.settings, lambda *_: None)
    known = {"method": variant.method, "graph": variant.graph, "variant": variant.name}
    return [
        {**known, "epoch": epoch, "validation": round(score.validation, 3)}
        for epoch, score in scores.items()
    ]


def _others(path: Path, tasks: set[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """What the file has of variants that are not trained now."""
    if not path.is_file():
        return []
    kept = pd.read_csv(path)
    names = zip(kept.method, kept.graph, kept.variant, strict=True)
    kept = kept[[name not in tasks for name in names]]
    return [{str(key): value for key, value in row.items()} for row in kept.to_dict("records")]


def table(scores: pd.DataFrame) -> pd.DataFrame:
    """After the last epoch, a row for each variant, with the mean over the graphs."""
    last = scores.sort_values("epoch").groupby(["variant", "graph"]).validation.last().unstack()
    last = last[[graph for graph in GRAPHS if graph in last]]
    last["mean"] = last.mean(axis=1)
    return last.round(1)


def in_lab_book(scores: pd.DataFrame) -> str:
    """The table as the lab book has it."""
    rows = [
        (
            name if name == "defaults" else f"`{name}`",
            *("-" if math.isnan(score) else f"{score:.1f}" for score in line),
        )
        for name, *line in scores.itertuples()
    ]
    return markdown(["", *scores], rows)


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Train all variants and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("variants", nargs="*", default=VARIANTS, help="such as width=2048")
    parser.add_argument("--method", default="aspect")
    parser.add_argument("--graph", choices=GRAPHS, action="append", default=[])
    parser.add_argument("--workers", type=positive, default=2)
    parser.add_argument("--device", help="as of aspect tune")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="train nothing, print the table")
    given = parser.parse_args(arguments)
    lost = 0
    if not given.tables:
        tasks = [
            Variant(given.method, graph, tuple(words.split()), given.device)
            for graph in reversed(given.graph or GRAPHS)
            for words in ("", *given.variants)
        ]
        scores = _others(given.out, {(each.method, each.graph, each.name) for each in tasks})

        def keep(_: Variant, found: list[dict[str, Any]]) -> None:
            scores.extend(found)
            rows = pd.DataFrame(scores).sort_values(["graph", "variant", "epoch"])
            write_text(given.out, rows.to_csv(index=False))  # at once: a run may be cut off

        lost = run_all(scores_of, tasks, given.workers, keep)
    there = pd.read_csv(given.out)
    print(in_lab_book(table(there[there.method == given.method])))
    return 2 if lost else 0


if __name__ == "__main__":
    sys.exit(main(None))
