"""Find settings for every baseline on every graph that its authors give none for, and ship them.

Each is one `aspect tune`, from the method's defaults, and validation nodes alone choose the best
trial; the methods and graphs are those of the plan `clean`. A search that is complete is kept, one
that was interrupted goes on. Hours of a GPU; the graphs' files lie in the folder that ASPECT_DATA
names. Run by `make settings`. With `--ship` no search is begun: what is complete is shipped.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from aspect.benchmark.plan import load_plan  # noqa: E402 - the path comes first
from aspect.config import to_yaml  # noqa: E402
from aspect.experiments import FOLDER as SHIPPED  # noqa: E402
from aspect.experiments import load_experiment  # noqa: E402
from aspect.methods.registry import find_method  # noqa: E402
from aspect.report.methods import shipped_settings  # noqa: E402
from aspect.training.folder import write_text  # noqa: E402
from commands import positive, run_command, run_several, told_in_a_line  # noqa: E402

SEARCHES = ROOT / "runs" / "settings"
TRIALS = 20
PLAN = load_plan("clean")
OURS = ("aspect", "aspect-s")  # searched by themselves, more closely; their files say how

# Where an epoch is dear, trials are shorter than the defaults: of a method, or on a graph. ARIEL's
# authors train that long on the graphs that they give settings for, and RDGI stops by itself. Where
# the default number turned out to be too few, they are longer; and where patience ends trainings at
# once, rungs have to come early.
MOST_EPOCHS: dict[tuple[str, str | None], int] = {
    ("dgi", "squirrel"): 400,
    ("grace", "chameleon"): 500,
    ("grace", "squirrel"): 500,
    ("ariel", None): 300,
    ("rdgi", None): 200,
    ("rdgi", "actor"): 100,
    ("s3gcl", "pubmed"): 50,
    ("gca", "pubmed"): 150,
}

# On graphs so small few epochs do, and what they lead to hangs on the seed. An epoch of some
# methods takes as long as ten of others, for its search: one seed has to do for them.
SMALL_GRAPHS = ("cornell", "cornell_old", "texas", "wisconsin")
SEEDS_ON_SMALL, MOST_EPOCHS_ON_SMALL = 3, 200
WITH_ONE_SEED = ("ariel", "rdgi")


@dataclass(frozen=True)
class Wanted:
    """A method on a graph."""

    method: str
    graph: str

    @property
    def command(self) -> list[str]:
        """What searches, `aspect` left out; with one worker a search can be repeated."""
        words = f"tune {self.graph} --method {self.method} --config defaults --trials {TRIALS}"
        if self.is_small and self.method not in WITH_ONE_SEED:
            words += f" --seeds {SEEDS_ON_SMALL}"
        if self.most_epochs is not None:
            words += f" --max-epochs {self.most_epochs}"
        return [*words.split(), "--workers", "1"]

    @property
    def is_small(self) -> bool:
        """Whether its graph has a few hundred nodes."""
        return self.graph in SMALL_GRAPHS

    @property
    def most_epochs(self) -> int | None:
        """Those of a trial at most; None: as many as the defaults have."""
        if self.is_small:
            return MOST_EPOCHS_ON_SMALL
        return MOST_EPOCHS.get((self.method, self.graph), MOST_EPOCHS.get((self.method, None)))

    @property
    def name(self) -> str:
        """The folder of its search."""
        return f"{self.graph}-{self.method}"


def baselines() -> list[str]:
    """The methods of the plan but for ours and the controls."""
    methods = dict.fromkeys(entry.method or entry.name for entry in PLAN.entries)
    return [
        method
        for method in methods
        if method not in OURS and find_method(method).family != "control"
    ]


def wanted(methods: Sequence[str] = (), graphs: Sequence[str] = ()) -> Iterator[Wanted]:
    """All baselines on all graphs but for those with official settings; none given: all."""
    for method in baselines():
        official = {each.graph for each in shipped_settings(method) if each.official}
        for graph in PLAN.graphs:
            asked = method in (methods or [method]) and graph in (graphs or [graph])
            if asked and graph not in official:
                yield Wanted(method, graph)


def trials_done(folder: Path) -> int:
    """Trials that are over in a search's folder."""
    table = folder / "trials.csv"
    if not table.is_file():
        return 0
    with table.open(newline="", encoding="utf-8") as file:
        return sum(1 for _ in csv.DictReader(file))


def ship(each: Wanted, searches: Path, shipped: Path = SHIPPED) -> Path | None:
    """Write a search's best settings among those of the package; None if it is not complete."""
    folder = searches / each.name
    if trials_done(folder) < TRIALS:
        return None
    found = load_experiment(folder / "settings.yaml")
    path = shipped / each.method / f"{each.graph}.yaml"
    path.parent.mkdir(exist_ok=True)
    content = {"settings": found.settings, "origin": found.origin}
    write_text(path, to_yaml({"method": each.method, "graph": each.graph, **content}))
    return path


def search(each: Wanted, searches: Path, device: str | None) -> dict[str, Any]:
    """Carry out one search; what it says of itself."""
    options = ["--out", str(searches / each.name), *(["--device", device] if device else [])]
    (found,) = run_command(each.command, options)["searches"]
    return dict(found)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, choices in (("method", baselines()), ("graph", PLAN.graphs)):
        parser.add_argument(
            f"--{name}", choices=choices, action="append", default=[], help=f"one {name} only"
        )
    parser.add_argument("--ship", action="store_true", help="search nothing, ship what is complete")
    parser.add_argument("--workers", type=positive, default=2, help="searches at a time")
    parser.add_argument("--device", help="as of aspect tune")
    parser.add_argument("--searches", type=Path, default=SEARCHES, help="folder of the searches")
    return parser.parse_args(arguments)


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Search and ship what is asked for, with one line for each."""
    given = parse(arguments)
    asked = list(wanted(given.method, given.graph))
    if not asked:
        print("Nothing to search: the authors give settings for all that was asked for.")
        return 0
    if not given.ship:
        found = run_several(
            asked, lambda each: search(each, given.searches, given.device), given.workers
        )
        for each, result in found:
            start = "failed" if result["start"] is None else f"{result['start']:.2f}%"
            print(f"{each.name}: {result['validation']:.2f}% on validation nodes; start: {start}")
    paths = {each: ship(each, given.searches) for each in asked}
    missing = [each.name for each, path in paths.items() if path is None]
    print(f"Shipped {len(paths) - len(missing)} of {len(paths)} searched settings.")
    if missing:
        print(f"Not complete: {', '.join(missing)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(None))
