"""Make the perturbation files of record again: Metattack by both solvers, ten splits a graph.

Every file is one `aspect attack`, several at a time with one thread each. A file that is complete
is kept, one that was interrupted goes on. The graphs' files lie in the folder that ASPECT_DATA
names. All of it takes about six hours of one core, most of them for the unrolled solver on Pubmed
and Squirrel. Run by `make perturbations`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from commands import json_of, positive, told_in_a_line  # noqa: E402 - the path comes first

FOLDER = ROOT / "results" / "perturbations"
SPLITS = range(10)

# The share of the edges to which each graph is attacked; cheap ones first.
GRAPHS = ("cora", "citeseer", "chameleon", "actor", "pubmed", "squirrel")
BUDGETS = {
    "implicit": dict.fromkeys(GRAPHS, 0.25),
    "unrolled": {**dict.fromkeys(GRAPHS, 0.25), "actor": 0.1, "pubmed": 0.1},
}


@dataclass(frozen=True)
class Attack:
    """One file."""

    solver: str
    graph: str
    split: int

    @property
    def command(self) -> list[str]:
        """What makes it, `aspect` left out."""
        budget = BUDGETS[self.solver][self.graph]
        words = f"attack {self.graph} --kind metattack --solver {self.solver} --budget {budget}"
        return [*words.split(), "--split", str(self.split)]

    @property
    def file_name(self) -> str:
        """As `aspect attack --all-splits` calls it."""
        return f"{self.graph}-metattack-{self.solver}-class-balanced-{self.split}.safetensors"


def attacks(solvers: Sequence[str], graphs: Sequence[str]) -> Iterator[Attack]:
    """All files of some solvers and graphs, solver by solver."""
    for solver in solvers:
        for graph in BUDGETS[solver]:
            if graph in graphs:
                yield from (Attack(solver, graph, split) for split in SPLITS)


def run(attack: Attack, folder: Path, device: str) -> dict[str, Any]:
    """Make one file; what it says of itself."""
    options = ["--out", str(folder / attack.file_name), "--device", device, "--resume"]
    name = f"aspect {' '.join(attack.command)}"
    found: dict[str, Any] = json_of(name, ["-m", "aspect", *attack.command, *options, "--json"])
    return found


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--solver", choices=BUDGETS, action="append", help="one solver only")
    parser.add_argument("--graph", choices=GRAPHS, action="append", help="one graph only")
    parser.add_argument("--workers", type=positive, default=2, help="files at a time (default: 2)")
    parser.add_argument("--device", default="cpu", help="where the attacks run (default: cpu)")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the files")
    return parser.parse_args(arguments)


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Make the files that are asked for, and show one line for each."""
    given = parse(arguments)
    wanted = list(attacks(given.solver or list(BUDGETS), given.graph or GRAPHS))
    given.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    table = Table("file", "flips", "of the edges", "seconds", "MiB at most")
    # After a failure or Ctrl-C those under way come to their end and no further one is begun.
    with ThreadPoolExecutor(given.workers) as pool:
        made = pool.map(lambda attack: run(attack, given.out, given.device), wanted)
        for attack, result in zip(wanted, made, strict=True):
            (file,) = result["files"]
            console.print(f"{attack.file_name}: {file['flips']} flips, {file['seconds']:.1f} s")
            table.add_row(
                attack.file_name,
                str(file["flips"]),
                f"{100 * file['reached']:.1f}%",
                f"{file['seconds']:.1f}",
                f"{result['peak_memory_bytes'] / 2**20:.0f}",
            )
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(None))
