"""Bases out of core are those of the graph in memory; a killed run ends in the same bytes."""

import os

import numpy as np
import pytest
import scipy.sparse
import torch

from aspect.data.features import dense, row_normalise
from aspect.data.graph import Graph
from aspect.data.operators import Propagation
from aspect.data.synthetic import mixed_graph
from aspect.errors import FileError, RunError, SettingsError
from aspect.nn.filters import chebyshev_basis
from aspect.scale import blocks
from aspect.scale.bases import (
    Bases,
    BasisSettings,
    compute_bases,
    kept_entries,
    propagate_block,
)
from aspect.scale.held_bases import DeviceGraph
from aspect.scale.store import GraphStore
from faults import contents, run_and_kill

PLAIN = BasisSettings(order=4, dtype="float64")


@pytest.fixture(scope="module")
def graph():
    """With weights and nodes that have no edge."""
    drawn = mixed_graph(120, num_features=6, seed=1).graph
    kept = (drawn.edge_index < 115).all(dim=0)
    pairs = drawn.edge_index[:, kept]
    weights = 0.5 + ((pairs[0] + pairs[1]) % 7).double()
    # The store keeps float32: rounded numbers are the same in both.
    return Graph.build(dense(drawn.features).float().double(), pairs, weights=weights)


@pytest.fixture
def store(graph, tmp_path):
    return GraphStore.from_graph(graph, tmp_path / "store", rows_per_block=50)


def reference(graph, settings, keep=None):
    """The terms in memory, in float64."""
    features = row_normalise(graph.features) if settings.row_normalise else graph.features
    propagation = Propagation(graph, self_loops=settings.self_loops, lambda_max=settings.lambda_max)
    operator = propagation.operator(keep)
    return torch.stack(list(chebyshev_basis(operator, dense(features), settings.order))).numpy()


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("rescaled", [(2.0, True), (1.5, False)])
@pytest.mark.parametrize("memory_bytes", [2**30, 2000], ids=["held", "gathered"])
def test_terms_are_those_in_memory(store, graph, tmp_path, self_loops, rescaled, memory_bytes):
    lambda_max, row_normalise = rescaled
    settings = BasisSettings(
        order=4,
        self_loops=self_loops,
        lambda_max=lambda_max,
        row_normalise=row_normalise,
        dtype="float64",
    )
    bases = compute_bases(store, tmp_path / "bases", settings, memory_bytes=memory_bytes)
    np.testing.assert_allclose(bases.rows(slice(0, 120)), reference(graph, settings), atol=1e-12)
    numbers = np.array([119, 0, 60])
    np.testing.assert_array_equal(bases.rows(numbers), bases.rows(slice(0, 120))[:, numbers])
    assert (bases.facts.settings.order, bases.projection) == (4, None)
    bases.verify()


def test_the_memory_bound_changes_no_bit(store, tmp_path):
    settings = BasisSettings(order=3, edge_drop=0.3)
    held = compute_bases(store, tmp_path / "held", settings)
    gathered = compute_bases(store, tmp_path / "gathered", settings, memory_bytes=1)
    assert contents(held.path) == contents(gathered.path)


@pytest.mark.parametrize(("dtype", "within"), [("float32", 1e-5), ("float16", 5e-3)])
def test_narrow_numbers_are_close(store, graph, tmp_path, dtype, within):
    bases = compute_bases(store, tmp_path / "bases", BasisSettings(order=4, dtype=dtype))
    assert bases.terms[0].dtype == dtype
    np.testing.assert_allclose(bases.rows(slice(0, 120)), reference(graph, PLAIN), atol=within)


def test_dropped_edges_are_gone_in_both_directions_and_from_the_degrees(store, graph, tmp_path):
    settings = BasisSettings(order=3, edge_drop=0.4, view_seed=5, dtype="float64")
    bases = compute_bases(store, tmp_path / "bases", settings)
    rows, columns = graph.edge_index
    is_low = rows < columns
    kept = kept_entries(rows[is_low], columns[is_low], 0.4, 5)  # in the order of the edge keys
    assert 0.25 < 1 - kept.double().mean() < 0.55
    expected = reference(graph, settings, kept.double())
    np.testing.assert_allclose(bases.rows(slice(0, 120)), expected, atol=1e-12)


def test_edges_are_dropped_at_the_rate_whatever_the_direction():
    drawn = np.random.default_rng(0)
    rows, columns = torch.from_numpy(drawn.integers(0, 10**6, (2, 200_000)))
    kept = kept_entries(rows, columns, 0.3, 1)
    assert torch.equal(kept, kept_entries(columns, rows, 0.3, 1))
    assert abs(kept.double().mean() - 0.7) < 0.005  # four standard deviations
    other = kept_entries(rows, columns, 0.3, 2)
    assert abs((kept & other).double().mean() - 0.49) < 0.006  # independent
    assert kept_entries(rows, columns, 0.0, 1).all()


def test_views_of_other_seeds_differ_but_in_their_features(store, tmp_path):
    first, second = (
        compute_bases(
            store, tmp_path / str(seed), BasisSettings(order=1, edge_drop=0.3, view_seed=seed)
        ).rows(slice(0, 120))
        for seed in (0, 1)
    )
    np.testing.assert_array_equal(first[0], second[0])
    assert (first[1] != second[1]).any()


def test_shuffled_features_are_a_permutation(store, tmp_path):
    settings = BasisSettings(order=1, row_normalise=False, shuffled=True)
    rows = compute_bases(store, tmp_path / "bases", settings).terms[0][:]
    features = store.features[:]
    assert (rows != features).any()
    np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(features, axis=0))


def test_a_random_projection_is_the_same_at_every_call(store, tmp_path):
    settings = BasisSettings(
        order=1, projection="gaussian", width=4, row_normalise=False, dtype="float64"
    )
    first = compute_bases(store, tmp_path / "first", settings)
    second = compute_bases(store, tmp_path / "second", settings)
    np.testing.assert_array_equal(first.projection, second.projection)
    expected = store.features[:].astype(float) @ first.projection
    np.testing.assert_allclose(first.terms[0][:], expected, atol=1e-12)


def test_a_fitted_projection_keeps_the_most(store, tmp_path):
    settings = BasisSettings(order=1, projection="svd", width=3, dtype="float64")
    bases = compute_bases(store, tmp_path / "bases", settings)
    features = row_normalise(torch.from_numpy(store.features[:]).double()).numpy()
    singular = np.linalg.svd(features, compute_uv=False)
    np.testing.assert_allclose(bases.projection.T @ bases.projection, np.eye(3), atol=1e-9)
    kept = np.linalg.norm(bases.terms[0][:], axis=0)
    np.testing.assert_allclose(kept, singular[:3], rtol=1e-9)


def test_impossible_projections_are_refused(store, tmp_path):
    with pytest.raises(SettingsError, match="A projection and its width go together"):
        compute_bases(store, tmp_path / "bases", BasisSettings(projection="svd"))
    with pytest.raises(SettingsError, match="at most the 6 columns"):
        compute_bases(store, tmp_path / "bases", BasisSettings(projection="svd", width=7))


def test_one_block_is_a_function_of_what_it_is_given(store, graph):
    """By a dense product."""
    start, end = store.blocks[1]
    drawn = np.random.default_rng(0)
    scales, previous = drawn.random(120), drawn.random((120, 3))
    before = drawn.random((end - start, 3))
    settings = BasisSettings(self_loops=True, lambda_max=1.6)
    rows = propagate_block(
        store.adjacency(1), (start, end), scales, previous, previous[start:end], before, settings
    )
    adjacency = scipy.sparse.coo_array(
        (graph.weights.numpy(), tuple(graph.edge_index.numpy())), (120, 120)
    ).toarray()
    smooth = scales[:, None] * (adjacency + np.eye(120)) * scales
    laplacian = (2 / 1.6 - 1) * np.eye(120) - 2 / 1.6 * smooth
    expected = 2 * (laplacian @ previous)[start:end] - before
    np.testing.assert_allclose(rows, expected, atol=1e-9)


# Faults


KILLED = """
from aspect.scale.bases import BasisSettings, compute_bases
from aspect.scale.store import GraphStore

compute_bases(GraphStore.open(Path(sys.argv[2])), Path(sys.argv[3]), BasisSettings(order=3))
"""


def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(store, tmp_path, monkeypatch):
    whole = compute_bases(store, tmp_path / "whole", BasisSettings(order=3))
    path = tmp_path / "killed"
    run_and_kill(KILLED, 12, store.path, path)
    with pytest.raises(RunError, match="no complete Chebyshev bases"):
        Bases.open(path)
    with (path / "blocks.jsonl").open("ab") as journal:
        journal.write(b'{"name":"term3')  # torn
    written = []
    write = blocks.BlockFolder.write
    monkeypatch.setattr(
        blocks.BlockFolder,
        "write",
        lambda folder, name, *rest, **counts: (
            written.append(name),
            write(folder, name, *rest, **counts),
        ),
    )
    resumed = compute_bases(store, path, BasisSettings(order=3))
    assert contents(resumed.path) == contents(whole.path)
    assert len(written) == 15 - 11  # three blocks of four terms and of the scales
    compute_bases(store, path, BasisSettings(order=3))
    assert len(written) == 4
    with pytest.raises(RunError, match="was begun with other input or settings"):
        compute_bases(store, path, BasisSettings(order=2))


def test_a_full_disk_says_what_to_lower(store, tmp_path, monkeypatch):
    sizes = iter([0] * 4)
    fsync = os.fsync

    def full(handle):
        if next(sizes, None) is None:
            raise OSError(28, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        FileError, match=r"the disk is full\. Free some space, take float16"
    ) as told:
        compute_bases(store, tmp_path / "bases", BasisSettings(order=3))
    assert str(told.value).endswith("The same command then goes on.")
    monkeypatch.undo()
    bases = compute_bases(store, tmp_path / "bases", BasisSettings(order=3))
    whole = compute_bases(store, tmp_path / "whole", BasisSettings(order=3))
    assert contents(bases.path) == contents(whole.path)


def test_a_lack_of_memory_says_what_to_lower(store, tmp_path, monkeypatch):
    def lacking(*_, **__):
        raise MemoryError

    monkeypatch.setattr("aspect.scale.bases.propagate_block", lacking)
    with pytest.raises(RunError, match=r"Out of memory while .*bases was filled\. Lower --memory"):
        compute_bases(store, tmp_path / "bases", BasisSettings(order=3))
    monkeypatch.undo()
    compute_bases(store, tmp_path / "bases", BasisSettings(order=3)).verify()


def test_a_disk_without_room_is_refused_beforehand(store, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 99}))
    with pytest.raises(FileError, match=r"needs 0\.01 MiB of disk, and 0\.00 MiB are free"):
        compute_bases(store, tmp_path / "bases", BasisSettings(order=3))
    assert not (tmp_path / "bases").exists()


def test_a_changed_block_is_named(store, tmp_path):
    bases = compute_bases(store, tmp_path / "bases", BasisSettings(order=1))
    file = bases.path / "term1-00002.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(RunError, match=r"term1-00002\.npy is damaged"):
        bases.verify()


@pytest.mark.parametrize("wrong", [-1, 120, 2**31 - 1])
def test_a_damaged_store_is_refused_before_it_is_read_beyond_its_rows(store, tmp_path, wrong):
    file = store.path / "neighbours-00001.npy"
    numbers = np.load(file)
    numbers[3] = wrong
    np.save(file, numbers)
    told = r"neighbours must be nodes 0 to 119\. Got others\. `aspect store STORE` names the block"
    with pytest.raises(RunError, match=told):
        compute_bases(store, tmp_path / "bases", BasisSettings(order=1))
    with pytest.raises(RunError, match=told):
        DeviceGraph(store, BasisSettings(order=1), torch.device("cpu"))


@pytest.mark.gpu
def test_a_gpu_computes_the_same(store, tmp_path):
    cpu = compute_bases(store, tmp_path / "cpu", PLAIN).rows(slice(0, 120))
    for memory_bytes in (2**30, 2000):
        path = tmp_path / str(memory_bytes)
        gpu = compute_bases(store, path, PLAIN, memory_bytes=memory_bytes, device="cuda")
        np.testing.assert_allclose(gpu.rows(slice(0, 120)), cpu, atol=1e-10)
