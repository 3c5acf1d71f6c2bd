"""How fast Metattack is: against the plain dense form, and how it grows with the graph.

Times differ from machine to machine, ratios much less: the plain form under `tests/reference`
(dense matrices, autograd through the whole inner training, one flip per gradient) and the library
take turns on one small graph, and medians of the time per flip are compared. The table of graphs
needs their files in the folder that ASPECT_DATA names; those that are not there are left out. Where
10% of the edges would take minutes, a smaller share is measured and the time for 10% said to be an
extrapolation. Time is processor time of one thread, memory the peak of a process of its own, torch
included. Run by `make speed-attack`, which takes five to ten minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks"), str(ROOT / "tests")]

from aspect import mixed_graph  # noqa: E402 - the path comes first
from aspect.attacks.base import Target, flips_within  # noqa: E402
from aspect.attacks.metattack import Metattack, MetattackConfig, Solver  # noqa: E402
from aspect.data.graph import LabelledGraph  # noqa: E402
from aspect.data.source import load_named  # noqa: E402
from aspect.data.splits import Split, make_splits  # noqa: E402
from aspect.errors import AspectError  # noqa: E402
from aspect.provenance import peak_bytes  # noqa: E402
from commands import json_of, told_in_a_line, verdict  # noqa: E402
from perturbations import GRAPHS  # noqa: E402
from reference.metattack import (  # type: ignore[import-not-found]  # noqa: E402  # of the tests
    dense_adjacency,
    unrolled_meta_gradient,
)

# Processor seconds of one thread for 10% of the edges.
TARGETS: dict[tuple[Solver, str], float] = {
    ("implicit", "cora"): 1.7,
    ("implicit", "citeseer"): 1.7,
    ("implicit", "chameleon"): 5.2,
    ("implicit", "actor"): 8.0,
    ("implicit", "pubmed"): 51.0,
    ("implicit", "squirrel"): 89.0,
    ("unrolled", "cora"): 24.0,
}
TARGET_SHARE = 0.1

# The share of the edges that is measured of each graph; the unrolled solver is given less of some.
SMALLER_SHARES = {"chameleon": 0.02, "actor": 0.02, "pubmed": 0.005, "squirrel": 0.005}

MEMORY_TARGET_BYTES = 2**29

COLUMNS = 120  # of the tables, where they are not printed to a terminal

SMALL_NODES, SMALL_FEATURES, SMALL_CLASSES = 1000, 500, 5


@dataclass(frozen=True)
class Ratio:
    """The time of a flip in the plain form, over that of one of the library's ways."""

    solver: Solver
    flips_per_gradient: int
    faster_by: float
    seconds_per_flip: float  # the library's
    plain_seconds_per_flip: float


@dataclass(frozen=True)
class Growth:
    """One attack on one graph."""

    graph: str
    solver: Solver
    nodes: int
    edges: int
    flips: int
    flips_per_gradient: int  # at most
    gradients: int
    seconds: float
    peak_memory_bytes: int
    budget: float  # share of the edges that was flipped

    @property
    def is_extrapolated(self) -> bool:
        """Whether less than the target's share was measured."""
        return self.budget < TARGET_SHARE

    @property
    def target_share_seconds(self) -> float:
        """For the target's share of the edges, in proportion where less or more was measured."""
        return self.seconds * TARGET_SHARE / self.budget

    @property
    def target(self) -> float | None:
        """Seconds for the target's share, where there is one."""
        return TARGETS.get((self.solver, self.graph))

    @property
    def reached(self) -> bool | None:
        """Whether time and memory stay within their targets; an extrapolation shows nothing."""
        if self.target is None or self.budget != TARGET_SHARE:
            return None
        return self.seconds <= self.target and self.peak_memory_bytes <= MEMORY_TARGET_BYTES


def begin(data: LabelledGraph, split: Split, config: MetattackConfig) -> Metattack:
    """A new attack with the labels of the split's training nodes."""
    target = Target(data.graph, data.labels, split.train, data.num_classes)
    return Metattack(target, config, seed=0)


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def plain_flip(data: LabelledGraph, split: Split, classes: Tensor) -> Callable[[], object]:
    """One flip of the plain form: train, go back through the training, take the best pair."""
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(SMALL_FEATURES, 16, generator=generator) / 2 - 0.25
    second = torch.rand(16, SMALL_CLASSES, generator=generator) - 0.5
    adjacency = dense_adjacency(data.graph)

    def run() -> int:
        gradient = unrolled_meta_gradient(data.graph, classes, split.train, (first, second))
        scores = gradient * (1 - 2 * adjacency)
        scores.fill_diagonal_(-torch.inf)
        return int(scores.argmax())

    return run


def compare(repetitions: int) -> list[Ratio]:
    """Let all ways take turns on the small graph, so that a busy moment meets all of them."""
    data = mixed_graph(
        SMALL_NODES, degree=6.0, num_features=SMALL_FEATURES, num_classes=SMALL_CLASSES
    )
    split = make_splits("class-balanced", data.labels, data.num_classes, 1)[0]
    ways: list[tuple[Solver, int]] = [("unrolled", 1), ("unrolled", 10), ("implicit", 10)]
    attacks = [
        begin(data, split, MetattackConfig(solver=solver, flips_per_gradient=number))
        for solver, number in ways
    ]
    plain = plain_flip(data, split, attacks[0].state()["classes"])
    times: list[list[float]] = []
    for _ in range(repetitions + 1):  # the first is to warm up
        row = [seconds(plain)]
        for attack in attacks:
            before = attack.made
            spent = seconds(lambda attack=attack: attack.advance(SMALL_NODES))  # type: ignore[misc]
            row.append(spent / (attack.made - before))
        times.append(row)
    slow, *fast = (statistics.median(column) for column in zip(*times[1:], strict=True))
    return [
        Ratio(solver, number, slow / spent, spent, slow)
        for (solver, number), spent in zip(ways, fast, strict=True)
    ]


def measure(name: str, solver: Solver, budget: float) -> Growth:
    """Attack a graph in this process."""
    data = load_named(name)
    split = make_splits("class-balanced", data.labels, data.num_classes, 1)[0]
    count = flips_within(budget, data.graph)
    config = MetattackConfig(solver=solver)

    gradients = 0

    def attack() -> None:
        nonlocal gradients
        under_way = begin(data, split, config)
        while under_way.made < count:
            under_way.advance(count - under_way.made)
            gradients += 1

    spent = seconds(attack)
    graph = data.graph
    at_once = config.flips_at_once(graph)
    sizes = (graph.num_nodes, graph.num_edges, count, at_once, gradients)
    return Growth(name, solver, *sizes, spent, peak_bytes(torch.device("cpu")), budget)


def measure_apart(name: str, solver: Solver, budget: float) -> Growth:
    """The same in a process of its own, since the peak of a process never falls."""
    words = ["--one", name, "--solver", solver, "--budget", str(budget)]
    return Growth(**json_of(name, [__file__, *words]))


def show(ratios: list[Ratio], growths: list[Growth]) -> None:
    """Print the tables."""
    console = Console(width=None if sys.stdout.isatty() else COLUMNS)
    title = f"A flip against the plain dense form, {SMALL_NODES} nodes, one thread"
    table = Table("solver", "flips per gradient", "ms per flip", "plain", "faster by", title=title)
    for one in ratios:
        table.add_row(
            one.solver,
            str(one.flips_per_gradient),
            f"{1000 * one.seconds_per_flip:.2f}",
            f"{1000 * one.plain_seconds_per_flip:.0f}",
            f"{one.faster_by:.0f} x",
        )
    console.print(table)
    headings = ("graph", "solver", "nodes", "edges", "flips", "gradients", "s", "ms / flip", "GiB")
    share = f"{100 * TARGET_SHARE:g}%"
    table = Table(*headings, f"s for {share}", "target", "", title="Growth with the graph")
    for each in growths:
        table.add_row(
            each.graph,
            each.solver,
            *(f"{size:,}" for size in (each.nodes, each.edges, each.flips)),
            f"{each.gradients:,}",
            f"{each.seconds:.1f}",
            f"{1000 * each.seconds / each.flips:.2f}",
            f"{each.peak_memory_bytes / 2**30:.2f}",
            f"{'~' if each.is_extrapolated else ''}{each.target_share_seconds:.1f}",
            "" if each.target is None else f"{each.target:g} s",
            verdict(each.reached),
        )
    console.print(table)
    if any(each.is_extrapolated for each in growths):
        console.print(f"~: not measured, but extrapolated to {share} in proportion to the flips.")
    console.print(f"A target is reached within {MEMORY_TARGET_BYTES / 2**30:g} GiB only.")


def _share(solver: Solver, name: str) -> float:
    return SMALLER_SHARES.get(name, TARGET_SHARE) if solver == "unrolled" else TARGET_SHARE


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--repetitions", type=int, default=5, help="of each way (default: 5)")
    parser.add_argument("--budget", type=float, help="share of the edges, for all graphs alike")
    parser.add_argument("--graphs", nargs="*", help="graphs to attack, by both solvers")
    parser.add_argument("--one", metavar="GRAPH", help="attack this graph only, in this process")
    parser.add_argument("--solver", choices=get_args(Solver), default="implicit", help="of --one")
    return parser.parse_args(arguments)


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; a missed target is shown, not punished."""
    given = parse(arguments)
    torch.set_num_threads(1)
    if given.one is not None:
        budget = given.budget or _share(given.solver, given.one)
        print(json.dumps(asdict(measure(given.one, given.solver, budget))))
        return 0
    names = GRAPHS if given.graphs is None else given.graphs
    wanted: list[tuple[Solver, str]] = [(how, name) for how in get_args(Solver) for name in names]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=len(wanted) + 1)
        ratios = compare(given.repetitions)
        growths: list[Growth] = []
        for solver, name in wanted:
            progress.advance(task)
            try:
                growths.append(measure_apart(name, solver, given.budget or _share(solver, name)))
            except AspectError as error:
                progress.console.print(str(error), markup=False)
    if given.json:
        graphs = [
            asdict(each)
            | {"reached": each.reached, "target_share_seconds": each.target_share_seconds}
            for each in growths
        ]
        print(json.dumps({"ratios": [asdict(one) for one in ratios], "graphs": graphs}))
    else:
        show(ratios, growths)
    return 0


if __name__ == "__main__":
    sys.exit(main(None))
