"""How well edge scores find the edges that an attack added, and what pruning by them removes.

First table: how well each edge score (`aspect.attacks.pruning`) tells the edges that attacks of
record added, at 10% of the edges, from all others of the poisoned graph; no label is read. Second
table: what `--prune auto` leaves out, of the clean graph and after both attacks on split 0, where
there are such. `--score` names one score, for both. `--figure FILE` draws them: for each score, the
part of the added edges that is found against the part of the clean edges that is lost. The graphs'
files lie in the folder that ASPECT_DATA names. Run by `make edge-scores`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score
from torch import Tensor

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from aspect.attacks.file import PerturbationFile  # noqa: E402 - the path comes first
from aspect.attacks.pruning import DEFAULT, SCORES, Pruning  # noqa: E402
from aspect.attacks.purification import edge_scores  # noqa: E402
from aspect.data.graph import edge_keys  # noqa: E402
from aspect.data.source import DATASETS, load_named  # noqa: E402
from commands import told_in_a_line  # noqa: E402
from perturbations import FOLDER as PERTURBATIONS  # noqa: E402
from perturbations import Attack  # noqa: E402

GRAPHS = ("cora", "citeseer", "pubmed", "actor", "chameleon", "squirrel")
BUDGET = 0.1
POINTS = 400  # of a drawn curve


def path_of(graph: str, solver: str) -> Path:
    """The file of the attack of record on split 0."""
    return PERTURBATIONS / Attack(solver, graph, 0).file_name


def flips_of(graph: str, solver: str) -> PerturbationFile:
    """The attack of record on split 0."""
    return PerturbationFile.read(path_of(graph, solver))


@dataclass(frozen=True)
class Detection:
    """How the edges of a poisoned graph score: those that were added, and all others."""

    graph: str
    solver: str
    score: str
    added: Bool[Tensor, " edges"]  # lowest score first

    @classmethod
    def of(cls, graph: str, solver: str, score: str) -> Detection:
        """After the attack of record on split 0."""
        labelled = load_named(graph)
        poisoned = flips_of(graph, solver).apply(labelled, BUDGET, features=False)
        added = ~torch.isin(edge_keys(poisoned), edge_keys(labelled.graph))
        order = torch.argsort(edge_scores(poisoned, score), stable=True)
        return cls(graph, solver, score, added[order])

    @property
    def area(self) -> float:
        """Under the ROC curve."""
        return float(roc_auc_score(self.added, -torch.arange(len(self.added))))

    @property
    def found(self) -> float:
        """The ratio of added edges among as many of the lowest."""
        return float(self.added[: int(self.added.sum())].double().mean())

    def curve(self) -> tuple[Tensor, Tensor]:
        """Of the clean edges the part lost, and of the added ones the part found."""
        lost, found = (~self.added).cumsum(0), self.added.cumsum(0)
        return lost / lost[-1], found / found[-1]


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--graph", choices=[*DATASETS], action="append", help="one graph only")
    parser.add_argument("--score", help=f"one edge score only (default: all, and {DEFAULT})")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw it (.svg, .png, .pdf)")
    given, console = parser.parse_args(arguments), Console(width=140)
    graphs, scores = given.graph or GRAPHS, [given.score] if given.score else [*SCORES]
    pruning = Pruning(ratio="auto", score=given.score or DEFAULT)  # refuses an unknown score
    measured = detections(graphs, scores)
    console.print(detection_table(measured, scores))
    if given.figure:
        draw(measured, given.figure)
    console.print(rule_table(graphs, pruning))
    return 0


def solvers_of(graph: str) -> list[str]:
    """Those whose attack on split 0 is there."""
    return [each for each in ("unrolled", "implicit") if path_of(graph, each).is_file()]


def detections(graphs: Sequence[str], scores: Sequence[str]) -> list[Detection]:
    """Every graph, solver and score."""
    return [
        Detection.of(graph, solver, score)
        for graph in graphs
        for solver in solvers_of(graph)
        for score in scores
    ]


def detection_table(measured: Sequence[Detection], scores: Sequence[str]) -> Table:
    """Area under the curve, and the part of as many edges of lowest score that was added."""
    table = Table("graph", "solver", *scores)
    for case in dict.fromkeys((each.graph, each.solver) for each in measured):
        row = [each for each in measured if (each.graph, each.solver) == case]
        table.add_row(*case, *(f"{each.area:.3f} / {100 * each.found:.0f}%" for each in row))
    return table


def draw(measured: Sequence[Detection], path: Path) -> None:
    """A panel for each graph and solver; the circle is where --prune auto stops."""
    from matplotlib.figure import Figure

    cases = list(dict.fromkeys((each.graph, each.solver) for each in measured))
    columns = 2
    rows = -(-len(cases) // columns)
    figure = Figure(figsize=(4 * columns, 3.2 * rows), layout="constrained")
    for case, axes in zip(cases, figure.subplots(rows, columns, squeeze=False).flat, strict=True):
        for each in measured:
            if (each.graph, each.solver) == case:
                step = max(1, len(each.added) // POINTS)
                axes.plot(*(part[::step] for part in each.curve()), label=each.score)
        gone, found, lost = pruned_by_rule(*case, Pruning(ratio="auto"))
        if gone:
            axes.plot([lost], [found], "o", color="black", fillstyle="none", label="ratio auto")
        axes.set(title=f"{case[0]}, metattack ({case[1]})", xlim=(0, 0.5))
        axes.set(xlabel="clean edges lost", ylabel="added edges found")
    lines = {
        label: line
        for axes in figure.axes
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3)
    figure.savefig(path)


def pruned_by_rule(graph: str, solver: str, pruning: Pruning) -> tuple[float, float, float]:
    """The part of all edges that goes, of the added ones, and of the others; no solver: clean."""
    labelled = load_named(graph)
    whole = labelled.graph
    if solver:
        whole = flips_of(graph, solver).apply(labelled, BUDGET, features=False)
    keys = edge_keys(whole)
    added = ~torch.isin(keys, edge_keys(labelled.graph))
    gone = ~torch.isin(keys, edge_keys(pruning.apply(whole)))
    parts = [float(part.double().mean()) for part in (gone, gone[added], gone[~added])]
    return parts[0], parts[1], parts[2]


def rule_table(graphs: Sequence[str], pruning: Pruning) -> Table:
    """What the rule prunes: how many edges, how many of the added ones, and of the clean ones."""
    table = Table("graph", "perturbation", "pruned", "added edges found", "clean edges lost")
    for graph in graphs:
        for solver in ("", *solvers_of(graph)):
            parts = pruned_by_rule(graph, solver, pruning)
            cells = ["-" if math.isnan(part) else f"{100 * part:.1f}%" for part in parts]
            table.add_row(graph, f"metattack ({solver})" if solver else "none", *cells)
    return table


if __name__ == "__main__":
    sys.exit(main(None))
