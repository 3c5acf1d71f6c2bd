"""A graph from the user's own tables: an edge table and, mostly, a node table, as CSV or Parquet.

Ids are strings throughout: `007` and `7` are two nodes, and a node may be called `NA` or nothing at
all. Names of columns are compared without case. All that is wrong is gathered: a reading raises the
first of it, and `aspect check` lists everything.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.columns import NUMBER, edge_weights, label_cells, parse_column, refused_gaps
from aspect.data.convert import labelled_of
from aspect.data.encoder import Caution, FeatureEncoder, Kind, ParsedColumn
from aspect.data.features import dense, with_made_features, with_structural_features
from aspect.data.foreign import Parts
from aspect.data.graph import UNLABELLED, Graph, LabelledGraph, clean_edges, encode_labels
from aspect.data.source import (
    ID_NAMES,
    LABEL_NAMES,
    NO_READING,
    OF_NODES,
    SETTLED,
    Impute,
    Reading,
    option_of,
)
from aspect.data.table_files import PARQUET_INDEX, TableFile, as_parsed, read_table
from aspect.errors import MOST_SHOWN, AspectError, FileError, GraphError, SettingsError, shown

END_NAMES = (("source", "target"), ("src", "dst"), ("from", "to"))
WEIGHT = "weight"

Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class NodeTable:
    """What a node table holds, in the order of its rows."""

    called: str  # in a sentence
    ids: tuple[str, ...]
    integer_ids: bool  # the column of ids was of an integer type
    columns: tuple[ParsedColumn, ...] = ()  # but for ids and labels
    encoder: FeatureEncoder | None = None  # what becomes of them; none without any
    label_cells: list[str | None] | None = None  # none without a label column


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """What an edge table holds, in the order of its rows."""

    source: TableFile
    names: tuple[str, str]  # of the columns with the ends
    is_named: bool  # by the header or by options, so that the first line is a header
    ends: tuple[pa.ChunkedArray, pa.ChunkedArray]  # ids
    weights: Float[Tensor, " pairs"] | None = None  # none without a weight column

    def numbered(self, ids: Sequence[str]) -> tuple[Int[Tensor, "2 pairs"], dict[str, int]]:
        """Row numbers of the ends, -1 where an id is unknown; and the first row of each such id."""
        known = pa.array(ids, pa.string())
        numbers = [pc.index_in(end, value_set=known).fill_null(-1).to_numpy() for end in self.ends]
        unknown: dict[str, int] = {}
        for end, rows in zip(self.ends, numbers, strict=True):
            for row in np.flatnonzero(rows < 0).tolist():
                unknown.setdefault(end[row].as_py(), row)
        return torch.from_numpy(np.stack(numbers).astype(np.int64)), unknown


@dataclass
class TablesRead:
    """All that was found in the tables of a graph, right and wrong."""

    labelled: LabelledGraph | None = None  # none if a training would be refused
    structure: LabelledGraph | None = None  # nodes, edges and labels as far as they can be told
    nodes: NodeTable | None = None
    edges: EdgeTable | None = None
    errors: list[AspectError] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Go on behind what is wrong, to find the rest as well."""
        try:
            yield
        except AspectError as error:
            self.errors.append(error)

    def tried(
        self, step: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result | None:
        """The result of a step; None if it failed."""
        with self.gathering():
            return step(*args, **kwargs)
        return None


def read_tables(
    edges: TableFile | Path | str,
    reading: Reading = NO_READING,
    encoder: FeatureEncoder | None = None,
    nodes: TableFile | None = None,
) -> LabelledGraph:
    """Read an edge table with its node table; without one, every node that has an edge.

    With the encoder of a training graph, columns become features as they did there. The node table
    is that of the reading, if it is not given.
    """
    result = read_all(edges, reading, encoder, nodes)
    if result.labelled is None:
        raise _first_of(result.errors)
    return result.labelled


def _first_of(errors: Sequence[AspectError]) -> AspectError:
    first, others = errors[0], len(errors) - 1
    if not others:
        return first
    more = "1 more problem is" if others == 1 else f"{others} more problems are"
    return type(first)(f"{first} {more} listed by aspect check, with the same options.")


def read_all(
    edges: TableFile | Path | str,
    reading: Reading = NO_READING,
    encoder: FeatureEncoder | None = None,
    nodes: TableFile | None = None,
) -> TablesRead:
    """Read all that can be read, and gather what is wrong."""
    result = TablesRead()
    result.tried(_check_options, reading, encoder)
    _read_both(edges, nodes or reading.nodes, reading, encoder, result)
    if result.edges is not None and nodes is None and reading.nodes is None:
        result.nodes = result.tried(_nodes_of, result.edges, result.notices)
    if result.edges is not None and result.nodes is not None:
        _join(result.nodes, result.edges, reading, encoder, result)
    return result


def _read_both(
    edges: TableFile | Path | str,
    nodes: TableFile | str | None,
    reading: Reading,
    encoder: FeatureEncoder | None,
    result: TablesRead,
) -> None:
    """The two tables, as far as each can be read and is named."""
    sources = [
        result.tried(read_table, Path(one), reading) if isinstance(one, str | Path) else one
        for one in (nodes, edges)
    ]
    if sources[0] is not None:
        result.nodes = _parse_nodes(sources[0], reading, encoder, result)
    known = result.nodes.ids if result.nodes else ()
    if sources[1] is not None:
        result.edges = _read_edges(sources[1], reading, result, known)


def _check_options(reading: Reading, encoder: FeatureEncoder | None) -> None:
    """Refuse options that mean nothing here."""
    given = reading.model_dump(exclude_defaults=True)
    stray = [option_of(name) for name in OF_NODES if name in given]
    if stray and reading.nodes is None:
        raise SettingsError(f"{stray[0]} belongs to a node table. Name it with --nodes.")
    if encoder is not None and any(name in given for name in SETTLED):
        raise SettingsError(
            "Which columns become features, and how, was settled by the training. Leave out "
            "--columns, --drop, --categorical and --feature-scaling."
        )


def _join(
    table: NodeTable,
    edges: EdgeTable,
    reading: Reading,
    encoder: FeatureEncoder | None,
    result: TablesRead,
) -> None:
    """Number the ends of the edges, encode the columns, build the graph."""
    pairs, unknown = edges.numbered(table.ids)
    if unknown:
        result.errors.append(_unknown_ends(edges.source, unknown, table.ids, table.called))
    known = (pairs >= 0).all(dim=0)
    if len(set(table.ids)) < len(table.ids):
        return  # which is an error
    parts = Parts(
        pairs[:, known],
        len(table.ids),
        torch.zeros(len(table.ids), 1),  # for features that are made from the edges, or wrong
        None if edges.weights is None else edges.weights[known],
        table.ids,
        table.integer_ids,
        table.label_cells,
        notices=result.notices,
    )
    result.structure = result.tried(labelled_of, parts, reading)
    if result.structure is not None and not result.errors:
        with result.gathering():
            graph = _with_features(result.structure.graph, table, reading, encoder)
            result.labelled = replace(result.structure, graph=graph)


def _with_features(
    graph: Graph, table: NodeTable, reading: Reading, trained: FeatureEncoder | None
) -> Graph:
    """The graph with what its columns become; structural features if none does."""
    encoder = table.encoder
    told: list[str] = [] if encoder is None or trained else encoder.described()
    if encoder is None or not encoder.columns:
        if trained is not None and trained.structural is None:
            needed = shown(repr(column.name) for column in trained.columns)
            raise GraphError(
                f"The model was trained on columns of a node table: {needed}. Got none."
            )
        graph = replace(graph, notices=(*graph.notices, *told))
        return with_made_features(graph, ": --features chooses others", trained, reading.features)
    columns = {column.name: column for column in table.columns}
    features, notices = encoder.encode(columns, reading.impute)
    dominant = [] if trained else encoder.dominant(features)
    return graph.with_features(
        torch.from_numpy(features),
        encoder.feature_names,
        encoder=encoder,
        notices=[*told, *dominant, *notices],
    )


# The edge table


def _read_edges(
    source: TableFile, reading: Reading, result: TablesRead, known: Sequence[str]
) -> EdgeTable | None:
    weight = result.tried(_weight_name, source, reading.weight)
    weights = None
    if weight is not None:
        weights = result.tried(edge_weights, source, weight, reading.unweighted, result.notices)
        if reading.unweighted:
            result.notices.append(f"The weights in column {weight!r} are left aside.")
    with result.gathering():
        named = _named_ends(source, reading)
        # Nodes may be called `from` and `to` as well: a header with such names is one.
        _check_header(source, known=() if named else known)
        pair = named or _first_two(source, weight)
        ends = source.ids(pair[0]), source.ids(pair[1])
        extra = [name for name in source.names if name not in (*pair, weight)]
        if extra:
            told = f"Columns of the edge table left aside: {shown(extra, repr)}."
            result.notices.append(told)
        return EdgeTable(source, pair, named is not None, ends, weights)
    return None


def edge_columns(
    source: TableFile, reading: Reading, known: Sequence[str] = ()
) -> tuple[str, str, str | None]:
    """The columns of both ends and of the weights, by the options or by their names.

    A header of `known` ids, which nothing names, is refused.
    """
    named = _named_ends(source, reading)
    _check_header(source, known=() if named else known)
    weight = _weight_name(source, reading.weight)
    first, second = named or _first_two(source, weight)
    return first, second, weight


def node_columns(source: TableFile, reading: Reading) -> tuple[str, str | None, list[str]]:
    """The columns of ids, of labels and of features, by the options or by their names."""
    _check_header(source)
    id_name = _id_name(source, reading.id, [])
    label = _label_name(source, reading.label, id_name)
    taken = [name for name in (id_name, label) if name is not None]
    return id_name, label, list(_feature_columns(source, taken, reading))


def _check_header(source: TableFile, known: Sequence[str] = ()) -> None:
    """Refuse a text table whose first line is a row: it would be taken for names, and lost."""
    numbers = [name for name in source.names if re.match(NUMBER, name.strip())]
    all_known = bool(known) and set(source.names) <= set(known)
    fractions = any("." in name for name in numbers)
    if source.is_text and (len(numbers) == len(source.names) or fractions or all_known):
        raise _no_header(source)


def _no_header(source: TableFile) -> FileError:
    return FileError(
        f"The first line of {source.called} must name the columns. "
        f"Got {as_parsed(source.names)}, which looks like a row. Add a header line."
    )


def _named_ends(source: TableFile, reading: Reading) -> tuple[str, str] | None:
    """The two columns of ends that the options or the header name; None if neither does."""
    given = {
        option: source.column_given(option, name)
        for option, name in (("--source", reading.source), ("--target", reading.target))
        if name is not None
    }
    for names in END_NAMES:
        first, second = (
            given.get(option)
            or source.column_called([name], f"Rename or remove all but one {name!r}.")
            for option, name in zip(("--source", "--target"), names, strict=True)
        )
        if first is not None and second is not None:
            return first, second
    if given:
        raise GraphError(
            f"Name both ends of the edges, with --source and --target. Got {min(given)} alone."
        )
    return None


def _first_two(source: TableFile, weight: str | None) -> tuple[str, str]:
    names = [name for name in source.names if name != weight]
    if len(names) > 2 and source.index in names:  # noqa: PLR2004 - as below
        names.remove(source.index)
    if len(names) != 2:  # noqa: PLR2004 - an edge has two ends
        raise FileError(
            "An edge table must have two columns of node ids, or name them source and target, or "
            f"--source and --target name them. Got {len(names)} in {source.called}, whose "
            f"first line is read as {as_parsed(source.names)}."
        )
    return names[0], names[1]


def _weight_name(source: TableFile, given: str | None) -> str | None:
    remedy = f"Rename or remove all but one {WEIGHT!r}."
    return source.column_for("--weight", given, [WEIGHT], remedy)


def _nodes_of(edges: EdgeTable, notices: list[str]) -> NodeTable:
    """The nodes that have an edge; a header that neither names nor a node table confirm is said."""
    source = edges.source
    ids = {node for end in edges.ends for node in pc.unique(end).to_pylist()}
    notices += _folding_notices(sorted(ids))
    if "" in ids:
        notices.append(Caution(f"Empty cells of {source.called} are a node, whose id is ''."))
    if source.is_text and not edges.is_named:
        if ids & set(edges.names):
            raise _no_header(source)
        notices.append(
            f"The first line of {source.called} is taken for the names of its columns: "
            f"{as_parsed(source.names)}."
        )
    integer_ids = all(map(source.has_integers, edges.names))
    return NodeTable(source.called, tuple(sorted(ids)), integer_ids)


def _unknown_ends(
    source: TableFile, unknown: dict[str, int], ids: Sequence[str], nodes: str
) -> GraphError:
    listed = shown(unknown, lambda node: f"{node!r} in {source.place(unknown[node])}")
    return GraphError(
        f"Edges of {source.called} must join nodes of {nodes}. "
        f"Not there: {listed}.{_near_misses(unknown, ids)}"
    )


def _near_misses(unknown: Iterable[str], ids: Sequence[str]) -> str:
    """Point out ids that are known but for case, spaces, Unicode form, leading zeros or `.0`."""
    known = {_folded(node): node for node in ids}
    near = [f"{node!r} and {known[_folded(node)]!r}" for node in unknown if _folded(node) in known]
    if not near:
        return ""
    what = "a final .0, case, spaces, Unicode form or leading zeros"
    return f" Some differ only in {what}: {shown(near)}."


# The node table


def _parse_nodes(
    source: TableFile, reading: Reading, encoder: FeatureEncoder | None, result: TablesRead
) -> NodeTable | None:
    """Take a table apart: the id column, the label column, and features for all others.

    The id column is called `id`, `node` or `node_id`, else it is the first; the label column is
    called `label` or `y`; or both as the reading says. With an encoder only its columns are taken,
    and a label column that is asked for.
    """
    result.tried(_check_header, source)
    id_name = result.tried(_id_name, source, reading.id, result.notices)
    if id_name is None:
        return None
    column = result.tried(source.ids, id_name)
    if column is None:
        return None
    ids = column.to_pylist()
    result.notices += _folding_notices(ids)
    result.tried(_check_unique, source, ids)
    label_name, cells = None, None
    if encoder is None or reading.label is not None:
        label_name, cells = _labels(source, reading, id_name, result)
    taken = [name for name in (id_name, label_name) if name is not None]
    table = NodeTable(source.called, tuple(ids), source.has_integers(id_name))
    if reading.features is not None or (encoder is not None and encoder.structural is not None):
        return replace(table, label_cells=cells)
    columns = _parse_columns(source, taken, reading, encoder, result)
    fitted = encoder
    if columns and encoder is None:
        fitted = FeatureEncoder.fit(columns, scaling=reading.feature_scaling, impute=reading.impute)
    if fitted is not None:
        impute = reading.impute or fitted.impute
        used = {column.name for column in fitted.columns}
        features = [column for column in columns if column.name in used]
        if impute in (None, "none"):
            wrong = {one.name: one.infinite if impute is None else one.missing for one in features}
            result.errors += [
                refused_gaps(source, name, rows) for name, rows in wrong.items() if rows.any()
            ]
        result.notices += _filled_gaps(source, features, fitted, impute)
    return replace(table, columns=columns, encoder=fitted, label_cells=cells)


def _labels(
    source: TableFile, reading: Reading, id_name: str, result: TablesRead
) -> tuple[str | None, list[str | None] | None]:
    """The label column and its cells; that there is none is said."""
    name = result.tried(_label_name, source, reading.label, id_name)
    if name is None:
        if reading.features is None:
            result.notices.append(
                f"{source.subject} has no column called label or y: every column is a feature. "
                "--label names the one with the classes."
            )
        return None, None
    cells = result.tried(label_cells, source, name)
    result.notices += [] if cells is None else _label_notices(cells, name)
    return name, cells


def _filled_gaps(
    source: TableFile,
    features: Sequence[ParsedColumn],
    encoder: FeatureEncoder,
    impute: Impute | None,
) -> list[str]:
    """What was filled in: where nobody asked for it, a warning that names the cells."""
    gaps = {column.name: rows for column in features if len(rows := np.flatnonzero(column.missing))}
    total, count = sum(map(len, gaps.values())), len(gaps)
    if not gaps or impute == "none":
        return []
    if impute is not None:
        by = {"zero": "zero", "mean": "mean", "indicator": "mean, with a column that says where"}
        return [f"{total} missing or infinite features in {count} columns set to {by[impute]}."]
    places = [f"{name!r}: {source.places(gaps[name].tolist())}" for name in [*gaps][:MOST_SHOWN]]
    more = f"; and {count - MOST_SHOWN} more columns" if count > MOST_SHOWN else ""
    told = any(column.indicator for column in encoder.columns if column.name in gaps)
    return [
        Caution(
            "Gaps are filled with the mean, or the most frequent value, of their "
            f"column{', and a feature says where' if told else ''} ({'; '.join(places)}"
            f"{more}): --impute chooses, --impute none refuses them."
        )
    ]


def _id_name(source: TableFile, given: str | None, notices: list[str]) -> str:
    name = source.column_for("--id", given, ID_NAMES, "Pass --id with the one that holds the ids.")
    if name is None:
        name = source.index or source.names[0]
        of_pandas = f"No column of {source.called} is called id, so that its index"
        first = f"The first column of {source.called}, {name!r},"
        notices.append(f"{of_pandas if name == PARQUET_INDEX else first} is taken for the ids.")
    return name


def _check_unique(source: TableFile, ids: Sequence[str]) -> None:
    counts = Counter(ids)
    if len(counts) == len(ids):
        return

    def placed(node: str) -> str:
        places = [source.place(row) for row, one in enumerate(ids) if one == node]
        return f"{node!r} in {' and '.join(places)}"

    repeated = [node for node, count in counts.items() if count > 1]
    raise GraphError(f"The ids of nodes must be unique. Repeated: {shown(repeated, placed)}.")


def _parse_columns(
    source: TableFile,
    taken: Sequence[str],
    reading: Reading,
    encoder: FeatureEncoder | None,
    result: TablesRead,
) -> tuple[ParsedColumn, ...]:
    """The columns that become features, as far as they can be read."""
    kinds = _kinds_of(source, taken, reading, encoder, result)
    parsed = (result.tried(parse_column, source, name, kind) for name, kind in kinds.items())
    return tuple(
        replace(column, is_category=kinds[column.name] == "text")
        for column in parsed
        if column is not None
    )


def _kinds_of(
    source: TableFile,
    taken: Sequence[str],
    reading: Reading,
    encoder: FeatureEncoder | None,
    result: TablesRead,
) -> dict[str, Kind | None]:
    """The columns that become features, with the kind that each must be of; None: any."""
    if encoder is None:
        chosen = result.tried(_feature_columns, source, taken, reading) or {}
        if source.index not in (None, *taken, *chosen):
            result.notices.append(f"Column {source.index!r}, the index of pandas, is left aside.")
        return chosen
    kinds: dict[str, Kind | None] = {column.name: column.kind for column in encoder.columns}
    missing = [name for name in kinds if name not in source.names]
    if missing:
        result.errors.append(
            GraphError(
                f"{source.subject} must have the columns of the training. "
                f"It lacks {shown(missing, repr)}."
            )
        )
    extra = [name for name in source.names if name not in (*kinds, *encoder.left_out, *taken)]
    if extra:
        result.notices.append(
            f"Columns that the model does not know are left aside: {shown(extra, repr)}."
        )
    return {name: kind for name, kind in kinds.items() if name not in missing}


def _feature_columns(
    source: TableFile, taken: Sequence[str], reading: Reading
) -> dict[str, Kind | None]:
    """All columns but ids and labels, or those that the options leave; categories are text."""
    others = [name for name in source.names if name not in taken]
    given = {
        option: {source.column_given(option, name) for name in names}
        for option, names in (
            ("--columns", reading.columns),
            ("--drop", reading.drop),
            ("--categorical", reading.categorical),
        )
    }
    both = sorted(given["--drop"] & (given["--columns"] | given["--categorical"]))
    if both:
        raise SettingsError(f"A column is either used or dropped. Got both for {both[0]!r}.")
    stray = sorted((given["--columns"] | given["--categorical"]) & set(taken))
    if stray:
        raise SettingsError(
            f"{stray[0]!r} holds ids or labels, which are no features. "
            "Another column of these is named by --id or --label."
        )
    wanted = given["--columns"] or set(others)
    dropped = given["--drop"] | ({source.index} - given["--columns"] - given["--categorical"])
    return {
        name: "text" if name in given["--categorical"] else None
        for name in others
        if name in wanted and name not in dropped
    }


def _folding_notices(ids: Sequence[str]) -> list[str]:
    """Say which ids a looser reader would merge: by case, spaces, Unicode form, leading zeros."""
    groups: dict[str, list[str]] = {}
    for node in ids:
        groups.setdefault(_folded(node), []).append(node)
    merged = [
        " and ".join(map(repr, dict.fromkeys(group)))
        for group in groups.values()
        if len(set(group)) > 1
    ]
    if not merged:
        return []
    return [
        "Some ids differ only in a final .0, case, spaces, Unicode form or leading zeros, and are "
        "kept apart: "
        f"{shown(merged)}."
    ]


def _folded(node: str) -> str:
    """An id as a looser reader would see it."""
    folded = unicodedata.normalize("NFC", node).strip().casefold()
    folded = re.sub(r"^([0-9]+)[.]0+$", r"\1", folded)
    return folded.lstrip("0") or "0" if folded.isdecimal() else folded


def _label_name(source: TableFile, label: str | None, id_name: str) -> str | None:
    remedy = "Pass --label with the one that holds the classes."
    name = source.column_for("--label", label, LABEL_NAMES, remedy)
    if label is not None and name == id_name:
        raise GraphError(f"{label!r} holds the ids of {source.called}. {remedy}")
    return name


def _label_notices(cells: Sequence[str | None], name: str) -> list[str]:
    missing = cells.count(None)
    notices = [f"{missing} of {len(cells)} nodes have no label."] if missing else []
    minus_ones = int((encode_labels(cells)[0] == UNLABELLED).sum()) - missing
    if minus_ones:
        told = (
            f"{minus_ones} of {len(cells)} nodes have the label {UNLABELLED}, which means no label "
            f"where labels are integers. If it is a class, give it another name in {name!r}."
        )
        notices.append(Caution(told))
    if not missing and len(set(cells)) == len(cells):
        told = f"Every node has a class of its own: is {name!r} the label column?"
        notices.append(Caution(told))
    return notices


# New nodes of a known graph


def extend_graph(
    graph: Graph, edges: Path | str, reading: Reading, encoder: FeatureEncoder | None
) -> Graph:
    """The graph with the nodes of a further node table and the edges of a further edge table.

    New nodes come last, in the order of their table. Edges may join any two nodes.

    Args:
        graph: That a model was trained on.
        edges: Table of new edges.
        reading: How the tables are read; it names the table of new nodes.
        encoder: How the features of the graph came about.
    """
    if encoder is None or encoder.structural not in (None, "degree"):
        kind = "of no table" if encoder is None else f"of the kind {encoder.structural}"
        raise GraphError(
            f"New nodes need features as the graph has them, and its features are {kind}. To add "
            "nodes, train on tables with feature columns, or with --features degree."
        )
    if reading.nodes is None:
        raise SettingsError("Name the table of the new nodes with --nodes.")
    _check_options(reading, encoder)
    result = TablesRead()
    _read_both(edges, reading.nodes, reading, encoder, result)
    table, joined = result.nodes, result.edges
    if result.errors or table is None or joined is None:
        raise _first_of(result.errors)
    known = graph.ids or tuple(map(str, range(graph.num_nodes)))
    known_ids = set(known)
    if again := [repr(node) for node in table.ids if node in known_ids]:
        raise GraphError(
            f"Nodes of {table.called} must be new. The graph has {shown(again)} already."
        )
    ids = (*known, *table.ids)
    pairs, unknown = joined.numbered(ids)
    if unknown:
        raise _unknown_ends(joined.source, unknown, ids, f"the graph and of {table.called}")
    pairs, weights, told = clean_edges(pairs, joined.weights, len(ids))
    features = torch.zeros(len(table.ids), graph.num_features)
    notices = [*result.notices, *told]
    if encoder.columns:
        encoded, of_columns = encoder.encode(
            {one.name: one for one in table.columns}, reading.impute
        )
        features, notices = torch.from_numpy(encoded), [*notices, *of_columns]
    both = (graph.edge_index, graph.weights), (pairs, weights)
    parts = Parts(
        torch.cat([graph.edge_index.cpu(), pairs], dim=1),
        len(ids),
        torch.cat([dense(graph.features).cpu(), features]),
        # One where there are none; weights that are all one are none again.
        torch.cat([torch.ones(len(ends[0])) if w is None else w.cpu() for ends, w in both]),
        ids,
        graph.integer_ids and table.integer_ids,
        feature_names=graph.feature_names,
        encoder=encoder,
        notices=notices,
    )
    extended = labelled_of(parts).graph
    return extended if encoder.columns else with_structural_features(extended, "degree", encoder)
