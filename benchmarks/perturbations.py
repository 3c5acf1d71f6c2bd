"""Make the perturbation files of record again: Metattack by both solvers, ten splits a graph.

Every file is one `aspect attack`, several at a time with one thread each. A file that is complete
is kept, one that was interrupted goes on. The graphs' files lie in the folder that ASPECT_DATA
names. On two cores all of it takes the better part of a day, on sixteen about an hour. Run by
`make perturbations`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "results" / "perturbations"
SPLITS = range(10)

# The share of the edges to which each graph is attacked; cheap ones first.
BUDGETS = {
    "implicit": {
        "cora": 0.25,
        "citeseer": 0.25,
        "chameleon": 0.25,
        "actor": 0.25,
        "pubmed": 0.25,
        "squirrel": 0.25,
    },
    "unrolled": {
        "cora": 0.25,
        "citeseer": 0.25,
        "chameleon": 0.25,
        "actor": 0.1,
        "pubmed": 0.1,
        "squirrel": 0.25,
    },
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
    """Make one file, in a process of its own; what it says of itself."""
    options = ["--out", str(folder / attack.file_name), "--device", device, "--resume", "--json"]
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "aspect", *attack.command, *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(attack.command)} failed: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Make the files that are asked for, and show one line for each."""
    graphs = list(BUDGETS["implicit"])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--solver", choices=BUDGETS, action="append", help="one solver only")
    parser.add_argument("--graph", choices=graphs, action="append", help="one graph only")
    parser.add_argument("--workers", type=int, default=2, help="files at a time")
    parser.add_argument("--device", default="cpu", help="where the attacks run")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the files")
    given = parser.parse_args()
    wanted = list(attacks(given.solver or list(BUDGETS), given.graph or graphs))
    given.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    table = Table("file", "flips", "of the edges", "seconds", "MiB at most")
    with ThreadPoolExecutor(given.workers) as pool:
        results = pool.map(lambda attack: run(attack, given.out, given.device), wanted)
        for attack, result in zip(wanted, results, strict=True):
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


if __name__ == "__main__":
    main()
