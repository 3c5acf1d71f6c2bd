"""Edges sorted out of core are those that `Graph.build` makes in memory."""

import numpy as np
import pytest
import torch

from aspect.data.graph import clean_edges
from aspect.errors import GraphError
from aspect.scale.blocks import BlockFolder
from aspect.scale.sorting import merge_runs, write_run
from aspect.scale.store import STORE

NODES = 50


@pytest.fixture
def folder(tmp_path):
    with BlockFolder.open(tmp_path / "store", STORE, {}, "Lower something.") as opened:
        yield opened


def drawn_pairs(count, seed=0):
    return np.random.default_rng(seed).integers(0, NODES, (2, count))


def merged(folder, pairs, weights=None, *, runs=3, memory_bytes=2**20):
    """All rows by way of so many runs, and the counts."""
    parts = np.array_split(np.arange(pairs.shape[1]), runs)
    for k, part in enumerate(parts):
        chosen = None if weights is None else weights[part]
        write_run(folder, f"run-{k}", *pairs[:, part], NODES, chosen)
    return merge_runs(
        folder,
        [f"run-{k}" for k in range(runs)],
        NODES,
        20,
        is_weighted=weights is not None,
        memory_bytes=memory_bytes,
    )


def entries(folder, weighted=False):
    """Rows, columns and stored weights of all blocks."""
    found = []
    for block, start in enumerate((0, 20, 40)):
        pointers = folder.read(f"pointers-{block:05d}.npy")
        rows = np.repeat(start + np.arange(len(pointers) - 1), np.diff(pointers))
        columns = folder.read(f"neighbours-{block:05d}.npy")
        values = folder.read(f"weights-{block:05d}.npy") if weighted else np.ones(len(rows))
        found.append(np.stack([rows, columns, values]))
    return np.concatenate(found, axis=1)


@pytest.mark.parametrize("memory_bytes", [2**20, 500, 1], ids=["at once", "halves", "row by row"])
@pytest.mark.parametrize("runs", [1, 4])
def test_rows_are_those_in_memory(folder, runs, memory_bytes):
    pairs = drawn_pairs(700)
    counts = merged(folder, pairs, runs=runs, memory_bytes=memory_bytes)
    expected, _, notices = clean_edges(torch.from_numpy(pairs), None, NODES)
    np.testing.assert_array_equal(entries(folder)[:2], expected.numpy())
    assert counts.num_edges == expected.shape[1] // 2
    assert counts.weight_scale is None
    assert f"{counts.loops} self-loops" in notices[0]
    assert f"{counts.duplicates} duplicate" in notices[1]
    assert f"{counts.missing} edges had no reverse" in notices[2]


@pytest.mark.parametrize("memory_bytes", [2**20, 500])
@pytest.mark.parametrize("is_symmetric", [True, False])
def test_weights_are_added_as_in_memory(folder, is_symmetric, memory_bytes):
    pairs = drawn_pairs(300)
    weights = np.random.default_rng(1).integers(0, 5, 300).astype(float)
    if is_symmetric:
        pairs = np.concatenate([pairs, pairs[::-1]], axis=1)
        weights = np.concatenate([weights, weights])
    counts = merged(folder, pairs, weights, memory_bytes=memory_bytes)
    expected, sums, _ = clean_edges(torch.from_numpy(pairs), torch.from_numpy(weights), NODES)
    found = entries(folder, weighted=True)
    np.testing.assert_array_equal(found[:2], expected.numpy())
    np.testing.assert_allclose(found[2] * counts.weight_scale, sums.numpy(), rtol=1e-6)
    assert counts.weight_scale == (0.5 if is_symmetric else 1.0)


def test_weights_that_are_all_one_are_none(folder):
    assert merged(folder, drawn_pairs(40), np.ones(40)).weight_scale is None


def test_no_edge_at_all(folder):
    counts = merged(folder, np.zeros((2, 3), int))
    assert (counts.num_edges, counts.loops, entries(folder).size) == (0, 3, 0)


def test_wrong_edges_are_refused(folder):
    with pytest.raises(GraphError, match=r"must join nodes 0 to 49. Got \(3, 50\) \(1 in all\)"):
        merged(folder, np.array([[1, 3], [2, 50]]))
    with pytest.raises(GraphError, match="must be positive numbers"):
        merged(folder, drawn_pairs(3), np.array([1.0, -1.0, 2.0]))
