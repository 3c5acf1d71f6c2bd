"""Stage 1: a graph, checked and cleaned, and the operators that act on it."""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.data.archives import read_npz, write_npz
    from aspect.data.convert import as_graph, as_labelled, to_data
    from aspect.data.features import with_structural_features
    from aspect.data.graph import Graph, LabelledGraph, label_graph
    from aspect.data.operators import normalised_adjacency
    from aspect.data.source import (
        GraphSource,
        Reading,
        add_dataset,
        catalogue,
        load_dataset,
        read_graph,
    )
    from aspect.data.splits import Split, make_splits
    from aspect.data.synthetic import mixed_graph
    from aspect.data.tensors import write_embeddings

__all__ = [
    "Graph",
    "GraphSource",
    "LabelledGraph",
    "Reading",
    "Split",
    "add_dataset",
    "as_graph",
    "as_labelled",
    "catalogue",
    "label_graph",
    "load_dataset",
    "make_splits",
    "mixed_graph",
    "normalised_adjacency",
    "read_graph",
    "read_npz",
    "to_data",
    "with_structural_features",
    "write_embeddings",
    "write_npz",
]

__getattr__, __dir__ = exporting(__name__, __file__)
