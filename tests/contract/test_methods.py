"""What every registered method must hold; a new method is tested by existing."""

from __future__ import annotations

import copy
import importlib
import pkgutil
from functools import cache
from pathlib import Path

import pytest
import torch

import aspect.methods
from aspect.config import Choice, Range, load_yaml, make_config, to_yaml
from aspect.data.features import dense
from aspect.data.graph import Graph, pair_keys
from aspect.data.sparse import SparseMatrix
from aspect.data.synthetic import mixed_graph
from aspect.estimator import Embedder
from aspect.methods import registry
from aspect.methods.base import Method, MethodConfig, Step
from aspect.methods.registry import find_method, method_names, register
from aspect.randomness import generator_for, isolated_seed
from aspect.training.trainer import train
from training.toys import MemoryRecorder

NAMES = method_names()
TRAINABLE = [name for name in NAMES if find_method(name).method.trainable]
# A search is due in every epoch: what holds for a method holds with it.
SMALL = {"width": 8, "order": 2, "gate_width": 8, "warm_up": 0, "interval": 1}
SMALL |= {"perturbation_steps": 2}
NUM_FEATURES = 10
# Methods that need more than SMALL to learn anything within twenty epochs on thirty nodes.
LEARNING: dict[str, dict[str, object]] = {
    "dgi": {"width": 64, "learning_rate": 0.01},
    "graphcl": {"width": 64, "learning_rate": 0.01},
    "mvgrl": {"width": 64, "learning_rate": 0.01},
    "gmi": {"learning_rate": 0.01},
    "hlcl": {"learning_rate": 0.01, "interval": 20},
    "polygcl": {
        "width": 64,
        "learning_rate": 0.01,
        "epochs": 40,
        "input_dropout": 0.0,
        "dropout": 0.0,
    },
    "rdgi": {"width": 64, "learning_rate": 0.01, "perturbation_budget": 0.1},
    "ariel": {"learning_rate": 0.01},
    "aspect-s": {"interval": 20},
}


def settings_of(name: str, **changes) -> dict[str, object]:
    """The method's defaults but for its size."""
    known = find_method(name).config.model_fields
    return {key: value for key, value in {**SMALL, **changes}.items() if key in known}


def make_method(name: str, num_features: int = NUM_FEATURES, **changes) -> Method:
    entry = find_method(name)
    config = make_config(entry.config, settings_of(name, **changes), owner=name)
    with isolated_seed(7):
        return entry.method(config, num_features)


def dense_graph() -> Graph:
    return mixed_graph(num_nodes=30, degree=5.0, num_features=NUM_FEATURES, seed=3).graph


def sparse_graph() -> Graph:
    """Words in documents: few of them, never negative; node 0 has none."""
    draw = generator_for(0, "words")
    words = (torch.rand(30, NUM_FEATURES, generator=draw) < 0.15).float()
    words[0] = 0
    graph = Graph.build(words, dense_graph().edge_index)
    assert isinstance(graph.features, SparseMatrix)
    return graph


GRAPHS = {"dense": dense_graph, "sparse": sparse_graph}


@cache
def fitted(name: str, kind: str) -> tuple[Embedder, MemoryRecorder, Graph]:
    """A short training that several tests look at and none changes."""
    recorder, graph = MemoryRecorder(), GRAPHS[kind]()
    model = Embedder(name, seed=4, device="cpu", **settings_of(name, epochs=5, patience=2))
    return model.fit(graph, recorder=recorder), recorder, graph


def loss_of(method: Method, graph: Graph, phase: str | None = None) -> torch.Tensor:
    """The first epoch's loss of a phase, the first if none is named, always with the same draws."""
    method.train()
    step = Step(1, generator_for(0, "epoch", 1), phase or method.phases[0])
    terms = method.loss_terms(graph, step)
    assert not {"loss", "epoch"} & set(terms), "names that the log needs itself"
    return torch.stack(list(terms.values())).sum()


@torch.no_grad()
def embed(method: Method, graph: Graph) -> torch.Tensor:
    return method.eval().embed(graph)


def state_of(method: Method) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in method.state_dict().items()}


def assert_same(first, second):
    torch.testing.assert_close(first, second, rtol=0, atol=0)


# Learning


@pytest.mark.parametrize("name", TRAINABLE)
def test_loss_and_gradients_are_finite_and_reach_every_parameter(name):
    for kind, make_graph in GRAPHS.items():
        method, graph = make_method(name), make_graph()
        method.prepare(graph)
        groups = method.parameter_groups()
        trained = [id(parameter) for group in groups for parameter in group.parameters]
        assert len(trained) == len(set(trained))
        assert {id(p) for p in method.parameters() if p.requires_grad} == set(trained)
        for phase in method.phases:
            terms = method.train().loss_terms(graph, Step(1, generator_for(0, phase), phase))
            for term, value in terms.items():
                assert value.shape == (), term
                assert bool(torch.isfinite(value)), term
            torch.stack(list(terms.values())).sum().backward()
            assert any(group.phase == phase for group in groups)
        for label, parameter in method.named_parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None, label
                assert bool(torch.isfinite(parameter.grad).all()), label
                assert kind == "sparse" or bool(parameter.grad.any()), label


@pytest.mark.parametrize("name", TRAINABLE)
def test_a_tiny_training_lowers_the_loss(name):
    changes = {"epochs": 20, "patience": None, **LEARNING.get(name, {})}
    method, graph = make_method(name, **changes), dense_graph()
    method.prepare(graph)
    with torch.no_grad():
        before = float(loss_of(method, graph))
    result = train(method, graph, seed=0)
    with torch.no_grad():
        after = float(loss_of(method, graph))
    assert result.epochs == changes["epochs"]
    assert after < before - 0.01 * abs(before)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TRAINABLE])
def test_what_is_not_trainable_keeps_its_first_weights(name):
    method = make_method(name, epochs=5)
    before = {key: value.clone() for key, value in method.named_parameters()}
    assert train(method, dense_graph(), seed=0).epochs == 0
    assert_same(dict(method.named_parameters()), before)
    assert method.num_parameters == 0


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_numbers_interrupted_or_not(name):
    whole, told, graph = fitted(name, "dense")
    settings = settings_of(name, epochs=5, patience=2)
    for start in [None, *told.snapshots[:2][-1:]]:
        recorder = MemoryRecorder(start)
        again = Embedder(name, seed=4, device="cpu", **settings).fit(graph, recorder=recorder)
        reports = [report.values for report in told.reports]
        assert [report.values for report in recorder.reports] == reports[
            0 if start is None else 2 :
        ]
        assert again.result == whole.result
        assert_same(again.method.state_dict(), whole.method.state_dict())
        assert_same(again.embed(graph), whole.embed(graph))


# Embedding


def relabelled(graph: Graph, order: torch.Tensor) -> Graph:
    """The same graph, in which new node k is old node order[k]."""
    number = torch.empty_like(order)
    number[order] = torch.arange(len(order))
    return Graph.build(dense(graph.features)[order], number[graph.edge_index])


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", NAMES)
def test_relabelling_nodes_permutes_embeddings(name, kind):
    model, _, graph = fitted(name, kind)
    method, graph = copy.deepcopy(model.method).double(), graph.to(torch.float64)
    order = torch.randperm(graph.num_nodes, generator=generator_for(1, "order"))
    expected = embed(method, graph)[order]
    assert expected.dtype == torch.float64
    torch.testing.assert_close(
        embed(method, relabelled(graph, order)), expected, rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_order_and_number_of_equal_edges_do_not_matter(name):
    graph = dense_graph()
    method = make_method(name)
    pairs = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    order = torch.randperm(pairs.shape[1], generator=generator_for(2, "order"))
    shuffled = pairs[:, order]
    turned = torch.cat([shuffled[:, ::2], shuffled[:, 1::2].flip(0), shuffled[:, :3]], dim=1)
    assert_same(embed(method, Graph.build(graph.features, turned)), embed(method, graph))


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", NAMES)
def test_neither_training_nor_embedding_changes_the_graph_or_the_model(name, kind):
    model, _, graph = fitted(name, kind)
    before, untouched = state_of(model.method), GRAPHS[kind]()
    first = embed(model.method, graph)
    copied = first.clone()
    first.fill_(-1)  # it shares no memory with the graph
    assert_same(embed(model.method, graph), copied)
    assert_same(model.method.state_dict(), before)
    assert_same(
        (dense(graph.features), graph.edge_index), (dense(untouched.features), untouched.edge_index)
    )


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_it_embeds_the_same(name, kind, tmp_path):
    model, _, graph = fitted(name, kind)
    model.save(tmp_path / "model.safetensors")
    loaded = Embedder.load(tmp_path / "model.safetensors", device="cpu")
    assert_same(loaded.embed(graph), model.embed(graph))
    policy = model.policy(graph)
    assert (policy is None) == (loaded.policy(graph) is None)
    if policy is not None:
        assert_same(loaded.policy(graph), policy)
        assert bool(((policy >= 0) & (policy <= 1)).all())


# Some encoders have batch norm where a setting asks for it.
NORMED: dict[str, object] = {"batch_norm": True, "backbone": "mlp"}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_embedded_is_what_was_trained(name):
    """Nothing dropped or augmented: `embed` is the forward pass of a training step."""
    has_norm_setting = bool(NORMED.keys() & find_method(name).config.model_fields.keys())
    cases = [("dense", {}), *([("sparse", NORMED)] if has_norm_setting else [])]
    for kind, norm in cases:
        graph = GRAPHS[kind]().to(torch.float64)
        method = make_method(name, epochs=4, **norm).double()
        train(method, graph, seed=0)
        trained = copy.deepcopy(method).train()
        with torch.no_grad():
            expected = trained.embed(graph)
        torch.testing.assert_close(embed(method, graph), expected, rtol=1e-8, atol=1e-10)
        assert not method.is_stale
        before = state_of(method)
        method.calibrate(graph)
        assert_same(method.state_dict(), before)


@pytest.mark.parametrize("name", NAMES)
def test_one_pass_gives_embedding_and_gate(name):
    model, _, graph = fitted(name, "dense")
    with torch.no_grad():
        output = model.method.eval().output(graph)
        assert_same(output.embedding, model.method.embed(graph))
        assert_same(output.gate, model.method.policy(graph))
    assert output.uncentred.shape == output.embedding.shape
    assert not model.is_stale


@pytest.mark.parametrize("name", [name for name in NAMES if find_method(name).method.inductive])
def test_an_unseen_graph_is_embedded(name):
    model, _, _ = fitted(name, "dense")
    other = mixed_graph(num_nodes=17, degree=4.0, num_features=NUM_FEATURES, seed=8)
    embedding = model.embed(other)
    assert embedding.shape[0] == 17
    assert bool(torch.isfinite(embedding).all())


def edge_cases() -> dict[str, Graph]:
    features = torch.randn(12, NUM_FEATURES, generator=generator_for(0, "cases"))
    ring = torch.stack([torch.arange(8), (torch.arange(8) + 1) % 8])
    zero_rows = features.clone()
    zero_rows[::3] = 0
    return {
        "isolated nodes": Graph.build(features, ring),
        "no edges": Graph.build(features, torch.zeros(2, 0, dtype=torch.long)),
        "zero rows": Graph.build(zero_rows, ring),
        "zero column": Graph.build(features * (torch.arange(NUM_FEATURES) > 0), ring),
        "one feature row for all": Graph.build(features[:1].expand(12, -1).clone(), ring),
        "nothing but zeros": Graph.build(torch.zeros(12, NUM_FEATURES), ring),
        "two nodes": Graph.build(features[:2], torch.tensor([[0], [1]])),
        "large numbers": Graph.build(1e6 * features, ring),
    }


@pytest.mark.parametrize("name", NAMES)
def test_odd_graphs_are_served_with_finite_numbers(name):
    for case, graph in edge_cases().items():
        model = Embedder(name, device="cpu", **settings_of(name, epochs=2)).fit(graph)
        embedding = model.embed(graph)
        assert embedding.shape[0] == graph.num_nodes, case
        assert bool(torch.isfinite(embedding).all()), case


# Settings and registry


def test_settings_come_back_from_yaml(tmp_path):
    path = Path(tmp_path / "config.yaml")
    for name in NAMES:
        entry = find_method(name)
        config = make_config(entry.config, settings_of(name, patience=3), owner=name)
        path.write_text(to_yaml(config.model_dump(mode="json")), encoding="utf-8")
        assert make_config(entry.config, load_yaml(path), owner=name) == config


def test_every_setting_is_explained():
    unexplained = [
        f"{name}: {key}"
        for name in NAMES
        for key, field in find_method(name).config.model_fields.items()
        if not (field.description or "").endswith(".")
    ]
    assert unexplained == []
    configs = [find_method(name).config for name in NAMES]
    assert all(issubclass(config, MethodConfig) and config.__doc__ for config in configs)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_tuner_draws_is_allowed(name):
    config = find_method(name).config
    for key, field in config.model_fields.items():
        values: tuple[object, ...] = ()
        for hint in field.metadata:
            if isinstance(hint, Range):
                assert hint.low < hint.high, key
                assert hint.low > 0 or not hint.log, f"{key}: no logarithm of {hint.low}"
                values = (hint.low, hint.high)
            elif isinstance(hint, Choice):
                assert len(set(hint.values)) == len(hint.values) > 1, key
                values = hint.values
        for value in values:
            assert getattr(make_config(config, {key: value}, owner=name), key) == value


def test_the_main_methods_settings_are_tuned():
    fields = find_method("aspect").config.model_fields.values()
    hints = [hint for field in fields for hint in field.metadata]
    assert sum(isinstance(hint, Range) for hint in hints) >= 10
    assert sum(isinstance(hint, Choice) for hint in hints) >= 5


def test_names_read_from_the_source_are_the_names_registered():
    for module in pkgutil.iter_modules(aspect.methods.__path__):
        importlib.import_module(f"aspect.methods.{module.name}")
    assert sorted(registry._registry) == NAMES


def test_a_name_used_twice_is_an_error():
    before = dict(registry._registry)
    entry = find_method("raw")
    with pytest.raises(ValueError, match="Two methods are called 'raw'"):
        register("raw", config=entry.config, paper="", family="control")(entry.method)
    assert registry._registry == before


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_used(name):
    """A weighted graph gives other embeddings; weights of one give the same as none."""
    plain = dense_graph()
    draw = generator_for(1, "weights")
    keys = pair_keys(plain.edge_index[0], plain.edge_index[1], plain.num_nodes)
    of_pairs = torch.rand(plain.num_nodes**2, generator=draw) * 4 + 0.1
    found = {}
    for kind, weights in (("none", None), ("one", torch.ones(len(keys))), ("own", of_pairs[keys])):
        graph = Graph.build(plain.features, plain.edge_index, weights=weights)
        model = Embedder(name, seed=4, device="cpu", **settings_of(name, epochs=2))
        found[kind] = model.fit(graph).embed(graph, normalise="none")
    assert torch.equal(found["one"], found["none"])
    assert bool(torch.isfinite(found["own"]).all())
    knows_no_edges = name == "raw"
    assert torch.equal(found["own"], found["none"]) == knows_no_edges
