from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import aspect
from aspect import Aspect, Embedder, estimator
from aspect.data.convert import to_data
from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.data.synthetic import mixed_graph
from aspect.data.tensors import read_tensors, write_tensors
from aspect.errors import (
    AspectError,
    CheckpointError,
    FileError,
    GraphError,
    SettingsError,
    TrainingError,
    UnknownNameError,
)
from aspect.methods.aspect import AspectMethod
from aspect.methods.base import Method, MethodConfig
from aspect.methods.registry import Registration
from aspect.nn.normalisation import Scaling
from aspect.settings import find_experiment
from aspect.training.folder import RunFolder
from aspect.training.health import Health
from aspect.training.trainer import Recorder

SMALL = {"epochs": 4, "width": 8, "order": 2, "gate_width": 8}
# The same training in a process of its own: prints digests of the embedding and of the file.
SCRIPT = """
import hashlib, sys
from pathlib import Path
from aspect import Aspect, mixed_graph
graph = mixed_graph(num_nodes=40, num_features=6, seed=1)
model = Aspect(seed=5, device="cpu", epochs=4, width=8, order=2, gate_width=8).fit(graph)
model.save(sys.argv[1])
for content in (model.embed(graph).numpy().tobytes(), Path(sys.argv[1]).read_bytes()):
    print(hashlib.sha256(content).hexdigest())
"""


@pytest.fixture(scope="module")
def labelled():
    return mixed_graph(num_nodes=40, num_features=6, seed=1)


@pytest.fixture(scope="module")
def fitted(labelled):
    return small_aspect(seed=5).fit(labelled)


@pytest.fixture
def saved(fitted, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    return path


def small_aspect(**changes) -> Aspect:
    return Aspect(**{"seed": 0, "device": "cpu", **SMALL, **changes})


def rewrite(path: Path, **changes) -> None:
    tensors, manifest = read_tensors(path)
    write_tensors(path, tensors, {**manifest, **changes})


def assert_equal(first, second):
    torch.testing.assert_close(first, second, rtol=0, atol=0)


# The promised interface


def test_the_example_of_the_design_works(labelled, tmp_path):
    graph = to_data(labelled)
    model = Aspect(epochs=3, width=8, seed=0).fit(graph)
    z, m = model.embed(graph), model.policy(graph)
    assert z.shape[1] == 2 * 8 + min(32, 3 * graph.num_features)  # two bands, skip connection
    assert m.shape == (40,)
    assert bool(((m > 0) & (m < 1)).all())
    assert not z.requires_grad
    assert not m.requires_grad
    model.save(tmp_path / "cora.safetensors")
    loaded = Aspect.load(tmp_path / "cora.safetensors")
    assert_equal(loaded.embed(graph), z)
    assert_equal(loaded.policy(graph), m)


def test_the_policy_is_the_low_bands_share(fitted, labelled):
    weights = fitted.method.output(labelled.graph).gate
    assert_equal(fitted.policy(labelled), weights[:, 0].detach())
    torch.testing.assert_close(weights.sum(1), torch.ones(40))


@pytest.mark.parametrize("method", ["raw", "low"])
def test_methods_without_a_policy_have_none(labelled, method):
    settings = {} if method == "raw" else SMALL
    model = Embedder(method, device="cpu", **settings).fit(labelled)
    assert model.policy(labelled) is None


def test_all_forms_of_a_graph_give_the_same_embedding(fitted, labelled):
    import scipy.sparse as scipy_sparse

    networkx = pytest.importorskip("networkx", reason="the extra networkx is not installed")
    graph = labelled.graph
    rows, columns = graph.edge_index.numpy()
    adjacency = scipy_sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(40, 40))
    drawn = networkx.Graph()
    drawn.add_nodes_from((node, {"x": graph.features[node].numpy()}) for node in range(40))
    drawn.add_edges_from(zip(rows.tolist(), columns.tolist(), strict=True))
    expected = fitted.embed(graph)
    for form in (labelled, to_data(labelled), (adjacency, graph.features.numpy()), drawn):
        assert_equal(fitted.embed(form), expected)


def test_graphs_in_double_precision_are_served(fitted, labelled):
    double = labelled.graph.to(torch.float64)
    assert_equal(fitted.embed(double), fitted.embed(labelled))
    assert_equal(small_aspect(seed=5).fit(double).embed(labelled), fitted.embed(labelled))


def test_what_was_prepared_for_one_graph_is_not_used_for_another(fitted, labelled):
    first = fitted.embed(labelled)
    other = mixed_graph(num_nodes=40, num_features=6, seed=2)
    assert not torch.equal(fitted.embed(other), first)
    assert_equal(fitted.embed(labelled), first)


# One pass for a graph


@pytest.fixture
def passes(monkeypatch):
    """The graphs whose forward passes were computed."""
    graphs = []
    honest = AspectMethod.output
    monkeypatch.setattr(
        AspectMethod, "output", lambda method, graph: graphs.append(graph) or honest(method, graph)
    )
    return graphs


def test_the_training_graph_is_embedded_once_and_not_by_fit(labelled, passes):
    model = small_aspect().fit(labelled)
    assert passes == []
    model.embed(labelled)
    model.policy(labelled)
    model.health(labelled)
    assert model.warnings(labelled) == ()
    assert passes == [labelled.graph]


def test_the_scaling_is_that_of_the_training_graph_whatever_is_embedded_first(
    fitted, labelled, tmp_path
):
    other = mixed_graph(num_nodes=24, num_features=6, seed=9)
    model = small_aspect(seed=5).fit(labelled)
    assert_equal(model.embed(other), fitted.embed(other))
    small_aspect(seed=5).fit(labelled).save(tmp_path / "model.safetensors")
    loaded = Aspect.load(tmp_path / "model.safetensors", device="cpu")
    assert_equal(loaded.embed(other), fitted.embed(other))


def test_an_interrupted_embedding_costs_no_later_one_its_scaling(fitted, labelled, monkeypatch):
    other, honest = mixed_graph(num_nodes=24, num_features=6, seed=9), AspectMethod.output
    model = small_aspect(seed=5).fit(labelled)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(AspectMethod, "output", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.embed(other)
    monkeypatch.setattr(AspectMethod, "output", honest)
    assert_equal(model.embed(other), fitted.embed(other))


def test_threads_embed_each_its_own_graph(fitted, labelled):
    graphs = [labelled, *(mixed_graph(num_nodes=24 + k, num_features=6, seed=k) for k in range(3))]
    expected = [fitted.embed(graph) for graph in graphs]
    gates = [fitted.policy(graph) for graph in graphs]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns often enough to meet
    try:
        for _ in range(20):
            model = small_aspect(seed=5).fit(labelled)
            with ThreadPoolExecutor(4) as threads:
                found = list(threads.map(model.embed, graphs * 4))
                weights = list(threads.map(model.policy, graphs * 4))
            for k, (z, gate) in enumerate(zip(found, weights, strict=True)):
                assert_equal((z, gate), (expected[k % 4], gates[k % 4]))
    finally:
        sys.setswitchinterval(interval)


def test_another_graph_is_embedded_once_and_the_last_one_is_kept(fitted, passes):
    first, second = (mixed_graph(num_nodes=24, num_features=6, seed=k) for k in (2, 3))
    for graph in (first, first, second, second, first):
        fitted.embed(graph)
        fitted.policy(graph)
        fitted.health(graph)
    assert passes == [first.graph, second.graph, first.graph]


def test_what_is_kept_cannot_be_changed_from_outside(labelled):
    model = small_aspect().fit(labelled)
    z, gate = model.embed(labelled, normalise="none"), model.policy(labelled)
    copies = z.clone(), gate.clone()
    z.zero_()
    gate.zero_()
    assert_equal((model.embed(labelled, normalise="none"), model.policy(labelled)), copies)


def test_what_is_kept_goes_with_its_graph_and_with_the_weights(passes):
    graph = mixed_graph(num_nodes=24, num_features=6, seed=2).graph
    model = small_aspect().fit(graph)
    z = model.embed(graph)
    with torch.no_grad():
        model.method.encoder.linear.weight.mul_(2)
    assert not torch.equal(model.embed(graph), z)
    assert len(passes) == 2
    other = mixed_graph(num_nodes=20, num_features=6, seed=3).graph.to(torch.float64)
    model.embed(other)  # the method reads a copy
    assert len(model._outputs) == len(model._copies) == 1
    del other
    passes.clear()
    assert len(model._outputs) == len(model._copies) == 0


def test_a_graph_on_the_same_device_under_another_name_is_not_copied(labelled, fitted):
    model = small_aspect(seed=5)
    model.device = torch.device("cpu:0")  # as `cuda` and `cuda:0`: unequal names of one device
    assert model.device != labelled.graph.device
    model.fit(labelled)
    assert model.as_seen(labelled) is labelled.graph
    assert_equal(model.embed(labelled), fitted.embed(labelled))


@pytest.mark.gpu
def test_on_a_gpu_a_graph_is_copied_and_prepared_once(labelled):
    for given, copies in ((labelled.graph, 1), (labelled.graph.to("cuda"), 0)):
        model = small_aspect(device="cuda").fit(given)
        prepared = model.method.ready._kept
        model.embed(given)
        assert model.method.ready._kept is prepared
        assert (model.as_seen(given) is given) == (copies == 0)


# Saving and loading


def test_a_loaded_model_is_the_same_model(fitted, saved, labelled, tmp_path):
    loaded = Aspect.load(saved, device="cpu")
    assert type(loaded) is Aspect
    assert (loaded.name, loaded.seed, loaded.config) == (fitted.name, fitted.seed, fitted.config)
    assert_equal(loaded.embed(labelled), fitted.embed(labelled))
    assert_equal(loaded.policy(labelled), fitted.policy(labelled))
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == saved.read_bytes()


def test_embedder_loads_any_method_and_aspect_only_its_own(labelled, tmp_path):
    path = tmp_path / "raw.safetensors"
    Embedder("raw", device="cpu").fit(labelled).save(path)
    loaded = Embedder.load(path, device="cpu")
    assert_equal(loaded.embed(labelled, normalise="none"), labelled.graph.features)
    with pytest.raises(CheckpointError, match=r"holds a model of 'raw', not of ASPECT"):
        Aspect.load(path)


def test_a_runs_checkpoint_is_not_a_model(labelled, tmp_path):
    with RunFolder.open(tmp_path / "run", "a: 1\n", checkpoint_every=2) as folder:
        small_aspect().fit(labelled, recorder=folder)
    with pytest.raises(CheckpointError, match="is not a saved model but a checkpoint"):
        Aspect.load(tmp_path / "run" / "checkpoint.safetensors")


def test_files_of_other_kinds_are_refused(tmp_path):
    write_tensors(tmp_path / "other.safetensors", {}, {})
    with pytest.raises(CheckpointError, match="not a saved model but a file of another kind"):
        Embedder.load(tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="There is no checkpoint at"):
        Embedder.load(tmp_path / "nothing.safetensors")


def test_another_major_version_is_refused(saved, monkeypatch):
    monkeypatch.setattr("aspect.estimator.embedder.__version__", "12.3")
    with pytest.raises(CheckpointError, match=r"written by aspect 0\.\S+; this is 12\.3"):
        Aspect.load(saved)


def test_another_minor_version_is_read(saved, fitted, labelled):
    rewrite(saved, version="0.99.1")
    assert_equal(Aspect.load(saved, device="cpu").embed(labelled), fitted.embed(labelled))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "aspekt"}, r"does not fit this version\. Unknown method 'aspekt'"),
        ({"settings": {"wdith": 8}}, r"Unknown setting 'wdith' of aspect\. Did you mean 'width'"),
        ({"settings": {"width": 0}}, r"Setting 'width' of aspect must be .* Got 0"),
        ({"num_features": 7}, r"do not fit the method 'aspect' that it names"),
        ({"settings": {"width": 9}}, r"do not fit the method 'aspect' that it names"),
        ({"method": "low"}, r"do not fit the method 'low' that it names"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_in_a_sentence(saved, changes, words):
    rewrite(saved, **changes)
    with pytest.raises(CheckpointError, match=words):
        Embedder.load(saved, device="cpu")


def test_a_manifest_with_gaps_is_refused(saved):
    tensors, manifest = read_tensors(saved)
    del manifest["seed"], manifest["version"]
    write_tensors(saved, tensors, manifest)
    with pytest.raises(CheckpointError, match="its manifest lacks seed, version"):
        Embedder.load(saved)


def test_a_place_that_cannot_be_written_is_said_so(fitted, tmp_path):
    with pytest.raises(FileError, match="no such file or folder"):
        fitted.save(tmp_path / "nowhere" / "model.safetensors")


@pytest.mark.parametrize("seed", [0.5, "7", None])
def test_a_seed_is_an_integer(seed):
    assert Aspect(seed=np.int64(5)).seed == 5
    with pytest.raises(SettingsError, match="The seed must be an integer"):
        small_aspect(seed=seed)


# Normalised embeddings


@pytest.mark.parametrize("how", ["centre", "standard", "unit"])
def test_embeddings_are_normalised_by_the_training_graph(fitted, labelled, how):
    other = mixed_graph(num_nodes=24, num_features=6, seed=9)
    scaling = Scaling.of(fitted.embed(labelled, normalise="none"))
    for graph in (labelled, other):
        expected = scaling.apply(fitted.embed(graph, normalise="none"), how)
        assert_equal(fitted.embed(graph, normalise=how), expected)


def test_none_is_the_methods_own_output_and_centre_the_default(fitted, labelled):
    with torch.no_grad():
        own = fitted.method.embed(labelled.graph)
    assert_equal(fitted.embed(labelled, normalise="none"), own)
    assert_equal(fitted.embed(labelled), fitted.embed(labelled, normalise="centre"))
    assert float(fitted.embed(labelled).norm(dim=1).mean()) == pytest.approx(4.0, rel=1e-5)


def test_an_unknown_normalisation_offers_the_nearest(fitted, labelled):
    with pytest.raises(UnknownNameError, match=r"Did you mean 'centre'\?"):
        fitted.embed(labelled, normalise="center")


def test_health_is_measured_before_any_centring(fitted, labelled):
    with torch.no_grad():
        uncentred = fitted.method.output(labelled.graph).uncentred
    assert fitted.health(labelled) == Health.of(uncentred)
    assert fitted.health(labelled) != Health.of(fitted.embed(labelled))


def test_a_model_of_version_0_1_is_refused(saved):
    tensors, manifest = read_tensors(saved)
    write_tensors(saved, tensors, {**manifest, "version": "0.1.0"})
    with pytest.raises(CheckpointError, match=r"by aspect 0\.1\.0; .* Train the model again"):
        Aspect.load(saved, device="cpu")


def test_a_scaling_with_gaps_is_refused(saved):
    tensors, manifest = read_tensors(saved)
    del tensors["scaling/std"]
    write_tensors(saved, tensors, manifest)
    with pytest.raises(CheckpointError, match="do not fit the method 'aspect' that it names"):
        Aspect.load(saved, device="cpu")


# Nothing leaks, nothing changes


def test_labels_are_never_read(labelled, fitted):
    data = to_data(labelled)
    expected = fitted.embed(labelled)
    generator = torch.Generator().manual_seed(0)
    shuffled = data.clone()
    shuffled.y = data.y[torch.randperm(40, generator=generator)]
    assert not torch.equal(shuffled.y, data.y)
    without = data.clone()
    del without.y
    for source in (data, shuffled, without):
        assert_equal(small_aspect(seed=5).fit(source).embed(source), expected)


def test_global_generators_are_neither_read_nor_moved(labelled, fitted):
    torch.manual_seed(12345)
    np.random.seed(6)  # noqa: NPY002
    random.seed(7)
    before = torch.get_rng_state()
    assert_equal(small_aspect(seed=5).fit(labelled).embed(labelled), fitted.embed(labelled))
    assert torch.equal(torch.get_rng_state(), before)


def test_same_seed_same_bytes_in_another_process(fitted, labelled, saved, tmp_path):
    sources = str(Path(aspect.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "other.safetensors")],
        env={**os.environ, "PYTHONPATH": sources, "PYTHONHASHSEED": "42"},
        capture_output=True,
        text=True,
        check=True,
    )
    contents = (fitted.embed(labelled).numpy().tobytes(), saved.read_bytes())
    assert done.stdout.split() == [hashlib.sha256(content).hexdigest() for content in contents]


def test_different_seeds_differ(labelled, fitted):
    other = small_aspect(seed=6).fit(labelled)
    assert not torch.allclose(other.embed(labelled), fitted.embed(labelled))


def test_fitting_again_begins_anew(labelled):
    model = small_aspect(seed=5).fit(labelled)
    first = model.embed(labelled)
    assert_equal(model.fit(labelled).embed(labelled), first)


# What is refused


def test_unfitted_use_is_refused(labelled, tmp_path):
    model = small_aspect()
    uses = (
        lambda: model.embed(labelled),
        lambda: model.policy(labelled),
        lambda: model.health(labelled),
        lambda: model.save(tmp_path / "model.safetensors"),
        lambda: model.method,
    )
    for use in uses:
        with pytest.raises(AspectError, match=r"This Aspect is not fitted yet\. Call fit\(graph\)"):
            use()
    assert list(tmp_path.iterdir()) == []


def test_a_failed_training_leaves_the_object_as_it_was(labelled, fitted):
    class Full(Recorder):
        def epoch_done(self, report, snapshot):  # noqa: ARG002
            raise TrainingError("enough")

    fresh = small_aspect()
    with pytest.raises(TrainingError, match="enough"):
        fresh.fit(labelled, recorder=Full())
    with pytest.raises(AspectError, match="not fitted yet"):
        fresh.embed(labelled)
    before, result = fitted.embed(labelled), fitted.result
    with pytest.raises(TrainingError, match="enough"):
        fitted.fit(mixed_graph(num_nodes=20, num_features=3), recorder=Full())
    assert_equal(fitted.embed(labelled), before)
    assert fitted.result is result


def test_another_number_of_features_is_refused(fitted):
    with pytest.raises(GraphError, match=r"was trained on 6 features\. Got a graph with 5"):
        fitted.embed(mixed_graph(num_nodes=20, num_features=5))


def test_something_that_is_no_graph_is_refused(fitted):
    with pytest.raises(GraphError, match=r"A graph must be .* Got int"):
        fitted.embed(3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"temprature": 0.2},
            r"Unknown setting 'temprature' of aspect\. Did you mean 'temperature'",
        ),
        ({"temperature": 0}, r"Setting 'temperature' of aspect must be greater .* Got 0\."),
        ({"readout": "fussed"}, r"Setting 'readout' of aspect must be 'fused', .* Got 'fussed'"),
    ],
)
def test_settings_are_refused_in_a_sentence(settings, words):
    with pytest.raises(SettingsError, match=words):
        Aspect(**settings)


def test_an_unknown_method_offers_the_nearest():
    with pytest.raises(UnknownNameError, match=r"Unknown method 'rwa'\. Did you mean 'raw'\?"):
        Embedder("rwa")


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("gpu", r"Unknown device 'gpu'\. Known here: cpu"),
        ("mps", r"Device must be cpu or cuda; 'mps' lacks sparse products\. Got 'mps'"),
        ("cuda:99", r"Device 'cuda:99' is not there\. Known here: cpu.* Try cpu"),
    ],
)
def test_devices_that_are_not_there_are_refused(device, words, saved):
    with pytest.raises(SettingsError, match=words):
        Aspect(device=device)
    with pytest.raises(SettingsError, match=words):
        Aspect.load(saved, device=device)


def test_the_device_is_chosen_by_what_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert estimator.choose_device(None) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert estimator.choose_device(None) == torch.device("cuda")
    assert estimator.choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(SettingsError, match=r"Known here: cpu, cuda, cuda:0, cuda:1\."):
        estimator.choose_device("cuda:2")


# Features by their names

NAMES = ("age", "size", "rank", "weight", "depth", "age 2")


def named(graph, names, order=None, density=1.0):
    """The graph with names of features, its columns perhaps in another order or mostly zero."""
    features = dense(graph.features).clone()
    features[:, int(density * features.shape[1]) :] = 0
    if order is not None:
        features = features[:, order]
    return Graph.build(features, graph.edge_index, feature_names=names)


@pytest.fixture(scope="module")
def fitted_by_name(labelled):
    return small_aspect(seed=5).fit(named(labelled.graph, NAMES))


@pytest.mark.parametrize("density", [0.17, 1.0])
def test_columns_in_another_order_are_put_right(fitted_by_name, labelled, density):
    order = [3, 0, 5, 1, 4, 2]
    straight = named(labelled.graph, NAMES, density=density)
    swapped = named(labelled.graph, [NAMES[k] for k in order], order, density)
    assert not torch.equal(dense(swapped.features), dense(straight.features))
    assert_equal(fitted_by_name.embed(swapped), fitted_by_name.embed(straight))
    assert_equal(fitted_by_name.policy(swapped), fitted_by_name.policy(straight))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ("age", "size", "rank", "mass", "depth", "age 2"),
            r"lacks 'weight' .* has besides 'mass'",
        ),
        (NAMES[:5], r"on 6 features\. Got a graph with 5, which lacks 'age 2' \(1 in all\)\.$"),
        ((*NAMES, "new", "newer"), r"which has besides 'new', 'newer' \(2 in all\)\.$"),
    ],
)
def test_other_names_of_features_are_refused(fitted_by_name, labelled, names, words):
    graph = labelled.graph
    other = Graph.build(torch.ones(40, len(names)), graph.edge_index, feature_names=names)
    with pytest.raises(GraphError, match=words):
        fitted_by_name.embed(other)


def test_without_names_on_one_side_the_number_counts(fitted_by_name, fitted, labelled):
    with_names = named(labelled.graph, NAMES)
    assert_equal(fitted_by_name.embed(labelled), fitted_by_name.embed(with_names))
    assert_equal(fitted.embed(with_names), fitted.embed(labelled))
    with pytest.raises(GraphError, match=r"was trained on 6 features\. Got a graph with 5"):
        fitted_by_name.embed(mixed_graph(num_nodes=20, num_features=5))


def test_names_of_features_are_saved_with_the_model(fitted_by_name, labelled, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted_by_name.save(path)
    loaded = Aspect.load(path, device="cpu")
    swapped = named(labelled.graph, NAMES[::-1], [5, 4, 3, 2, 1, 0])
    assert_equal(loaded.embed(swapped), fitted_by_name.embed(labelled))
    other = named(labelled.graph, ("other", *NAMES[1:]))
    with pytest.raises(GraphError, match="lacks 'age'"):
        loaded.embed(other)


def test_older_models_have_no_names_of_features(fitted_by_name, labelled, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted_by_name.save(path)
    tensors, manifest = read_tensors(path)
    assert manifest.pop("feature_names") == list(NAMES)
    write_tensors(path, tensors, manifest)
    other = named(labelled.graph, ("other", *NAMES[1:]))
    assert_equal(Aspect.load(path, device="cpu").embed(other), fitted_by_name.embed(labelled))


@pytest.mark.parametrize("names", ["abcdef", ["a"], ["a"] * 6, [1, 2, 3, 4, 5, 6]])
def test_names_that_do_not_fit_the_model_are_refused(saved, names):
    rewrite(saved, feature_names=names)
    with pytest.raises(CheckpointError, match="must name each of its 6 features once"):
        Aspect.load(saved, device="cpu")


# Methods that know one graph only


class Transductive(Method):
    """Holds its embedding for the one graph it saw."""

    inductive: ClassVar[bool] = False
    name: ClassVar[str] = "table"

    def __init__(self, config: MethodConfig, num_features: int) -> None:
        super().__init__()
        self.config = config
        self.scale = nn.Parameter(torch.ones(num_features))

    def loss_terms(self, graph, step):  # noqa: ARG002
        return {"size": self.scale.square().sum()}

    def embed(self, graph: Graph):
        return graph.features * self.scale


def test_a_transductive_method_embeds_the_graph_it_was_trained_on_and_no_other(labelled):
    model = Embedder("raw", device="cpu", epochs=2)
    model.registration = Registration("table", Transductive, MethodConfig, "", "")
    model.fit(to_data(labelled))
    assert model.embed(to_data(labelled)).shape == (40, 6)
    with pytest.raises(GraphError, match="table cannot embed a graph that it was not trained on"):
        model.embed(mixed_graph(num_nodes=40, num_features=6, seed=2))


@contextmanager
def float64_by_default():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


MODES = {
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "float64": float64_by_default,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "anomalies": torch.autograd.detect_anomaly,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["aspect", "bgrl"])
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_modes_of_torch_do_not_matter(labelled, name, mode):
    settings = {"epochs": 2, "width": 8, "seed": 5, "device": "cpu"}
    expected = Embedder(name, **settings).fit(labelled).embed(labelled)
    with MODES[mode]():
        model = Embedder(name, **settings).fit(labelled)
        found = model.embed(labelled)
    assert torch.equal(found, expected)
    assert torch.equal(model.embed(labelled), expected)


def test_embeddings_that_are_no_numbers_are_refused(labelled):
    """The last step may spoil the weights: no loss is computed after it."""
    model = small_aspect().fit(labelled)
    with torch.no_grad():
        model.method.encoder.linear.bias.fill_(torch.inf)
    with pytest.raises(TrainingError, match="embeddings of 40 nodes are not finite"):
        model.embed(labelled)


# Presets


def test_a_preset_that_is_not_shipped_is_said_so():
    with pytest.raises(UnknownNameError, match=r"Unknown preset 'corra'\. Did you mean 'cora'\?"):
        Aspect.preset("corra")


@pytest.mark.parametrize("name", ["cora.published", "../aspect/cora", "aspect", "", "no such"])
def test_only_names_of_data_sets_are_presets(name):
    with pytest.raises(UnknownNameError, match=r"Known: actor, .*cora, .*paper, "):
        Aspect.preset(name)


@pytest.mark.parametrize("name", ["cora", "mixed", "paper"])
def test_presets_are_the_settings_shipped(name):
    choice = "paper" if name == "paper" else None
    shipped = find_experiment("aspect", name, choice)[0].settings
    settings = Aspect.preset(name, device="cpu", width=7).config.model_dump()
    assert settings == {**Aspect(device="cpu", **shipped).config.model_dump(), "width": 7}


def test_the_stable_variant_is_saved_and_read_as_such(small_graph, tmp_path):
    model = Aspect(stable=True, epochs=2, width=8, warm_up=0, interval=1, device="cpu")
    model.fit(small_graph).save(tmp_path / "stable.safetensors")
    again = Aspect.load(tmp_path / "stable.safetensors", device="cpu")
    assert again.name == "aspect-s"
    torch.testing.assert_close(again.embed(small_graph), model.embed(small_graph))


def test_a_preset_of_the_stable_variant_has_the_settings_of_both():
    plain, stable = Aspect.preset("cora").config, Aspect.preset("cora", stable=True, interval=3)
    own = stable.config.model_dump()
    assert stable.name == "aspect-s"
    assert own | plain.model_dump() == own
    assert own["interval"] == 3


@pytest.mark.gpu
def test_on_a_gpu_nothing_global_changes_and_runs_repeat(labelled):
    torch.manual_seed(3)
    before = torch.get_rng_state(), torch.cuda.get_rng_state()
    first = small_aspect(device="cuda", seed=5).fit(labelled)
    assert torch.equal(before[0], torch.get_rng_state())
    assert torch.equal(before[1], torch.cuda.get_rng_state())
    again = small_aspect(device="cuda", seed=5).fit(labelled)
    torch.testing.assert_close(first.embed(labelled), again.embed(labelled), rtol=1e-5, atol=1e-6)
    assert first.embed(labelled).device.type == "cpu"
