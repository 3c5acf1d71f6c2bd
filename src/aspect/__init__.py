"""aspect: node embeddings without labels, by spectral graph contrastive learning.

Data flows through the package from top to bottom:

    graph/        1  a graph, checked and cleaned, and its operators
    spectral/     2  the graph seen through low-pass and high-pass filters
    policy/       3  whom each node trusts, and 4 the blend that follows
    objectives/   5  losses, one per file
    blocks/          parts shared by several methods
    adversarial/     the search for small changes of a graph that do harm
    methods/         stages 1 to 5 assembled: one file per method
    experiments/     settings shipped per method and graph
    training/     6  the one loop, and what it leaves on disk
    estimator        fit, embed, policy, save, load
    evaluation/   7  probes, splits' scores, significance
    perturbation     a perturbation file at a budget: what a graph suffers first
    runs             a run from start to end, and back from its folder
    comparison       runs beside what no training gives
    robustness/      runs on perturbed graphs, beside the clean one
    report/       8  pages that show what was found
    cli/             one file per command

Names below are imported at first use, so that `import aspect` and the command line answer at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aspect.errors import AspectError
    from aspect.estimator import Aspect, Embedder
    from aspect.evaluation.neighbours import knn_probe
    from aspect.evaluation.probe import linear_probe
    from aspect.graph.data import Graph, LabelledGraph
    from aspect.graph.datasets import load_dataset
    from aspect.graph.reading import read_graph
    from aspect.graph.splits import make_splits
    from aspect.graph.synthetic import mixed_graph

__version__ = "0.2.0"

__all__ = [
    "Aspect",
    "AspectError",
    "Embedder",
    "Graph",
    "LabelledGraph",
    "knn_probe",
    "linear_probe",
    "load_dataset",
    "make_splits",
    "mixed_graph",
    "read_graph",
]

_HOMES = {
    "Aspect": "estimator",
    "AspectError": "errors",
    "Embedder": "estimator",
    "Graph": "graph.data",
    "LabelledGraph": "graph.data",
    "knn_probe": "evaluation.neighbours",
    "linear_probe": "evaluation.probe",
    "load_dataset": "graph.datasets",
    "make_splits": "graph.splits",
    "mixed_graph": "graph.synthetic",
    "read_graph": "graph.reading",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'aspect' has no attribute {name!r}")
    return getattr(import_module(f"aspect.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
