"""Searches small enough for a test, carried out in this process."""

from __future__ import annotations

from dataclasses import replace

from aspect.data.npz import write_npz
from aspect.data.synthetic import mixed_graph
from aspect.evaluation.linear_probe import NeutralProbe
from aspect.experiment.executor import Finished, Lost, Started
from aspect.experiment.tuning.request import plan_search
from aspect.experiment.tuning.search import tune
from aspect.methods.registry import find_method
from aspect.settings import Experiment

QUICK = NeutralProbe(penalties=(0.01, 1.0))
SMALL = {"width": 8, "gate_width": 4, "order": 2}


class InThisProcess:
    """Carries out one task after the other; may be told to stop as a killed process does."""

    def __init__(self, stop_before=None):
        self.stop_before = stop_before
        self.tasks = []

    def run(self, work, tasks):
        for task in tasks:
            if len(self.tasks) == self.stop_before:
                raise KeyboardInterrupt
            self.tasks.append(task)
            yield Started(task)
            try:
                result = work(task)
            except Exception as error:
                yield Lost(task, str(error))
            else:
                yield Finished(task, result)


def write_graph(folder, name="graph.npz", labelled=None):
    """Sixty nodes of two classes in a file."""
    path = folder / name
    write_npz(path, labelled or mixed_graph(num_nodes=60, num_features=8, degree=6.0, seed=0))
    return path


def small_search(path, settings=None, *, method="aspect", seed=0, **options):
    """A search of the method's settings on a graph's file; its size is fixed."""
    known = find_method(method).config.model_fields
    small = {name: value for name, value in SMALL.items() if name in known}
    given = {
        "max_epochs": 8,
        "max_cosine": 1.0,  # short trainings of small models are seldom healthy
        "device": "cpu",
        "fixed": list(small),
        **options,
    }
    experiment = Experiment(
        method=method,
        graph=str(path),
        seed=seed,
        settings={**small, "epochs": 3, **(settings or {})},
    )
    return plan_search(experiment, settings_from="test's own", **given)


def search_for(search, out, trials, **options):
    """Carry the search out in this process."""
    return tune(search, out, trials, executor=options.pop("executor", InThisProcess()), **options)


def outcomes(result):
    """All but the time that the trials took."""
    return [replace(each, seconds=None) for each in result.results]
