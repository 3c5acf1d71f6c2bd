"""Large mixed graphs: what the model says holds, the same at every call, also after a kill."""

from unittest.mock import Mock

import numpy as np
import pytest

from aspect.errors import FileError, GraphError, RunError
from aspect.scale import blocks, generate
from aspect.scale.generate import generate_store
from aspect.scale.options import MixedModel
from aspect.scale.store import GraphStore
from faults import contents, run_and_kill

MODEL = MixedModel(nodes=6000, edges=60_000, features=8, classes=3, signal=2.0)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return generate_store(MODEL, tmp_path_factory.mktemp("generated") / "store", 1000, seed=7)


def pairs(store):
    """Every entry of the adjacency."""
    parts = [store.adjacency(block) for block in range(len(store.blocks))]
    rows = np.repeat(np.arange(store.num_nodes), store.degrees)
    return rows, np.concatenate([part.neighbours for part in parts])


def test_sizes(store):
    assert (store.num_nodes, store.num_features, len(store.blocks)) == (6000, 8, 6)
    assert 0.97 * 60_000 < store.num_edges <= 60_000
    assert not [file for file in store.path.iterdir() if file.name.startswith("scratch")]
    store.verify()


def test_every_edge_stands_in_both_rows(store):
    rows, columns = pairs(store)
    assert set(zip(rows, columns, strict=True)) == set(zip(columns, rows, strict=True))
    assert (rows != columns).all()
    assert store.degrees.sum() == 2 * store.num_edges


def test_regions_are_pure_and_joined_by_bridges(store):
    rows, columns = pairs(store)
    labels, region = store.labels[:], store.region[:]
    np.testing.assert_array_equal(np.bincount(labels), [2000, 2000, 2000])
    np.testing.assert_array_equal(region, np.arange(6000) >= 3000)
    same = labels[rows] == labels[columns]
    inside = region[rows] == region[columns]
    for number, purity in enumerate((0.9, 0.1)):
        assert abs(same[inside & (region[rows] == number)].mean() - purity) < 0.02
    assert abs(1 - inside.mean() - 0.05) < 0.01


def test_degrees_follow_the_power_law(store):
    """For the exponent g, ranked degrees fall like rank^(-1 / (g - 1))."""
    ranked = np.sort(store.degrees)[::-1]
    ranks = np.array([30, 300])
    slope = np.diff(np.log(ranked[ranks])) / np.diff(np.log(ranks))
    assert abs(slope[0] + 1 / (MODEL.exponent - 1)) < 0.1
    counts = [len(store.adjacency(block).neighbours) for block in range(6)]
    assert max(counts) < 1.2 * min(counts)  # the hubs are spread over the blocks


def test_features_are_class_means_and_noise(store):
    labels, features = store.labels[:], store.features[:]
    means = np.stack([features[labels == label].mean(axis=0) for label in range(3)])
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), 2.0, atol=0.2)
    np.testing.assert_allclose((features - means[labels]).std(axis=0), 1.0, atol=0.05)


def test_the_share_of_heterophilic_nodes(tmp_path):
    one = generate_store(MODEL.model_copy(update={"heterophilic": 0.0}), tmp_path / "one")
    rows, columns = pairs(one)
    labels = one.labels[:]
    assert not one.region[:].any()
    assert abs((labels[rows] == labels[columns]).mean() - MODEL.purity) < 0.02


KILLED = """
from aspect.scale import blocks, generate
from aspect.scale.generate import generate_store
from aspect.scale.options import MixedModel

model = MixedModel(nodes=6000, edges=60_000, features=8, classes=3, signal=2.0)
generate_store(model, Path(sys.argv[2]), 1000, seed=7)
"""


@pytest.mark.parametrize("at_block", [5, 19, 26], ids=["features", "edges", "rows"])
def test_a_killed_call_goes_on_and_ends_in_the_same_bytes(store, tmp_path, at_block):
    path = tmp_path / "store"
    run_and_kill(KILLED, at_block, path)
    with pytest.raises(RunError, match="is not complete"):
        GraphStore.open(path)
    generate_store(MODEL, path, 1000, seed=7, memory_bytes=10_000)
    assert contents(path) == contents(store.path)


def test_seeds_differ(store, tmp_path):
    other = generate_store(MODEL, tmp_path / "store", 1000, seed=8)
    assert (other.features[:10] != store.features[:10]).all()
    assert other.digest != store.digest


@pytest.mark.parametrize(
    ("model", "sizes"),
    [(MixedModel(nodes=15), "7 and 8"), (MixedModel(nodes=100, heterophilic=0.99), "1 and 99")],
)
def test_too_few_nodes_are_refused(tmp_path, model, sizes):
    with pytest.raises(GraphError, match=f"at least 16 nodes, and 4 in each region .* {sizes}"):
        generate_store(model, tmp_path / "store")


@pytest.mark.parametrize("is_there", [False, True])
def test_a_disk_needs_room_for_sorting_too(tmp_path, monkeypatch, is_there):
    if is_there:
        (tmp_path / "store").mkdir()
    model = MixedModel(nodes=1_000, edges=2**17, features=4)
    free = 3 * 2**20  # 1 MiB of neighbours and 2 MiB of sorted edges, beside the nodes
    monkeypatch.setattr(blocks.shutil, "disk_usage", lambda _: Mock(free=free))
    with pytest.raises(FileError, match=r"needs 3\.02 MiB of disk, and 3\.00 MiB are free"):
        generate_store(model, tmp_path / "store")


def test_threads_write_the_bytes_of_one(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "EDGES_PER_RUN", 500)
    model = MixedModel(nodes=600, edges=3_000, features=4)
    found = []
    for threads in (1, 4):
        monkeypatch.setattr(blocks.os, "cpu_count", lambda threads=threads: threads)
        store = generate_store(model, tmp_path / str(threads), 50, memory_bytes=2**40)
        found.append((store.path / "manifest.json").read_bytes())
    assert found[0] == found[1]


def test_a_fault_in_a_thread_ends_the_call(tmp_path, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(generate._Groups, "pairs", fail)
    with pytest.raises(RunError, match="Out of memory while"):
        generate_store(MixedModel(nodes=600, edges=3_000, features=4), tmp_path / "store", 50)
