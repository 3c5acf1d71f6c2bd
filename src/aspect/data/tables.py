"""A graph from the user's own tables: an edge table and, mostly, a node table, as CSV or Parquet.

Ids are strings throughout: `007` and `7` are two nodes, and a node may be called `NA` or nothing at
all. Methods are unweighted: a `weight` column is checked, then left aside, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from aspect.data.columns import TableFile, check_header, delimiter_guess, read_table
from aspect.data.delimited import TextFormat, as_parsed
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.labelling import label_graph, unlabelled
from aspect.data.node_table import NodeTable, folded, folding_notices, parse_nodes
from aspect.errors import FileError, GraphError, shown

__all__ = ["TableOptions", "read_tables"]

END_NAMES = (("source", "target"), ("src", "dst"), ("from", "to"))
WEIGHT = "weight"


@dataclass(frozen=True)
class TableOptions:
    """How the user's tables are to be understood."""

    label: str | None = None  # column of the classes, if not `label` or `y`
    impute: str | None = None  # zero or mean, for missing features
    text: TextFormat = field(default_factory=TextFormat)
    allow_no_features: bool = False  # structural ones are put in later
    directed_is_error: bool = False


def read_tables(
    edges: Path | str, nodes: Path | str | None = None, options: TableOptions | None = None
) -> LabelledGraph:
    """Read an edge table with its node table; without one, every node that has an edge."""
    options = options or TableOptions()
    table = None
    if nodes is not None:
        source = read_table(Path(nodes), options.text)
        table = parse_nodes(
            source,
            label=options.label,
            impute=options.impute,
            with_features=not options.allow_no_features,
        )
    edge_file = read_table(Path(edges), options.text)
    is_named = _named_pair(edge_file) is not None  # nodes may be called `from` and `to` as well
    check_header(edge_file, known=table.ids if table and not is_named else ())
    ends, notices = _ends(edge_file)
    if table is None:
        table = _nodes_of(ends, integer_ids=all(map(edge_file.has_integers, _pair(edge_file))))
    edge_index = _numbered(ends, table.ids, edge_file, nodes)
    return _assemble(table, edge_index, notices, options)


def _assemble(
    table: NodeTable, edge_index: Tensor, notices: list[str], options: TableOptions
) -> LabelledGraph:
    features = table.features
    if features is None:
        # A column of zeros holds the place of structural features; without them it is refused.
        features = torch.zeros(len(table.ids), 1 if options.allow_no_features else 0)
    graph = Graph.build(
        features,
        edge_index,
        table.ids,
        feature_names=table.feature_names,
        directed_is_error=options.directed_is_error,
    )
    graph = replace(
        graph,
        notices=(*table.notices, *notices, *graph.notices),
        integer_ids=table.integer_ids,
    )
    if table.labels is None:
        return unlabelled(graph)
    return label_graph(graph, table.labels, table.class_names)


def _ends(source: TableFile) -> tuple[tuple[pa.ChunkedArray, pa.ChunkedArray], list[str]]:
    """Both columns of ids, and what was left aside."""
    weight, pair = _spelled(source).get(WEIGHT), _pair(source)
    notices = [] if weight is None else _weight_notices(source, weight)
    extra = [name for name in source.names if name not in (*pair, weight)]
    if extra:
        notices.append(f"Columns of the edge table left aside: {shown(map(repr, extra))}.")
    return (source.ids(pair[0]), source.ids(pair[1])), notices


def _spelled(source: TableFile) -> dict[str, str]:
    """The columns by their names in lower case."""
    return {name.strip().lower(): name for name in source.names}


def _pair(source: TableFile) -> tuple[str, ...]:
    """The two columns of ids."""
    return _named_pair(source) or _first_two(source, _spelled(source).get(WEIGHT))


def _named_pair(source: TableFile) -> tuple[str, ...] | None:
    spelled = _spelled(source)
    pair = next((pair for pair in END_NAMES if set(pair) <= set(spelled)), None)
    return None if pair is None else tuple(spelled[end] for end in pair)


def _first_two(source: TableFile, weight: str | None) -> tuple[str, ...]:
    names = [name for name in source.names if name != weight]
    where = f"{str(source.path)!r}, whose first line is read as {as_parsed(source.names)}"
    if len(names) == 1:
        guess = delimiter_guess(names[0]) or "and the right one"
        raise FileError(
            f"An edge table must have two columns of node ids. Got one in {where}. "
            f"If the delimiter is another, pass --delimiter {guess}."
        )
    if len(names) > 2:  # noqa: PLR2004 - an edge has two ends
        raise FileError(
            "An edge table of more than two columns must name them source and target (and weight). "
            f"Got {len(names)} in {where}."
        )
    return tuple(names)


def _weight_notices(source: TableFile, name: str) -> list[str]:
    """Check the weights that are given; an empty cell is none, a written NaN is a wrong one."""
    rows, values = _weights(source, name)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(wrong):
        listed = shown(f"{values[k]} in row {rows[k] + 1}" for k in wrong)
        raise GraphError(
            f"Edge weights must be positive numbers. Got {listed} of {str(source.path)!r}. "
            "Remove such edges, or the column: the methods are unweighted."
        )
    if bool((values == 1).all()):
        return []
    return ["Edge weights are left aside: the methods see the graph unweighted."]


def _weights(source: TableFile, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """The rows that have a weight, and their weights."""
    column = source.table.column(name)
    if source.is_text:
        column = pc.ascii_trim_whitespace(column)
        present = pc.not_equal(column, "")
    else:
        present = pc.is_valid(column)
    try:
        values = pc.cast(column.filter(present), pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise GraphError(
            f"Edge weights must be positive numbers. Column {name!r} of {str(source.path)!r} "
            f"is of type {column.type} or has other cells ({error})."
        ) from error
    return np.flatnonzero(present.to_numpy()), values.to_numpy()


def _nodes_of(ends: tuple[pa.ChunkedArray, pa.ChunkedArray], *, integer_ids: bool) -> NodeTable:
    both = pa.chunked_array([*ends[0].chunks, *ends[1].chunks], type=pa.string())
    ids = tuple(sorted(pc.unique(both).to_pylist()))
    notices = tuple(folding_notices(ids))
    return NodeTable(ids, None, None, (), notices, integer_ids=integer_ids)


def _numbered(
    ends: tuple[pa.ChunkedArray, pa.ChunkedArray],
    ids: tuple[str, ...],
    source: TableFile,
    nodes: Path | str | None,
) -> Int[Tensor, "2 pairs"]:
    """Row numbers for ids, all known before any tensor of edges is built."""
    known = pa.array(ids, pa.string())
    found = [pc.index_in(end, value_set=known) for end in ends]
    unknown = {
        node: None
        for end, rows in zip(ends, found, strict=True)
        for node in end.filter(pc.is_null(rows)).to_pylist()
    }
    if unknown:
        raise GraphError(
            f"Edges of {str(source.path)!r} must join nodes of {str(nodes)!r}. "
            f"Not there: {shown(map(repr, unknown))}.{_near_misses(unknown, ids)}"
        )
    pairs = np.stack([rows.to_numpy() for rows in found]).astype(np.int64)
    return torch.from_numpy(pairs)


def _near_misses(unknown: Iterable[str], ids: tuple[str, ...]) -> str:
    """Point out ids that are known but for case, spaces, Unicode form or leading zeros."""
    known = {folded(node): node for node in ids}
    near = [f"{node!r} and {known[folded(node)]!r}" for node in unknown if folded(node) in known]
    if not near:
        return ""
    return f" Some differ only in case, spaces, Unicode form or leading zeros: {shown(near)}."
