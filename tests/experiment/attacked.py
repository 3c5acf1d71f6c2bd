"""A plan with attacks on a small graph, and everything up to its cells."""

from __future__ import annotations

from functools import partial

from aspect import mixed_graph
from aspect.data.archives import write_npz
from aspect.experiment.executor import Finished, Lost, Started
from aspect.experiment.perturbations import find_files, make_file, make_files
from aspect.experiment.plan import lay_out, read_facts
from aspect.experiment.store import BenchFolder
from experiment.grids import make_plan

TINY = {"epochs": 3, "width": 8, "gate_width": 4, "order": 2}
IMPLICIT = {"kind": "metattack", "solver": "implicit"}


def write_graph(path, seed=0, num_nodes=60):
    """So few nodes that drawing flips takes no time."""
    write_npz(path, mixed_graph(num_nodes, degree=4.0, num_features=6, seed=seed), overwrite=True)
    return path


def attacked_plan(path, *perturbations, **values):
    defaults = {
        "entries": ["aspect"],
        "graphs": [str(path)],
        "set": TINY,
        "splits": "random",
        "perturbations": list(perturbations) or [{**IMPLICIT, "budgets": [0.1, 0.2]}],
    }
    return make_plan(**{**defaults, **values})


class Inline:
    """Carries out tasks at once, in this process; errors are told as a worker's are."""

    def __init__(self):
        self.tasks = []

    def run(self, work, tasks):
        for task in tasks:
            self.tasks.append(task)
            yield Started(task)
            try:
                result = work(task)
            except Exception as error:
                yield Lost(task, str(error), "Traceback")
            else:
                yield Finished(task, result)


class Prepared:
    """What `aspect bench` knows before it carries out any cell."""

    def __init__(self, plan, out, given=None):
        self.plan, self.out = plan, out
        self.facts = dict(read_facts(plan, None))
        self.needed = [file for facts in self.facts.values() for file in facts.files]
        folder = BenchFolder(out)
        self.files, self.missing = find_files(self.needed, given, folder.perturbations)

    def attack(self, work=make_file, executor=None, **options):
        """Make what is missing; the progress that was told."""
        with BenchFolder.open(self.out, self.plan) as folder:
            work = partial(work, folder=folder.perturbations, **options)
            return list(make_files(self.missing, folder, self.files, executor or Inline(), work))

    def perturbed(self, cell):
        spec = cell.spec
        return self.files.perturbed(cell.graph, spec.perturbation, spec.split_numbers)

    @property
    def cells(self):
        return lay_out(self.plan, self.facts, "cpu", self.files)
