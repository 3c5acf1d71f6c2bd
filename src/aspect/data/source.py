"""Where a graph comes from: the catalogue of data sets, an archive, tables, or a saved PyG `Data`.

The catalogue is `catalogue.yaml`. A user's entry is a pair of files, `NAME.npz` and `NAME.yaml`, in
`$ASPECT_DATA` or the user's data folder; `add_dataset` writes both. A data set of another package
is a function under `@register_dataset`, found as `aspect.plugins` says. A `GraphSource` says which
graph, and how it is read: all that is needed to read the same graph again later. Nothing heavy is
imported before a graph is read, so that the command line can answer a wrong name at once.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BeforeValidator, Field

from aspect.config import Config, load_yaml, make_config, to_yaml
from aspect.data.files import is_file, is_folder, is_present, naming, replacing, target_of
from aspect.errors import (
    AspectError,
    DataError,
    FileError,
    GraphWarning,
    SettingsError,
    UnknownNameError,
    reason,
    sentence_of,
    warn,
)
from aspect.plugins import Plugins, is_reference, reference_of

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from aspect.data.encoder import FeatureEncoder
    from aspect.data.graph import LabelledGraph

logger = logging.getLogger(__name__)

MIXED = "mixed"  # the embedded graph, which needs no file
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")
GRAPH_SUFFIXES = (".npz", *TABLE_SUFFIXES, ".pt")

Metric = Literal["accuracy", "roc-auc"]
METRICS: dict[Metric, str] = {"accuracy": "accuracy", "roc-auc": "ROC AUC"}  # as readers see them


FeatureScaling = Literal["standard", "rows", "none"]
Impute = Literal["indicator", "mean", "zero", "none"]
Structural = Literal["degree", "identity", "random", "laplacian"]


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
    metric: Metric = "accuracy"
    """What its authors report: tables show it, and probes and searches choose by it."""
    note: str = ""
    """What to beware of."""
    download: Download | None = None
    """None where no source offers an equal graph."""
    made_by: str = ""
    """The function of another package that makes it, as `module:function`."""


def _shipped() -> Mapping[str, Dataset]:
    text = Path(__file__).with_name("catalogue.yaml").read_text(encoding="utf-8")
    entries = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return MappingProxyType({name: Dataset(name=name, **entry) for name, entry in entries.items()})


DATASETS = _shipped()

_outside = Plugins("data set", "aspect.datasets")
_details: dict[str, dict[str, str]] = {}  # of data sets from outside, by reference

AnyLoader = TypeVar("AnyLoader", bound=Callable[[], Any])


def register_dataset(
    name: str, *, source: str = "", licence: str = "none stated", note: str = ""
) -> Callable[[AnyLoader], AnyLoader]:
    """Decorator of a function without arguments that gives a graph: make it a data set.

    The graph is a PyG `Data` or whatever else `Embedder.fit` takes; the rest is for the catalogue.
    """

    def enter(load: AnyLoader) -> AnyLoader:
        if not NAME.fullmatch(name):
            raise SettingsError(
                "The name of a data set must be made of at most 64 small letters, digits, _ and "
                f"-. Got {name!r}."
            )
        _outside.register(name, load, (*DATASETS, MIXED))
        _details[reference_of(load)] = {"source": source, "licence": licence, "note": note}
        return load

    return enter


def _loader(name: str, data_dir: str | Path | None = None) -> Callable[[], Any] | None:
    """The function of another package that makes the data set; None: there is none."""
    is_name = NAME.fullmatch(name) or (is_reference(name) and not is_file(Path(name)))
    if not is_name or name in DATASETS or _user_entry(name, data_dir) is not None:
        return None
    found = _outside.find(name)
    if found is not None and not callable(found):
        raise SettingsError(f"The data set {name!r} must be a function that makes a graph.")
    return found


def _made(name: str, load: Callable[[], Any]) -> LabelledGraph:
    """The graph that a function of another package makes; what it raises is one sentence."""
    from aspect.data.convert import as_labelled

    try:
        made = load()
        if isinstance(made, str | Path):  # not a name to look up
            raise TypeError(f"It must make a graph. Got {type(made).__name__}.")
        return as_labelled(made)
    except AspectError:
        raise
    except Exception as error:
        raise DataError(f"The data set {name!r} cannot be made. {sentence_of(error)}") from error


def catalogue(data_dir: str | Path | None = None) -> dict[str, Dataset]:
    """All entries by name: those of the package, those that the user added, those from outside."""
    return {name: dataset(name, data_dir) for name in catalogue_names(data_dir)}


def catalogue_names(data_dir: str | Path | None = None) -> list[str]:
    """The names alone, for which no graph is read."""
    folders = filter(is_folder, _user_folders(data_dir))
    stems = {file.stem for folder in folders for file in folder.glob("*.yaml")} - set(DATASETS)
    added = sorted(name for name in stems if _user_entry(name, data_dir) is not None)
    return list(dict.fromkeys([*DATASETS, *added, *_outside.names()]))


def is_dataset(name: str, data_dir: str | Path | None = None) -> bool:
    """Whether the catalogue has that name."""
    is_entry = name in DATASETS or _user_entry(name, data_dir) is not None
    return is_entry or _loader(name, data_dir) is not None


def dataset(name: str, data_dir: str | Path | None = None) -> Dataset:
    """The entry of that name; an unknown name is answered with the nearest one."""
    if name in DATASETS:
        return DATASETS[name]
    if (load := _loader(name, data_dir)) is not None:
        made_by = reference_of(load)
        told = _details.get(made_by, {})
        return Dataset(
            name=name, **_measured(_made(name, load)), file_sha256="", made_by=made_by, **told
        )
    file = _user_entry(name, data_dir)
    if file is None:
        raise UnknownNameError("data set", name, catalogue_names(data_dir))
    return make_config(Dataset, {**load_yaml(file), "name": name}, owner=str(file))


def add_dataset(
    name: str,
    labelled: LabelledGraph,
    folder: str | Path | None = None,
    *,
    overwrite: bool = False,
    **details: str,
) -> Dataset:
    """Add a graph to the catalogue: `NAME.npz` and `NAME.yaml` in a folder.

    The folder is `$ASPECT_DATA`, else the user's data folder, if none is given. Details are the
    `source`, `licence` and `note` of the entry.
    """
    from aspect.data.archives import write_npz

    if not NAME.fullmatch(name) or name in (*DATASETS, MIXED):
        raise SettingsError(
            "The name of a data set must be new and made of at most 64 small letters, digits, _ "
            f"and -. Got {name!r}."
        )
    folders = _user_folders(folder)
    if not folders:
        raise FileError("There is no home folder to keep data sets in. Set ASPECT_DATA.")
    archive, file = folders[0] / f"{name}.npz", folders[0] / f"{name}.yaml"
    for path in (archive, file):  # refused before either is written
        target_of(path, overwrite)
    with naming(folders[0]):
        folders[0].mkdir(parents=True, exist_ok=True)
    write_npz(archive, labelled, overwrite=overwrite)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    entry = Dataset(name=name, **_measured(labelled), file_sha256=sha256, **details)
    with replacing(file, overwrite=overwrite) as out:
        out.write(to_yaml(entry.model_dump(exclude={"name"}, exclude_none=True)).encode())
    return entry


def embedded_entry() -> Dataset:
    """The entry of the embedded graph, `mixed`, which has no file."""
    from aspect.data.synthetic import embedded_graph

    return Dataset(
        name=MIXED,
        **_measured(embedded_graph()),
        file_sha256="",
        source="part of aspect",
        licence="MIT",
        note="Half homophilic, half heterophilic: no one rule for all nodes can be right.",
    )


def load_dataset(name: str, data_dir: str | Path | None = None) -> Data:
    """A data set in PyG's form: `x` dense, `edge_index` simple and undirected, `y`, and masks.

    Masks are named as PyG names them and have shape [nodes, splits].
    """
    from aspect.data.convert import to_data

    return to_data(load_named(name, data_dir))


def load_named(name: str, data_dir: str | Path | None = None) -> LabelledGraph:
    """A data set with its labels, from the first folder that has it; see `find`."""
    from aspect.data.archives import read_npz

    if (load := _loader(name, data_dir)) is not None:
        return _made(name, load)
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
    import platformdirs

    in_home = platformdirs.user_cache_dir("aspect", appauthor=False)
    return next(_folders_of(os.environ.get("ASPECT_CACHE"), in_home), None)


def _folders_of(given: str | Path | None, in_home: str) -> Iterator[Path]:
    if given:
        yield Path(given)
    # Without a home folder the tilde stays, and would become a folder of that name right here.
    if not in_home.startswith("~"):
        yield Path(in_home)


def _user_folders(data_dir: str | Path | None = None) -> list[Path]:
    """Where entries of the user are: in `data_dir`, else `$ASPECT_DATA`, and the data folder."""
    import platformdirs

    given = os.environ.get("ASPECT_DATA") if data_dir is None else data_dir
    return list(_folders_of(given, platformdirs.user_data_dir("aspect", appauthor=False)))


def _user_entry(name: str, data_dir: str | Path | None = None) -> Path | None:
    if not NAME.fullmatch(name):
        return None
    files = (folder / f"{name}.yaml" for folder in _user_folders(data_dir))
    return next(filter(is_file, files), None)


def _folders(data_dir: str | Path | None) -> list[Path]:
    cache = cache_dir()
    return [*_user_folders(data_dir), *([] if cache is None else [cache])]


def _measured(labelled: LabelledGraph) -> dict[str, Any]:
    """What the catalogue says of a graph, found from the graph itself."""
    from aspect.data.archives import content_sha256
    from aspect.data.splits import published_sha256

    return {
        "num_nodes": labelled.graph.num_nodes,
        "num_edges": labelled.graph.num_edges,
        "num_features": labelled.graph.num_features,
        "num_classes": labelled.num_classes,
        "num_splits": len(labelled.masks["train"]) if labelled.masks else 0,
        "content_sha256": content_sha256(labelled),
        "splits_sha256": published_sha256("published", labelled.masks) if labelled.masks else None,
    }


def _checked(labelled: LabelledGraph, entry: Dataset, origin: str) -> LabelledGraph:
    """Refuse a graph that is not the one its name promises."""
    for what, actual in _measured(labelled).items():
        known = getattr(entry, what)
        if known != actual:
            words = what.replace("num_", "number of ").replace("_", " ")
            raise DataError(
                f"{origin!r} is not {entry.name}: its {words} must be {known}. "
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


# Any graph


def check_graph_name(graph: str, data_dir: str | Path | None = None) -> str:
    """The name or path itself; what can be neither is answered with the nearest name."""
    path = Path(graph)
    is_store = bool(graph) and is_folder(path)
    is_path = path.suffix or len(path.parts) > 1 or is_store
    if not is_path and graph != MIXED and not is_dataset(graph, data_dir):
        raise UnknownNameError("data set or file", graph, [*catalogue_names(data_dir), MIXED])
    return graph


def _split_names(given: object) -> object:
    """Names from the command line or a settings file: repeated, or with commas between them."""
    listed = [given] if isinstance(given, str) else given or ()
    if not isinstance(listed, list | tuple) or not all(isinstance(name, str) for name in listed):
        return given
    return tuple(part.strip() for name in listed for part in name.split(",") if part.strip())


ColumnNames = Annotated[tuple[str, ...], BeforeValidator(_split_names)]


class Reading(Config):
    """How the graph's files are read."""

    nodes: str | None = None
    """Node table of an edge table: ids, columns of features, perhaps a label."""
    features: Structural | None = None
    """Structural features in place of the graph's own."""
    columns: ColumnNames = ()
    """Columns of the node table that become features.  [default: all]"""
    drop: ColumnNames = ()
    """Columns of the node table to leave out."""
    categorical: ColumnNames = ()
    """Columns whose values are categories, be they numbers; one-hot, or hashed if there are
    many."""
    feature_scaling: FeatureScaling | None = None
    """standard: mean 0 and std 1 in every numeric column; rows: each node's features divided by
    their sum; none.  [default: rows for a bag of words, standard for other numbers]"""
    impute: Impute | None = None
    """What stands in for missing features; mean: the column's mean or most frequent value;
    indicator: the same, and a feature that says where; none: they are refused.  [default: indicator
    for gaps of a table, with a warning; none for infinite numbers, and for arrays]"""
    directed: Literal["symmetrise", "error"] = "symmetrise"
    """What happens to edges without their reverse."""
    encoding: str = "utf-8"
    """Encoding of text tables."""
    delimiter: str | None = None
    """Delimiter of text tables; a comma, or a tab in `.tsv`, if not given."""
    id: str | None = None
    """Column of the node table that holds the ids, if not `id`, `node`, `node_id` or the first."""
    label: str | None = None
    """Column of the node table that holds the label, if not `label` or `y`."""
    source: str | None = None
    """Column of the edge table with one end of each edge, if not `source`, `src` or `from`."""
    target: str | None = None
    """Column of the edge table with the other end, if not `target`, `dst` or `to`."""
    weight: str | None = None
    """Column of the edge table with the weights, if not `weight`."""
    unweighted: bool = False
    """Leave edge weights aside: every edge weighs one; a weight of zero is still no edge."""

    def for_embedding(self, given: Reading) -> Reading:
        """These options for another graph: those of its tables, changed by what is given.

        Which columns become features, and how, is settled by the training.
        """
        kept = self.model_copy(update=dict.fromkeys(("nodes", "label")))
        settled = {name: Reading.model_fields[name].default for name in SETTLED}
        changes = {name: getattr(given, name) for name in given.model_dump(exclude_defaults=True)}
        return kept.model_copy(update={**settled, **changes})


# How columns of tables are called, in any case.
ID_NAMES = ("id", "node", "node_id")
LABEL_NAMES = ("label", "y")

SETTLED = ("columns", "drop", "categorical", "feature_scaling")  # by the training
OF_NODES = (*SETTLED, "id", "label")
OF_TABLES = ("nodes", *OF_NODES, "source", "target", "weight", "encoding", "delimiter")
NO_READING = Reading()


class GraphSource(Config):
    """A data set's name, `mixed`, or the path of a file, with the options to read it."""

    graph: str = MIXED
    """Name or path."""
    reading: Reading = NO_READING
    """Options."""

    @classmethod
    def named(cls, graph: str, reading: Reading = NO_READING) -> GraphSource:
        """Check the name, and that the options mean something for it.

        A data set from outside is named as any process finds it, by `module:function`.
        """
        load = _loader(check_graph_name(graph))
        return cls(graph=reference_of(load) if load else graph, reading=reading).checked()

    def checked(self, data_dir: str | Path | None = None) -> GraphSource:
        """The same; options that mean nothing for a data set are refused."""
        given = set(self.reading.model_dump(exclude_defaults=True)) - {"features", "unweighted"}
        if given and (self.is_named or is_dataset(self.graph, data_dir)):
            raise SettingsError(
                f"{option_of(min(given))} belongs to a graph in files of yours. "
                f"Got it with {self.graph!r}."
            )
        return self

    @property
    def is_named(self) -> bool:
        """Whether it is a data set or the embedded graph, not a file of the user's."""
        return self.graph == MIXED or is_dataset(self.graph)

    @property
    def is_tables(self) -> bool:
        """Whether it is an edge table, perhaps with a node table."""
        return not self.is_named and Path(self.graph).suffix.lower() in TABLE_SUFFIXES

    @property
    def name(self) -> str:
        """A short name, for folders and titles."""
        if is_reference(self.graph) and self.is_named:
            return _outside.short_name(self.graph)
        return self.graph if self.is_named else Path(self.graph).stem

    @property
    def metric(self) -> Metric:
        """What its entry in the catalogue says; accuracy where it has none."""
        is_entry = self.graph in DATASETS or _user_entry(self.graph) is not None
        return dataset(self.graph).metric if is_entry else "accuracy"

    def absolute(self) -> GraphSource:
        """The same from any working directory."""
        if self.is_named:
            return self
        nodes = self.reading.nodes and str(Path(self.reading.nodes).absolute())
        reading = self.reading.model_copy(update={"nodes": nodes})
        return GraphSource(graph=str(Path(self.graph).absolute()), reading=reading)

    def unscaled(self) -> GraphSource:
        """The same with the numbers of a node table as they are."""
        reading = self.reading.model_copy(update={"feature_scaling": "none"})
        return GraphSource(graph=self.graph, reading=reading)

    def read(
        self, data_dir: str | Path | None = None, encoder: FeatureEncoder | None = None
    ) -> LabelledGraph:
        """The graph with its labels, if it has any.

        With the encoder of another graph its features are made as that one's were.
        """
        from aspect.data.features import with_made_features
        from aspect.data.synthetic import embedded_graph

        check_graph_name(self.graph, data_dir)
        kind = self.reading.features or (None if encoder is None else encoder.structural)
        if self.graph == MIXED:
            labelled = embedded_graph()
        elif is_dataset(self.graph, data_dir):
            labelled = load_named(self.graph, data_dir)
        else:
            labelled = self._read_file(Path(self.graph), encoder, kind)
        if self.reading.unweighted:
            labelled = replace(labelled, graph=labelled.graph.unweighted())
        if kind is None or (labelled.graph.encoder and labelled.graph.encoder.structural == kind):
            return labelled
        return replace(labelled, graph=with_made_features(labelled.graph, "", encoder, kind))

    def _read_file(
        self, path: Path, encoder: FeatureEncoder | None, kind: Structural | None
    ) -> LabelledGraph:
        from aspect.data.archives import read_npz
        from aspect.data.convert import read_saved
        from aspect.data.tables import read_tables

        suffix = path.suffix.lower()
        if suffix not in GRAPH_SUFFIXES:
            known, got = ", ".join(GRAPH_SUFFIXES), repr(self.graph)
            if suffix == ".gz":
                got += ". Unpack it: aspect store alone reads packed tables"
            elif is_folder(path):
                got += ", a folder. Of a store, train with: aspect train"
            raise FileError(f"A graph's file must end in {known}. Got {got}.")
        if suffix in TABLE_SUFFIXES:
            return read_tables(path, self.reading, encoder)
        given = self.reading.model_dump(exclude_defaults=True)
        stray = [option_of(name) for name in OF_TABLES if name in given]
        if self.reading.impute == "indicator":
            stray.append("--impute indicator")
        if stray:
            raise SettingsError(
                f"{stray[0]} belongs to an edge table ({', '.join(TABLE_SUFFIXES)}). "
                f"Got it with {self.graph!r}."
            )
        read = read_npz if suffix == ".npz" else read_saved
        return read(path, self.reading.model_copy(update={"features": kind}))


def option_of(name: str) -> str:
    """A field as the command line spells it."""
    return f"--{name.replace('_', '-')}"


def read_graph(
    graph: str | Path,
    /,
    *,
    data_dir: str | Path | None = None,
    nodes: str | Path | None = None,
    encoder: FeatureEncoder | None = None,
    **options: Any,  # noqa: ANN401 - fields of `Reading`
) -> LabelledGraph:
    """Read a data set by name, an `.npz`, an edge table (and its node table) or a saved PyG `Data`.

    A name of the catalogue always means that data set. Files of data sets lie in `data_dir`, else
    in `$ASPECT_DATA`. The fields of `Reading` explain the options. With an `encoder`, that of a
    graph or model, columns become features as they did there. What is cleaned is
    a warning.
    """
    from aspect.data.convert import changes_of

    values = {**options, "nodes": None if nodes is None else str(nodes)}
    reading = make_config(Reading, values, owner="the graph")
    source = GraphSource(graph=str(graph), reading=reading).checked(data_dir)
    labelled = source.read(data_dir, encoder)
    if changes := changes_of(labelled.graph):
        warn(" ".join(changes), GraphWarning)
    return labelled
