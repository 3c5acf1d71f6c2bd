"""aspect: node embeddings without labels, by spectral graph contrastive learning.

Data flows through the package from top to bottom:

    plugins       methods, attacks and data sets of other packages
    data/         a graph, checked and cleaned, its operators, splits and data sets
    nn/           filters, spectral encoder, gate, and parts that several methods share
    losses/       contrastive and other losses, tensors in, numbers out
    attacks/      a registry of attacks, perturbation files, projected gradient ascent
    methods/      ASPECT, ASPECT-S and the baselines: one file each
    settings/     hyperparameters shipped per method and graph
    training/     the one loop, and what it leaves on disk
    estimator/    fit, embed, policy, save, load
    testing       the contract of a method, for tests of other packages
    evaluation/   probes, metrics, significance, stability
    experiment/   runs, benchmarks and hyperparameter searches
    report/       tables, figures and pages
    examples/     complete studies on these parts: demo and theory
    cli/          one file per command

Names below are imported at first use, so that `import aspect` and the command line answer at once.
"""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.data.graph import Graph, LabelledGraph
    from aspect.data.source import load_dataset, read_graph
    from aspect.data.splits import make_splits
    from aspect.data.synthetic import mixed_graph
    from aspect.errors import AspectError, GraphWarning
    from aspect.estimator import Aspect, Embedder
    from aspect.evaluation.baselines import knn_probe
    from aspect.evaluation.linear_probe import linear_probe

__version__ = "0.2.0"

__all__ = [
    "Aspect",
    "AspectError",
    "Embedder",
    "Graph",
    "GraphWarning",
    "LabelledGraph",
    "knn_probe",
    "linear_probe",
    "load_dataset",
    "make_splits",
    "mixed_graph",
    "read_graph",
]

__getattr__, __dir__ = exporting(__name__, __file__)
