"""Plans, cells and records made by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from aspect.config import make_config
from aspect.evaluation.details import Details
from aspect.experiment.perturbations import Slot
from aspect.experiment.plan import Plan, ReadFacts, lay_out
from aspect.experiment.record import GraphSummary, Record, SplitScores

FACTS = ReadFacts(sha256="0" * 64, kinds=((10, None),), nodes=30, edges=60)


def make_plan(**values):
    """A method and a control on the embedded graph, unless told otherwise."""
    defaults = {"name": "toy", "entries": ["aspect", "raw"], "graphs": ["mixed"], "num_splits": 2}
    return make_config(Plan, {**defaults, **values}, owner="the plan")


def cells_of(plan, device="cpu"):
    return lay_out(plan, dict.fromkeys(plan.graphs, FACTS), device)


def metattack_files(splits):
    """Files of metattack on the embedded graph, whose digests tell split and budget."""
    return {
        Slot("mixed", "metattack", "implicit", None, split): SimpleNamespace(
            facts=SimpleNamespace(split=split),
            path=Path(f"{split}"),
            digest=f"{split} at {{}}".format,
        )
        for split in splits
    }


def done(cell, strict=50.0, **changes):
    """A record with this score on every split of the cell, one point more on each."""
    scores = tuple(
        SplitScores(split=number, validation=60, strict=strict + place, macro_f1=40, choice=0.0)
        for place, number in enumerate(cell.spec.split_numbers)
    )
    values = {
        "status": "done",
        "cell": cell,
        "graph": GraphSummary(name=cell.graph, nodes=30, edges=60, features=6, classes=2),
        "scores": scores,
        "seconds": {"train": 1.0, "embed": 0.5, "probe": 0.5},
    }
    return Record(**{**values, **changes})


def failed(cell, error="It broke."):
    return Record(status="failed", cell=cell, error=error)


def make_details(cell, **changes):
    """A graph of one node, seen by the cell's model."""
    values = {
        "method": cell.spec.method,
        "title": cell.title,
        "graph": cell.graph,
        "seed": 0,
        "num_nodes": 1,
        "nodes": (0,),
        "degrees": (0,),
        "neighbours": ((),),
        "map_x": (0.0,),
        "map_y": (0.0,),
        "map_name": "PCA",
    }
    return Details(**{**values, **changes})
