"""Names of a benchmark's tables, for files, anchors and labels."""

from __future__ import annotations

from aspect.attacks.perturbation import Perturbation
from aspect.evaluation.metrics import PERCENT
from aspect.experiment.spec import SplitName
from aspect.report.benchmark.collection import Collection
from aspect.report.tables import slug

__all__ = ["family_name", "perturbation_name", "table_name"]


def table_name(collection: Collection, name: str, splits: SplitName) -> str:
    """The name itself; the kind of splits is added to all but those of the first kind."""
    return name if splits == collection.kinds[0] else f"{name}-{splits}"


def family_name(perturbation: Perturbation) -> str:
    """All of it but the budget: `random-poison`."""
    edges = "" if perturbation.features else "edges"
    words = (perturbation.kind, perturbation.solver, perturbation.mode, edges)
    return slug("-".join(word for word in words if word))


def perturbation_name(perturbation: Perturbation) -> str:
    """Family and budget in percent: `random-poison-10`."""
    return slug(f"{family_name(perturbation)}-{PERCENT * perturbation.budget:g}")
