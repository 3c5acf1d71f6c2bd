"""Graphs of other libraries into ours and back: PyG, scipy and networkx.

Edge weights are checked and left aside: the methods are unweighted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from aspect.data.features import as_features, as_tensor
from aspect.data.graph import (
    UNLABELLED,
    Graph,
    LabelledGraph,
    encode_labels,
    label_graph,
    unlabelled,
)
from aspect.data.sparse import SparseMatrix
from aspect.errors import GraphError, shown

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["as_graph", "as_labelled", "to_data"]

MASKS = {"train": "train_mask", "validation": "val_mask", "test": "test_mask"}  # ours -> PyG's
ACCEPTED = (
    "an aspect Graph, a PyG Data, a tuple (scipy adjacency, feature matrix) or a networkx graph"
)
WEIGHTS_LEFT = "Edge weights are left aside: the methods see the graph unweighted."


def as_graph(source: object, *, directed_is_error: bool = False) -> Graph:
    """The graph alone from any of the accepted forms; labels are not even looked at."""
    if isinstance(source, Graph):
        return source
    if isinstance(source, LabelledGraph):
        return source.graph
    if isinstance(source, tuple):
        return _from_matrices(source, directed_is_error)
    if _is_networkx(source):
        return _from_networkx(source, directed_is_error)
    if hasattr(source, "edge_index"):
        return _from_data(cast("Data", source), directed_is_error)
    raise GraphError(f"A graph must be {ACCEPTED}. Got {type(source).__name__}.")


def as_labelled(source: object, *, directed_is_error: bool = False) -> LabelledGraph:
    """The graph with its labels and splits, as far as the source has them."""
    if isinstance(source, LabelledGraph):
        return source
    graph = as_graph(source, directed_is_error=directed_is_error)
    if _is_networkx(source):
        return _labelled_by_attribute(graph, source)
    y = None if isinstance(source, Graph | tuple) else getattr(source, "y", None)
    if y is None:
        return unlabelled(graph)
    names = getattr(source, "class_names", None)
    graph, masks = _with_masks(graph, source)
    return label_graph(graph, _as_labels(as_tensor(y, "y"), graph.num_nodes), names, masks)


def to_data(labelled: LabelledGraph) -> Data:
    """PyG's form: dense float32 `x`, both directions in `edge_index`, masks [nodes, splits]."""
    from torch_geometric.data import Data

    graph = labelled.graph
    features = graph.features
    dense = features.dense() if isinstance(features, SparseMatrix) else features
    data = Data(x=dense.float(), edge_index=graph.edge_index)
    if labelled.num_classes:
        data.y = labelled.labels
        data.class_names = list(labelled.class_names)
    for part, mask in labelled.masks.items():
        data[MASKS[part]] = mask.t().contiguous()
    if graph.ids is not None:
        data.ids = list(graph.ids)
    return data


def _is_networkx(source: object) -> bool:
    # By its verbs: the package itself is not needed to read an object that exists already.
    return hasattr(source, "is_multigraph") and hasattr(source, "nodes")


def _from_data(data: Data, directed_is_error: bool) -> Graph:
    edge_index = data.edge_index
    if edge_index is None:
        raise GraphError("The data has no edges: set data.edge_index, of shape [2, pairs].")
    if data.x is None:
        raise GraphError(
            f"The {data.num_nodes} nodes have no features: set data.x, or ask for structural ones "
            "with --features degree, identity, random or laplacian."
        )
    weights = getattr(data, "edge_weight", None)
    notices = () if weights is None else _weight_notices(as_tensor(weights, "edge_weight"))
    pairs = _as_pairs(as_tensor(edge_index, "edge_index"))
    ids = _ids_of(data)
    return Graph.build(
        as_features(data.x), pairs, ids, directed_is_error=directed_is_error, notices=notices
    )


def _from_matrices(source: tuple[Any, ...], directed_is_error: bool) -> Graph:
    if len(source) != 2 or not scipy.sparse.issparse(source[0]):  # noqa: PLR2004 - a pair
        kinds = ", ".join(type(part).__name__ for part in source)
        raise GraphError(f"A tuple must be (scipy adjacency, feature matrix). Got ({kinds}).")
    stored: Any = source[0]
    adjacency, features = scipy.sparse.coo_array(stored), as_features(source[1])
    rows, columns = adjacency.shape
    if rows != columns or rows != features.shape[0]:
        raise GraphError(
            "The adjacency must be square with one row per row of the features. "
            f"Got {rows} x {columns} for {features.shape[0]} rows of features."
        )
    kept = adjacency.data != 0  # a stored zero is no edge
    notices = _weight_notices(as_tensor(adjacency.data[kept], "the adjacency"))
    pairs = np.stack([ends[kept] for ends in adjacency.coords]).astype(np.int64)
    edge_index = torch.from_numpy(pairs)
    return Graph.build(features, edge_index, directed_is_error=directed_is_error, notices=notices)


def _from_networkx(source: Any, directed_is_error: bool) -> Graph:  # noqa: ANN401 - no stubs
    nodes = list(source.nodes(data="x"))
    missing = [node for node, x in nodes if x is None]
    if missing or not nodes:
        raise GraphError(
            "Every node must have its features as attribute 'x'. "
            f"Missing at {shown(map(repr, missing))}."
        )
    rows = [np.atleast_1d(np.asarray(x)) for _, x in nodes]
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1:
        raise GraphError(
            f"Features 'x' of the nodes must have one length. Got the shapes {shown(shapes)}."
        )
    index = {node: k for k, (node, _) in enumerate(nodes)}
    edges = list(source.edges(data="weight"))
    pairs = np.array([(index[a], index[b]) for a, b, _ in edges], dtype=np.int64).reshape(-1, 2)
    if not source.is_directed():
        pairs = np.concatenate([pairs, pairs[pairs[:, 0] != pairs[:, 1], ::-1]])
    weights = as_tensor([weight for *_, weight in edges if weight is not None], "weight")
    return Graph.build(
        as_features(np.stack(rows)),
        torch.from_numpy(pairs.T.copy()),
        [str(node) for node in index],
        directed_is_error=directed_is_error,
        notices=_weight_notices(weights),
    )


def _weight_notices(weights: Tensor) -> tuple[str, ...]:
    wrong = ~(torch.isfinite(weights) & (weights > 0))
    if bool(wrong.any()):
        raise GraphError(
            f"Edge weights must be positive numbers. Got {shown(weights[wrong].tolist())}. "
            "Remove such edges, or the weights: the methods are unweighted."
        )
    return () if bool((weights == 1).all()) else (WEIGHTS_LEFT,)


def _as_pairs(edge_index: Tensor) -> Tensor:
    """Integer pairs; floating-point ones are taken only where each is a whole number."""
    if not edge_index.dtype.is_floating_point:
        return edge_index
    # Beyond 2**24 (float32) or 2**53 (float64) a whole number may stand for its neighbour.
    largest = 2 / torch.finfo(edge_index.dtype).eps
    exact = (edge_index == edge_index.round()) & (edge_index.abs() <= largest)
    if not bool(exact.all()):
        raise GraphError(
            f"edge_index must hold integers. Got {shown(edge_index[~exact].tolist())} "
            f"as {edge_index.dtype}."
        )
    return edge_index.long()


def _as_labels(y: Tensor, num_nodes: int) -> Tensor:
    """Labels as a vector; a column is squeezed, and NaN among floating-point labels is unknown."""
    if y.shape == (num_nodes, 1):
        y = y.squeeze(1)
    if y.dtype == torch.bool:
        return y.long()
    if not y.dtype.is_floating_point:
        return y
    whole = torch.where(torch.isnan(y), float(UNLABELLED), y)
    exact = torch.isfinite(whole) & (whole == whole.round())
    return whole.long() if bool(exact.all()) else y


def _ids_of(data: Data) -> list[str] | None:
    for name in ("ids", "node_id"):
        ids = getattr(data, name, None)
        if ids is not None:
            return [str(node) for node in (ids.tolist() if isinstance(ids, Tensor) else ids)]
    return None


def _with_masks(graph: Graph, data: object) -> tuple[Graph, Mapping[str, Tensor]]:
    """Splits as [splits, nodes]; PyG keeps one split as [nodes] and several as [nodes, splits]."""
    given: dict[str, ArrayLike | Tensor] = {
        part: mask
        for part, name in MASKS.items()
        if (mask := getattr(data, name, None)) is not None
    }
    if not given:
        return graph, {}
    if len(given) < len(MASKS):
        names = " and ".join(MASKS[part] for part in given)
        notice = (
            f"Split masks are left aside: of {', '.join(MASKS.values())} there is only {names}."
        )
        return replace(graph, notices=(*graph.notices, notice)), {}
    masks = {part: as_tensor(mask, MASKS[part]) for part, mask in given.items()}
    return graph, {
        part: (mask.unsqueeze(0) if mask.ndim == 1 else mask.t()).bool().contiguous()
        for part, mask in masks.items()
    }


def _labelled_by_attribute(graph: Graph, source: Any) -> LabelledGraph:  # noqa: ANN401 - no stubs
    """Classes of networkx nodes from their attribute `y`, else `label`; unknown where missing."""
    for name in ("y", "label"):
        cells = [value for _, value in source.nodes(data=name)]
        if any(value is not None for value in cells):
            texts = [None if value is None else str(value) for value in cells]
            labels, class_names = encode_labels(texts)
            return label_graph(graph, labels, class_names)
    return unlabelled(graph)
