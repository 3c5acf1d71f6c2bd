"""Data sets by name: the catalogue, where files are looked for, what is checked, new entries."""

import os
import re
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest
import torch
import yaml

from aspect.data import datasets, downloads
from aspect.data.archives import content_sha256, write_npz
from aspect.data.datasets import (
    DATASETS,
    Dataset,
    add_dataset,
    cache_dir,
    catalogue,
    dataset,
    find,
    load_dataset,
    load_named,
)
from aspect.data.graph import Graph, label_graph
from aspect.data.source import GraphSource, read_graph
from aspect.errors import AspectError, DataError, FileError, SettingsError, UnknownNameError

DATA = os.environ.get("ASPECT_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="ASPECT_DATA names no folder of data sets")


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data set of four nodes in the catalogue, an empty cache, and no network."""
    pairs = torch.tensor([[0, 1, 2], [1, 2, 3]])
    graph = label_graph(Graph.build(torch.eye(4), pairs), torch.tensor([0, 1, 0, 1]))
    entry = Dataset(
        name="tiny", num_nodes=4, num_edges=3, num_features=4, num_classes=2, num_splits=0,
        file_sha256="f" * 64, content_sha256=content_sha256(graph), source="here", licence="none",
        note="four nodes", download={"format": "planetoid", "name": "tiny"},
    )  # fmt: skip
    monkeypatch.setattr(datasets, "dataset", lambda *_: entry)
    monkeypatch.setenv("ASPECT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASPECT_DATA", raising=False)
    monkeypatch.setattr(platformdirs, "user_data_dir", lambda *_, **__: str(tmp_path / "home"))
    monkeypatch.setattr(downloads, "fetch", lambda *_: pytest.fail("the network was used"))
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
        "import sys; from aspect.data.datasets import dataset\n"
        "try: dataset('corra')\n"
        "except KeyError as error: print(error)\n"
        "assert not {'torch', 'numpy', 'pyarrow'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Unknown data set 'corra'. Did you mean 'cora'?" in done.stdout


def test_download_is_checked_kept_and_found_again(tiny, monkeypatch, tmp_path):
    serve(monkeypatch, tiny)
    assert content_sha256(load_named("tiny")) == content_sha256(tiny)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["tiny.npz"]
    serve(monkeypatch, OSError("the network is down"))
    assert content_sha256(load_named("tiny")) == content_sha256(tiny)


@pytest.mark.parametrize("error", [OSError("no route to host"), TimeoutError()])
@pytest.mark.usefixtures("tiny")
def test_failed_download_names_file_checksum_and_folder(monkeypatch, tmp_path, error):
    serve(monkeypatch, error)
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
    with pytest.raises(DataError, match=r"has 3 edges \(got 2\)"):
        load_named("tiny")
    serve(monkeypatch, label_graph(tiny.graph, torch.tensor([0, 1, 1, 1])))
    with pytest.raises(DataError, match=r"sha256 of its content must be [0-9a-f]{64}\. Got"):
        load_named("tiny")
    assert not (tmp_path / "cache").exists()


def test_file_with_another_checksum_is_refused(tiny, tmp_path):
    write_npz(tmp_path / "tiny.npz", tiny)
    with pytest.raises(DataError, match=f"sha256 must be {'f' * 64}. Got [0-9a-f]{{64}}"):
        load_named("tiny", tmp_path)


def test_folder_argument_goes_before_the_environment(tiny, tmp_path, monkeypatch):
    for name in ("given", "environment", "cache"):
        (tmp_path / name).mkdir()
        write_npz(tmp_path / name / "tiny.npz", tiny)
    assert find("tiny") == tmp_path / "cache" / "tiny.npz"
    monkeypatch.setenv("ASPECT_DATA", str(tmp_path / "environment"))
    assert find("tiny") == tmp_path / "environment" / "tiny.npz"
    assert find("tiny", tmp_path / "given") == tmp_path / "given" / "tiny.npz"


@pytest.mark.usefixtures("tiny")
def test_folder_that_is_none(tmp_path):
    for folder in (tmp_path / "missing", tmp_path / ("n" * 300), tmp_path / "nul\0"):
        with pytest.raises(FileError, match="--data-dir must be a folder"):
            load_named("tiny", folder)


@pytest.mark.usefixtures("tiny")
def test_loop_of_links_and_folder_in_place_of_the_file(tmp_path):
    (tmp_path / "tiny.npz").symlink_to(tmp_path / "tiny.npz")
    with pytest.raises(FileError, match="form a loop"):
        load_named("tiny", tmp_path)
    (tmp_path / "tiny.npz").unlink()
    (tmp_path / "tiny.npz").mkdir()
    with pytest.raises(FileError, match="Got a folder"):
        load_named("tiny", tmp_path)


def test_cache_that_cannot_be_written_does_not_hinder(tiny, monkeypatch, tmp_path, caplog):
    serve(monkeypatch, tiny)
    (tmp_path / "plain").write_text("a file")
    monkeypatch.setenv("ASPECT_CACHE", str(tmp_path / "plain" / "cache"))
    assert content_sha256(load_named("tiny")) == content_sha256(tiny)
    assert "is not kept for the next time" in caplog.text


def test_without_a_home_there_is_no_cache(tiny, monkeypatch, tmp_path):
    monkeypatch.delenv("ASPECT_CACHE")
    for kind in ("user_cache_dir", "user_data_dir"):
        monkeypatch.setattr(platformdirs, kind, lambda *_, **__: "~/.somewhere/aspect")
    monkeypatch.chdir(tmp_path)
    assert cache_dir() is None
    serve(monkeypatch, tiny)
    load_named("tiny")
    assert list(tmp_path.iterdir()) == []
    serve(monkeypatch, OSError("down"))
    with pytest.raises(DataError, match="a folder named by --data-dir or ASPECT_DATA"):
        load_named("tiny")


def test_odd_paths_are_ordinary(tiny, tmp_path, monkeypatch):
    folder = tmp_path / "mit Leerzeichen und 数据"
    monkeypatch.setenv("ASPECT_CACHE", str(folder))
    serve(monkeypatch, tiny)
    load_named("tiny")
    assert find("tiny") == folder / "tiny.npz"


def test_public_form_is_that_of_pyg(tiny, monkeypatch):
    serve(monkeypatch, tiny)
    data = load_dataset("tiny")
    assert data.x.dtype == torch.float32
    assert data.x.layout == torch.strided
    assert data.is_undirected()
    assert data.y.tolist() == [0, 1, 0, 1]


@pytest.mark.data
@needs_data
@pytest.mark.parametrize("name", sorted(DATASETS))
def test_published_files_hold_what_the_catalogue_says(name):
    labelled, entry = load_named(name), DATASETS[name]
    assert labelled.graph.num_nodes == entry.num_nodes
    assert labelled.graph.num_edges == entry.num_edges
    assert content_sha256(labelled) == entry.content_sha256
    assert bool(labelled.masks) == bool(entry.num_splits)


@pytest.mark.data
@needs_data
def test_cora_in_the_public_form():
    data = load_dataset("cora")
    assert data.x.shape == (2708, 1433)
    assert data.edge_index.shape == (2, 10556)
    for name in ("train_mask", "val_mask", "test_mask"):
        assert data[name].shape == (2708, 10)
    assert data.train_mask.sum(0).tolist() == [1192] * 10


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
def own(tmp_path, monkeypatch):
    """A graph with names and splits, and a folder for entries."""
    monkeypatch.setenv("ASPECT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ASPECT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(platformdirs, "user_data_dir", lambda *_, **__: str(tmp_path / "home"))
    nodes = torch.arange(6)
    graph = Graph.build(
        torch.rand(6, 2), torch.stack([nodes, nodes.roll(1)]), list("abcdef"),
        feature_names=["height", "width"],
    )  # fmt: skip
    masks = {"train": nodes < 2, "validation": nodes == 2, "test": nodes > 2}
    masks = {part: mask.unsqueeze(0) for part, mask in masks.items()}
    return label_graph(graph, nodes % 2, ["even", "odd"], masks)


def test_an_added_graph_is_a_data_set_like_any_other(own, tmp_path):
    entry = add_dataset("my-graph_1", own, source="Me, 2026", licence="CC0", note="Six nodes.")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "my-graph_1.npz", "my-graph_1.yaml"
    ]  # fmt: skip
    assert catalogue()["my-graph_1"] == dataset("my-graph_1") == entry
    assert (entry.num_nodes, entry.num_edges, entry.num_splits) == (6, 6, 1)
    source = GraphSource.named("my-graph_1")
    assert source.is_named
    assert source.absolute() == source
    for read in (load_named("my-graph_1"), read_graph("my-graph_1"), source.read()):
        assert content_sha256(read) == content_sha256(own)
        assert read.graph.ids == tuple("abcdef")
        assert read.graph.feature_names == ("height", "width")
        assert read.class_names == ("even", "odd")
        assert read.masks["test"].tolist() == own.masks["test"].tolist()


def test_an_entry_is_found_in_the_data_folder_without_the_environment(own, tmp_path, monkeypatch):
    monkeypatch.delenv("ASPECT_DATA")
    add_dataset("mine", own)
    assert find("mine") == tmp_path / "home" / "mine.npz"
    monkeypatch.setenv("ASPECT_DATA", str(tmp_path / "data"))
    assert load_named("mine").graph.num_nodes == 6


def test_an_entry_of_another_folder_is_found_there(own, tmp_path):
    add_dataset("mine", own, tmp_path / "elsewhere")
    assert "mine" not in catalogue()
    assert "mine" in catalogue(tmp_path / "elsewhere")
    assert load_named("mine", tmp_path / "elsewhere").graph.num_nodes == 6
    with pytest.raises(UnknownNameError):
        load_named("mine")


@pytest.mark.parametrize("name", ["cora", "mixed", "Mine", "../mine", "a b", "", "-x", "x" * 65])
def test_names_that_are_taken_or_none_are_refused(own, tmp_path, name):
    with pytest.raises(SettingsError, match="must be new and made of"):
        add_dataset(name, own)
    assert not (tmp_path / "data").exists()


def test_an_entry_is_replaced_only_when_asked(own):
    add_dataset("mine", own)
    with pytest.raises(FileError, match=r"mine\.npz' exists\. Pass --overwrite"):
        add_dataset("mine", own)
    assert add_dataset("mine", own, note="again", overwrite=True).note == "again"


def test_an_entry_does_not_replace_a_data_set_of_the_package(own, tmp_path):
    add_dataset("mine", own)
    (tmp_path / "data" / "mine.yaml").rename(tmp_path / "data" / "cora.yaml")
    assert dataset("cora") == DATASETS["cora"]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"file_sha256": "0" * 64}, "its sha256 must be 000"),
        ({"content_sha256": "0" * 64}, "the sha256 of its content must be 000"),
        ({"splits_sha256": "0" * 64}, "the sha256 of its splits must be 000"),
        ({"num_edges": 7}, r"which has 7 edges \(got 6\)"),
        ({"colour": "red"}, "Unknown setting 'colour'"),
        ({"num_nodes": "many"}, "must be a valid integer"),
    ],
)
def test_an_edited_entry_is_refused(own, tmp_path, changed, sentence):
    add_dataset("mine", own)
    file = tmp_path / "data" / "mine.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | changed))
    with pytest.raises(AspectError, match=sentence):
        load_named("mine")


def test_an_entry_without_its_file_says_what_is_missing(own, tmp_path):
    add_dataset("mine", own)
    (tmp_path / "data" / "mine.npz").unlink()
    with pytest.raises(DataError, match=r"Put mine\.npz .*No source offers it for download"):
        load_named("mine")
