"""A data set by its name, from a folder, the cache or a download, held against the catalogue."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from aspect.data.catalogue import Dataset, dataset
from aspect.data.convert import as_labelled, to_data
from aspect.data.files import is_folder, is_present, reason
from aspect.data.graph import LabelledGraph
from aspect.data.npz import content_sha256, read_npz, write_npz
from aspect.errors import AspectError, DataError, FileError

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["cache_dir", "find", "load_dataset", "load_named"]

logger = logging.getLogger(__name__)


def load_dataset(name: str, data_dir: str | Path | None = None) -> Data:
    """A data set in PyG's form: `x` dense, `edge_index` simple and undirected, `y`, and masks.

    Masks are named as PyG names them and have shape [nodes, splits].
    """
    return to_data(load_named(name, data_dir))


def load_named(name: str, data_dir: str | Path | None = None) -> LabelledGraph:
    """A data set with its labels, from the first place that has it; see `find`."""
    entry = dataset(name)
    path = find(name, data_dir)
    if path is None:
        return _download(entry, data_dir)
    if path.parent == cache_dir():
        # A cached download is written by us and differs from the published file in its bytes.
        return _checked(read_npz(path), entry, str(path))
    return _checked(read_npz(path, sha256=entry.file_sha256), entry, str(path))


def find(name: str, data_dir: str | Path | None = None) -> Path | None:
    """Where the file of a data set lies: in `data_dir`, else `$ASPECT_DATA`, else the cache."""
    file_name = f"{dataset(name).name}.npz"
    if data_dir is not None and not is_folder(Path(data_dir)):
        raise FileError(f"--data-dir must be a folder that can be read. Got {str(data_dir)!r}.")
    paths = [folder / file_name for folder in _folders(data_dir)]
    # A link into nowhere or a folder of that name counts as found: reading it says what is wrong.
    return next((path for path in paths if is_present(path)), None)


def cache_dir() -> Path | None:
    """Where downloads are kept: `$ASPECT_CACHE` or the user's cache folder; None without a home."""
    if os.environ.get("ASPECT_CACHE"):
        return Path(os.environ["ASPECT_CACHE"])
    import platformdirs

    folder = platformdirs.user_cache_dir("aspect", appauthor=False)
    # Without a home folder the tilde stays, and would become a folder of that name right here.
    return None if folder.startswith("~") else Path(folder)


def _folders(data_dir: str | Path | None) -> list[Path]:
    given = data_dir if data_dir is not None else os.environ.get("ASPECT_DATA") or None
    cache = cache_dir()
    return [Path(folder) for folder in (given, cache) if folder is not None]


def _checked(labelled: LabelledGraph, entry: Dataset, origin: str) -> LabelledGraph:
    """Refuse a graph that is not the one its name promises."""
    splits = len(labelled.masks["train"]) if labelled.masks else 0
    graph = labelled.graph
    counts = {
        "nodes": (entry.num_nodes, graph.num_nodes),
        "undirected edges": (entry.num_edges, graph.num_edges),
        "features": (entry.num_features, graph.num_features),
        "classes": (entry.num_classes, labelled.num_classes),
        "splits": (entry.num_splits, splits),
    }
    wrong = [f"{want} {what} (got {got})" for what, (want, got) in counts.items() if want != got]
    if wrong:
        raise DataError(
            f"{origin!r} is not {entry.name}, which has {', '.join(wrong)}. Fetch it again."
        )
    actual = content_sha256(labelled)
    if actual != entry.content_sha256:
        raise DataError(
            f"{origin!r} is not {entry.name}: the sha256 of its content must be "
            f"{entry.content_sha256}. Got {actual}. Fetch it again."
        )
    return labelled


def _download(entry: Dataset, data_dir: str | Path | None) -> LabelledGraph:
    """Fetch by PyG, check, and keep the result in the cache for the next time."""
    if entry.pyg is None:
        raise DataError(f"{_not_here(entry, data_dir)} PyG offers no graph equal to it.")
    try:
        with tempfile.TemporaryDirectory() as folder:
            data = _fetch(entry.pyg, folder)
    except AspectError:
        raise
    # Whatever stops a download (network, proxy, 404, half a file) has one remedy.
    except Exception as error:
        raise DataError(
            f"{_not_here(entry, data_dir)} Downloading it failed: {reason(error)}."
        ) from error
    labelled = _checked(as_labelled(data), entry, f"The download of {entry.name}")
    _keep(labelled, entry)
    return labelled


def _fetch(pyg: tuple[str, str | None], folder: str) -> Data:
    import torch_geometric.datasets

    kind, name = pyg
    arguments: dict[str, str] = {} if name is None else {"name": name}
    if kind == "Planetoid":
        arguments["split"] = "geom-gcn"  # the ten published splits, not the single one
    found: Data = getattr(torch_geometric.datasets, kind)(root=folder, **arguments)[0]
    return found


def _keep(labelled: LabelledGraph, entry: Dataset) -> None:
    folder = cache_dir()
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_npz(folder / f"{entry.name}.npz", labelled, overwrite=True)
    except (OSError, AspectError) as error:
        # The graph is there; a cache that cannot be written only makes the next start slower.
        logger.warning("%s is not kept for the next time: %s", entry.name, error)


def _not_here(entry: Dataset, data_dir: str | Path | None) -> str:
    folders = [str(folder) for folder in _folders(data_dir)]
    places = " or ".join(map(repr, folders)) or "a folder named by --data-dir or ASPECT_DATA"
    return (
        f"Data set {entry.name!r} is not here. "
        f"Put {entry.name}.npz (sha256 {entry.file_sha256}) into {places}."
    )
