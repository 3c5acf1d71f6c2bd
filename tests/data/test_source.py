"""Where graphs come from: the catalogue and its files, new entries, and the user's own files."""

import os
import random
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import platformdirs
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
import yaml

from aspect.data import downloads, source
from aspect.data.archives import content_sha256, write_npz
from aspect.data.graph import Graph, label_graph
from aspect.data.source import (
    DATASETS,
    Dataset,
    GraphSource,
    add_dataset,
    cache_dir,
    catalogue,
    dataset,
    find,
    load_dataset,
    load_named,
    read_graph,
)
from aspect.errors import AspectError, DataError, FileError, SettingsError, UnknownNameError

DATA = os.environ.get("ASPECT_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="ASPECT_DATA names no folder of data sets")


@pytest.fixture
def homes(tmp_path, monkeypatch):
    """Empty folders of the user, and no network."""
    monkeypatch.setenv("ASPECT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASPECT_DATA", raising=False)
    monkeypatch.setattr(platformdirs, "user_data_dir", lambda *_, **__: str(tmp_path / "home"))
    monkeypatch.setattr(downloads, "fetch", lambda *_: pytest.fail("the network was used"))


@pytest.fixture
def tiny(homes, monkeypatch):  # noqa: ARG001 - a fixture
    """A data set of four nodes in the catalogue."""
    pairs = torch.tensor([[0, 1, 2], [1, 2, 3]])
    graph = label_graph(Graph.build(torch.eye(4), pairs), torch.tensor([0, 1, 0, 1]))
    entry = Dataset(
        name="tiny", num_nodes=4, num_edges=3, num_features=4, num_classes=2, num_splits=0,
        file_sha256="f" * 64, content_sha256=content_sha256(graph), source="here", licence="none",
        note="four nodes", download={"format": "planetoid", "name": "tiny"},
    )  # fmt: skip
    monkeypatch.setattr(source, "dataset", lambda *_: entry)
    return graph


def serve(monkeypatch, outcome):
    """Let the download give this graph, or fail with this error."""

    def fetch(*_):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(downloads, "fetch", fetch)


def test_every_entry_is_complete():
    for name, entry in DATASETS.items():
        assert entry.name == name
        assert re.fullmatch("[0-9a-f]{64}", entry.file_sha256)
        assert re.fullmatch("[0-9a-f]{64}", entry.content_sha256)
        assert min(entry.num_nodes, entry.num_edges, entry.num_features, entry.num_classes) > 0
        assert (entry.splits_sha256 is None) == (entry.num_splits == 0)
        assert entry.source
        assert entry.note
    assert len({entry.content_sha256 for entry in DATASETS.values()}) == len(DATASETS)


def test_a_wrong_name_is_answered_without_heavy_packages():
    code = (
        "import sys; from aspect.data.source import dataset\n"
        "try: dataset('corra')\n"
        "except KeyError as error: print(error)\n"
        "assert not {'torch', 'numpy', 'pyarrow'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Unknown data set 'corra'. Did you mean 'cora'?" in done.stdout


def test_download_is_checked_kept_and_found_again(tiny, monkeypatch, tmp_path):
    folder = tmp_path / "mit Leerzeichen und 数据"
    monkeypatch.setenv("ASPECT_CACHE", str(folder))
    serve(monkeypatch, tiny)
    assert content_sha256(load_named("tiny")) == content_sha256(tiny)
    assert [path.name for path in folder.iterdir()] == ["tiny.npz"]
    serve(monkeypatch, OSError("the network is down"))
    assert content_sha256(load_named("tiny")) == content_sha256(tiny)
    data = load_dataset("tiny")  # in the form of PyG
    assert (data.x.dtype, data.x.layout) == (torch.float32, torch.strided)
    assert data.is_undirected()
    assert data.y.tolist() == [0, 1, 0, 1]


@pytest.mark.usefixtures("tiny")
def test_failed_download_names_file_checksum_and_folder(monkeypatch, tmp_path):
    serve(monkeypatch, TimeoutError())
    with pytest.raises(DataError) as info:
        load_named("tiny", tmp_path)
    sentence = str(info.value)
    assert "Put tiny.npz (sha256 " + "f" * 64 + ")" in sentence
    assert str(tmp_path) in sentence
    assert "Downloading it failed" in sentence
    assert not (tmp_path / "cache").exists()


def test_wrong_download_is_refused_and_not_kept(tiny, monkeypatch, tmp_path):
    graph = Graph.build(torch.eye(4), torch.tensor([[0, 1], [1, 2]]))
    serve(monkeypatch, label_graph(graph, tiny.labels))
    with pytest.raises(DataError, match=r"its number of edges must be 3\. Got 2"):
        load_named("tiny")
    serve(monkeypatch, label_graph(tiny.graph, torch.tensor([0, 1, 1, 1])))
    with pytest.raises(DataError, match=r"its content sha256 must be [0-9a-f]{64}\. Got"):
        load_named("tiny")
    assert not (tmp_path / "cache").exists()


def test_folder_argument_goes_before_the_environment(tiny, tmp_path, monkeypatch):
    for name in ("given", "environment", "cache"):
        (tmp_path / name).mkdir()
        write_npz(tmp_path / name / "tiny.npz", tiny)
    assert find("tiny") == tmp_path / "cache" / "tiny.npz"
    monkeypatch.setenv("ASPECT_DATA", str(tmp_path / "environment"))
    assert find("tiny") == tmp_path / "environment" / "tiny.npz"
    assert find("tiny", tmp_path / "given") == tmp_path / "given" / "tiny.npz"
    with pytest.raises(DataError, match=f"sha256 must be {'f' * 64}. Got [0-9a-f]{{64}}"):
        load_named("tiny", tmp_path / "given")


@pytest.mark.usefixtures("tiny")
def test_places_that_cannot_be_read(tmp_path):
    for folder in (tmp_path / "missing", tmp_path / ("n" * 300), tmp_path / "nul\0"):
        with pytest.raises(FileError, match="--data-dir must be a folder"):
            load_named("tiny", folder)
    (tmp_path / "tiny.npz").symlink_to(tmp_path / "tiny.npz")
    with pytest.raises(FileError, match="form a loop"):
        load_named("tiny", tmp_path)
    (tmp_path / "tiny.npz").unlink()
    (tmp_path / "tiny.npz").mkdir()
    with pytest.raises(FileError, match="Got a folder"):
        load_named("tiny", tmp_path)


def test_a_cache_that_is_none_does_not_hinder(tiny, monkeypatch, tmp_path, caplog):
    serve(monkeypatch, tiny)
    (tmp_path / "plain").write_text("a file")
    monkeypatch.setenv("ASPECT_CACHE", str(tmp_path / "plain" / "cache"))
    assert content_sha256(load_named("tiny")) == content_sha256(tiny)
    assert "is not kept for the next time" in caplog.text
    monkeypatch.delenv("ASPECT_CACHE")
    for kind in ("user_cache_dir", "user_data_dir"):  # without a home
        monkeypatch.setattr(platformdirs, kind, lambda *_, **__: "~/.somewhere/aspect")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert cache_dir() is None
    load_named("tiny")
    assert list((tmp_path / "work").iterdir()) == []
    serve(monkeypatch, OSError("down"))
    with pytest.raises(DataError, match="a folder named by --data-dir or ASPECT_DATA"):
        load_named("tiny")


@pytest.mark.data
@needs_data
def test_published_files_hold_what_the_catalogue_says():
    for name, entry in DATASETS.items():
        labelled = load_named(name)  # compared with the entry when it is read
        assert bool(labelled.masks) == bool(entry.num_splits)


@pytest.mark.data
@needs_data
def test_cora_in_the_public_form_and_texas_by_its_name():
    data = load_dataset("cora")
    assert data.x.shape == (2708, 1433)
    assert data.edge_index.shape == (2, 10556)
    for name in ("train_mask", "val_mask", "test_mask"):
        assert data[name].shape == (2708, 10)
    assert data.train_mask.sum(0).tolist() == [1192] * 10
    assert read_graph("texas", data_dir=DATA, features="degree").graph.num_features < 10


@pytest.mark.data
@needs_data
def test_one_changed_byte_is_refused(tmp_path):
    content = bytearray((Path(DATA) / "texas.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "texas.npz").write_bytes(content)
    with pytest.raises(DataError, match=DATASETS["texas"].file_sha256):
        load_named("texas", tmp_path)


# Entries of the user's own


@pytest.fixture
def labelled(homes, tmp_path, monkeypatch):  # noqa: ARG001 - a fixture
    """A graph with names and splits, and a folder for entries."""
    monkeypatch.setenv("ASPECT_DATA", str(tmp_path / "data"))
    nodes = torch.arange(6)
    graph = Graph.build(
        torch.rand(6, 2), torch.stack([nodes, nodes.roll(1)]), list("abcdef"),
        feature_names=["height", "width"],
    )  # fmt: skip
    masks = {"train": nodes < 2, "validation": nodes == 2, "test": nodes > 2}
    masks = {part: mask.unsqueeze(0) for part, mask in masks.items()}
    return label_graph(graph, nodes % 2, ["even", "odd"], masks)


def test_an_added_graph_is_a_data_set_like_any_other(labelled, tmp_path):
    entry = add_dataset("my-graph_1", labelled, source="Me, 2026", licence="CC0", note="Six nodes.")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "my-graph_1.npz", "my-graph_1.yaml"
    ]  # fmt: skip
    assert catalogue()["my-graph_1"] == dataset("my-graph_1") == entry
    assert (entry.num_nodes, entry.num_edges, entry.num_splits) == (6, 6, 1)
    named = GraphSource.named("my-graph_1")
    assert named.is_named
    assert named.absolute() == named
    read = named.read()
    assert content_sha256(read) == content_sha256(labelled)
    assert read.graph.ids == tuple("abcdef")
    assert read.graph.feature_names == ("height", "width")
    assert read.class_names == ("even", "odd")
    assert read.masks["test"].tolist() == labelled.masks["test"].tolist()


def test_where_entries_are_looked_for(labelled, tmp_path, monkeypatch):
    add_dataset("there", labelled, tmp_path / "elsewhere")
    assert "there" not in catalogue()
    assert "there" in catalogue(tmp_path / "elsewhere")
    assert load_named("there", tmp_path / "elsewhere").graph.num_nodes == 6
    assert read_graph("there", data_dir=tmp_path / "elsewhere").graph.ids == tuple("abcdef")
    with pytest.raises(SettingsError, match="--label belongs to a graph in files of yours"):
        read_graph("there", data_dir=tmp_path / "elsewhere", label="y")
    with pytest.raises(UnknownNameError):
        load_named("there")
    monkeypatch.delenv("ASPECT_DATA")
    add_dataset("mine", labelled)
    monkeypatch.setenv("ASPECT_DATA", str(tmp_path / "data"))
    assert find("mine") == tmp_path / "home" / "mine.npz"


def test_names_that_are_taken_or_none_are_refused(labelled, tmp_path):
    for name in ("cora", "mixed", "Mine", "../mine", "", "x" * 65):
        with pytest.raises(SettingsError, match="must be new and made of"):
            add_dataset(name, labelled)
    assert not (tmp_path / "data").exists()


def test_an_entry_is_replaced_only_when_asked(labelled, tmp_path):
    add_dataset("mine", labelled)
    with pytest.raises(FileError, match=r"mine\.npz' exists\. Pass --overwrite"):
        add_dataset("mine", labelled)
    assert add_dataset("mine", labelled, note="again", overwrite=True).note == "again"
    (tmp_path / "data" / "mine.yaml").rename(tmp_path / "data" / "cora.yaml")
    assert dataset("cora") == DATASETS["cora"]  # the package's own stay what they are


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"content_sha256": "0" * 64}, "its content sha256 must be 000"),
        ({"splits_sha256": "0" * 64}, "its splits sha256 must be 000"),
        ({"num_edges": 7}, r"its number of edges must be 7\. Got 6"),
        ({"colour": "red"}, "Unknown setting 'colour'"),
    ],
)
def test_an_edited_entry_is_refused(labelled, tmp_path, changed, sentence):
    add_dataset("mine", labelled)
    file = tmp_path / "data" / "mine.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | changed))
    with pytest.raises(AspectError, match=sentence):
        load_named("mine")


def test_an_entry_without_its_file_says_what_is_missing(labelled, tmp_path):
    add_dataset("mine", labelled)
    (tmp_path / "data" / "mine.npz").unlink()
    with pytest.raises(DataError, match=r"Put mine\.npz .*No source offers it for download"):
        load_named("mine")


# Files of the user


def test_options_reach_the_files(tmp_path):
    (tmp_path / "e.txt").write_bytes("a;b\né;n\n".encode("latin-1"))
    (tmp_path / "n.txt").write_bytes("id;x;kind\né;1;p\nn;;q\n".encode("latin-1"))
    options = {"nodes": tmp_path / "n.txt", "encoding": "latin-1", "delimiter": ";"}
    read = read_graph(tmp_path / "e.txt", **options, label="kind", impute="mean")
    assert read.graph.ids == ("é", "n")
    assert read.class_names == ("p", "q")
    assert read.graph.features.tolist() == [[1], [1]]
    write_npz(tmp_path / "my graph.npz", read)
    assert content_sha256(read_graph(tmp_path / "my graph.npz")) == content_sha256(read)
    assert read_graph(str(tmp_path / "my graph.npz"), features="random").graph.num_features == 32
    with pytest.raises(SettingsError, match=r"must be 'symmetrise' or 'error'\. Got 'yes'"):
        read_graph(tmp_path / "e.txt", directed="yes")
    with pytest.raises(SettingsError, match=r"'features' of the graph .*'laplacian'\. Got 'eigen'"):
        read_graph(tmp_path / "e.txt", features="eigen")
    with pytest.raises(SettingsError, match=r"--impute belongs to a graph in files of yours"):
        GraphSource.named("cora", source.Reading(impute="zero"))


@pytest.mark.parametrize(
    ("graph", "kind", "sentence"),
    [
        ("corra", UnknownNameError, r"'corra'\. Did you mean 'cora'\? Known: actor"),
        ("", UnknownNameError, "Known: actor"),
        ("n" * 300, UnknownNameError, "Known: actor"),
        ("graph.xlsx", FileError, r"must end in \.npz, \.csv, \.tsv, .*Got 'graph\.xlsx'"),
        ("folder/graph", FileError, "must end in"),
        ("edges.csv.gz", FileError, r"Got 'edges\.csv\.gz'\. Unpack it: aspect store alone"),
        (
            ".",
            FileError,
            r"must end in .*, a folder\. Of a store, train with: aspect train\.",
        ),
        ("missing.csv", FileError, r"Cannot read 'missing\.csv': there is no such file"),
        ("n" * 300 + ".npz", FileError, "the path is too long"),
        ("nul\0.csv", FileError, "Cannot read"),
    ],
)
def test_sources_that_are_none(graph, kind, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=sentence):
        read_graph(graph)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", [{"columns": "age"}, {"nodes": "nodes.csv"}, {"impute": "mean"}])
def test_options_of_files_are_refused_beside_a_name(option):
    with pytest.raises(SettingsError, match="belongs to a graph in files of yours"):
        read_graph("mixed", **option)
    assert read_graph("mixed", features="degree").graph.num_nodes == 900


def test_a_folder_may_be_named_without_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "st").mkdir()
    assert source.check_graph_name("st") == "st"
    with pytest.raises(UnknownNameError):
        source.check_graph_name("stt")


def damage(content, draw):
    """The same bytes with a few changed, inserted or taken out."""
    damaged = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(damaged) + 1)
        stray = draw.choice([b"\0", b"\xff", b'"', b",", b"\n", b"\r", b"-", b"\xe9", b""])
        damaged[place : place + draw.randint(0, 3)] = stray
    return bytes(damaged)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_damaged_files_never_give_a_raw_error(kind, tmp_path):
    """A hundred damaged files: each is read, or answered by one of our sentences."""
    edges, nodes = tmp_path / f"edges.{kind}", tmp_path / f"nodes.{kind}"
    if kind == "csv":
        edges.write_text('source,target\na,b\nb,"c\nd"\n')
        nodes.write_text('id,x,label\na,1,u\nb,2e3,v\n"c\nd",3,u\n')
    else:
        pa.parquet.write_table(pa.table({"source": ["a", "b"], "target": ["b", "c"]}), edges)
        rows = {"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0], "y": [1, 2, 1]}
        pa.parquet.write_table(pa.table(rows), nodes)
    draw = random.Random(0)  # noqa: S311 - no secret
    for victim in (edges, nodes):
        whole = victim.read_bytes()
        for _ in range(50):
            victim.write_bytes(damage(whole, draw))
            with suppress(AspectError):
                read_graph(edges, nodes=nodes)
        victim.write_bytes(whole)
