"""What ASPECT-S costs beside ASPECT: time of an average epoch, memory, and how that grows.

Times differ from machine to machine, ratios much less: an epoch of ASPECT with the channel term on
and an epoch of ASPECT-S with a search take turns, and medians are compared; an average epoch is one
with a search and nine without, which are ASPECT's. Settings are the paper's for each graph. With
one thread processor time is measured, with several wall time on an idle machine is needed. Memory
is the peak of a process of its own, the interpreter and torch included. Needs the graphs' files in
the folder that ASPECT_DATA names. Run by `make speed`, which takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from aspect.data.graph import Graph  # noqa: E402 - the path comes first
from aspect.data.source import load_named  # noqa: E402
from aspect.methods.aspect import AspectConfig, AspectMethod  # noqa: E402
from aspect.methods.aspect_s import AspectSConfig, AspectSMethod  # noqa: E402
from aspect.provenance import peak_bytes  # noqa: E402
from aspect.settings import find_experiment  # noqa: E402
from commands import json_of, told_in_a_line, verdict  # noqa: E402
from speed import ORDERS, epoch, medians, seconds  # noqa: E402

PARTS = ("ratios", "candidates", "large")
COLUMNS = 120  # of the tables, where they are not printed to a terminal

COMPARED, LARGE = ("cora", "chameleon"), ("squirrel", "pubmed")
INTERVAL = 10  # epochs from one search to the next
MOST_TIMES = 2.0  # an average epoch, as a multiple of ASPECT's
MEMORY_TARGET_GB = 4.0

# Where candidates are most of a search's memory: many edges, few columns, few negatives.
GROWING = "squirrel"
CANDIDATES = (1.0, 2.0, 4.0, 8.0)
NARROW = {"width": 64, "negatives": 64, "perturbation_steps": 2, "layer_order": "project-first"}
LEAST_LINEAR = 0.99  # share of the growth that a line explains

# Of the paper (`tab:hyperparameters`), beside what `experiments/aspect` has of it: steps of a
# search, share of the edges that it may flip, weight of the Rayleigh term.
SEARCHES: dict[str, tuple[int, float, float]] = {
    "cora": (9, 0.22765, 0.46024),
    "chameleon": (7, 0.35284, 0.90943),
    "squirrel": (3, 0.21216, 0.61738),
    "pubmed": (5, 0.29437, 0.96707),
}


@dataclass(frozen=True)
class Ratio:
    """An average epoch of ASPECT-S against one of ASPECT."""

    graph: str
    layer_order: str
    steps: int
    plain_seconds: float
    search_seconds: float  # of an epoch with a search
    counted: float  # the ratio that `aspect train` tells before it starts
    target: float = MOST_TIMES

    @property
    def ratio(self) -> float:
        """How many times as long an average epoch takes."""
        return (self.search_seconds / self.plain_seconds + INTERVAL - 1) / INTERVAL

    @property
    def reached(self) -> bool:
        """Whether the ratio is at most the target."""
        return self.ratio <= self.target


@dataclass(frozen=True)
class Searched:
    """One search in a process of its own."""

    candidates: float  # pairs without an edge, for each edge
    pairs: int  # that may be flipped, in all
    bytes: int


@dataclass(frozen=True)
class Growth:
    """A line through the peaks of more and more candidates."""

    bytes_per_pair: float
    explained: float  # share of the peaks' variance

    @classmethod
    def of(cls, searches: list[Searched]) -> Growth:
        """By least squares."""
        pairs = np.array([one.pairs for one in searches], dtype=np.float64)
        taken = np.array([one.bytes for one in searches], dtype=np.float64)
        slope, start = np.polyfit(pairs, taken, 1)
        left = taken - (slope * pairs + start)
        return cls(float(slope), float(1 - left.var() / taken.var()))

    @property
    def reached(self) -> bool:
        """Whether memory grows, and linearly."""
        return self.bytes_per_pair > 0 and self.explained >= LEAST_LINEAR


@dataclass(frozen=True)
class Peak:
    """One epoch of each kind in a process of its own."""

    graph: str
    threads: int
    plain_seconds: float
    plain_bytes: int
    search_seconds: float
    search_bytes: int  # of both epochs: the plain one came first
    target: float = MEMORY_TARGET_GB

    @property
    def reached(self) -> bool:
        """Whether both epochs stay below the target."""
        return self.search_bytes < self.target * 1e9


def load(name: str) -> Graph:
    """A graph as the estimator trains on it."""
    return load_named(name).graph.to(torch.float32)


def settings(name: str, **changes: Any) -> AspectSConfig:  # noqa: ANN401 - any setting
    """The paper's row of a graph with our channel term, and a search in every epoch."""
    published = find_experiment("aspect", name, "published")[0].settings
    steps, budget, rayleigh = SEARCHES[name]
    branch = {
        "warm_up": 0,
        "interval": 1,
        "perturbation_steps": steps,
        "perturbation_budget": budget,
        "rayleigh_weight": rayleigh,
        "negatives": 10**9,  # no fewer than there are nodes: all of them
    }
    return AspectSConfig(**{**published, "channel_weight": 1.0, **branch, **changes})


def epochs(config: AspectSConfig, graph: Graph) -> tuple[Callable[[], None], Callable[[], None]]:
    """One of ASPECT, and one of ASPECT-S with a search; settings are the same otherwise."""
    told = config.model_dump()
    own = AspectConfig(**{name: told[name] for name in AspectConfig.model_fields})
    plain = AspectMethod(own, graph.num_features)
    return _epoch(plain, graph), _epoch(AspectSMethod(config, graph.num_features), graph)


def _epoch(method: AspectMethod, graph: Graph) -> Callable[[], None]:
    """What a training prepares once is prepared before."""
    method.train().prepare(graph)
    return epoch(method, lambda step: method.loss_terms(graph, step))


def compare(name: str, graph: Graph, config: AspectSConfig, repetitions: int) -> Ratio:
    """Let both kinds of epoch take turns, so that a busy moment meets both."""
    plain, searching = medians(repetitions, *epochs(config, graph))
    told = config.model_copy(update={"interval": INTERVAL, "epochs": INTERVAL})
    counted = AspectSMethod(told, graph.num_features).search_cost(graph).epoch_factor
    steps = config.perturbation_steps
    return Ratio(name, config.layer_order, steps, plain, searching, counted)


def measure_search(graph: Graph, config: AspectSConfig) -> Searched:
    """A search in this process, whose peak must be that of nothing else."""
    method = AspectSMethod(config, graph.num_features)
    method.search(graph, torch.Generator().manual_seed(0))
    peak = peak_bytes(torch.device("cpu"))
    return Searched(config.candidates, method.search_cost(graph).pairs, peak)


def measure_epochs(name: str, graph: Graph, config: AspectSConfig) -> Peak:
    """An epoch of each kind in this process, whose peak must be that of nothing else."""
    cpu = torch.device("cpu")
    plain, searching = epochs(config, graph)
    before = (seconds(plain), peak_bytes(cpu))
    del plain
    return Peak(name, torch.get_num_threads(), *before, seconds(searching), peak_bytes(cpu))


def apart(kind: str, name: str, threads: int, changes: dict[str, Any]) -> dict[str, Any]:
    """The same in a process of its own, since the peak of a process never falls."""
    words = ["--one", kind, "--graph", name, "--changes", json.dumps(changes)]
    told: dict[str, Any] = json_of(name, [__file__, *words, "--threads", str(threads)], threads)
    return told


@dataclass(frozen=True)
class Findings:
    """All that was measured."""

    ratios: tuple[Ratio, ...]
    searches: tuple[Searched, ...]
    large: tuple[Peak, ...]

    def as_json(self) -> str:
        """For a program."""
        ratios = [asdict(one) | {"ratio": one.ratio, "reached": one.reached} for one in self.ratios]
        line = Growth.of(list(self.searches)) if self.searches else None
        told = {
            "ratios": ratios,
            "candidates": [asdict(one) for one in self.searches],
            "growth": None if line is None else asdict(line) | {"reached": line.reached},
            "large": [asdict(peak) | {"reached": peak.reached} for peak in self.large],
        }
        return json.dumps(told)


def show(found: Findings) -> None:
    """Print the tables, those that have lines."""
    console = Console(width=None if sys.stdout.isatty() else COLUMNS)
    headings = ("graph", "layer order", "steps", "epoch, s", "with a search, s", "average epoch")
    title = f"ASPECT-S against ASPECT, a search every {INTERVAL} epochs"
    ratios = Table(*headings, "counted", "target", "", title=title)
    for one in found.ratios:
        times = (f"{one.plain_seconds:.2f}", f"{one.search_seconds:.2f}", f"{one.ratio:.2f} x")
        target = (f"{one.counted:.2f} x", f"<= {one.target:g} x", verdict(one.reached))
        ratios.add_row(one.graph, one.layer_order, str(one.steps), *times, *target)
    growing = Table("candidates per edge", "pairs", "peak, GB", title=f"A search on {GROWING}")
    for each in found.searches:
        growing.add_row(f"{each.candidates:g}", f"{each.pairs:,}", f"{each.bytes / 1e9:.3f}")
    line = Growth.of(list(found.searches)) if found.searches else None
    if line is not None:
        growing.caption = (
            f"{line.bytes_per_pair:.0f} bytes a pair; a line explains {line.explained:.1%}, "
            f"target >= {LEAST_LINEAR:.0%} {verdict(line.reached)}"
        )
    names = ("graph", "threads", "plain epoch, s", "GB", "with a search, s", "GB", "target", "")
    large = Table(*names, title="One epoch of each kind")
    for peak in found.large:
        plain = (f"{peak.plain_seconds:.1f}", f"{peak.plain_bytes / 1e9:.2f}")
        searching = (f"{peak.search_seconds:.1f}", f"{peak.search_bytes / 1e9:.2f}")
        bound = (f"< {peak.target:g} GB", verdict(peak.reached))
        large.add_row(peak.graph, str(peak.threads), *plain, *searching, *bound)
    for table in (ratios, growing, large):
        if table.row_count:
            console.print(table)


def collect(arguments: argparse.Namespace, progress: Progress) -> Findings:
    """Measure the parts that are wanted, one after the other."""
    parts, threads = arguments.parts, arguments.threads
    compared = [(name, order) for name in COMPARED for order in ORDERS if "ratios" in parts]
    shares = [share for share in CANDIDATES if "candidates" in parts]
    names = [name for name in LARGE if "large" in parts]
    task = progress.add_task("measuring", total=len(compared) + len(shares) + len(names))
    ratios, searches, large = [], [], []
    for name, order in compared:
        config = settings(name, layer_order=order)
        ratios.append(compare(name, load(name), config, arguments.repetitions))
        progress.advance(task)
    for share in shares:
        told = apart("search", GROWING, threads, {**NARROW, "candidates": share})
        searches.append(Searched(**told))
        progress.advance(task)
    for name in names:
        large.append(Peak(**apart("epochs", name, arguments.cores, {})))
        progress.advance(task)
    return Findings(tuple(ratios), tuple(searches), tuple(large))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object and no more")
    parser.add_argument("--repetitions", type=int, default=5, help="of each epoch (default: 5)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default: 1)")
    parser.add_argument("--cores", type=int, default=2, help="of the large graphs (default: 2)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="(default: all)")
    parser.add_argument("--one", choices=("search", "epochs"), help="measure in this process")
    parser.add_argument("--graph", default=GROWING, help="of --one")
    parser.add_argument("--changes", default="{}", help="of its settings, as JSON")
    return parser.parse_args(arguments)


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; a missed target is shown, not punished: the `slow` tests assert it."""
    given = parse(arguments)
    torch.set_num_threads(given.threads)
    if given.one is not None:
        name = given.graph
        own = (load(name), settings(name, **json.loads(given.changes)))
        one = measure_search(*own) if given.one == "search" else measure_epochs(name, *own)
        print(json.dumps(asdict(one)))
        return 0
    with Progress(console=Console(stderr=True), transient=True) as progress:
        found = collect(given, progress)
    if given.json:
        print(found.as_json())
    else:
        show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main(None))
