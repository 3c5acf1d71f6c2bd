"""Milliseconds and memory of an epoch of every method on a GPU, captured as a CUDA graph and not.

Trains by the one trainer with every method's default settings and prints the median epoch. The
first epochs, which warm up and capture, are left out. Run it on an idle GPU; it needs the data
sets' files in the folder that ASPECT_DATA names. `--out` keeps every measurement as a row of a CSV
file. A method that does not fit the GPU has no number.

`--stable` measures ASPECT-S beside ASPECT instead, with the settings shipped for each graph: epochs
with a search against those without, and whole trainings.
"""

from __future__ import annotations

import argparse
import gc
import logging
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table
from typing_extensions import override

from aspect.config import parse_overrides
from aspect.data.graph import Graph
from aspect.data.source import load_named
from aspect.methods.aspect_s import AspectSMethod
from aspect.methods.base import Method
from aspect.methods.registry import find_method, method_names
from aspect.randomness import isolated_seed
from aspect.settings import find_experiment
from aspect.training import gradients
from aspect.training.trainer import EpochReport, Recorder, Snapshot, train

GRAPHS = ("cora", "chameleon", "squirrel", "actor", "pubmed")
EPOCHS, FIRST, LONGEST = 48, 8, 2.0  # measured epochs, those left out, seconds at most
AT_ONCE = 16  # epochs between two looks at the clock: a GPU is not waited for in between
MODES = {  # capture, precision of products
    "eager float32": (False, "highest"),
    "captured float32": (True, "highest"),
    "captured TF32": (True, "high"),
}


class EnoughError(Exception):
    """Ends a training that has been measured for long enough."""


@dataclass
class Stopwatch(Recorder):
    """When some epochs were done; the trainer has read their numbers, so the device has, too."""

    looks: list[tuple[int, float]] = field(default_factory=list)  # epoch, moment

    @override
    def next_look(self, epoch: int) -> int:
        return FIRST if epoch < FIRST else epoch + AT_ONCE

    @override
    def epoch_done(self, report: EpochReport, snapshot: Callable[[], Snapshot]) -> None:
        if not report.is_latest or report.epoch < FIRST:
            return
        torch.cuda.synchronize()
        self.looks.append((report.epoch, time.perf_counter()))
        if self.looks[-1][1] - self.looks[0][1] > LONGEST:
            raise EnoughError

    @property
    def milliseconds(self) -> float:
        """Of an epoch, by the median look."""
        return statistics.median(
            1000 * (moment - before) / (epoch - first)
            for (first, before), (epoch, moment) in pairwise(self.looks)
        )


@dataclass(frozen=True)
class Measurement:
    """One method on one graph in one mode."""

    method: str
    graph: str
    mode: str
    milliseconds: float  # of an epoch; NaN: out of memory
    gib: float  # at the peak


def measure(method: str, name: str, graph: Graph, mode: str) -> Measurement:
    """Train for some epochs."""
    capture, precision = MODES[mode]
    known = find_method(method)
    settings = known.config().model_copy(update={"epochs": EPOCHS + FIRST, "patience": None})
    with isolated_seed(0):
        model = known.method(settings, graph.num_features)
    model = model.to(graph.device)
    gradients.PRECISION = precision
    gradients.WARM_UP = 2 if capture else EPOCHS * 10
    torch.cuda.reset_peak_memory_stats()
    watch = Stopwatch()
    try:
        with suppress(EnoughError):
            train(model, graph, seed=0, recorder=watch)
        milliseconds = watch.milliseconds
    except torch.cuda.OutOfMemoryError as error:
        logging.getLogger(__name__).warning("%s on %s, %s: %s", method, name, mode, error)
        milliseconds = math.nan
    gib = torch.cuda.max_memory_allocated() / 2**30
    return Measurement(method, name, mode, milliseconds, gib)


@dataclass
class EpochTimes(Recorder):
    """The time of every epoch of a whole training."""

    times: dict[int, float] = field(default_factory=dict)
    before: float = field(default_factory=time.perf_counter)

    @override
    def epoch_done(self, report: EpochReport, snapshot: Callable[[], Snapshot]) -> None:
        now = time.perf_counter()  # the trainer has read the epoch's numbers
        self.times[report.epoch] = 1000 * (now - self.before)
        self.before = now


def whole_training(method: str, name: str, changes: Sequence[str]) -> tuple[Method, EpochTimes]:
    """With the settings shipped for the graph, but for changes."""
    graph, known = load_named(name).graph.to("cuda"), find_method(method)
    settings = {**find_experiment(method, name, None)[0].settings, **parse_overrides(list(changes))}
    with isolated_seed(0):
        model = known.method(known.config(**settings), graph.num_features).to("cuda")
    watch = EpochTimes()
    train(model, graph, seed=0, recorder=watch)
    return model, watch


def compare_stable(name: str, changes: Sequence[str]) -> str:
    """A line: milliseconds of epochs and seconds of trainings."""
    whole_training("aspect-s", name, ["epochs=3", "warm_up=0", "interval=1"])  # compiles kernels
    _, plain = whole_training("aspect", name, ())
    model, stable = whole_training("aspect-s", name, changes)
    assert isinstance(model, AspectSMethod)
    searching = [stable.times[epoch] for epoch in stable.times if model.is_due(epoch)]
    others = [stable.times[epoch] for epoch in stable.times if not model.is_due(epoch)]
    without = statistics.median(others or plain.times.values())
    once, every = statistics.median(searching), sum(stable.times.values())
    whole = sum(plain.times.values())
    return (
        f"{name}: an epoch {without:.1f} ms, with a search {once:.1f} ms ({once / without:.1f} x); "
        f"{len(searching)} searches; ASPECT {whole / 1000:.2f} s, ASPECT-S {every / 1000:.2f} s "
        f"({every / whole:.2f} x)"
    )


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    trained = [name for name in method_names() if find_method(name).method.trainable]
    parser.add_argument("--methods", nargs="+", choices=trained, default=trained)
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--out", type=Path, help="CSV file of the measurements")
    parser.add_argument("--stable", action="store_true", help="ASPECT-S beside ASPECT")
    parser.add_argument("--set", nargs="*", default=[], help="with --stable: changes of ASPECT-S")
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs a GPU.")
    logging.basicConfig(format="%(message)s")
    if chosen.stable:
        for name in chosen.graphs:
            print(compare_stable(name, chosen.set), flush=True)
        return
    measured: list[Measurement] = []
    table = Table("method", "graph", *[f"{mode}, ms" for mode in chosen.modes], "GiB")
    for name in chosen.graphs:
        graph = load_named(name).graph.to("cuda")
        for method in chosen.methods:
            row = []
            for mode in chosen.modes:
                measured.append(measure(method, name, graph, mode))
                row.append(f"{measured[-1].milliseconds:.2f}")
                gc.collect()
                torch.cuda.empty_cache()
            row.append(f"{measured[-1].gib:.2f}")
            print(method, name, *row, flush=True)
            table.add_row(method, name, *row)
            if chosen.out is not None:
                pd.DataFrame(measured).to_csv(chosen.out, index=False, float_format="%.3f")
    Console().print(table)


if __name__ == "__main__":
    main()
