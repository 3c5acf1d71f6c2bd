"""Graphs of any form into ours and back; PyG's also from `.pt` files.

`aspect.data.foreign` takes graphs of other libraries apart; their parts, and those of archives and
tables, are checked and cleaned here, by `Graph.build`. No code of a file is ever run.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aspect.data.encoder import FeatureEncoder
from aspect.data.features import (
    as_features,
    as_tensor,
    dense,
    imputed,
    with_made_features,
)
from aspect.data.files import check_memory, file_bytes
from aspect.data.foreign import (
    MASKS,
    PAIR,
    Parts,
    as_integers,
    column_called,
    column_names,
    edge_table_of,
    is_frame,
    is_path,
    parts_of,
)
from aspect.data.graph import (
    UNLABELLED,
    Features,
    Graph,
    LabelledGraph,
    encode_labels,
    label_graph,
    unlabelled,
)
from aspect.data.source import ID_NAMES, NO_READING, GraphSource, Reading
from aspect.errors import AspectError, FileError, GraphError, shown

if TYPE_CHECKING:
    from torch_geometric.data import Data


def as_graph(
    source: object, *, directed_is_error: bool = False, encoder: FeatureEncoder | None = None
) -> Graph:
    """The graph alone from any of the accepted forms; labels are not even looked at.

    With the encoder of another graph, features of tables, and structural ones, are made as there.
    """
    if isinstance(source, Graph):
        return source
    if isinstance(source, LabelledGraph):
        return source.graph
    reading = Reading(directed="error" if directed_is_error else "symmetrise")
    read = _read(source, reading, encoder)
    return _built(parts_of(source), reading, encoder) if read is None else read.graph


def as_labelled(source: object, *, directed_is_error: bool = False) -> LabelledGraph:
    """The graph with its labels and splits, as far as the source has them."""
    if isinstance(source, LabelledGraph):
        return source
    if isinstance(source, Graph):
        return unlabelled(source)
    reading = Reading(directed="error" if directed_is_error else "symmetrise")
    read = _read(source, reading)
    return labelled_of(parts_of(source), reading) if read is None else read


def labelled_of(parts: Parts, reading: Reading = NO_READING) -> LabelledGraph:
    """A graph of its parts, checked and cleaned, with the labels and splits that it has."""
    masks = {} if parts.y is None else _masks_of(parts)
    graph = _built(parts, reading)
    if parts.y is None:
        return unlabelled(graph)
    if isinstance(parts.y, list):
        classes = encode_labels([_class_of(cell) for cell in parts.y])
        return label_graph(graph, *classes, masks)
    labels = _as_labels(as_tensor(parts.y, "y"), graph.num_nodes)
    return label_graph(graph, labels, parts.class_names, masks)


def changes_of(graph: Graph) -> list[str]:
    """The notices of what was cleaned or made up, without those that only describe the graph."""
    described = graph.structure_notices() if graph.notices else []
    return [notice for notice in graph.notices if notice not in described]


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


def node_numbers(rows: Any, graph: Graph) -> NDArray[np.int64]:  # noqa: ANN401 - a table of any kind
    """Which node each row of a table stands for.

    Rows name nodes by a column called `id`, `node` or `node_id`, else by the index of a pandas
    frame; an array holds the ids themselves. A node without an id is named by its number.
    """
    if is_frame(rows):
        column = column_called(rows, ID_NAMES)
        if column is None and not hasattr(rows, "index"):  # polars
            listed = shown(column_names(rows))
            raise GraphError(f"The table needs a column 'id' with the nodes' ids. Got {listed}.")
        cells = np.asarray(rows.index if column is None else rows[column])
    else:
        cells = np.asarray(rows)
        if cells.ndim > 1 and cells.shape != (len(cells), 1):
            raise GraphError(
                "Rows must name nodes: an array of ids, or a frame with them as its index or "
                f"column 'id'. Got an array of shape {list(cells.shape)}."
            )
    names = [str(cell) for cell in cells.reshape(-1).tolist()]
    ids = graph.ids or [str(number) for number in range(graph.num_nodes)]
    number = {node: k for k, node in enumerate(ids)}
    unknown = [repr(name) for name in names if name not in number]
    if unknown:
        raise GraphError(
            f"Every row must name a node of the graph. Not there: {shown(unknown)}. Give a frame "
            "whose index, or column 'id', holds the nodes' ids, or an array of ids."
        )
    return np.array([number[name] for name in names], dtype=np.int64)


def _read(
    source: object, reading: Reading, encoder: FeatureEncoder | None = None
) -> LabelledGraph | None:
    """A graph in files or in frames, which have readers of their own; None for all others."""
    first, second = source if isinstance(source, tuple) and len(source) == PAIR else (source, None)
    if is_path(first) and (second is None or is_path(second)):
        reading = reading.model_copy(update={"nodes": second and os.fspath(second)})
        return GraphSource.named(os.fspath(first), reading).read(encoder=encoder)
    if is_path(first) or not (second is None or is_frame(second)):
        return None
    from aspect.data.table_files import table_of
    from aspect.data.tables import read_tables

    ids: Sequence[str] = ()
    if is_frame(first):
        edges = table_of(first, "the edge frame")
    elif second is not None and (found := edge_table_of(first)) is not None:
        edges, ids = found
    else:
        return None
    nodes = None if second is None else table_of(second, "the node frame", index="id")
    read = read_tables(edges, reading, encoder, nodes)
    if lacking := set(ids).difference(read.graph.ids or ()):  # without edges, which name others
        raise GraphError(
            "The node frame must have a row for every node of the graph. "
            f"It lacks {shown(sorted(lacking), repr)}."
        )
    return read


def _built(parts: Parts, reading: Reading, encoder: FeatureEncoder | None = None) -> Graph:
    """Checked and cleaned; features are made from the edges where there are none."""
    has_none, filled = parts.features is None, list[str]()
    features: Features = torch.zeros(parts.num_nodes, 1)
    if not has_none:
        # Faults of features are none where structural ones take their place.
        impute = "zero" if reading.features else reading.impute
        features, filled = imputed(as_features(parts.features), impute)
    weights = parts.weights
    if weights is not None and reading.unweighted:
        weights = weights != 0
    graph = Graph.build(
        features,
        parts.edge_index,
        parts.ids,
        weights=weights,
        feature_names=parts.feature_names,
        integer_ids=parts.integer_ids,
        directed_is_error=reading.directed == "error",
        notices=[*parts.notices, *([] if reading.features else filled)],
    )
    graph = replace(graph, encoder=parts.encoder)
    return with_made_features(graph, " from the edges", encoder) if has_none else graph


def _as_labels(y: Tensor, num_nodes: int) -> Tensor:
    """Labels as a vector; a column is squeezed, and NaN among floating-point labels is unknown."""
    if y.shape == (num_nodes, 1):
        y = y.squeeze(1)
    if y.dtype == torch.bool:
        return y.long()
    if y.dtype.is_floating_point:
        y = torch.where(y.isnan(), float(UNLABELLED), y)
    return as_integers(y, "y")


def _class_of(cell: Any) -> str | None:  # noqa: ANN401 - of any library
    """The name of a class; None for None, NaN, pandas' NA and an empty text."""
    if not isinstance(cell, str | int | float | None):  # which need no look: there may be millions
        import pandas as pd

        if np.prod(np.shape(cell)) != 1:
            raise GraphError(f"A node must have one class or none. Got {cell!r}.")
        cell = cell.item() if hasattr(cell, "item") else cell
        cell = math.nan if pd.isna(cell) else cell
    if isinstance(cell, float) and cell.is_integer():  # that gaps, or igraph, have made a float
        cell = int(cell)
    return None if cell in (None, "") or cell != cell else str(cell)  # noqa: PLR0124 - NaN


def _masks_of(parts: Parts) -> Mapping[str, Tensor]:
    """Splits as [splits, nodes]; PyG keeps one split as [nodes] and several as [nodes, splits]."""
    names = [name for part, name in MASKS.items() if parts.masks.get(part) is not None]
    if 0 < len(names) < len(MASKS):
        parts.notices.append(
            f"Split masks are left aside: of {', '.join(MASKS.values())} there is only "
            f"{' and '.join(names)}."
        )
        return {}
    masks = {part: as_tensor(parts.masks[part], name) for part, name in MASKS.items() if names}
    # WikiCS has one test mask for all of its splits.
    count = max((mask.shape[-1] for mask in masks.values() if mask.ndim > 1), default=1)
    splits = {
        part: mask.expand(count, -1) if mask.ndim == 1 else mask.movedim(-1, 0)
        for part, mask in masks.items()
    }
    return {part: mask.bool().contiguous() for part, mask in splits.items()}


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
        parts = parts_of(data)
        return labelled_of(replace(parts, notices=[*notices, *parts.notices]), reading)
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
