"""Graphs of other libraries into ours and back: PyG (also in `.pt` files), scipy and networkx.

No code of a file is ever run.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from aspect.data.features import as_features, as_tensor, dense, imputed
from aspect.data.files import check_memory, file_bytes
from aspect.data.graph import (
    UNLABELLED,
    Graph,
    LabelledGraph,
    encode_labels,
    label_graph,
    unlabelled,
)
from aspect.data.source import NO_READING, Reading
from aspect.errors import AspectError, FileError, GraphError, shown

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["as_graph", "as_labelled", "read_saved", "to_data"]

MASKS = {"train": "train_mask", "validation": "val_mask", "test": "test_mask"}  # ours -> PyG's
ACCEPTED = (
    "an aspect Graph, a PyG Data, a tuple (scipy adjacency, feature matrix) or a networkx graph"
)


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
    """PyG's form: dense float32 `x`, both directions in `edge_index`, masks [nodes, splits].

    Weights, if there are any, are `edge_weight`.
    """
    from torch_geometric.data import Data

    graph = labelled.graph
    data = Data(x=dense(graph.features).float(), edge_index=graph.edge_index)
    if graph.weights is not None:
        data.edge_weight = graph.weights.float()
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
    return Graph.build(
        as_features(data.x),
        _as_integers(as_tensor(edge_index, "edge_index"), "edge_index"),
        _ids_of(data),
        weights=None if weights is None else _as_vector(as_tensor(weights, "edge_weight")),
        directed_is_error=directed_is_error,
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
    weights = as_tensor(adjacency.data[kept], "the adjacency")
    pairs = np.stack([ends[kept] for ends in adjacency.coords]).astype(np.int64)
    edge_index = torch.from_numpy(pairs)
    return Graph.build(features, edge_index, weights=weights, directed_is_error=directed_is_error)


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
    # An edge without a weight weighs one, as everywhere in networkx.
    weights = as_tensor([1 if weight is None else weight for *_, weight in edges], "weight")
    if not source.is_directed():
        others = pairs[:, 0] != pairs[:, 1]
        pairs = np.concatenate([pairs, pairs[others, ::-1]])
        weights = torch.cat([weights, weights[torch.from_numpy(others)]])
    return Graph.build(
        as_features(np.stack(rows)),
        torch.from_numpy(pairs.T.copy()),
        [str(node) for node in index],
        weights=weights,
        directed_is_error=directed_is_error,
    )


def _as_vector(values: Tensor) -> Tensor:
    """A single column as a vector, as PyG's layers take both."""
    return values.squeeze(1) if values.ndim == 2 and values.shape[1] == 1 else values  # noqa: PLR2004


def _as_integers(values: Tensor, what: str) -> Tensor:
    """Integers; floating-point numbers are taken only where each is a whole one."""
    if not values.dtype.is_floating_point:
        return values
    # Beyond 2**24 (float32) or 2**53 (float64) a whole number may stand for its neighbour.
    largest = 2 / torch.finfo(values.dtype).eps
    exact = (values == values.round()) & (values.abs() <= largest)
    if not bool(exact.all()):
        listed = shown(values[~exact].tolist())
        raise GraphError(f"{what} must hold integers. Got {listed} as {values.dtype}.")
    return values.long()


def _as_labels(y: Tensor, num_nodes: int) -> Tensor:
    """Labels as a vector; a column is squeezed, and NaN among floating-point labels is unknown."""
    if y.shape == (num_nodes, 1):
        y = y.squeeze(1)
    if y.dtype == torch.bool:
        return y.long()
    if y.dtype.is_floating_point:
        y = torch.where(y.isnan(), float(UNLABELLED), y)
    return _as_integers(y, "y")


def _ids_of(data: Data) -> list[str] | None:
    for name in ("ids", "node_id"):
        ids = getattr(data, name, None)
        if ids is not None:
            return [str(node) for node in (ids.tolist() if isinstance(ids, Tensor) else ids)]
    return None


def _with_masks(graph: Graph, data: object) -> tuple[Graph, Mapping[str, Tensor]]:
    """Splits as [splits, nodes]; PyG keeps one split as [nodes] and several as [nodes, splits]."""
    given = {part: getattr(data, name, None) for part, name in MASKS.items()}
    names = [MASKS[part] for part, mask in given.items() if mask is not None]
    if 0 < len(names) < len(MASKS):
        notice = (
            f"Split masks are left aside: of {', '.join(MASKS.values())} there is only "
            f"{' and '.join(names)}."
        )
        return replace(graph, notices=(*graph.notices, notice)), {}
    masks = {part: as_tensor(given[part], name) for part, name in MASKS.items() if names}
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


# Files of torch.save


def read_saved(path: Path, reading: Reading = NO_READING) -> LabelledGraph:
    """Read a PyG `Data`; a file that names anything but tensors and PyG's containers is refused."""
    content = file_bytes(path)
    notices = _check_saved(content, path)
    try:
        with torch.serialization.safe_globals(_pyg_classes()):
            data = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        _check_declared(data, path)
        if reading.features is not None and data.num_nodes:
            # Whatever x is, the structural features take its place.
            data.x = torch.zeros(data.num_nodes, 1)
        elif data.x is not None:
            data.x, cleaned = imputed(as_features(data.x), reading.impute)
            notices += cleaned
        if reading.unweighted and getattr(data, "edge_weight", None) is not None:
            data.edge_weight = data.edge_weight != 0
        labelled = as_labelled(data, directed_is_error=reading.directed == "error")
    except AspectError:
        raise
    except pickle.UnpicklingError as error:
        raise FileError(
            f"{str(path)!r} is damaged, or holds more than tensors and PyG's Data, which is never "
            "loaded. Save a plain torch_geometric.data.Data with torch.save."
        ) from error
    # Damaged bytes, or a Data of another age, fail anywhere inside torch and PyG.
    except Exception as error:
        raise FileError(
            f"{str(path)!r} is not a whole file of torch.save with a PyG Data "
            f"({type(error).__name__}). Save it again."
        ) from error
    graph = replace(labelled.graph, notices=(*notices, *labelled.graph.notices))
    return replace(labelled, graph=graph)


def _check_saved(content: bytes, path: Path) -> list[str]:
    """Refuse an archive that would grow beyond the memory or whose checksums differ; a notice."""
    try:
        if not zipfile.is_zipfile(io.BytesIO(content)):
            return [f"{str(path)!r} has no checksums: damage to its numbers would go unnoticed."]
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_memory(sum(member.file_size for member in archive.infolist()), path)
            damaged = archive.testzip()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise FileError(f"{str(path)!r} is cut off or damaged ({error}). Save it again.") from error
    if damaged is not None:
        raise FileError(
            f"{str(path)!r} is damaged: {damaged!r} in it has another checksum. Save it again."
        )
    return []


def _check_declared(data: Any, path: Path) -> None:  # noqa: ANN401 - whatever the file holds
    """Refuse what is no graph, and one that says it is larger than its file: strides of zero."""
    if not hasattr(data, "edge_index"):
        raise GraphError(
            f"{str(path)!r} must hold a PyG Data with an edge_index. Got {type(data).__name__}."
        )
    tensors = [value for _, value in data if isinstance(value, Tensor)]
    declared = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    check_memory(max(declared, 8 * int(data.num_nodes or 0)), path)


def _pyg_classes() -> list[Any]:
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import EdgeStorage, GlobalStorage, NodeStorage

    return [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, NodeStorage, EdgeStorage]
