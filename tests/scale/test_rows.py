"""Rows of stored bases in place of a graph: the same losses, embeddings and statistics."""

import copy
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import row_normalise
from aspect.data.rows import Rows, smoothing_coefficients
from aspect.data.synthetic import mixed_graph
from aspect.errors import FileError, SettingsError, UnknownNameError
from aspect.estimator import Aspect, Embedder
from aspect.methods.base import Step
from aspect.methods.registry import find_method, method_names
from aspect.nn.augmentations import ViewSource, draw_order, exact_mask, induced_subgraph
from aspect.nn.propagation import spread
from aspect.randomness import generator_for, isolated_seed
from aspect.scale import fit
from aspect.scale.calibration import calibrate_rows
from aspect.scale.fit import as_rows, choose_rows, output_of
from aspect.scale.rows import RowBatches, row_plan_of, stored_views
from aspect.scale.store import GraphStore, induced_graph, sample_neighbourhood
from aspect.settings import RowSettings
from aspect.training.trainer import Recorder, train

ON_ROWS = ("aspect", "aspect-s", "bgrl", "cca-ssg", "dgi", "ggd", "grace")
PLAIN = {"edge_drop": 0.0, "dropout": 0.0, "input_dropout": 0.0, "gate_hops": 0}
SMALL = {
    "aspect": {"width": 8, "order": 3, "gate_width": 4},
    "aspect-s": {"width": 8, "order": 3, "gate_width": 4, "warm_up": 0, "interval": 2},
    "bgrl": {"width": 8, "hidden_width": 8, "prediction_width": 8},
    "grace": {"width": 8, "projection_width": 8},
}
ROWS = RowSettings(batch=64, queue=32, pool=2)


@pytest.fixture(scope="module")
def graph():
    return mixed_graph(num_nodes=150, seed=2).graph.to(torch.float64)


@pytest.fixture(scope="module")
def store(graph, tmp_path_factory):
    place = tmp_path_factory.mktemp("rows") / "store"
    return GraphStore.from_graph(graph.to(torch.float32), place, rows_per_block=40)


def build(name, num_features, dtype=torch.float64, **settings):
    registered = find_method(name)
    settings = {**SMALL.get(name, {"width": 8}), "epochs": 3, **settings}
    with isolated_seed(1):
        return registered.method(registered.config(**settings), num_features).to(dtype)


def batches(store, folder, method, settings=ROWS, seed=4):
    views = stored_views(store, folder, row_plan_of(method), settings, seed=seed)
    return RowBatches(views, settings, seed=seed, device=torch.device("cpu"))


def step(epoch=1, seed=7):
    return Step(epoch, torch.Generator().manual_seed(seed))


def with_gradients(terms, method):
    trained = [one for one in method.parameters() if one.requires_grad]
    total = torch.stack(list(terms.values())).sum()
    return terms, torch.autograd.grad(total, trained, allow_unused=True)


class TestMethods:
    def test_which_methods_take_rows(self):
        def takes_rows(name):
            registered = find_method(name)
            return registered.method(registered.config(), 4).row_plan() is not None

        found = set(filter(takes_rows, method_names()))
        assert found == {*ON_ROWS, "low", "high", "random"}  # the last are controls of ASPECT

    @pytest.mark.parametrize("order", ["filter-first", "project-first"])
    @pytest.mark.parametrize("views", ["one", "both"])
    def test_aspect_on_all_rows_has_the_loss_of_the_graph(self, graph, order, views):
        settings = {**PLAIN, "layer_order": order, "views": views, "column_mask": 0.3}
        method = build("aspect", graph.num_features, **settings).train()
        whole = as_rows(graph, row_plan_of(method))
        rows = Rows.of(whole.views * 2, graph.num_nodes)
        found = with_gradients(method.loss_terms(rows, step()), method)
        expected = with_gradients(method.loss_terms(graph, step()), method)
        assert set(found[0]) == {"contrast", "channels", "policy"}
        assert_close(found, expected)

    @pytest.mark.parametrize("order", ["filter-first", "project-first"])
    def test_aspect_embeds_rows_as_it_embeds_the_graph(self, graph, order):
        settings = {"layer_order": order, "gate_hops": 0, "row_normalise": False}
        method = build("aspect", graph.num_features, **settings)
        assert method.skip is not None  # it has the features as they are, normalised or not
        rows = as_rows(graph, row_plan_of(method))
        method.calibrate(graph)
        expected = method.eval().output(graph)
        method.calibrate(rows)
        found = method.eval().output(rows)
        assert_close(found.embedding, expected.embedding)
        assert_close(found.gate, expected.gate)

    def test_ggd_on_rows_has_the_loss_of_the_graph(self, graph):
        method = build("ggd", graph.num_features, column_mask=0.3).train()
        draw = torch.Generator().manual_seed(7)
        exact_mask(graph.num_features, 0.3, draw, graph.dtype)
        order = draw_order(graph.num_nodes, draw)
        shuffled = replace(graph, features=graph.features[order])
        plan = row_plan_of(method)
        views = tuple(as_rows(each, plan).views[0] for each in (graph, shuffled))
        found = with_gradients(method.loss_terms(Rows.of(views, graph.num_nodes), step()), method)
        assert_close(found, with_gradients(method.loss_terms(graph, step()), method))

    @pytest.mark.parametrize(("name", "hops"), [("dgi", 1), ("grace", 2), ("bgrl", 2)])
    def test_a_convolution_on_rows_takes_all_hops_first(self, graph, name, hops):
        method = build(name, graph.num_features).eval()
        source = ViewSource(graph)
        smoothed = spread(row_normalise(graph.features), source.clean.operator, hops)
        rows = as_rows(graph, row_plan_of(method))
        assert_close(rows.features, smoothed)
        encoder = method.online if name == "bgrl" else method.encoder
        assert_close(method.embed(rows), encoder(smoothed, lambda x: x))

    def test_smoothing_is_the_sum_of_its_terms(self):
        x = torch.linspace(-1, 1, 7, dtype=torch.float64)  # of S; the basis is that of -S
        angles = torch.arccos(-x)
        for order in range(5):
            weights = smoothing_coefficients(order)
            terms = torch.stack([torch.cos(k * angles) for k in range(order + 1)])
            assert_close(weights @ terms, x**order)

    def test_a_search_on_rows_is_refused(self, graph):
        method = build("aspect-s", graph.num_features)
        rows = as_rows(graph, row_plan_of(method))
        with pytest.raises(SettingsError, match="trained on rows sees no edges"):
            method.search(rows, torch.Generator())


class TestCalibration:
    @pytest.mark.parametrize("name", ["aspect", "bgrl"])
    def test_passes_over_rows_give_the_statistics_of_the_whole(self, graph, name):
        method = build(name, graph.num_features)
        rows = as_rows(graph, row_plan_of(method))
        parts = [
            Rows.of((rows.views[0][:, start : start + 40],), rows.whole)
            for start in range(0, graph.num_nodes, 40)
        ]
        other = copy.deepcopy(method)
        method.calibrate(rows)
        calibrate_rows(other, lambda: parts)
        assert_close(other.state_dict(), method.state_dict())


class TestBatches:
    @pytest.mark.parametrize("name", ON_ROWS)
    def test_an_epoch_has_every_row_once_and_lowers_the_loss(self, store, tmp_path, name):
        method = build(name, store.num_features, torch.float32, epochs=6, learning_rate=0.01)
        data = batches(store, tmp_path, method)
        seen = [batch for batch, _ in data._batches(method, 1) if isinstance(batch, Rows)]
        assert sum(batch.num_nodes for batch in seen) == store.num_nodes
        assert max(len(batch.features) for batch in seen) <= ROWS.batch
        losses = []

        class Listener(Recorder):
            def epoch_done(self, report, _):
                losses.append(report.values["loss"])

        train(method, data, seed=0, recorder=Listener())
        # Of BGRL the first step has a learning rate of zero, and the schedule is short.
        assert min(losses[1:]) < losses[0]

    @pytest.mark.parametrize("name", ["aspect", "bgrl"])
    def test_no_batch_has_one_row(self, tmp_path, name):
        odd = mixed_graph(num_nodes=33, seed=2).graph
        store = GraphStore.from_graph(odd, tmp_path / "store", rows_per_block=16)
        method = build(name, store.num_features, torch.float32, epochs=1)
        data = batches(store, tmp_path / "bases", method, RowSettings(batch=2, pool=2))
        sizes = [len(batch.features) for batch, _ in data._batches(method, 1)]
        assert sorted(sizes) == [*[2] * 15, 3]
        train(method, data, seed=0)  # a batch norm of one row would be an error

    def test_a_batch_of_one_row_is_refused(self):
        with pytest.raises(ValueError, match=r"batch\n.*greater than or equal to 2"):
            RowSettings(batch=1)

    @pytest.mark.parametrize("name", ON_ROWS)
    def test_a_batch_that_is_computed_again_has_the_same_loss(self, store, tmp_path, name):
        method = build(name, store.num_features, torch.float32)
        data = batches(store, tmp_path, method, RowSettings(batch=64, queue=0, pool=2))
        batch = next(batch for batch, _ in data._batches(method, 1) if isinstance(batch, Rows))
        first, again = (method.loss_terms(batch, step()) for _ in range(2))
        torch.testing.assert_close(first, again)

    @pytest.mark.parametrize("run", [1, 7, 1000])
    def test_an_order_has_every_row_once_and_keeps_runs_together(self, store, tmp_path, run):
        method = build("dgi", store.num_features, torch.float32)
        data = batches(store, tmp_path, method, ROWS.model_copy(update={"run": run}))
        order = data._order(3)
        assert sorted(order.tolist()) == list(range(store.num_nodes))
        starts = order[:: min(run, len(order))] if store.num_nodes % run == 0 else order[:1]
        assert bool((starts % run == 0).all())
        assert torch.equal(order, data._order(3))
        if run < store.num_nodes:
            assert not torch.equal(order, data._order(4))

    def test_two_views_of_one_rate_are_two_of_the_pool(self, store, tmp_path):
        method = build("aspect", store.num_features, torch.float32, views="both", edge_drop=0.4)
        batch, _ = next(data_batches := batches(store, tmp_path, method)._batches(method, 1))
        data_batches.close()
        one, other = batch.views
        assert_close(one[0], other[0])  # the features themselves
        assert not torch.allclose(one[1], other[1])

    def test_the_stream_embeds_what_the_graph_in_memory_gives(self, graph, store, tmp_path):
        method = build("aspect", store.num_features, torch.float32)
        data = batches(store, tmp_path, method)
        data.calibrate(method)
        streamed = torch.cat([output.embedding for _, _, output in data.outputs(method)])
        rows = as_rows(graph.to(torch.float32), row_plan_of(method))
        with torch.no_grad():
            assert_close(streamed, output_of(method.eval(), rows).embedding, atol=1e-5, rtol=1e-4)

    @pytest.mark.parametrize("name", ["aspect", "bgrl"])
    def test_an_interrupted_training_ends_with_the_same_bits(self, store, tmp_path, name):
        whole, begun, resumed = (
            build(name, store.num_features, torch.float32, epochs=4) for _ in range(3)
        )
        data = batches(store, tmp_path, whole)

        class Stop(Recorder):
            def epoch_done(self, report, snapshot):
                if report.epoch == 2:
                    self.taken = snapshot()
                    raise KeyboardInterrupt

        class GoOn(Recorder):
            def latest(self):
                return stopped.taken

        train(whole, data, seed=0)
        stopped = Stop()
        with pytest.raises(KeyboardInterrupt):
            train(begun, data, seed=0, recorder=stopped)
        train(resumed, batches(store, tmp_path, resumed), seed=0, recorder=GoOn())
        assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)

    def test_float16_rows_are_computed_in_float32(self, store, tmp_path):
        method = build("aspect", store.num_features, torch.float32)
        settings = ROWS.model_copy(update={"precision": "float16"})
        half = batches(store, tmp_path / "half", method, settings)
        full = batches(store, tmp_path / "full", method)
        rows = slice(0, store.num_nodes)
        assert half.clean(rows).dtype == torch.float32
        assert_close(half.clean(rows), full.clean(rows), atol=1e-3, rtol=1e-3)

    def test_statistics_of_the_graph_at_hand_are_refused(self, store):
        method = build("aspect", store.num_features, norm_statistics="graph")
        with pytest.raises(SettingsError, match="norm_statistics must be recomputed or running"):
            row_plan_of(method)


class TestNeighbourhoods:
    def test_a_sampled_part_is_the_subgraph_of_its_nodes(self, graph, store):
        nodes = np.array([3, 5, 40, 41, 79, 80, 149])
        found = induced_graph(store, nodes)
        expected = induced_subgraph(graph, torch.from_numpy(nodes)).graph
        assert_close(found.edge_index, expected.edge_index)
        assert_close(found.features, expected.features.float())

    @pytest.mark.parametrize("size", [1, 30, 150, 1000])
    def test_it_has_so_many_nodes(self, store, size):
        drawn = sample_neighbourhood(store, size, np.random.default_rng(0))
        assert drawn.num_nodes == min(size, store.num_nodes)

    def test_aspect_s_searches_in_it(self, store, tmp_path):
        method = build("aspect-s", store.num_features, torch.float32, epochs=2)
        result = train(method, batches(store, tmp_path, method), seed=0)
        assert result.values["search_after"] > result.values["search_before"]
        assert "stability" in result.values


class TestChoice:
    def test_auto_takes_rows_where_the_whole_does_not_fit(self, graph, monkeypatch):
        method = build("aspect", graph.num_features)
        assert choose_rows("auto", method, graph) is None
        monkeypatch.setattr(fit, "_free_bytes", lambda _: 1_000)
        assert choose_rows("auto", method, graph) == RowSettings()
        assert choose_rows("auto", build("gca", graph.num_features), graph) is None
        assert choose_rows("full", method, graph) is None
        assert choose_rows(ROWS, method, graph) is ROWS

    def test_an_unknown_scale_is_refused(self):
        with pytest.raises(UnknownNameError, match="scale 'row'"):
            Embedder("aspect", scale="row")

    def test_a_method_without_a_plan_is_refused(self, graph):
        with pytest.raises(SettingsError, match="sp-gcl needs the whole graph"):
            Embedder("sp-gcl", scale="rows", epochs=1).fit(graph)


class TestEstimator:
    def test_a_model_of_rows_is_saved_with_its_projection(self, graph, tmp_path):
        how = RowSettings(batch=64, projection="svd", projection_width=5)
        model = Aspect(scale=how, epochs=2, width=8, seed=1, device="cpu").fit(graph)
        embedding = model.embed(graph)
        model.save(tmp_path / "model.safetensors")
        loaded = Aspect.load(tmp_path / "model.safetensors", device="cpu")
        assert loaded.rows == how
        assert_close(loaded.embed(graph), embedding, rtol=0, atol=0)
        assert_close(loaded.policy(graph), model.policy(graph), rtol=0, atol=0)

    def test_the_embedding_does_not_hang_on_the_order_of_the_nodes(self, graph):
        model = Aspect(scale=ROWS, epochs=1, width=8, seed=1, device="cpu").fit(graph)
        order = draw_order(graph.num_nodes, generator_for(0, "order"))
        again = induced_order(graph, order)
        assert_close(model.embed(again), model.embed(graph)[order], atol=1e-4, rtol=1e-3)


def induced_order(graph, order):
    """The same graph with its nodes in another order."""
    places = torch.argsort(order)
    return type(graph).build(graph.features[order], places[graph.edge_index])


def test_a_disk_must_have_room_for_all_bases(graph, tmp_path, monkeypatch):
    store = GraphStore.from_graph(graph, tmp_path / "store")
    plan = row_plan_of(build("aspect", graph.num_features, order=2))
    one = 3 * graph.num_nodes * graph.num_features * 4
    free = Mock(free=2 * one)
    monkeypatch.setattr("shutil.disk_usage", lambda _: free)
    with pytest.raises(FileError, match=r"bases' needs .* --pool makes fewer bases\."):
        stored_views(store, tmp_path / "bases", plan, RowSettings(pool=2), seed=0)
    assert not (tmp_path / "bases").exists()
    free.free = 3 * one
    stored_views(store, tmp_path / "bases", plan, RowSettings(pool=2), seed=0)
    free.free = 0  # all are there
    stored_views(store, tmp_path / "bases", plan, RowSettings(pool=2), seed=0)
