"""What every registered method must hold; a new method is tested by existing."""

from __future__ import annotations

import copy
import importlib
import pkgutil
from pathlib import Path

import pytest
import torch

import aspect.methods
from aspect.config import Choice, Range, load_yaml, make_config, to_yaml
from aspect.data.features import dense
from aspect.data.graph import Graph
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
NUM_FEATURES = 10
# Methods that need more than SMALL to learn anything within forty epochs on thirty nodes.
LEARNING: dict[str, dict[str, object]] = {
    "dgi": {"width": 64, "learning_rate": 0.01},
    "graphcl": {"width": 64, "learning_rate": 0.01},
    "mvgrl": {"width": 64, "learning_rate": 0.01},
    "gmi": {"learning_rate": 0.01},
    "polygcl": {"width": 64, "learning_rate": 0.01, "input_dropout": 0.0, "dropout": 0.0},
    "rdgi": {"width": 64, "learning_rate": 0.01, "perturbation_budget": 0.1},
    "ariel": {"learning_rate": 0.01},
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


def assert_same(first, second):
    torch.testing.assert_close(first, second, rtol=0, atol=0)


# Learning


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", TRAINABLE)
def test_loss_and_gradients_are_finite(name, kind):
    method, graph = make_method(name), GRAPHS[kind]()
    method.prepare(graph)
    for phase in method.phases:
        method.zero_grad()
        terms = method.train().loss_terms(graph, Step(1, generator_for(0, phase), phase))
        for term, value in terms.items():
            assert value.shape == (), term
            assert bool(torch.isfinite(value)), term
        torch.stack(list(terms.values())).sum().backward()
        groups = [group for group in method.parameter_groups() if group.phase == phase]
        assert groups
        names = {id(parameter): name for name, parameter in method.named_parameters()}
        for group in groups:
            for parameter in group.parameters:
                assert parameter.grad is not None, names[id(parameter)]
                assert bool(torch.isfinite(parameter.grad).all()), names[id(parameter)]


@pytest.mark.parametrize("name", TRAINABLE)
def test_every_parameter_is_in_one_group_and_gets_a_gradient(name):
    method, graph = make_method(name), dense_graph()
    trained = [id(p) for group in method.parameter_groups() for p in group.parameters]
    assert len(trained) == len(set(trained))
    assert {id(p) for p in method.parameters() if p.requires_grad} == set(trained)
    for phase in method.phases:
        loss_of(method, graph, phase).backward()
    idle = [
        label
        for label, parameter in method.named_parameters()
        if parameter.requires_grad
        and (parameter.grad is None or not bool(parameter.grad.abs().sum() > 0))
    ]
    assert idle == []


@pytest.mark.parametrize("name", TRAINABLE)
def test_a_tiny_training_lowers_the_loss(name):
    changes = {"epochs": 40, "patience": None, **LEARNING.get(name, {})}
    method, graph = make_method(name, **changes), dense_graph()
    method.prepare(graph)
    with torch.no_grad():
        before = float(loss_of(method, graph))
    result = train(method, graph, seed=0)
    with torch.no_grad():
        after = float(loss_of(method, graph))
    assert result.epochs == 40
    assert after < before - 0.01 * abs(before)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TRAINABLE])
def test_what_is_not_trainable_keeps_its_first_weights(name):
    method = make_method(name, epochs=5)
    before = {key: value.clone() for key, value in method.named_parameters()}
    assert train(method, dense_graph(), seed=0).epochs == 0
    assert_same(dict(method.named_parameters()), before)


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_numbers(name, kind):
    graph = GRAPHS[kind]()
    runs = []
    for _ in range(2):
        recorder = MemoryRecorder()
        model = Embedder(name, seed=4, device="cpu", **settings_of(name, epochs=5))
        model.fit(graph, recorder=recorder)
        runs.append(([report.values for report in recorder.reports], model.embed(graph)))
    assert runs[0][0] == runs[1][0]
    assert_same(runs[0][1], runs[1][1])


@pytest.mark.parametrize("name", TRAINABLE)
def test_a_resumed_training_ends_like_the_whole(name):
    graph = dense_graph()
    settings = settings_of(name, epochs=6, patience=2)
    recorder = MemoryRecorder()
    whole = Embedder(name, seed=4, device="cpu", **settings).fit(graph, recorder=recorder)
    start = recorder.snapshots[min(2, len(recorder.snapshots) - 1)]
    resumed = Embedder(name, seed=4, device="cpu", **settings)
    resumed.fit(graph, recorder=MemoryRecorder(start))
    assert resumed.result == whole.result
    assert_same(resumed.method.state_dict(), whole.method.state_dict())


# Embedding


def relabelled(graph: Graph, order: torch.Tensor) -> Graph:
    """The same graph, in which new node k is old node order[k]."""
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    return Graph.build(dense(graph.features)[order], place[graph.edge_index])


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", NAMES)
def test_relabelling_nodes_permutes_embeddings(name, kind):
    graph = GRAPHS[kind]()
    method = make_method(name, epochs=3)
    train(method, graph, seed=0)
    method, graph = method.double(), graph.to(torch.float64)
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
def test_the_graph_is_unchanged_and_shares_no_memory(name, kind):
    graph = GRAPHS[kind]()
    values = graph.features.values if kind == "sparse" else graph.features
    before = values.clone(), graph.edge_index.clone()
    method = make_method(name, epochs=2)
    train(method, graph, seed=0)
    embedding = embed(method, graph)
    assert_same((values, graph.edge_index), before)
    embedding.fill_(-1)
    assert_same(values, before[0])


@pytest.mark.parametrize("name", NAMES)
def test_embedding_twice_gives_the_same(name):
    graph = dense_graph()
    method = make_method(name, epochs=2)
    train(method, graph, seed=0)
    state = {key: value.clone() for key, value in method.state_dict().items()}
    assert_same(embed(method, graph), embed(method, graph))
    assert_same(method.state_dict(), state)


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_it_embeds_the_same(name, kind, tmp_path):
    graph = GRAPHS[kind]()
    model = Embedder(name, seed=4, device="cpu", **settings_of(name, epochs=2)).fit(graph)
    model.save(tmp_path / "model.safetensors")
    loaded = Embedder.load(tmp_path / "model.safetensors", device="cpu")
    assert_same(loaded.embed(graph), model.embed(graph))
    policy = model.policy(graph)
    assert (policy is None) == (loaded.policy(graph) is None)
    if policy is not None:
        assert_same(loaded.policy(graph), policy)
        assert bool(((policy >= 0) & (policy <= 1)).all())


# Some encoders have batch norm where a setting asks for it.
NORMS: dict[str, dict[str, object]] = {
    "default": {},
    "normed": {"batch_norm": True, "backbone": "mlp"},
}


def has_norm_setting(name: str) -> bool:
    return bool(NORMS["normed"].keys() & find_method(name).config.model_fields.keys())


TRAINED = [(name, "default") for name in NAMES]
TRAINED += [(name, "normed") for name in NAMES if has_norm_setting(name)]


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize(("name", "norm"), TRAINED)
def test_what_is_embedded_is_what_was_trained(name, norm, kind):
    """Nothing dropped or augmented: `embed` is the forward pass of a training step."""
    graph = GRAPHS[kind]().to(torch.float64)
    method = make_method(name, epochs=4, **NORMS[norm]).double()
    train(method, graph, seed=0)
    trained = copy.deepcopy(method).train()
    with torch.no_grad():
        expected = trained.embed(graph)
    torch.testing.assert_close(embed(method, graph), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("name", "norm"), TRAINED)
def test_after_fit_nothing_is_left_to_calibrate(name, norm):
    graph = dense_graph()
    model = Embedder(name, device="cpu", **settings_of(name, epochs=2, **NORMS[norm])).fit(graph)
    assert not model.method.is_stale
    assert not model.is_stale
    state = {key: value.clone() for key, value in model.method.state_dict().items()}
    before = model.embed(graph)
    model.calibrate(graph)
    assert_same(model.embed(graph), before)
    assert_same(dict(model.method.state_dict()), state)


@pytest.mark.parametrize("name", [name for name in NAMES if find_method(name).method.inductive])
def test_an_unseen_graph_is_embedded(name):
    model = Embedder(name, device="cpu", **settings_of(name, epochs=2)).fit(dense_graph())
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


@pytest.mark.parametrize("case", edge_cases())
@pytest.mark.parametrize("name", NAMES)
def test_odd_graphs_are_served_with_finite_numbers(name, case):
    graph = edge_cases()[case]
    model = Embedder(name, device="cpu", **settings_of(name, epochs=3)).fit(graph)
    embedding = model.embed(graph)
    assert embedding.shape[0] == graph.num_nodes
    assert bool(torch.isfinite(embedding).all())


# Settings and registry


@pytest.mark.parametrize("name", NAMES)
def test_settings_come_back_from_yaml(name, tmp_path):
    entry = find_method(name)
    config = make_config(entry.config, settings_of(name, patience=3), owner=name)
    path = Path(tmp_path / "config.yaml")
    path.write_text(to_yaml(config.model_dump(mode="json")), encoding="utf-8")
    assert make_config(entry.config, load_yaml(path), owner=name) == config


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_explained(name):
    config = find_method(name).config
    assert issubclass(config, MethodConfig)
    assert config.__doc__
    for key, field in config.model_fields.items():
        assert field.description, f"{key} has no docstring"
        assert field.description.endswith("."), key


@pytest.mark.parametrize("name", NAMES)
def test_what_the_tuner_draws_is_allowed(name):
    config = find_method(name).config
    for key, field in config.model_fields.items():
        for hint in field.metadata:
            if isinstance(hint, Range):
                assert hint.low < hint.high, key
                assert hint.low > 0 or not hint.log, f"{key}: no logarithm of {hint.low}"
                values = (hint.low, hint.high)
            elif isinstance(hint, Choice):
                assert len(set(hint.values)) == len(hint.values) > 1, key
                values = hint.values
            else:
                continue
            for value in values:
                assert getattr(make_config(config, {key: value}, owner=name), key) == value


def test_the_main_methods_settings_are_tuned():
    fields = find_method("aspect").config.model_fields.values()
    hints = [hint for field in fields for hint in field.metadata]
    assert sum(isinstance(hint, Range) for hint in hints) >= 10
    assert sum(isinstance(hint, Choice) for hint in hints) >= 5


@pytest.mark.parametrize("name", NAMES)
def test_the_entry_tells_of_the_method(name):
    entry = find_method(name)
    assert entry.name == entry.method.name == name
    assert entry.method.__doc__
    assert entry.method.cost in ("linear", "quadratic")
    assert entry.family
    assert entry.paper or entry.family == "control"


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
