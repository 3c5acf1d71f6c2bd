"""Search settings of every method on every graph by one rule, and ship them.

The rule is the same for all, ours included: 20 trials, the same seeds, validation accuracy (ROC AUC
where a data set's authors report that) of the neutral probe on `random` splits that no table
reports, and a pruner of Optuna: trials below the median end early; on graphs of 5,000 nodes or more
half of the trials end at a quarter of the epochs, and half of the rest at a half.
The first trial are the settings of a method's authors where they give some for the graph, else the
method's defaults. What is searched is each method's own space (`aspect methods NAME`), widths up to
2048. ASPECT-S is ASPECT as it was found on the graph: its search, of as many trials, is for what it
adds.

The folders are those of `aspect tune`. A search that is complete is kept, one that was interrupted
goes on: call it again until nothing is left. `--ship` writes the best settings of complete searches
into the package, and all their trials into `results/searches/`; it searches nothing. The authors'
own settings are kept as `GRAPH.published.yaml`. A search whose trials lie in `results/searches/` is
not carried out again, and one that was begun goes on from `results/searches/begun/`, wherever it is
called next; `--table` prints what was found. Several searches at a time share a GPU much faster
under NVIDIA's MPS. The graphs' files lie in the folder that ASPECT_DATA names. Run by `make
settings`.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import pandas as pd  # noqa: E402

from aspect.config import to_yaml  # noqa: E402
from aspect.errors import AspectError, sentence_of  # noqa: E402
from aspect.experiment.executor import Finished, News, Started  # noqa: E402
from aspect.experiment.plan import load_plan  # noqa: E402 - the path comes first
from aspect.experiment.run import free_memory  # noqa: E402
from aspect.experiment.search import Search, SearchRequest, plan_search  # noqa: E402
from aspect.experiment.tuning import JOURNAL, SEARCH, SearchResult, load_search, tune  # noqa: E402
from aspect.methods.registry import find_method  # noqa: E402
from aspect.settings import FOLDER as SHIPPED  # noqa: E402
from aspect.settings import Experiment, find_experiment, load_experiment  # noqa: E402
from aspect.workspace import write_text  # noqa: E402
from commands import positive, run_all, told_in_a_line  # noqa: E402

SEARCHES = ROOT / "runs" / "settings"
SHIPPED_TRIALS = ROOT / "results" / "searches"
TRIALS = 20
PLAN = load_plan("clean")
# Their published files are the paper's letter, not a start.
ASPECT, ASPECT_S = "aspect", "aspect-s"

# Where an epoch is cheap, a trial may have more of them; the first trial keeps its own number. On
# graphs of a few hundred nodes few epochs do, and what they lead to hangs on the seed.
SMALL = ("cornell", "cornell_old", "texas", "wisconsin")
MIDDLE = ("chameleon_filtered", "squirrel_filtered", "cora", "citeseer", "chameleon")
LARGE = ("squirrel", "actor", "minesweeper", "amazon_photo", "tolokers", "pubmed")
GRAPHS = (*SMALL, *MIDDLE, *LARGE)
SEEDS_ON_SMALL = 3
MOST_EPOCHS = {**dict.fromkeys(GRAPHS, 200), **dict.fromkeys(MIDDLE, 500)}
# An epoch of the two methods with a search inside takes as long as fifty of others.
MOST_EPOCHS_WITH_SEARCH = {"ariel": 100, "rdgi": 100}

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class PlannedSearch:
    """A method on a graph."""

    method: str
    graph: str

    @property
    def request(self) -> SearchRequest:
        """How its trials are scored; nothing but the graph and the cost of an epoch decides it."""
        most = min(MOST_EPOCHS[self.graph], MOST_EPOCHS_WITH_SEARCH.get(self.method, sys.maxsize))
        return SearchRequest(
            seeds=SEEDS_ON_SMALL if self.graph in SMALL else 1,
            pruner="halving" if self.graph in LARGE else "median",
            max_epochs=None if self.method == ASPECT_S else most,  # ASPECT's
            max_cosine=1.0,  # a probe that is neutral does not mind how close the nodes are
        )

    @property
    def name(self) -> str:
        """The folder of its search."""
        return f"{self.graph}-{self.method}"

    def __str__(self) -> str:
        return self.name

    @property
    def shipped_trials(self) -> Path:
        """All its trials as a table, once it is complete and shipped."""
        return SHIPPED_TRIALS / f"{self.name}.csv"

    @property
    def begun(self) -> Path:
        """The search itself, while it is not complete: it goes on from here on any machine."""
        return SHIPPED_TRIALS / "begun" / self.name

    def start(self) -> tuple[Experiment, str]:
        """The first trial, and a word on where it comes from."""
        if self.method == ASPECT_S:
            found, word = find_experiment(ASPECT, self.graph, None)
            return found.model_copy(update={"method": ASPECT_S, "origin": ""}), word
        official = None if self.method == ASPECT else official_file(self.method, self.graph)
        if official is None:
            return Experiment(method=self.method, graph=self.graph), "defaults"
        given = load_experiment(official)
        start = Experiment(method=self.method, graph=self.graph, settings=given.settings)
        return start, f"official settings of {self.method} on {self.graph}"

    def plan(self, device: str | None) -> Search:
        """The search as `aspect tune` knows it."""
        start, word = self.start()
        fixed = find_method(ASPECT).config.model_fields if self.method == ASPECT_S else ()
        return plan_search(start, self.request, settings_from=word, fixed=fixed, device=device)


def official_file(method: str, graph: str, shipped: Path = SHIPPED) -> Path | None:
    """The settings of a method's authors for a graph, if they give some."""
    published, own = (shipped / method / f"{graph}{end}" for end in (".published.yaml", ".yaml"))
    if published.is_file():
        return published
    is_official = own.is_file() and load_experiment(own).chosen_by == "official"
    return own if is_official else None


def searched_methods() -> list[str]:
    """The methods of the plan but for the controls, and our stable variant."""
    methods = dict.fromkeys([*(entry.method or entry.name for entry in PLAN.entries), ASPECT_S])
    return [name for name in methods if find_method(name).family != "control"]


def planned_searches(
    methods: Sequence[str] = (), graphs: Sequence[str] = ()
) -> list[PlannedSearch]:
    """Methods on graphs, graph by graph from small to large; none given: all."""
    return [
        PlannedSearch(method, graph)
        for graph in GRAPHS
        if not graphs or graph in graphs
        for method in methods or searched_methods()
    ]


# One search after the other in each worker: starting a process costs as much as some trials


class InThisProcess:
    """Carries out the trials of a search here, one after the other; an `Executor`."""

    def run(
        self, work: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Generator[News[Task, Result], None, None]:
        """Apply `work` to every task; the memory of its training is given back."""
        for task in tasks:
            yield Started(task)
            result = work(task)
            free_memory()
            yield Finished(task, result)


def carry_out(
    planned: PlannedSearch, searches: Path, trials: int, device: str | None, until: float
) -> str:
    """Carry out one search until a moment of the clock; how it went, in a line."""
    seconds = None if until == math.inf else max(0.0, until - time.time())
    if seconds == 0:
        return "not begun: the time is over."
    folder = searches / planned.name
    if planned.begun.is_dir() and not folder.exists():
        shutil.copytree(planned.begun, folder)
    result = tune(
        planned.plan(device),
        folder,
        trials,
        executor=InThisProcess(),
        seconds=seconds,
    )
    return summary(result)


def summary(result: SearchResult) -> str:
    """How a search went, in a line."""
    best, start = result.best, result.start
    if best is None or best.health is None:
        return f"no healthy trial of {len(result.trials)}."
    first = start.validation if start is not None else None
    took = sum(trial.seconds or 0 for trial in result.trials[result.before :])
    return (
        f"{best.validation:.2f}% on validation nodes after {len(result.trials)} trials in "
        f"{took:.0f} s; first: {'failed' if first is None else f'{first:.2f}%'}; "
        f"{result.count('pruned')} pruned, {result.count('failed')} failed; "
        f"mean cosine {best.health.mean_cosine:.2f}."
    )


def search_all(searches: Sequence[PlannedSearch], given: argparse.Namespace) -> bool:
    """Carry out all searches, several at a time; whether none of them failed."""
    work = partial(
        carry_out,
        searches=given.searches,
        trials=given.trials,
        device=given.device,
        until=math.inf if given.seconds is None else time.time() + given.seconds,
    )
    lost = run_all(
        work, searches, given.workers, lambda planned, how: print(f"{planned}: {how}", flush=True)
    )
    return lost == 0


# Shipping


def ship(planned: PlannedSearch, searches: Path, shipped: Path = SHIPPED) -> Path | None:
    """Write a search's best settings among those of the package.

    After too few trials the search is kept as it is, to go on later, and None is returned.
    """
    folder, begun = searches / planned.name, planned.begun
    if not (folder / SEARCH).is_file():
        return None
    result, _ = load_search(folder)
    if len(result.trials) < TRIALS or result.best is None:
        begun.mkdir(parents=True, exist_ok=True)
        for name in (SEARCH, JOURNAL):
            shutil.copy(folder / name, begun)
        return None
    shutil.rmtree(begun, ignore_errors=True)
    path = shipped / planned.method / f"{planned.graph}.yaml"
    path.parent.mkdir(exist_ok=True)
    official = official_file(planned.method, planned.graph, shipped)
    if official == path:
        path.rename(path.with_suffix(".published.yaml"))
    SHIPPED_TRIALS.mkdir(exist_ok=True)
    write_text(planned.shipped_trials, result.table())
    content = {"settings": result.best.settings, "origin": result.origin()}
    write_text(path, to_yaml({"method": planned.method, "graph": planned.graph, **content}))
    return path


def found_table() -> str:
    """The highest validation score of every shipped search, methods by graphs."""
    rows = []
    for planned in planned_searches():
        if planned.shipped_trials.is_file():
            trials = pd.read_csv(planned.shipped_trials)
            best = trials[trials.state == "complete"].validation.max()
            rows.append({"method": planned.method, "graph": planned.graph, "validation": best})
    if not rows:
        return f"{SHIPPED_TRIALS} holds no trials."
    wide = pd.DataFrame(rows).pivot_table(index="method", columns="graph", values="validation")
    return wide.round(1).to_string(na_rep="-")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, choices in (("method", searched_methods()), ("graph", GRAPHS)):
        parser.add_argument(
            f"--{name}", choices=choices, action="append", default=[], help=f"one {name} only"
        )
    parser.add_argument("--table", action="store_true", help="search nothing, print what was found")
    parser.add_argument("--ship", action="store_true", help="search nothing, ship what is there")
    parser.add_argument("--trials", type=positive, default=TRIALS, help="trials of each search")
    parser.add_argument("--seconds", type=positive, help="begin no trial after so many")
    parser.add_argument("--workers", type=positive, default=2, help="searches at a time")
    parser.add_argument("--device", help="as of aspect tune")
    parser.add_argument("--searches", type=Path, default=SEARCHES, help="folder of the searches")
    return parser.parse_args(arguments)


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Search, or ship what was found, with one line for each."""
    given = parse(arguments)
    if given.table:
        print(found_table())
        return 0
    searches = planned_searches(given.method, given.graph)
    if not given.ship:
        left = [planned for planned in searches if not planned.shipped_trials.is_file()]
        print(f"{len(left)} of {len(searches)} searches are left.", flush=True)
        return 0 if search_all(left, given) else 2
    try:
        paths = {planned: ship(planned, given.searches) for planned in searches}
    except AspectError as error:
        print(sentence_of(error), file=sys.stderr)
        return 2
    missing = [planned for planned, path in paths.items() if path is None]
    print(f"Shipped {len(paths) - len(missing)} of {len(paths)} searched settings.")
    begun = [each.name for each in missing if (given.searches / each.name).is_dir()]
    if begun:
        print(f"Fewer than {TRIALS} trials, or none healthy: {', '.join(begun)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(None))
