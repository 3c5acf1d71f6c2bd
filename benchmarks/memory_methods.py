"""What every method takes of memory and time: one epoch on the graphs with most nodes and edges.

Each method of the registry prepares, trains one epoch and embeds, on the CPU with one thread, by
the settings shipped for the graph or else by its defaults, in a process of its own, since the peak
of a process never falls. What is not due in every epoch is made due in this one. A process that
grows beyond 12 GB is stopped. Memory is the peak of the whole process, with torch and the graph;
time is processor time. The table goes to `results/memory.csv`, where methods and graphs that are
not measured keep their rows; the graphs' files lie in the folder that ASPECT_DATA names. About half
an hour for everything. Run by `make memory`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from aspect.config import make_config  # noqa: E402 - the path comes first
from aspect.data.source import load_named  # noqa: E402
from aspect.methods.registry import find_method, method_names, require_method_name  # noqa: E402
from aspect.provenance import peak_bytes  # noqa: E402
from aspect.randomness import isolated_seed  # noqa: E402
from aspect.settings import find_experiment  # noqa: E402
from aspect.training.trainer import train  # noqa: E402
from commands import read_rows, told_in_a_line, write_rows  # noqa: E402

OUT = ROOT / "results" / "memory.csv"
GRAPHS = ("pubmed", "squirrel")

GB = 10**9
TARGET_BYTES = 8 * GB
STOPPED_AT_BYTES = 12 * GB
SECONDS_BETWEEN_LOOKS = 0.1

# An epoch with all that a method does now and then: ASPECT-S searches; HLCL chooses its edges anew,
# for the first time before its second epoch.
EVERYTHING_IS_DUE: dict[str, dict[str, Any]] = {
    "aspect-s": {"warm_up": 0, "interval": 1},
    "hlcl": {"epochs": 2, "interval": 1},
}

NOTE = (
    "Made by `make memory`: peak of the process and processor time of one thread, CPU; "
    f"stopped: grew beyond {STOPPED_AT_BYTES // GB} GB"
)
SECONDS = ("prepare_seconds", "epoch_seconds")  # rounded in the file
COLUMNS = 100  # of the table, where it is not printed to a terminal


@dataclass(frozen=True)
class Measurement:
    """One method on one graph."""

    graph: str
    method: str
    settings: str  # "shipped" for the graph, or the method's "defaults"
    prepare_seconds: float  # once for a graph
    epoch_seconds: float  # zero for a method that is not trained
    peak_bytes: int
    stopped: bool = False  # before it was done: the peak is what it had reached, times are unknown

    @property
    def is_small(self) -> bool:
        """Whether it stays within the target."""
        return not self.stopped and self.peak_bytes < TARGET_BYTES


def measure(graph_name: str, name: str) -> Measurement:
    """Prepare, train and embed in this process."""
    experiment, origin = find_experiment(name, graph_name, None)
    entry, graph = find_method(name), load_named(graph_name).graph.to(torch.float32)
    changes = {"epochs": 1, **EVERYTHING_IS_DUE.get(name, {})}
    config = make_config(entry.config, {**experiment.settings, **changes}, owner=name)
    with isolated_seed(0):
        method = entry.method(config, graph.num_features)
    began = time.process_time()
    method.prepare(graph)
    prepared = time.process_time()
    epochs = train(method, graph, seed=0).epochs
    trained = time.process_time()
    with torch.no_grad():
        method.eval().embed(graph)
    settings = "defaults" if origin == "defaults" else "shipped"
    seconds = (trained - prepared) / epochs if epochs else 0.0
    peak = peak_bytes(torch.device("cpu"))
    return Measurement(graph_name, name, settings, prepared - began, seconds, peak)


def measure_apart(graph: str, method: str) -> Measurement | str:
    """The same in a process of its own, watched from here; or why there is nothing to tell."""
    process = subprocess.Popen(  # noqa: S603 - this file
        [sys.executable, __file__, "--one", "--graph", graph, "--method", method],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    while True:
        try:
            answer, complaint = process.communicate(timeout=SECONDS_BETWEEN_LOOKS)
            break
        except subprocess.TimeoutExpired:
            taken = resident_bytes(process.pid)
            if taken > STOPPED_AT_BYTES:
                process.kill()
                process.communicate()
                return Measurement(graph, method, "", 0.0, 0.0, taken, stopped=True)
    if process.returncode != 0:
        lines = complaint.strip().splitlines()
        return f"{method} on {graph}: {lines[-1] if lines else 'it ended without a word'}"
    return Measurement(**json.loads(answer))


def resident_bytes(process: int) -> int:
    """What a process holds of memory now; nothing where the system does not tell, or it is gone."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def show(measurements: Iterable[Measurement]) -> None:
    """Print the table."""
    console = Console(width=None if sys.stdout.isatty() else COLUMNS)
    target = f"under {TARGET_BYTES // GB} GB"
    title = "One epoch on the CPU, one thread"
    table = Table("graph", "method", "settings", title=title)
    for heading in ("peak GB", "prepare s", "epoch s"):
        table.add_column(heading, justify="right")
    table.add_column(target)
    for each in measurements:
        peak = f"{each.peak_bytes / GB:.2f}"
        numbers = [peak, f"{each.prepare_seconds:.1f}", f"{each.epoch_seconds:.1f}"]
        if each.stopped:
            numbers = [f"> {peak}", "stopped", "stopped"]
        table.add_row(
            each.graph,
            each.method,
            each.settings,
            *numbers,
            "[green]yes[/]" if each.is_small else "[red]no[/]",
        )
    console.print(table)


def read_measurements(path: Path) -> list[Measurement]:
    """What earlier calls wrote; nothing without one."""
    return read_rows(path, Measurement, "make memory")


def write_measurements(path: Path, measurements: Iterable[Measurement]) -> None:
    """One line each, whole or not at all."""
    rows = (
        asdict(each) | {name: f"{getattr(each, name):.2f}" for name in SECONDS}
        for each in measurements
    )
    write_rows(path, Measurement, rows, NOTE)


def merged(old: Iterable[Measurement], new: Measurement) -> list[Measurement]:
    """The new one in place of an old one of the same method and graph, all in one order."""
    by_place = {(each.graph, each.method): each for each in (*old, new)}
    return [by_place[place] for place in sorted(by_place)]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--graph", action="append", metavar="NAME", help=f"may be repeated (default: {GRAPHS})"
    )
    parser.add_argument(
        "--method", action="append", metavar="NAME", help="may be repeated (default: all)"
    )
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help="the table")
    parser.add_argument("--one", action="store_true", help="in this process; print one JSON object")
    return parser.parse_args(arguments)


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print; a missed target is shown, not punished."""
    given, console = parse(arguments), Console(stderr=True)
    graphs = given.graph or GRAPHS
    methods = [require_method_name(name) for name in given.method or method_names()]
    if given.one:
        torch.set_num_threads(1)
        print(json.dumps(asdict(measure(graphs[0], methods[0]))))
        return 0
    known, shown = read_measurements(given.out), []
    for graph, method in product(graphs, methods):
        with console.status(f"{method} on {graph}"):
            answer = measure_apart(graph, method)
        if isinstance(answer, str):
            console.print(answer, markup=False, highlight=False, soft_wrap=True)
            continue
        if answer.stopped:
            line = f"{method} on {graph} was stopped at {answer.peak_bytes / GB:.1f} GB."
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        known = merged(known, answer)
        shown.append(answer)
        write_measurements(given.out, known)
    show(shown)
    return 0 if shown else 2


if __name__ == "__main__":
    sys.exit(main(None))
