"""Grids of runs: what a plan asks for, cell by cell, and the record that each cell leaves."""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.experiment.evaluate import EvaluationTable, evaluate_runs
    from aspect.experiment.plan import Plan, load_plan, plan_names
    from aspect.experiment.record import Record
    from aspect.experiment.runner import Bench
    from aspect.experiment.search import SearchRequest, plan_search
    from aspect.experiment.spec import Spec
    from aspect.experiment.store import read_records
    from aspect.experiment.trained import RunOptions, StoredRun, open_run, read_runs, train_run
    from aspect.experiment.tuning import SearchResult, tune

__all__ = [
    "Bench",
    "EvaluationTable",
    "Plan",
    "Record",
    "RunOptions",
    "SearchRequest",
    "SearchResult",
    "Spec",
    "StoredRun",
    "evaluate_runs",
    "load_plan",
    "open_run",
    "plan_names",
    "plan_search",
    "read_records",
    "read_runs",
    "train_run",
    "tune",
]

__getattr__, __dir__ = exporting(__name__, __file__)
