"""How strong the attacks of record are: the accuracy of a graph convolution retrained under them.

A GCN (2 layers, 32 hidden, dropout between them, row-normalised features) is trained on each graph
with the edges that a perturbation file leaves, its features unmasked, and its test accuracy is read
at the epoch with the best validation accuracy. Beside Metattack by both solvers stand as many flips
at random, and PR-BCD of another library. Scores go to `results/strength.csv`; the graphs' files lie
in the folder that ASPECT_DATA names. One thread: about half an hour for everything. Run by
`make strength`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from aspect.attacks.base import Target, apply_flips  # noqa: E402 - the path comes first
from aspect.attacks.drawn import random_flips  # noqa: E402
from aspect.attacks.file import PerturbationFile  # noqa: E402
from aspect.attacks.pr_bcd import PRBCD  # noqa: E402
from aspect.data.graph import Graph, LabelledGraph  # noqa: E402
from aspect.data.source import load_named  # noqa: E402
from aspect.data.splits import SPLIT_SEEDS, Split, make_splits  # noqa: E402
from aspect.errors import SettingsError  # noqa: E402
from aspect.evaluation.significance import PairedTest, paired_test  # noqa: E402
from aspect.randomness import generator_for  # noqa: E402
from commands import read_rows, told_in_a_line, write_rows  # noqa: E402
from perturbations import FOLDER, GRAPHS  # noqa: E402
from retraining import accuracy  # noqa: E402

SCORES = ROOT / "results" / "strength.csv"
SOLVERS = ("implicit", "unrolled")
BUDGETS = (0.05, 0.1, 0.25)
SPLITS = "class-balanced"

STARTS, STARTS_OF_LARGE = 3, 1
LARGE_EDGES = 40_000

PRBCD_GRAPHS, PRBCD_BUDGET = ("cora", "citeseer", "chameleon"), 0.1  # budgets do not nest

COLUMNS = 100  # of the tables, where they are not printed to a terminal

NOTE = (
    "Made by `make strength`: test accuracy in percent of a GCN retrained on the poisoned graph, "
    "mean over its starts"
)

Traces = Mapping[tuple[str, str, int], PerturbationFile]  # by graph, solver and split


@dataclass(frozen=True)
class Score:
    """A GCN on one perturbed graph."""

    graph: str
    attack: str  # a solver of Metattack, "random", "pr-bcd", or "clean"
    budget: float  # a share of the edges
    flips: int
    split: int
    starts: int  # trainings, which differ in their first weights and dropout
    accuracy: float  # on test nodes in percent, their mean


def read_traces(folder: Path) -> dict[tuple[str, str, int], PerturbationFile]:
    """Metattack's files of a folder, complete or not, by graph, solver and split."""
    found: dict[tuple[str, str, int], PerturbationFile] = {}
    for path in sorted(folder.glob("*.safetensors")):
        trace = PerturbationFile.read(path)
        facts = trace.facts
        if facts.kind == "metattack" and facts.splits == SPLITS:
            key = (facts.graph.name, facts.solver, facts.split)
            if key in found:
                raise SettingsError(
                    f"{str(folder)!r} must hold one file for each graph, solver and split. "
                    f"Got two for {' '.join(str(part) for part in key)}."
                )
            found[key] = trace
    return found


def perturbed(
    labelled: LabelledGraph, name: str, number: int, split: Split, traces: Traces
) -> Iterator[tuple[str, float, Graph]]:
    """The clean graph of a split, then all perturbed ones: attack, budget and graph."""
    graph = labelled.graph
    yield "clean", 0.0, graph
    for solver in SOLVERS:
        trace = traces.get((name, solver, number))
        for budget in BUDGETS:
            if trace is not None and _reaches(trace, budget):
                yield solver, budget, trace.apply(labelled, budget, features=False)
    # The flips of `aspect attack --kind random --split N`.
    generator = generator_for(number, "perturbation", "random", "edges")
    flips = random_flips(graph, round(max(BUDGETS) * graph.num_edges), generator)
    for budget in BUDGETS:
        yield "random", budget, apply_flips(graph, flips[: round(budget * graph.num_edges)])
    if name in PRBCD_GRAPHS:
        count = round(PRBCD_BUDGET * graph.num_edges)
        yield "pr-bcd", PRBCD_BUDGET, apply_flips(graph, pr_bcd(labelled, split, count))


def pr_bcd(labelled: LabelledGraph, split: Split, count: int) -> Tensor:
    """The flips of PR-BCD with its default settings."""
    return PRBCD.begin(Target.of(labelled, split)).find(count)


def _reaches(trace: PerturbationFile, budget: float) -> bool:
    return len(trace.keys) >= round(budget * trace.facts.graph.edges)


def measure(
    labelled: LabelledGraph, name: str, numbers: Iterable[int], traces: Traces
) -> Iterator[Score]:
    """One score for every split and perturbation of a graph."""
    splits = make_splits(SPLITS, labelled.labels, labelled.num_classes)
    starts = STARTS if labelled.graph.num_edges < LARGE_EDGES else STARTS_OF_LARGE
    for number in numbers:
        split = splits[number]
        for attack, budget, graph in perturbed(labelled, name, number, split, traces):
            score = accuracy(graph, labelled, split, starts)
            flips = _differing(labelled.graph, graph)
            yield Score(name, attack, budget, flips, number, starts, score)


def _differing(one: Graph, other: Graph) -> int:
    """Pairs of nodes that are joined in one graph alone."""
    keys = [graph.edge_index[0] * graph.num_nodes + graph.edge_index[1] for graph in (one, other)]
    times: Tensor = torch.unique(torch.cat(keys), return_counts=True)[1]
    return int((times == 1).sum()) // 2


def missing(graphs: Iterable[str], numbers: Sequence[int], traces: Traces) -> Iterator[str]:
    """What is left out for want of a file, or of flips in it; one sentence each."""
    for name in graphs:
        for solver in SOLVERS:
            there = {number: traces.get((name, solver, number)) for number in numbers}
            lost = [str(number) for number, trace in there.items() if trace is None]
            if lost:
                yield f"{name}, {solver}: there is no file for split {', '.join(lost)}."
            for budget in BUDGETS:
                short = [
                    str(number)
                    for number, trace in there.items()
                    if trace is not None and not _reaches(trace, budget)
                ]
                if short:
                    yield (
                        f"{name}, {solver}: the file of split {', '.join(short)} does not reach "
                        f"{100 * budget:g}%."
                    )


def compare(scores: Iterable[Score]) -> dict[tuple[str, float], PairedTest]:
    """Accuracy under `implicit` less that under `unrolled`, paired over the splits of both."""
    table = _by_attack(scores)
    tests = {}
    for name, attack, budget in table:
        if attack == SOLVERS[0]:
            one, other = (table.get((name, solver, budget), {}) for solver in SOLVERS)
            both = sorted(one.keys() & other.keys())
            if len(both) > 1:
                pairs = ([of[number] for number in both] for of in (one, other))
                tests[name, budget] = paired_test(*pairs)
    return tests


def _by_attack(scores: Iterable[Score]) -> dict[tuple[str, str, float], dict[int, float]]:
    """Graph, attack and budget to the accuracy of every split."""
    table: dict[tuple[str, str, float], dict[int, float]] = {}
    for score in scores:
        of = table.setdefault((score.graph, score.attack, score.budget), {})
        of[score.split] = score.accuracy
    return table


def show(scores: Sequence[Score]) -> None:
    """Print the accuracies, and what the two solvers differ by."""
    console = Console(width=None if sys.stdout.isatty() else COLUMNS)
    title = "Test accuracy (%) of a GCN retrained on the poisoned graph; mean ± std over splits"
    every = (0.0, *BUDGETS)
    table = Table("graph", "attack", "splits", *(f"{100 * b:g}%" for b in every), title=title)
    found = _by_attack(scores)
    for name, attack in dict.fromkeys((score.graph, score.attack) for score in scores):
        rows = [found.get((name, attack, budget), {}) for budget in every]
        counts = sorted({len(row) for row in rows if row})  # some files may be shorter than others
        table.add_row(name, attack, " to ".join(map(str, counts)), *map(_mean, rows))
    console.print(table)
    title = "Accuracy under implicit less that under unrolled, in points, paired over splits"
    table = Table("graph", "budget", "difference", "95% interval", "p", "corrected p", title=title)
    for (name, budget), test in compare(scores).items():
        table.add_row(
            name,
            f"{100 * budget:g}%",
            f"{test.difference:+.2f}",
            f"{test.low:+.2f} to {test.high:+.2f}",
            *(f"{p:.2g}" for p in (test.p_value, test.corrected_p_value)),
        )
    console.print(table)
    console.print("p: signs flipped, never below 2 / 2^splits; corrected: for splits that overlap.")


def _mean(by_split: Mapping[int, float]) -> str:
    values = list(by_split.values())
    if len(values) < 2:  # noqa: PLR2004 - one value has no spread
        return f"{values[0]:.1f}" if values else ""
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def read_scores(path: Path) -> list[Score]:
    """What an earlier call wrote; nothing without one."""
    return _in_order(read_rows(path, Score, "make strength"))


def write_scores(path: Path, scores: Iterable[Score]) -> None:
    """One line per score, whole or not at all."""
    rows = (asdict(score) | {"accuracy": f"{score.accuracy:.4f}"} for score in scores)
    write_rows(path, Score, rows, NOTE)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--graphs", nargs="+", choices=GRAPHS, default=GRAPHS, help="others keep their scores"
    )
    parser.add_argument(
        "--splits",
        type=int,
        choices=range(1, len(SPLIT_SEEDS) + 1),
        default=3,
        metavar="N",
        help="the first N of ten (default: 3)",
    )
    parser.add_argument(
        "--perturbations", type=Path, default=FOLDER, metavar="DIR", help="Metattack's files"
    )
    parser.add_argument("--out", type=Path, default=SCORES, metavar="FILE", help="the scores")
    return parser.parse_args(arguments)


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print; what has no file is named and left out."""
    given, console = parse(arguments), Console(stderr=True)
    torch.set_num_threads(1)
    numbers = range(given.splits)
    traces = read_traces(given.perturbations)
    for sentence in missing(given.graphs, numbers, traces):
        console.print(f"Left out: {sentence}", markup=False, highlight=False)
    scores = read_scores(given.out)
    for name in given.graphs:
        labelled = load_named(name)
        new = []
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task(name, total=None)
            for score in measure(labelled, name, numbers, traces):
                new.append(score)
                progress.update(task, description=f"{name}, split {score.split}", advance=1)
        scores = _in_order([*(old for old in scores if old.graph != name), *new])
        write_scores(given.out, scores)
    show([score for score in scores if score.graph in given.graphs])
    return 0


def _in_order(scores: Iterable[Score]) -> list[Score]:
    """Graph by graph, as they are listed above; each as it was measured."""
    return sorted(scores, key=lambda score: GRAPHS.index(score.graph))


if __name__ == "__main__":
    sys.exit(main(None))
