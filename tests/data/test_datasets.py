"""Data sets by name: where they are looked for, what is checked, and what a missing one answers."""

import os
from pathlib import Path

import numpy as np
import platformdirs
import pytest
import torch

from aspect.data import datasets
from aspect.data.catalogue import DATASETS, Dataset
from aspect.data.convert import as_labelled, to_data
from aspect.data.datasets import cache_dir, find, load_dataset, load_named
from aspect.data.graph import Graph
from aspect.data.labelling import label_graph
from aspect.data.npz import content_sha256, write_npz
from aspect.errors import DataError, FileError, UnknownNameError

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
        note="four nodes", pyg=("Planetoid", "Tiny"),
    )  # fmt: skip
    monkeypatch.setattr(datasets, "dataset", lambda _: entry)
    monkeypatch.setenv("ASPECT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASPECT_DATA", raising=False)
    monkeypatch.setattr(datasets, "_fetch", lambda *_: pytest.fail("the network was used"))
    return graph


def serve(monkeypatch, outcome):
    """Let the download give this graph, or fail with this error."""

    def fetch(*_):
        if isinstance(outcome, Exception):
            raise outcome
        return to_data(outcome)

    monkeypatch.setattr(datasets, "_fetch", fetch)


def test_unknown_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'squirrel'"):
        load_named("squirel")


def test_download_is_checked_kept_and_found_again(tiny, monkeypatch, tmp_path):
    serve(monkeypatch, tiny)
    assert content_sha256(load_named("tiny")) == content_sha256(tiny)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["tiny.npz"]
    serve(monkeypatch, OSError("the network is down"))
    assert content_sha256(load_named("tiny")) == content_sha256(tiny)


@pytest.mark.parametrize(
    "error", [OSError("no route to host"), TimeoutError(), RuntimeError("HTTP 404"), EOFError()]
)
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
    with pytest.raises(DataError, match=r"has 3 undirected edges \(got 2\)"):
        load_named("tiny")
    serve(monkeypatch, label_graph(tiny.graph, torch.tensor([0, 1, 1, 1])))
    with pytest.raises(DataError, match=r"sha256 of its content must be [0-9a-f]{64}\. Got"):
        load_named("tiny")
    assert not (tmp_path / "cache").exists()


def test_data_set_that_pyg_does_not_have(tmp_path, monkeypatch):
    monkeypatch.setenv("ASPECT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=r"Put cornell\.npz .*PyG offers no graph equal to it"):
        load_named("cornell", tmp_path)


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
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_, **__: "~/.cache/aspect")
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


@pytest.mark.data
@needs_data
def test_a_download_equals_the_published_file(tmp_path, monkeypatch):
    published = load_named("texas", DATA)
    monkeypatch.setenv("ASPECT_CACHE", str(tmp_path))
    monkeypatch.delenv("ASPECT_DATA")
    serve(monkeypatch, published)
    assert content_sha256(load_named("texas")) == content_sha256(published)
    assert content_sha256(load_named("texas")) == content_sha256(published)  # from the cache


@pytest.mark.data
@needs_data
def test_what_pyg_reads_from_the_raw_files_is_the_published_graph(tmp_path):
    """PyG's own reader, on raw files written here in the source's layout, so without a network."""
    data = load_dataset("texas", DATA)
    raw = tmp_path / "texas" / "raw"
    raw.mkdir(parents=True)
    rows = zip(data.x.int().tolist(), data.y.tolist(), strict=True)
    lines = [f"{k}\t{','.join(map(str, x))}\t{y}\n" for k, (x, y) in enumerate(rows)]
    (raw / "out1_node_feature_label.txt").write_text("header\n" + "".join(lines))
    pairs = [f"{a}\t{b}\n" for a, b in data.edge_index.T.tolist() if a < b]
    (raw / "out1_graph_edges.txt").write_text("header\n" + "".join(pairs))
    for k in range(10):
        masks = {name: data[name][:, k].numpy() for name in ("train_mask", "val_mask", "test_mask")}
        np.savez(raw / f"texas_split_0.6_0.2_{k}.npz", **masks)
    fetched = as_labelled(datasets._fetch(("WebKB", "Texas"), str(tmp_path)))
    assert content_sha256(fetched) == DATASETS["texas"].content_sha256
    torch.testing.assert_close(fetched.masks["test"], data.test_mask.T)
