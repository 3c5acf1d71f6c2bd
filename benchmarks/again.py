"""Make some records again, drawn at random, and print by how much their scores differ.

On a CPU of the same kind the same versions and threads give the same scores, bit for bit; on a GPU
every repetition rounds otherwise. Records are made again on the device that they were made on: of a
GPU's, nothing is repeated where there is none. The graphs' files lie in the folder that ASPECT_DATA
names, flips in `results/perturbations`. Run by `make again`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import torch  # noqa: E402 - the path comes first

from aspect.attacks.file import PerturbationFile  # noqa: E402
from aspect.attacks.perturbation import SUFFIX  # noqa: E402
from aspect.errors import FileError, SettingsError  # noqa: E402
from aspect.experiment.record import Record  # noqa: E402
from aspect.experiment.run import PerturbedGraph, Task, run_cell  # noqa: E402
from aspect.experiment.spec import Cell, method_source  # noqa: E402
from aspect.experiment.store import read_records  # noqa: E402
from commands import positive, told_in_a_line  # noqa: E402

RECORDS = ROOT / "results" / "records" / "clean.jsonl"
PERTURBATIONS = ROOT / "results" / "perturbations"
METRICS = ("validation", "strict", "optimistic", "macro_f1", "roc_auc")


def drawn(records: Sequence[Record], number: int, seed: int) -> list[Record]:
    """Some of the records that are done."""
    known = [record for record in records if record.status == "done"]
    if not known:
        raise SettingsError("There must be a record that is done. Got none.")
    return random.Random(seed).sample(known, min(number, len(known)))  # noqa: S311 - no secret


def perturbed(cell: Cell) -> tuple[PerturbedGraph, ...]:
    """The graph of a run as it was perturbed for each split; empty if it is clean."""
    spec, perturbation = cell.spec, cell.spec.perturbation
    if perturbation is None:
        return ()
    if not perturbation.has_file:
        return tuple(PerturbedGraph(perturbation, split) for split in spec.split_numbers)
    words = cell.graph_source.name, perturbation.info.title, perturbation.solver, spec.splits
    paths = PERTURBATIONS.glob("-".join(filter(None, words)) + f"-*{SUFFIX}")
    found = (PerturbedGraph.of(PerturbationFile.read(path), perturbation) for path in paths)
    same = {each.sha256: each for each in found}
    wanted = spec.perturbation_sha256 or ()
    if not same.keys() >= set(wanted):
        raise FileError(f"{PERTURBATIONS} lacks flips of {cell.entry} on {cell.graph}.")
    return tuple(same[digest] for digest in wanted)


def largest_difference(first: Record, second: Record) -> float:
    """Of all scores of all splits, in points."""
    pairs = [
        (getattr(a, metric), getattr(b, metric))
        for a, b in zip(first.scores, second.scores, strict=True)
        for metric in METRICS
    ]
    return max((abs(a - b) for a, b in pairs if a is not None and b is not None), default=0.0)


def mean_score(record: Record) -> float:
    """Strict accuracy over the splits."""
    return sum(score.strict for score in record.scores) / len(record.scores)


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1: a run failed, one of a CPU is not the same, or nothing was made again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("records", type=Path, nargs="?", default=RECORDS)
    parser.add_argument("--number", type=positive, default=10, help="records to make again")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    given = parser.parse_args(arguments)
    if not given.records.exists():
        raise FileError(f"There are no records at {str(given.records)!r}. Make some: aspect bench.")
    is_same, largest = True, dict[str, float]()
    for record in drawn(read_records(given.records), given.number, given.seed):
        spec, cell = record.spec, record.cell
        name = f"{cell.entry} on {cell.graph}, {spec.splits} splits, seed {spec.seed}"
        if spec.perturbation is not None:
            name += f", {spec.perturbation.label} {spec.perturbation.mode}"
        if spec.device == "cuda" and not torch.cuda.is_available():
            print(f"{name}: made on a GPU, and there is none here.", flush=True)
            continue
        if not cell.embeddings:  # by the source as it is now
            spec = spec.model_copy(update={"source": method_source(spec.method)})
        cell = cell.model_copy(update={"spec": spec})
        again = run_cell(Task(cell, perturbed(cell)), device=spec.device).record
        if again.error is not None:
            print(f"{name}: {again.error}", flush=True)
            is_same = False
            continue
        difference = largest_difference(record, again)
        largest[spec.device] = max(difference, largest.get(spec.device, 0.0))
        print(
            f"{name} ({spec.device}): {mean_score(record):.2f}%, again {mean_score(again):.2f}%, "
            f"largest difference of a score {difference:.3g} points",
            flush=True,
        )
    for device, difference in largest.items():
        words = "the same, bit for bit" if difference == 0 else f"up to {difference:.3g} points"
        print(f"On {device}: {words}.")
    return 0 if is_same and largest and largest.get("cpu", 0.0) == 0 else 1


if __name__ == "__main__":
    sys.exit(main(None))
