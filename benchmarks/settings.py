"""Find settings for every baseline on every graph that its authors give none for, and ship them.

Each is one `aspect tune`, from the method's defaults, and validation nodes alone choose the best
trial; the methods and graphs are those of the plan `clean`. Ours are searched only by name
(`--method aspect`), from the settings that are shipped. A search that is complete is kept, one that
was interrupted goes on. After `--seconds` no trial is begun; the best so far is shipped where ten
trials are done. With `--ship` nothing is searched. Hours of a GPU; the graphs' files lie in the
folder that ASPECT_DATA names. Run by `make settings`.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from aspect.config import to_yaml  # noqa: E402
from aspect.experiment.plan import load_plan  # noqa: E402 - the path comes first
from aspect.methods.registry import find_method  # noqa: E402
from aspect.report.methods import shipped_settings  # noqa: E402
from aspect.settings import FOLDER as SHIPPED  # noqa: E402
from aspect.settings import load_experiment  # noqa: E402
from aspect.workspace import write_text  # noqa: E402
from commands import (  # noqa: E402
    CommandFailedError,
    positive,
    run_command,
    run_several,
    told_in_a_line,
)

SEARCHES = ROOT / "runs" / "settings"
TRIALS = 20
LEAST_TRIALS = 10  # a best of fewer is not shipped
PLAN = load_plan("clean")
OURS = ("aspect", "aspect-s")  # searched only by name, and from what is shipped

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
class PlannedSearch:
    """A method on a graph."""

    method: str
    graph: str
    trials: int = TRIALS

    @property
    def command(self) -> list[str]:
        """What searches, `aspect` left out; with one worker a search can be repeated."""
        words = f"tune {self.graph} --method {self.method} --trials {self.trials}"
        if self.method not in OURS:
            words += " --config defaults"
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


def planned_searches(
    methods: Sequence[str] = (), graphs: Sequence[str] = (), trials: int = TRIALS
) -> Iterator[PlannedSearch]:
    """Methods on graphs without official settings; none given: all baselines, all graphs."""
    for method in methods or baselines():
        for graph in graphs or PLAN.graphs:
            if method in OURS or graph not in official_graphs(method):
                yield PlannedSearch(method, graph, trials)


def official_graphs(method: str) -> set[str | None]:
    """Graphs that a method's authors give settings for."""
    return {settings.graph for settings in shipped_settings(method) if settings.official}


def trials_done(folder: Path) -> int:
    """Trials that are over in a search's folder."""
    table = folder / "trials.csv"
    if not table.is_file():
        return 0
    with table.open(newline="", encoding="utf-8") as file:
        return sum(1 for _ in csv.DictReader(file))


def ship(planned: PlannedSearch, searches: Path, shipped: Path = SHIPPED) -> Path | None:
    """Write a search's best settings among those of the package; None after too few trials."""
    folder = searches / planned.name
    if trials_done(folder) < LEAST_TRIALS or not (folder / "settings.yaml").is_file():
        return None
    best = load_experiment(folder / "settings.yaml")
    path = shipped / planned.method / f"{planned.graph}.yaml"
    path.parent.mkdir(exist_ok=True)
    content = {"settings": best.settings, "origin": best.origin}
    write_text(path, to_yaml({"method": planned.method, "graph": planned.graph, **content}))
    return path


def search(
    planned: PlannedSearch, searches: Path, device: str | None, until: float
) -> dict[str, Any]:
    """Carry out one search until a moment of the monotonic clock; what it says of itself.

    A search that fails leaves the others their time: its error is reported at the end.
    """
    options = ["--out", str(searches / planned.name), *(["--device", device] if device else [])]
    if math.isfinite(until):
        options += ["--seconds", f"{max(0.0, until - time.monotonic()):.0f}"]
    try:
        (result,) = run_command(planned.command, options)["searches"]
    except CommandFailedError as error:
        return {"error": str(error)}
    return dict(result)


def summary(result: dict[str, Any]) -> str:
    """How a search went, in a line."""
    if "error" in result:
        return str(result["error"])
    start = "failed" if result["start"] is None else f"{result['start']:.2f}%"
    return (
        f"{result['validation']:.2f}% on validation nodes after {result['trials']} trials; "
        f"start: {start}; mean cosine: {result['health']['mean_cosine']:.2f}"
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, choices in (("method", [*baselines(), *OURS]), ("graph", PLAN.graphs)):
        parser.add_argument(
            f"--{name}", choices=choices, action="append", default=[], help=f"one {name} only"
        )
    parser.add_argument("--ship", action="store_true", help="search nothing, ship what is there")
    parser.add_argument("--trials", type=positive, default=TRIALS, help="trials of each search")
    parser.add_argument("--seconds", type=positive, help="begin no trial after so many")
    parser.add_argument("--workers", type=positive, default=2, help="searches at a time")
    parser.add_argument("--device", help="as of aspect tune")
    parser.add_argument("--searches", type=Path, default=SEARCHES, help="folder of the searches")
    return parser.parse_args(arguments)


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Search and ship what is asked for, with one line for each."""
    given = parse(arguments)
    searches = list(planned_searches(given.method, given.graph, given.trials))
    if not searches:
        print("Nothing to search: the authors give settings for all that was asked for.")
        return 0
    has_failed = not given.ship and not search_all(searches, given)
    paths = {planned: ship(planned, given.searches) for planned in searches}
    missing = [planned.name for planned, path in paths.items() if path is None]
    print(f"Shipped {len(paths) - len(missing)} of {len(paths)} searched settings.")
    if missing:
        print(f"Fewer than {LEAST_TRIALS} trials, or none healthy: {', '.join(missing)}.")
    return 2 if has_failed else 0


def search_all(searches: Sequence[PlannedSearch], given: argparse.Namespace) -> bool:
    """Carry out all searches, several at a time; whether none of them failed."""
    until = math.inf if given.seconds is None else time.monotonic() + given.seconds
    errors = 0
    for planned, result in run_several(
        searches, lambda each: search(each, given.searches, given.device, until), given.workers
    ):
        is_error = "error" in result
        stream = sys.stderr if is_error else sys.stdout
        print(f"{planned.name}: {summary(result)}", file=stream, flush=True)
        errors += is_error
    return errors == 0


if __name__ == "__main__":
    sys.exit(main(None))
