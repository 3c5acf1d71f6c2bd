"""Searches small enough for a test, carried out in this process."""

from __future__ import annotations

from aspect.config import make_config
from aspect.data.archives import write_npz
from aspect.data.synthetic import mixed_graph
from aspect.evaluation.linear_probe import NeutralProbe
from aspect.experiment.executor import KILLED, Finished, Lost, Started
from aspect.experiment.search import SearchRequest, plan_search
from aspect.experiment.tuning import tune
from aspect.methods.registry import find_method
from aspect.settings import Experiment

QUICK = NeutralProbe(penalties=(0.01, 1.0))
SMALL = {"width": 8, "gate_width": 4, "order": 2}


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


class InThisProcess:
    """Carries out one task after the other; like the real one it replaces a killed worker once."""

    def __init__(self, attempts=1):
        self.attempts = attempts
        self.tasks = []

    def run(self, work, tasks):
        for task in tasks:
            self.tasks.append(task)
            for attempt in range(self.attempts):
                yield Started(task)
                try:
                    yield Finished(task, work(task))
                except Killed:
                    if self.attempts == 1:
                        raise
                    if attempt + 1 == self.attempts:
                        yield Lost(task, KILLED)
                except OSError as error:
                    yield Lost(task, str(error), "Traceback")
                else:
                    break


def write_graph(folder, name="graph.npz", labelled=None):
    """Sixty nodes of two classes in a file."""
    path = folder / name
    write_npz(path, labelled or mixed_graph(num_nodes=60, num_features=8, degree=6.0, seed=0))
    return path


def small_search(path, settings=None, *, method="aspect", seed=0, **options):
    """A search of the method's settings on a graph's file; its size is fixed."""
    known = find_method(method).config.model_fields
    small = {name: value for name, value in SMALL.items() if name in known}
    fixed = options.pop("fixed", list(small))
    # Short trainings of small models are seldom healthy.
    given = {"max_epochs": 8, "max_cosine": 1.0, **options}
    request = make_config(SearchRequest, given, owner="the search")
    experiment = Experiment(
        method=method,
        graph=str(path),
        seed=seed,
        settings={**small, "epochs": 3, **(settings or {})},
    )
    return plan_search(experiment, request, settings_from="test's own", fixed=fixed, device="cpu")


def search_for(search, out, trials, **options):
    """Carry the search out in this process."""
    return tune(search, out, trials, executor=options.pop("executor", InThisProcess()), **options)
