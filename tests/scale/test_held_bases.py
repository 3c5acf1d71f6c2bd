"""Bases in the memory of a device against those on the disk."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from aspect.data.graph import Graph
from aspect.data.synthetic import mixed_graph
from aspect.estimator import Embedder
from aspect.randomness import seed_for
from aspect.scale import held_bases, rows
from aspect.scale.bases import BasisSettings, compute_bases, kept_entries
from aspect.scale.held_bases import DeviceGraph
from aspect.scale.rows import RowBatches, row_plan_of, stored_views
from aspect.scale.store import GraphStore
from aspect.settings import RowSettings
from aspect.training import gradients
from aspect.training.trainer import Recorder, train

GPU = pytest.param("cuda", marks=pytest.mark.gpu)
VIEWS = {
    "clean": {},
    "dropped": {"edge_drop": 0.4, "view_seed": 3},
    "shuffled": {"shuffled": True, "view_seed": 5},
    "without loops": {"self_loops": False, "row_normalise": False, "lambda_max": 1.5},
    "projected": {"projection": "svd", "width": 4},
}


def store_of(folder, *, weighted=False):
    graph = mixed_graph(num_nodes=150, num_features=8, seed=2).graph
    if weighted:
        source, target = graph.edge_index
        graph = Graph.build(graph.features, graph.edge_index, weights=0.1 + (source + target) % 7)
    return GraphStore.from_graph(graph, folder / "store", rows_per_block=40)


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("view", VIEWS)
def test_they_are_the_bases_on_the_disk(tmp_path, monkeypatch, view, weighted, device):
    monkeypatch.setattr(held_bases, "ENTRIES", 60)  # several parts, some of a single row
    store = store_of(tmp_path, weighted=weighted)
    settings = BasisSettings(order=4, dtype="float64", **VIEWS[view])
    on_disk = compute_bases(store, tmp_path / "bases", settings)
    held = DeviceGraph(store, settings, torch.device(device)).bases(settings)
    expected = torch.from_numpy(on_disk.rows(slice(0, store.num_nodes)))
    assert_close(held.terms.cpu(), expected)
    assert held.facts == on_disk.facts


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("rate", [0.0, 0.25, 0.5, 0.9])
def test_the_same_edges_are_dropped(rate, device):
    drawn = np.random.default_rng(0)
    ends = drawn.integers(0, 2**31 - 1, (2, 5_000))
    low, high = np.sort(ends, axis=0).astype(np.uint64)
    mixed = split_mix(split_mix(low + np.uint64(seed_for(11, "edge drop"))) ^ high)
    expected = mixed >= np.uint64(int(rate * 2**64))
    found = kept_entries(*torch.from_numpy(ends).to(device), rate, 11)
    assert found.cpu().tolist() == expected.tolist()


def split_mix(numbers):
    """SplitMix64 as it is published, in unsigned numbers."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


class Losses(Recorder):
    def __init__(self):
        self.found = []

    def epoch_done(self, report, _):
        self.found.append(report.values["loss"])


def losses_of(name, store, folder, device, **settings):
    """Of a training of three epochs of several batches."""
    embedder = Embedder(name, device=device, scale="rows", width=8, epochs=3, **settings)
    method, how = embedder.untrained(store.num_features), RowSettings(batch=32, pool=2)
    views = stored_views(store, folder, row_plan_of(method), how, seed=4, device=device)
    data = RowBatches(views, how, seed=4, device=torch.device(device))
    recorder = Losses()
    train(method, data, seed=0, recorder=recorder)
    return views, recorder.found


@pytest.mark.parametrize("name", ["aspect", "ggd"])
def test_a_training_on_held_bases_is_the_same(tmp_path, monkeypatch, name):
    store = store_of(tmp_path)
    on_disk, expected = losses_of(name, store, tmp_path / "bases", "cpu")
    monkeypatch.setattr(rows, "_fits_gpu", lambda *_: True)
    held, found = losses_of(name, store, tmp_path / "none", "cpu")
    assert (on_disk.are_held, held.are_held) == (False, True)
    assert not (tmp_path / "none").exists()
    assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["aspect", "bgrl", "cca-ssg", "dgi", "ggd", "grace"])
def test_captured_steps_are_the_same_training(tmp_path, monkeypatch, caplog, name):
    monkeypatch.setattr(gradients, "PRECISION", "highest")
    store = store_of(tmp_path)
    _, captured = losses_of(name, store, tmp_path / "bases", "cuda")
    assert "cannot be captured" not in caplog.text
    monkeypatch.setattr(gradients, "WARM_UP", 10**6)
    _, plain = losses_of(name, store, tmp_path / "bases", "cuda")
    assert_close(captured, plain, rtol=1e-3, atol=1e-4)
