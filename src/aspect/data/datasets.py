"""The data sets that have a name: catalogue, files, downloads, and entries of the user's own.

The catalogue is `catalogue.yaml`. A user's entry is a pair of files, `NAME.npz` and `NAME.yaml`, in
`$ASPECT_DATA` or the user's data folder; `add_dataset` writes both. Nothing heavy is imported
before a graph is read, so that the command line can answer a wrong name at once.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import Field

from aspect.config import Config, load_yaml, make_config, to_yaml
from aspect.data.files import is_file, is_folder, is_present, replacing
from aspect.errors import AspectError, DataError, FileError, SettingsError, UnknownNameError, reason

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from aspect.data.graph import LabelledGraph

__all__ = [
    "DATASETS",
    "MIXED",
    "Dataset",
    "add_dataset",
    "cache_dir",
    "catalogue",
    "dataset",
    "find",
    "is_dataset",
    "load_dataset",
    "load_named",
]

logger = logging.getLogger(__name__)

MIXED = "mixed"  # the embedded graph, which needs no file
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Download(Config):
    """Where the source offers a data set; see `aspect.data.downloads`."""

    format: Literal["heterophilous", "gnn-benchmark", "planetoid", "geom-gcn"]
    """How its files are laid out."""
    name: str
    """What the source calls it."""
    sha256: dict[str, str] = Field(default_factory=dict)
    """Checksums of its raw files, by file name, where they are known."""


class Dataset(Config):
    """What is known of a data set before it is read."""

    name: str
    num_nodes: int
    num_edges: int
    """Undirected, without self-loops, each counted once."""
    num_features: int
    num_classes: int
    num_splits: int
    """Those that its source publishes."""
    file_sha256: str
    """Of the `.npz` file."""
    content_sha256: str
    """Of the graph in it: `aspect.data.archives.content_sha256`."""
    splits_sha256: str | None = None
    """Of its published splits: `aspect.data.splits.published_sha256`."""
    source: str = ""
    """Who publishes it, with the citation."""
    licence: str = "none stated"
    note: str = ""
    """What to beware of."""
    download: Download | None = None
    """None where no source offers an equal graph."""


def _shipped() -> Mapping[str, Dataset]:
    text = Path(__file__).with_name("catalogue.yaml").read_text(encoding="utf-8")
    entries = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return MappingProxyType({name: Dataset(name=name, **entry) for name, entry in entries.items()})


DATASETS = _shipped()


def catalogue(data_dir: str | Path | None = None) -> dict[str, Dataset]:
    """All entries by name: those of the package, then those that the user added."""
    folders = filter(is_folder, _user_folders(data_dir))
    stems = {file.stem for folder in folders for file in folder.glob("*.yaml")} - set(DATASETS)
    added = sorted(name for name in stems if _user_entry(name, data_dir) is not None)
    return {**DATASETS, **{name: dataset(name, data_dir) for name in added}}


def is_dataset(name: str) -> bool:
    """Whether the catalogue has that name."""
    return name in DATASETS or _user_entry(name) is not None


def dataset(name: str, data_dir: str | Path | None = None) -> Dataset:
    """The entry of that name; an unknown name is answered with the nearest one."""
    if name in DATASETS:
        return DATASETS[name]
    file = _user_entry(name, data_dir)
    if file is None:
        raise UnknownNameError("data set", name, catalogue(data_dir))
    return make_config(Dataset, {**load_yaml(file), "name": name}, owner=str(file))


def add_dataset(
    name: str,
    labelled: LabelledGraph,
    folder: str | Path | None = None,
    *,
    source: str = "",
    licence: str = "none stated",
    note: str = "",
    overwrite: bool = False,
) -> Dataset:
    """Add a graph to the catalogue: `NAME.npz` and `NAME.yaml` in a folder.

    Args:
        name: What it will be called: small letters, digits, `_` and `-`.
        labelled: The graph with its labels, and its splits if it has some.
        folder: `$ASPECT_DATA`, else the user's data folder, if not given.
        source: Who publishes it, with the citation.
        licence: Under which its source offers it.
        note: What to beware of.
        overwrite: Replace an entry of that name.
    """
    from aspect.data.archives import content_sha256, sha256_of, write_npz
    from aspect.data.splits import published_sha256

    if not NAME.fullmatch(name) or name in (*DATASETS, MIXED):
        raise SettingsError(
            "The name of a data set must be new and made of at most 64 small letters, digits, _ "
            f"and -. Got {name!r}."
        )
    folders = _user_folders(folder)
    if not folders:
        raise FileError("There is no home folder to keep data sets in. Set ASPECT_DATA.")
    archive, file = folders[0] / f"{name}.npz", folders[0] / f"{name}.yaml"
    for path in (archive, file):
        if is_present(path) and not overwrite:
            raise FileError(f"{str(path)!r} exists. Pass --overwrite to replace it.")
    try:
        folders[0].mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"Cannot write to {str(folders[0])!r}: {reason(error)}.") from error
    write_npz(archive, labelled, overwrite=overwrite)
    entry = Dataset(
        name=name,
        **_counts(labelled),
        file_sha256=sha256_of(archive),
        content_sha256=content_sha256(labelled),
        splits_sha256=published_sha256("published", labelled.masks) if labelled.masks else None,
        source=source,
        licence=licence,
        note=note,
    )
    with replacing(file, overwrite=overwrite) as out:
        out.write(to_yaml(entry.model_dump(exclude={"name"}, exclude_none=True)).encode())
    return entry


def load_dataset(name: str, data_dir: str | Path | None = None) -> Data:
    """A data set in PyG's form: `x` dense, `edge_index` simple and undirected, `y`, and masks.

    Masks are named as PyG names them and have shape [nodes, splits].
    """
    from aspect.data.convert import to_data

    return to_data(load_named(name, data_dir))


def load_named(name: str, data_dir: str | Path | None = None) -> LabelledGraph:
    """A data set with its labels, from the first folder that has it; see `find`."""
    from aspect.data.archives import read_npz

    entry = dataset(name, data_dir)
    path = find(name, data_dir)
    if path is None:
        return _download(entry, data_dir)
    # A cached download is written by us and differs from the published file in its bytes.
    sha256 = None if path.parent == cache_dir() else entry.file_sha256
    return _checked(read_npz(path, sha256=sha256), entry, str(path))


def find(name: str, data_dir: str | Path | None = None) -> Path | None:
    """Where its file is: in `data_dir` or `$ASPECT_DATA`, the user's data folder or the cache."""
    file_name = f"{dataset(name, data_dir).name}.npz"
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

    return _in_home(platformdirs.user_cache_dir("aspect", appauthor=False))


def _in_home(folder: str) -> Path | None:
    # Without a home folder the tilde stays, and would become a folder of that name right here.
    return None if folder.startswith("~") else Path(folder)


def _user_folders(data_dir: str | Path | None = None) -> list[Path]:
    """Where entries of the user are: in `data_dir`, else `$ASPECT_DATA`, and the data folder."""
    import platformdirs

    given = os.environ.get("ASPECT_DATA") if data_dir is None else data_dir
    in_home = _in_home(platformdirs.user_data_dir("aspect", appauthor=False))
    return [Path(folder) for folder in (given, in_home) if folder]


def _user_entry(name: str, data_dir: str | Path | None = None) -> Path | None:
    if not NAME.fullmatch(name):
        return None
    files = (folder / f"{name}.yaml" for folder in _user_folders(data_dir))
    return next(filter(is_file, files), None)


def _folders(data_dir: str | Path | None) -> list[Path]:
    cache = cache_dir()
    return [*_user_folders(data_dir), *([] if cache is None else [cache])]


def _counts(labelled: LabelledGraph) -> dict[str, int]:
    return {
        "num_nodes": labelled.graph.num_nodes,
        "num_edges": labelled.graph.num_edges,
        "num_features": labelled.graph.num_features,
        "num_classes": labelled.num_classes,
        "num_splits": len(labelled.masks["train"]) if labelled.masks else 0,
    }


def _checked(labelled: LabelledGraph, entry: Dataset, origin: str) -> LabelledGraph:
    """Refuse a graph that is not the one its name promises."""
    from aspect.data.archives import content_sha256
    from aspect.data.splits import published_sha256

    expected: dict[str, Any] = entry.model_dump()
    wrong = [
        f"{expected[what]} {what.removeprefix('num_')} (got {got})"
        for what, got in _counts(labelled).items()
        if expected[what] != got
    ]
    if wrong:
        raise DataError(
            f"{origin!r} is not {entry.name}, which has {', '.join(wrong)}. Fetch it again."
        )
    checksums = {"content": (entry.content_sha256, content_sha256(labelled))}
    if entry.splits_sha256 is not None:
        splits = published_sha256("published", labelled.masks)
        checksums["splits"] = (entry.splits_sha256, str(splits))
    for what, (known, actual) in checksums.items():
        if known != actual:
            raise DataError(
                f"{origin!r} is not {entry.name}: the sha256 of its {what} must be {known}. "
                f"Got {actual}. Fetch it again."
            )
    return labelled


def _download(entry: Dataset, data_dir: str | Path | None) -> LabelledGraph:
    """Fetch from the source, check, and keep the result in the cache for the next time."""
    from aspect.data.archives import write_npz
    from aspect.data.downloads import fetch

    folders = " or ".join(repr(str(folder)) for folder in _folders(data_dir))
    not_here = (
        f"Data set {entry.name!r} is not here. Put {entry.name}.npz (sha256 {entry.file_sha256}) "
        f"into {folders or 'a folder named by --data-dir or ASPECT_DATA'}."
    )
    if entry.download is None:
        raise DataError(f"{not_here} No source offers it for download.")
    try:
        labelled = fetch(entry.download)
    except AspectError:
        raise
    # Whatever stops a download (network, proxy, 404, half a file) has one remedy.
    except Exception as error:
        raise DataError(f"{not_here} Downloading it failed: {reason(error)}.") from error
    _checked(labelled, entry, f"The download of {entry.name}")
    folder = cache_dir()
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_npz(folder / f"{entry.name}.npz", labelled, overwrite=True)
        except (OSError, AspectError) as error:
            # The graph is there; a cache that cannot be written only makes the next start slower.
            logger.warning("%s is not kept for the next time: %s", entry.name, error)
    return labelled
