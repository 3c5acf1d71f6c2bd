"""How long the neutral probe takes beside version 0.1's, which is the paper's, in one run.

Ten random splits of Cora, embeddings of 512 dimensions by untrained weights and of the same size by
a short training. The two probes take turns, and medians are compared. With one thread processor
time is measured on the CPU, which does not depend on what else the machine does. Needs `cora.npz`
in the folder that ASPECT_DATA names; a GPU is measured where there is one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from aspect.data.graph import LabelledGraph  # noqa: E402
from aspect.data.source import load_named  # noqa: E402
from aspect.estimator import Embedder  # noqa: E402 - the path comes first
from aspect.evaluation.linear_probe import NeutralProbe, PaperProbe, Probe, linear_probe  # noqa: E402

MOST = 2.0  # times version 0.1's


def main() -> int:
    """Measure on every device that is there; 1 if the neutral probe takes too long on one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=1, help="turns of each probe (1)")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU (1)")
    parser.add_argument("--epochs", type=int, default=30, help="of the short training (30)")
    wanted = parser.parse_args()
    torch.set_num_threads(wanted.threads)
    labelled = load_named("cora")
    embeddings = {
        "untrained": _embedded("random", labelled),
        f"{wanted.epochs} epochs": _embedded("aspect", labelled, epochs=wanted.epochs),
    }
    table = Table("embeddings", "device", "paper, s", "neutral, s", "ratio", "accuracies")
    ratios = []
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        for name, rows in embeddings.items():
            seconds, scores = _measure(rows.to(device), labelled, wanted.repeats)
            ratios.append(seconds["neutral"] / seconds["paper"])
            times = (f"{seconds[probe]:.2f}" for probe in ("paper", "neutral"))
            told = f"{scores['paper']:.1f} and {scores['neutral']:.1f}"
            table.add_row(name, device, *times, f"{ratios[-1]:.2f}", told)
    Console().print(table)
    return int(max(ratios) > MOST)


def _embedded(method: str, labelled: LabelledGraph, **settings: int) -> Tensor:
    return (
        Embedder(method, width=512, device="cpu", **settings)
        .fit(labelled.graph)
        .embed(labelled.graph)
    )


def _measure(
    rows: Tensor, labelled: LabelledGraph, repeats: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds and mean accuracy of each probe; a first turn on few nodes warms up."""
    probes: dict[str, Probe] = {"paper": PaperProbe(), "neutral": NeutralProbe()}
    clock = (
        time.process_time
        if rows.device.type == "cpu" and torch.get_num_threads() == 1
        else time.perf_counter
    )
    seconds: dict[str, list[float]] = {name: [] for name in probes}
    scores = {}
    for probe in probes.values():
        linear_probe(
            rows[:200], labelled.labels[:200], num_classes=labelled.num_classes, probe=probe
        )
    for _ in range(repeats):
        for name, probe in probes.items():
            started = _now(clock, rows)
            result = linear_probe(
                rows, labelled.labels, num_classes=labelled.num_classes, probe=probe
            )
            seconds[name].append(_now(clock, rows) - started)
            scores[name] = result.strict.mean
    return {name: statistics.median(values) for name, values in seconds.items()}, scores


def _now(clock: Callable[[], float], rows: Tensor) -> float:
    if rows.is_cuda:
        torch.cuda.synchronize()
    return clock()


if __name__ == "__main__":
    sys.exit(main())
