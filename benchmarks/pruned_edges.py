"""Which edges score low, and what an embedding gains and loses without them.

First table: how well each edge score (`aspect.attacks.pruning`) tells the edges that attacks of
record added, at 10% of the edges, from all others of the poisoned graph; no label is read. Second
table: ASPECT with its shipped settings, trained on the clean graph and on the one poisoned for each
split (unrolled Metattack and masked features, 10%), and read with growing shares of the edges of
lowest scores left out. `chosen` is read, split by split, with the share of the highest validation
accuracy on the graph at hand, the smallest of equals; test labels choose nothing. The last column
holds it against the reading with all edges, by the tests of the other tables. Scores go to
`results/pruned_edges.csv`; the graphs' files lie in the folder that ASPECT_DATA names. Run by
`make prune`.

With `--rule` nothing is trained: it prints the first table and what `--prune auto` leaves out, of
the clean graph and after both attacks at 10%, split 0, where there are such; `--score` names the
edge score, and the first table has that one alone. `--figure FILE` draws both: for each score,
the part of the added edges that is found against the part of the clean edges that is lost.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
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
from aspect.attacks.purification import edge_scores, prune_edges  # noqa: E402
from aspect.data.graph import edge_keys  # noqa: E402
from aspect.data.source import DATASETS, load_named  # noqa: E402
from aspect.data.splits import make_splits  # noqa: E402
from aspect.estimator import Embedder  # noqa: E402
from aspect.evaluation.linear_probe import linear_probe  # noqa: E402
from aspect.evaluation.significance import holm, paired_test  # noqa: E402
from aspect.settings import find_experiment  # noqa: E402
from commands import positive, read_rows, run_all, told_in_a_line, write_rows  # noqa: E402
from perturbations import FOLDER as PERTURBATIONS  # noqa: E402
from perturbations import Attack  # noqa: E402

RESULTS = ROOT / "results" / "pruned_edges.csv"
GRAPHS = ("cora", "citeseer", "pubmed", "actor", "chameleon", "squirrel")
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3)
SPLITS, NUM_SPLITS = "class-balanced", 10
BUDGET = 0.1
POINTS = 400  # of a drawn curve
CLEAN = -1  # in the place of the split that a graph was poisoned for


def path_of(graph: str, solver: str, split: int) -> Path:
    """The file of an attack of record."""
    return PERTURBATIONS / Attack(solver, graph, split).file_name


def flips_of(graph: str, solver: str, split: int) -> PerturbationFile:
    """The attack of record."""
    return PerturbationFile.read(path_of(graph, solver, split))


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
        poisoned = flips_of(graph, solver, 0).apply(labelled, BUDGET, features=False)
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


@dataclass(frozen=True)
class Score:
    """One reading of one training, in percent."""

    graph: str
    poisoned: bool
    split: int
    share: float
    validation: float
    strict: float


@dataclass(frozen=True)
class Training:
    """A model on the clean graph, or on the one poisoned for a split."""

    graph: str
    split: int
    device: str | None

    def scores(self) -> list[Score]:
        """All readings."""
        labelled = load_named(self.graph)
        splits = make_splits(SPLITS, labelled.labels, labelled.num_classes, count=NUM_SPLITS)
        graph, judged = labelled.graph, range(NUM_SPLITS)
        if self.split != CLEAN:
            graph = flips_of(self.graph, "unrolled", self.split).apply(labelled, BUDGET)
            judged = range(self.split, self.split + 1)
        settings = find_experiment("aspect", self.graph, None)[0].settings
        model = Embedder("aspect", seed=0, device=self.device, **settings).fit(graph)
        found = []
        for share in SHARES:
            embeddings = model.embed(prune_edges(graph, share)).to(model.device)
            probe = linear_probe(
                embeddings,
                labelled.labels,
                [splits[split] for split in judged],
                num_classes=labelled.num_classes,
            )
            for split, score in zip(judged, probe.splits, strict=True):
                row = (self.split != CLEAN, split, share, score.validation, score.strict)
                found.append(Score(self.graph, *row))
        return found


def missing(wanted: Sequence[Training]) -> list[str]:
    """Files of flips that the trainings need and that are not there."""
    needed = [path_of(each.graph, "unrolled", each.split) for each in wanted if each.split != CLEAN]
    return [path.name for path in needed if not path.is_file()]


def chosen(scores: Iterable[Score]) -> list[Score]:
    """Split by split, the reading that validation prefers."""
    best: dict[int, Score] = {}
    for score in sorted(scores, key=lambda score: (score.split, -score.validation, score.share)):
        best.setdefault(score.split, score)
    return list(best.values())


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--graph", choices=[*DATASETS], action="append", help="one graph only")
    parser.add_argument(
        "--workers", type=positive, default=2, help="trainings at a time (default: 2)"
    )
    parser.add_argument("--device", help="where to train (default: the GPU if there is one)")
    parser.add_argument("--rule", action="store_true", help="what --prune auto leaves out")
    parser.add_argument("--score", help=f"edge score of --rule (default: {DEFAULT}, beside all)")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw it (.svg, .png, .pdf)")
    parser.add_argument("--show", action="store_true", help="train nothing, read the scores")
    return parser.parse_args(arguments)


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Train, keep the scores, print both tables."""
    given, console = parse(arguments), Console(width=140)
    graphs = given.graph or GRAPHS
    if given.rule or given.figure:
        scores = [given.score] if given.score else [*SCORES]
        measured = detections(graphs, scores)
        console.print(detection_table(measured, scores))
        if given.figure:
            draw(measured, given.figure)
        console.print(rule_table(graphs, Pruning(ratio="auto", score=given.score or DEFAULT)))
        return 0
    kept, lost = read_scores(), 0
    if not given.show:
        wanted = [
            Training(graph, split, given.device)
            for graph in graphs
            for split in range(CLEAN, NUM_SPLITS)
        ]
        lacking = missing(wanted)
        if lacking:
            print(f"{lacking[0]} and {len(lacking) - 1} more are not there.", file=sys.stderr)
            print("Run: make perturbations, or name graphs that have theirs.", file=sys.stderr)
            return 2
        kept = [score for score in kept if score.graph not in graphs]

        def keep(_: Training, scores: list[Score]) -> None:
            kept.extend(scores)
            write_scores(kept)  # what is done is not lost where another training fails

        lost = run_all(Training.scores, wanted, given.workers, keep)
    console.print(detection_table(detections(graphs, [*SCORES]), [*SCORES]))
    console.print(reading_table([score for score in kept if score.graph in graphs]))
    return 2 if lost else 0


def read_scores() -> list[Score]:
    """What was measured before."""
    return read_rows(RESULTS, Score, "make prune")


def write_scores(scores: Sequence[Score]) -> None:
    """All of them, in one order whatever came first."""
    rows = sorted(scores, key=lambda s: (GRAPHS.index(s.graph), s.poisoned, s.share, s.split))
    note = "Made by `make prune`: accuracy of ASPECT with its edges of lowest scores pruned"
    write_rows(RESULTS, Score, map(asdict, rows), note)


def solvers_of(graph: str) -> list[str]:
    """Those whose attack on split 0 is there."""
    return [each for each in ("unrolled", "implicit") if path_of(graph, each, 0).is_file()]


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
        whole = flips_of(graph, solver, 0).apply(labelled, BUDGET, features=False)
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


def reading_table(scores: Sequence[Score]) -> Table:
    """Strict accuracy by share and of the chosen readings, which are tested against all edges."""
    shares = [f"{100 * share:.0f}% out" for share in SHARES]
    table = Table("graph", "", *shares, "chosen", "chosen less 0% out, 95% interval, p")
    rows, tests = [], []
    for graph, poisoned in dict.fromkeys((score.graph, score.poisoned) for score in scores):
        of_state = [s for s in scores if (s.graph, s.poisoned) == (graph, poisoned)]
        columns = [[s.strict for s in of_state if s.share == share] for share in SHARES]
        best = [score.strict for score in chosen(of_state)]
        cells = [_spread(column) for column in [*columns, best]]
        rows.append((graph, "poisoned" if poisoned else "clean", *cells))
        tests.append(paired_test(best, columns[0]))
    corrected = holm([test.corrected_p_value for test in tests])
    for row, test, p_value in zip(rows, tests, corrected, strict=True):
        found = f"{test.difference:+.2f} ({test.low:.2f} to {test.high:.2f})"
        table.add_row(*row, f"{found}, {max(p_value, test.p_value):.3f}")
    return table


def _spread(values: Sequence[float]) -> str:
    numbers = torch.tensor(values, dtype=torch.float64)
    return f"{float(numbers.mean()):.1f} ± {float(numbers.std()):.1f}"


if __name__ == "__main__":
    sys.exit(main(None))
