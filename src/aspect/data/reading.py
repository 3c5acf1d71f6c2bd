"""One way in for every graph a user can name: a data set, an archive, tables, or a saved Data."""

from __future__ import annotations

import io
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from aspect.data.catalogue import DATASETS
from aspect.data.convert import as_labelled
from aspect.data.datasets import load_named
from aspect.data.delimited import TextFormat
from aspect.data.files import check_memory, file_bytes
from aspect.data.graph import LabelledGraph
from aspect.data.matrices import as_features, check_impute, imputed
from aspect.data.npz import read_npz
from aspect.data.structural import STRUCTURAL, with_structural_features
from aspect.data.tables import TableOptions, read_tables
from aspect.errors import AspectError, FileError, GraphError, SettingsError, UnknownNameError

__all__ = ["GRAPH_SUFFIXES", "read_graph"]

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")
GRAPH_SUFFIXES = (".npz", *TABLE_SUFFIXES, ".pt")


def read_graph(  # noqa: PLR0913 - the options of the command line, each independent of the others
    source: str | Path,
    *,
    nodes: str | Path | None = None,
    data_dir: str | Path | None = None,
    features: str | None = None,
    impute: str | None = None,
    directed: str = "symmetrise",
    encoding: str = "utf-8",
    delimiter: str | None = None,
    label: str | None = None,
) -> LabelledGraph:
    """Read a data set by name, an `.npz`, an edge table (and its node table) or a saved PyG `Data`.

    Args:
        source: The name or the path; a name of the catalogue always means that data set.
        nodes: The node table of an edge table: ids, numeric features, perhaps a label.
        data_dir: Where files of named data sets lie; `$ASPECT_DATA` if not given.
        features: Structural features in place of any others: degree, identity, random, laplacian.
        impute: `zero` or `mean` in place of missing features; they are refused if not given.
        directed: `symmetrise` edges that lack their reverse, or take them for an `error`.
        encoding: Of the text tables.
        delimiter: Of the text tables; a comma, or a tab in `.tsv`, if not given.
        label: Column of the node table that holds the label, if not `label` or `y`.
    """
    if features is not None and features not in STRUCTURAL:
        raise SettingsError(f"--features must be one of {', '.join(STRUCTURAL)}. Got {features!r}.")
    if directed not in ("symmetrise", "error"):
        raise SettingsError(f"--directed must be symmetrise or error. Got {directed!r}.")
    check_impute(impute)
    options = TableOptions(
        label=label,
        impute=impute,
        text=TextFormat(encoding, delimiter),
        allow_no_features=features is not None,
        directed_is_error=directed == "error",
    )
    if str(source) in DATASETS:
        labelled = load_named(str(source), data_dir)
    else:
        labelled = _read_file(Path(source), nodes, options)
    if features is None:
        return labelled
    return replace(labelled, graph=with_structural_features(labelled.graph, features))


def _read_file(path: Path, nodes: str | Path | None, options: TableOptions) -> LabelledGraph:
    suffix = path.suffix.lower()
    if suffix not in GRAPH_SUFFIXES:
        raise _not_a_graph(path)
    if suffix in TABLE_SUFFIXES:
        return read_tables(path, nodes, options)
    if nodes is not None:
        raise SettingsError(
            f"--nodes belongs to an edge table ({', '.join(TABLE_SUFFIXES)}). "
            f"Got it with {str(path)!r}."
        )
    if suffix == ".npz":
        error = options.directed_is_error
        return read_npz(path, impute=options.impute, directed_is_error=error)
    return _read_saved(path, options)


def _not_a_graph(path: Path) -> Exception:
    ends = ", ".join(GRAPH_SUFFIXES)
    if path.suffix or len(path.parts) > 1:
        return FileError(f"A graph's file must end in {ends}. Got {str(path)!r}.")
    return UnknownNameError("data set or file", str(path), DATASETS)


def _read_saved(path: Path, options: TableOptions) -> LabelledGraph:
    data = _load_saved(path)
    try:
        return _from_saved(data, path, options)
    except AspectError:
        raise
    # A Data whose bytes are damaged, or of another age, fails anywhere inside PyG.
    except Exception as error:
        raise FileError(
            f"{str(path)!r} holds no whole PyG Data ({type(error).__name__}). Save it again."
        ) from error


def _from_saved(data: Any, path: Path, options: TableOptions) -> LabelledGraph:  # noqa: ANN401
    if not hasattr(data, "edge_index"):
        raise GraphError(
            f"{str(path)!r} must hold a PyG Data with an edge_index. Got {type(data).__name__}."
        )
    notices: list[str] = []
    if options.allow_no_features and data.num_nodes:
        # Whatever x is, the structural features take its place.
        data.x = torch.zeros(data.num_nodes, 1)
    elif options.impute is not None and data.x is not None:
        data.x, notices = imputed(as_features(data.x), options.impute)
    labelled = as_labelled(data, directed_is_error=options.directed_is_error)
    graph = replace(labelled.graph, notices=(*notices, *labelled.graph.notices))
    return replace(labelled, graph=graph)


def _load_saved(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """Unpickle tensors and PyG's own containers; a file that names anything else is refused."""
    content = file_bytes(path)
    _check_archive(content, path)
    try:
        with torch.serialization.safe_globals(_pyg_classes()):
            return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise FileError(
            f"{str(path)!r} is damaged, or holds more than tensors and PyG's Data, which is never "
            "loaded. Save a plain torch_geometric.data.Data with torch.save."
        ) from error
    # Damaged bytes fail in the unpickler in whatever way they happen to.
    except Exception as error:
        raise FileError(
            f"{str(path)!r} is not a whole file of torch.save ({type(error).__name__}). "
            "Save it again."
        ) from error


def _check_archive(content: bytes, path: Path) -> None:
    """Refuse, from its directory, an archive that would grow beyond the memory."""
    try:
        if not zipfile.is_zipfile(io.BytesIO(content)):
            return
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_memory(sum(member.file_size for member in archive.infolist()), path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise FileError(f"{str(path)!r} is cut off or damaged ({error}). Save it again.") from error


def _pyg_classes() -> list[Any]:
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import EdgeStorage, GlobalStorage, NodeStorage

    return [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, NodeStorage, EdgeStorage]
