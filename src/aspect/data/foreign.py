"""Graphs of other libraries taken apart: PyG, NetworkX, igraph, DGL, SciPy, NumPy, torch, lists.

A library is recognised by the objects that it made: none is imported to look at a graph. Nothing is
checked here but what has to be to find the parts; `aspect.data.convert` makes a graph of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from aspect.data.features import as_features, as_tensor, dense
from aspect.data.source import ID_NAMES, LABEL_NAMES
from aspect.errors import GraphError, shown

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from aspect.data.encoder import FeatureEncoder
    from aspect.data.table_files import TableFile

MASKS = {"train": "train_mask", "validation": "val_mask", "test": "test_mask"}  # ours -> PyG's
ACCEPTED = (
    "a data set's name, a path, a PyG Data or HeteroData, a frame of edges, a NetworkX, igraph or "
    "DGL graph, an adjacency of SciPy, NumPy or torch, an edge_index, a pair of one of these with "
    "features or a node table, or an aspect Graph"
)
PAIR = 2
NO_ATTRIBUTES = "edge_attr is left aside. Weights of edges are read from edge_weight."


@dataclass
class Parts:
    """What a graph of another library, an archive or tables holds, before any check."""

    edge_index: Tensor  # [2, pairs]
    num_nodes: int
    features: object = None  # a matrix of any kind; None: there are none
    weights: Tensor | None = None  # one per pair
    ids: Sequence[str] | None = None
    integer_ids: bool = False  # the source had them as integers
    y: object = None  # numbers of classes, or a list of what each node has for one
    class_names: Sequence[str] | None = None
    # By part, [nodes] or [nodes, splits] as PyG has them; None: not there.
    masks: Mapping[str, object] = field(default_factory=dict)
    feature_names: Sequence[str] | None = None
    encoder: FeatureEncoder | None = None  # that made the features
    notices: list[str] = field(default_factory=list)


def parts_of(source: Any) -> Parts:  # noqa: ANN401 - of any library
    """By the library's name, or by what its objects have; the first that fits counts."""
    kinds: tuple[tuple[bool, Callable[[Any], Parts]], ...] = (
        (isinstance(source, tuple), _of_pair),
        (type(source).__module__.partition(".")[0] == "dgl", _of_dgl),
        (hasattr(source, "is_multigraph") and hasattr(source, "nodes"), _of_networkx),
        (hasattr(source, "vs") and hasattr(source, "es"), _of_igraph),
        (hasattr(source, "node_types") and hasattr(source, "edge_types"), _of_hetero_data),
        (hasattr(source, "edge_index"), _of_data),
        (_is_matrix(source), _of_matrix),
        (isinstance(source, list) and bool(source) and all(map(_is_pair, source)), _of_pairs),
    )
    for fits, take_apart in kinds:
        if fits:
            return take_apart(source)
    raise GraphError(f"A graph must be {ACCEPTED}. Got {type(source).__name__}.")


def is_path(source: object) -> bool:
    """Whether it is a file's name."""
    return isinstance(source, str | os.PathLike)


def is_frame(source: object) -> bool:
    """Frames of pandas, polars and others that speak Arrow."""
    return hasattr(source, "__arrow_c_stream__") and hasattr(source, "columns")


def column_names(frame: Any) -> list[Any]:  # noqa: ANN401 - of any library
    """The names of a frame's columns, which Arrow has a word of its own for."""
    return list(getattr(frame, "column_names", frame.columns))


def column_called(frame: Any, names: Sequence[str]) -> Any:  # noqa: ANN401 - of any library
    """The column of a frame with one of these names, in any case; None if there is none."""
    columns = column_names(frame) if is_frame(frame) else []
    fitting = [name for name in columns if str(name).strip().lower() in names]
    if len(fitting) > 1:
        raise GraphError(
            f"The frame has the columns {' and '.join(map(repr, fitting))}. Rename or remove all "
            "but one."
        )
    return fitting[0] if fitting else None


def _is_matrix(source: object) -> bool:
    return isinstance(source, np.ndarray | Tensor) or bool(scipy.sparse.issparse(source))


def _is_pair(edge: object) -> bool:
    return isinstance(edge, tuple | list) and len(edge) == PAIR


def _of_pair(source: tuple[Any, ...]) -> Parts:
    """Edges in any form with a feature matrix, or with a frame of the nodes in their order."""
    edges, rows = source if len(source) == PAIR else (None, None)
    if len(source) != PAIR or is_path(edges) or is_frame(edges):
        kinds = ", ".join(type(part).__name__ for part in source)
        raise GraphError(
            "A tuple must be a pair of edges and features, or of edges and a node table, both "
            f"files or both frames. Got ({kinds})."
        )
    ids, label = (column_called(rows, names) for names in (ID_NAMES, LABEL_NAMES))
    matrix = _matrix_of(rows, ids, label) if is_frame(rows) else as_features(rows)
    if _is_matrix(edges):
        parts = _of_matrix(edges, matrix.shape[0])
    else:
        parts = parts_of(edges)
        if isinstance(edges, list) and parts.integer_ids:  # they are numbers of rows
            numbers = torch.tensor([int(node) for node in parts.ids or ()])
            count = max(matrix.shape[0], int(numbers.max()) + 1)
            parts = Parts(numbers[parts.edge_index], count, notices=parts.notices)
    if parts.num_nodes != matrix.shape[0]:
        raise GraphError(
            f"There must be one row of features per node. Got {matrix.shape[0]} rows for "
            f"{parts.num_nodes} nodes."
        )
    if ids is not None:
        parts.ids = [str(cell) for cell in np.asarray(rows[ids]).tolist()]
    if label is not None:
        parts.y = np.asarray(rows[label]).tolist()
    return replace(parts, features=matrix)


def _matrix_of(frame: Any, ids: Any, label: Any) -> Tensor:  # noqa: ANN401 - of any library
    """The columns of a frame but for ids and label; its rows are in the order of the nodes."""
    index = np.asarray(getattr(frame, "index", ()))  # of pandas
    order = np.sort(index) if ids is None and index.dtype.kind in "iu" else index
    if np.array_equal(order, np.arange(len(order))) and not np.array_equal(order, index):
        raise GraphError(
            "Rows of the node frame belong to the nodes in their order, and its index has these "
            "numbers in another order. Call nodes.sort_index(), or give a fresh index."
        )
    others = [name for name in column_names(frame) if name not in (ids, label)]
    # One by one: a joint type would hide which integers float32 cannot tell apart.
    columns = (dense(as_features(np.asarray(frame[name])[:, None])) for name in others)
    return torch.cat([torch.empty(len(frame), 0), *columns], dim=1)


def edge_table_of(source: Any) -> tuple[TableFile, Sequence[str]] | None:  # noqa: ANN401
    """Edge table and ids of a graph whose nodes have ids; None where they have none."""
    if _is_matrix(source):
        return None
    parts = parts_of(source)
    if parts.ids is None:
        return None
    import pyarrow as pa

    from aspect.data.table_files import TableFile

    ids = np.array(parts.ids, dtype=object)
    columns = [pa.array(ids[ends], pa.string()) for ends in parts.edge_index.numpy()]
    names = ["source", "target"]
    if parts.weights is not None:
        columns, names = [*columns, pa.array(parts.weights.numpy())], [*names, "weight"]
    return TableFile("the edge frame", pa.table(columns, names), is_text=False), parts.ids


def _of_matrix(matrix: Any, num_rows: int | None = None) -> Parts:  # noqa: ANN401 - of three libraries
    """An adjacency, dense or sparse, or an edge_index.

    Args:
        matrix: Of SciPy, NumPy or torch.
        num_rows: Rows of the features that belong to it; None: it stands alone.
    """
    shape = tuple(int(size) for size in matrix.shape)
    is_dense = isinstance(matrix, np.ndarray) or (
        isinstance(matrix, Tensor) and matrix.layout == torch.strided
    )
    if is_dense and len(shape) == PAIR and shape[0] == PAIR:
        if shape[1] == PAIR and num_rows in (None, PAIR):
            raise GraphError(
                "A matrix of 2 x 2 may be an edge_index or an adjacency. Give an adjacency as a "
                "SciPy matrix, or an edge_index within a PyG Data."
            )
        edge_index = as_integers(as_tensor(matrix, "edge_index"), "edge_index")
        count = int(edge_index.max()) + 1 if num_rows is None and edge_index.numel() else num_rows
        return Parts(edge_index, count or 0)
    if is_dense and shape[1:] == (PAIR,):
        raise GraphError(
            f"edge_index must have shape [2, pairs]. Got {list(shape)}. It looks transposed."
        )
    if len(shape) != PAIR or shape[0] != shape[1] or num_rows not in (None, shape[0]):
        rows = "" if num_rows is None else f" for {num_rows} rows of features"
        raise GraphError(
            "The adjacency must be square with one row per node. "
            f"Got {' x '.join(map(str, shape)) or 'a number'}{rows}."
        )
    edge_index, weights = _entries(matrix)
    return Parts(edge_index, shape[0], weights=weights)


def _entries(matrix: Any) -> tuple[Int[Tensor, "2 entries"], Tensor]:  # noqa: ANN401
    """Where a matrix is not zero, and its values there; a stored zero is no edge."""
    if bool(scipy.sparse.issparse(matrix)):
        coo = scipy.sparse.coo_array(matrix, copy=True)
        coo.sum_duplicates()  # as every other format of SciPy, and torch, understand them
        indices = torch.from_numpy(np.stack(coo.coords).astype(np.int64))
        values = as_tensor(coo.data, "the adjacency")
    else:
        dense_matrix = as_tensor(matrix, "Edges")
        if dense_matrix.dtype in (torch.uint16, torch.uint32, torch.uint64):
            dense_matrix = dense_matrix.double()  # torch counts no entries of these
        stored: Tensor = dense_matrix.to_sparse().coalesce()
        indices, values = stored.indices(), stored.values()
    kept = values != 0
    return indices[:, kept], values[kept]


def _of_pairs(edges: list[Any]) -> Parts:
    """A list of pairs of ids: nodes are those that it names, in the order of their appearance."""
    number: dict[object, int] = {}
    try:
        rows = [[number.setdefault(end, len(number)) for end in edge] for edge in edges]
    except TypeError as error:  # what cannot be looked up
        raise GraphError(f"Ends of edges must be names or numbers. Got {edges[0]!r}.") from error
    ids, are_integers = _ids_of(number)
    return Parts(
        torch.tensor(rows, dtype=torch.long).t().contiguous(),
        len(number),
        ids=ids,
        integer_ids=are_integers,
    )


def _ids_of(nodes: Iterable[object]) -> tuple[list[str], bool]:
    """Ids as text, and whether all of them were integers."""
    every = list(nodes)
    if any(node is None or (isinstance(node, float) and isnan(node)) for node in every):
        raise GraphError("Every node must have an id. Got None or NaN as one.")
    are_integers = all(
        isinstance(node, int | np.integer) and not isinstance(node, bool) for node in every
    )
    return [str(node) for node in every], are_integers


def _of_data(data: Data) -> Parts:
    edge_index, weights = data.edge_index, getattr(data, "edge_weight", None)
    if edge_index is None and getattr(data, "adj_t", None) is not None:
        edge_index, weights = _of_transposed(data.adj_t)
    if edge_index is None:
        raise GraphError("The data has no edges: set data.edge_index, of shape [2, pairs].")
    ids = next((data[name] for name in ("ids", "node_id") if name in data), None)
    features = None if data.x is None else as_features(data.x)
    parts = Parts(
        as_integers(as_tensor(edge_index, "edge_index"), "edge_index"),
        int(data.num_nodes or 0) if features is None else features.shape[0],
        features,
        None if weights is None else _as_vector(as_tensor(weights, "edge_weight")),
        None if ids is None else _ids_of(ids.tolist() if isinstance(ids, Tensor) else ids)[0],
        y=data.y,
        class_names=getattr(data, "class_names", None),
        masks={part: getattr(data, name, None) for part, name in MASKS.items()},
    )
    if data.edge_attr is not None:
        parts.notices.append(NO_ATTRIBUTES)
    return parts


def _of_transposed(adjacency: Any) -> tuple[Tensor, Tensor | None]:  # noqa: ANN401
    """Edges of PyG's `adj_t`, a sparse tensor of torch or of torch_sparse."""
    if isinstance(adjacency, Tensor):
        edge_index, weights = _entries(adjacency)
        return edge_index.flip(0), weights
    row, column, weights = adjacency.coo()
    return torch.stack([column, row]), weights


def _of_hetero_data(data: Any) -> Parts:  # noqa: ANN401 - a HeteroData
    stores = {kind: data[kind] for kind in data.edge_types}
    lacking = [str(kind) for kind, store in stores.items() if "edge_index" not in store]
    if lacking:
        raise GraphError(f"Every type of edges must have its edge_index. Got none of {lacking[0]}.")
    weights = [getattr(store, "edge_weight", None) for store in stores.values()]
    parts = _joined(
        {kind: int(data[kind].num_nodes or 0) for kind in data.node_types},
        {kind: getattr(data[kind], "x", None) for kind in data.node_types},
        {kind: as_tensor(store.edge_index, "edge_index") for kind, store in stores.items()},
    )
    if weights and all(values is not None for values in weights):
        vectors = (_as_vector(as_tensor(values, "edge_weight")) for values in weights)
        parts.weights = torch.cat(list(vectors))
    elif any(values is not None for values in weights):
        parts.notices.append("Edge weights are left aside: only some types of edges have them.")
    if any("edge_attr" in store for store in stores.values()):
        parts.notices.append(NO_ATTRIBUTES)
    labelled = [kind for kind in data.node_types if "y" in data[kind]]
    if len(labelled) == 1 and isinstance(data[labelled[0]].y, Tensor):
        there = {part: name for part, name in MASKS.items() if name in data[labelled[0]]}
        names = ["y", *there.values()]
        joined = data.to_homogeneous(names, [], add_node_type=False, add_edge_type=False)
        parts.y, parts.masks = joined.y, {part: joined[name] for part, name in there.items()}
    elif labelled:
        parts.notices.append("Labels are left aside: more than one type of nodes has them.")
    return parts


def _joined(
    counts: Mapping[str, int],
    features: Mapping[str, object],
    edges: Mapping[tuple[str, str, str], Tensor],
) -> Parts:
    """Nodes and edges of several types as those of one; ids are `type/number`."""
    first = dict(zip(counts, np.cumsum([0, *counts.values()]).tolist(), strict=False))
    shifted = []
    for kind, given in edges.items():
        ends = as_integers(given, "edge_index")
        if ends.ndim != PAIR or ends.shape[0] != PAIR:
            raise GraphError(
                f"edge_index of {kind} must have shape [2, pairs]. Got {list(ends.shape)}."
            )
        of_ends = kind[0], kind[2]
        for row, name in zip(ends, of_ends, strict=True):
            outside = row[(row < 0) | (row >= counts.get(name, 0))]
            if len(outside):
                raise GraphError(
                    f"Edges {kind} must join nodes of their types. {name!r} has "
                    f"{counts.get(name, 0)} nodes. Got {shown(outside.tolist())}."
                )
        shifted.append(ends.long() + torch.tensor([[first[name]] for name in of_ends]))
    notice = (
        f"The graph has {len(counts)} types of nodes ({', '.join(counts)}) and {len(edges)} of "
        "edges. It is made homogeneous: the types are left aside"
    )
    known = {kind: dense(as_features(x)) for kind, x in features.items() if x is not None}
    widths = {x.shape[1] for x in known.values()}
    matrix: object = None
    if len(known) == len(counts) and len(widths) == 1:
        matrix = torch.cat(list(known.values()))
    elif known:
        # A type without features gets one column, which is 1.
        blocks = [known.get(kind, torch.ones(count, 1)) for kind, count in counts.items()]
        matrix = scipy.sparse.block_diag([block.numpy() for block in blocks], format="coo")
        notice += ", and each type of node has columns of features of its own"
    return Parts(
        torch.cat(shifted, dim=1) if shifted else torch.empty(2, 0, dtype=torch.long),
        sum(counts.values()),
        matrix,
        ids=[f"{kind}/{number}" for kind, count in counts.items() for number in range(count)],
        notices=[f"{notice}."],
    )


def _of_dgl(source: Any) -> Parts:  # noqa: ANN401 - a DGLGraph
    def data_of(kind: str, names: Sequence[str]) -> object:
        columns = source.nodes[kind].data
        return next((columns[name] for name in names if name in columns), None)

    features = {kind: data_of(kind, ("feat", "x")) for kind in source.ntypes}
    counts = {kind: int(source.num_nodes(kind)) for kind in source.ntypes}
    edges = {
        kind: torch.stack([ends.detach().cpu() for ends in source.edges(etype=kind)])
        for kind in source.canonical_etypes
    }
    if len(counts) > 1 or len(edges) > 1:
        return _joined(counts, features, edges)
    (kind,) = counts
    weights = next((source.edata[name] for name in ("weight", "w") if name in source.edata), None)
    return Parts(
        next(iter(edges.values())),
        counts[kind],
        features[kind],
        None if weights is None else as_tensor(weights, "weight"),
        y=data_of(kind, ("label", "y")),
        masks={part: data_of(kind, (name,)) for part, name in MASKS.items()},
    )


def _of_networkx(source: Any) -> Parts:  # noqa: ANN401 - no stubs
    nodes = list(source.nodes)
    number = {node: k for k, node in enumerate(nodes)}
    edges = list(source.edges(data="weight"))
    pairs = np.array([(number[a], number[b]) for a, b, _ in edges], dtype=np.int64).reshape(-1, 2)
    weights = [weight for *_, weight in edges]
    ids, are_integers = _ids_of(nodes)
    return _with_attributes(
        Parts(torch.from_numpy(pairs.T.copy()), len(nodes), ids=ids, integer_ids=are_integers),
        {name: [value for _, value in source.nodes(data=name)] for name in ("x", "y", "label")},
        weights,
        is_directed=source.is_directed(),
    )


def _of_igraph(source: Any) -> Parts:  # noqa: ANN401 - no stubs
    pairs = np.array(source.get_edgelist(), dtype=np.int64).reshape(-1, 2)
    columns = set(source.vs.attributes())
    has_weights = "weight" in source.es.attributes()
    return _with_attributes(
        Parts(
            torch.from_numpy(pairs.T.copy()),
            source.vcount(),
            ids=_ids_of(source.vs["name"])[0] if "name" in columns else None,
        ),
        {name: list(source.vs[name]) for name in ("x", "y", "label") if name in columns},
        list(source.es["weight"]) if has_weights else [],
        is_directed=source.is_directed(),
    )


def _with_attributes(
    parts: Parts, columns: Mapping[str, list[Any]], weights: list[Any], *, is_directed: bool
) -> Parts:
    """With features from the nodes' attribute `x` and classes from `y`, else `label`.

    An edge without a weight weighs 1. The edges of an undirected graph are listed once.
    """
    parts.features = _rows_of(columns.get("x", []), parts)
    for name in ("y", "label"):
        cells = columns.get(name, [])
        if parts.y is None and any(cell is not None for cell in cells):
            parts.y = cells
    missing = weights.count(None)
    if missing < len(weights):
        if missing:
            parts.notices.append(f"{missing} edges without a weight weigh one.")
        parts.weights = as_tensor([1 if one is None else one for one in weights], "weight")
    if not is_directed:
        ends = parts.edge_index
        back = ends[0] != ends[1]
        parts.edge_index = torch.cat([ends, ends[:, back].flip(0)], dim=1)
        if parts.weights is not None:
            parts.weights = torch.cat([parts.weights, parts.weights[back]])
    return parts


def _rows_of(cells: list[Any], parts: Parts) -> NDArray[Any] | None:
    """The attribute `x` of all nodes as a matrix; None where no node has it."""
    missing = [number for number, x in enumerate(cells) if x is None]
    if len(missing) == len(cells):
        return None
    if missing:
        names = [parts.ids[number] if parts.ids else str(number) for number in missing]
        raise GraphError(
            "Every node must have its features as attribute 'x', or none. "
            f"Missing at {shown(names)}."
        )
    try:
        plain = (x.detach() if isinstance(x, Tensor) else x for x in cells)
        rows = [np.atleast_1d(np.asarray(x)) for x in plain]
    except ValueError as error:  # lists in a list
        raise GraphError("Features 'x' of a node must be an array of numbers.") from error
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1:
        raise GraphError(
            f"Features 'x' of the nodes must have one length. Got the shapes {shown(shapes)}."
        )
    return np.stack(rows)


def _as_vector(values: Tensor) -> Tensor:
    """A single column as a vector, as PyG's layers take both."""
    return values.squeeze(1) if values.ndim == PAIR and values.shape[1] == 1 else values


def as_integers(values: Tensor, what: str) -> Tensor:
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
