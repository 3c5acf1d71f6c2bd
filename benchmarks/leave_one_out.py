"""Choose the defaults for each graph by all other graphs, and print what that graph then scores.

A user's graph has no part in the choice of the defaults; graphs that had no part in it either tell
what they are worth there. From the table of `benchmarks/variants.py`: for each graph the variant
with the highest mean over the others, its validation accuracy on that graph, and beside it those of
the shipped defaults and of the settings that were searched on the graph itself (the best of all
trials in results/searches, hence the highest of many). Graphs that share nodes are left out
together. Run by `make leave-one-out`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import pandas as pd  # noqa: E402 - the path comes first

from aspect.errors import FileError, SettingsError  # noqa: E402
from aspect.report.statistics import REPEATS  # noqa: E402
from commands import told_in_a_line  # noqa: E402
from settings import SHIPPED_TRIALS  # noqa: E402
from variants import RESULTS  # noqa: E402

DEFAULTS = "defaults"
FEWEST_GRAPHS = 2


def last_scores(variants: pd.DataFrame, method: str) -> pd.DataFrame:
    """Validation accuracy after the last epoch, variants x graphs."""
    rows = variants[variants["method"] == method].sort_values("epoch")
    return rows.groupby(["variant", "graph"])["validation"].last().unstack("graph")


def shared_nodes(graph: str) -> set[str]:
    """The graph, and those with the same nodes."""
    pairs = [{name, of} for name, of in REPEATS.items()]
    return {graph}.union(*(pair for pair in pairs if graph in pair))


def leave_one_out(scores: pd.DataFrame) -> pd.DataFrame:
    """Per graph: the variant that the other graphs choose, its score, and that of the defaults.

    Args:
        scores: Variants x graphs. A variant that lacks any graph is no candidate; of equals, the
            defaults are chosen, then the first.
    """
    whole = scores.dropna()
    if DEFAULTS not in whole.index or whole.shape[1] < FEWEST_GRAPHS:
        raise SettingsError(
            f"Scores must have {DEFAULTS!r} on {FEWEST_GRAPHS} graphs or more, without a gap. "
            f"Got {', '.join(map(str, whole.index)) or 'no variant'} on {whole.shape[1]}."
        )
    ordered = whole.loc[[DEFAULTS, *whole.index.drop(DEFAULTS)]]
    rows = {}
    for graph in ordered.columns:
        others = ordered.drop(columns=[name for name in shared_nodes(graph) if name in ordered])
        chosen = str(others.mean(axis=1).idxmax())
        own = {str(name): float(value) for name, value in ordered[graph].items()}
        rows[graph] = {
            "chosen by the others": chosen,
            "its score": own[chosen],
            "shipped defaults": own[DEFAULTS],
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def searched_score(method: str, graph: str, trials: Path = SHIPPED_TRIALS) -> float:
    """The best validation accuracy of the search on the graph itself; nan: none is shipped."""
    path = trials / f"{graph}-{method}.csv"
    if not path.is_file():
        return float("nan")
    table = pd.read_csv(path)
    return float(table.loc[table["state"] == "complete", "validation"].max())


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, with means over the graphs that have all three scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--method", default="aspect")
    parser.add_argument("--variants", type=Path, default=RESULTS)
    parser.add_argument("--searches", type=Path, default=SHIPPED_TRIALS)
    given = parser.parse_args(arguments)
    if not given.variants.is_file():
        raise FileError(f"There is no table at {str(given.variants)!r}. Make it: make variants.")
    table = leave_one_out(last_scores(pd.read_csv(given.variants), given.method))
    table["searched"] = [searched_score(given.method, g, given.searches) for g in table.index]
    print(table.round(1).to_string(na_rep="-"))
    numbers = table.drop(columns="chosen by the others").dropna()
    if len(numbers):
        means = "; ".join(f"{name} {value:.2f}" for name, value in numbers.mean().items())
        print(f"Mean over {len(numbers)} graphs with all three: {means}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(None))
