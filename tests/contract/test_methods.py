"""What every registered method must hold; a new method is tested by existing."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import pytest
import torch

import aspect.methods
from aspect.config import Choice, Range
from aspect.data.graph import Graph, pair_keys
from aspect.methods import registry
from aspect.methods.registry import Citation, find_method, method_names, register
from aspect.randomness import generator_for
from aspect.testing import GRAPHS, METHOD_CHECKS, CountOperations, MethodContract

NAMES = method_names()
# Methods that need more than a small width to learn anything within twenty epochs on thirty nodes.
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


@cache
def contract(name: str) -> MethodContract:
    return MethodContract(name, learning=LEARNING.get(name))


@pytest.mark.parametrize("check", METHOD_CHECKS)
@pytest.mark.parametrize("name", NAMES)
def test_a_method_holds_to_its_contract(name, check):
    assert contract(name).violations(check) == []


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_declared(name):
    entry = find_method(name)
    assert entry.name == entry.method.name == name
    if entry.family == "control":
        assert entry.paper == ""
        return
    paper = entry.paper
    assert isinstance(paper, Citation), f"{name} must cite its paper: Citation(authors, title, ...)"
    assert paper.title
    assert paper.authors
    assert 2000 < paper.year < 2100
    assert paper.venue or name.startswith("aspect")


@pytest.mark.parametrize("nodes", [40, 80])
def test_products_are_counted_by_what_they_multiply(nodes):
    dense, narrow = torch.ones(nodes, nodes), torch.ones(nodes, 3)
    with CountOperations() as count:
        dense @ narrow
    assert count.total == 2 * nodes * nodes * 3 + nodes * 3
    sparse = torch.eye(nodes).to_sparse_csr()
    with CountOperations() as count:
        sparse @ narrow
    assert count.total < 20 * nodes


def test_the_main_methods_settings_are_tuned():
    fields = find_method("aspect").config.model_fields.values()
    hints = [hint for field in fields for hint in field.metadata]
    assert sum(isinstance(hint, Range) for hint in hints) >= 10
    assert sum(isinstance(hint, Choice) for hint in hints) >= 5


def test_names_read_from_the_source_are_the_names_registered():
    for module in pkgutil.iter_modules(aspect.methods.__path__):
        importlib.import_module(f"aspect.methods.{module.name}")
    assert sorted(name for name in registry._registry if ":" not in name) == NAMES


def test_a_name_used_twice_is_an_error():
    before = dict(registry._registry)
    entry = find_method("raw")
    with pytest.raises(ValueError, match="Two methods are called 'raw'"):
        register("raw", config=entry.config, paper="", family="control")(entry.method)
    assert registry._registry == before


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_used(name):
    """A weighted graph gives other embeddings; weights of one give the same as none."""
    plain = GRAPHS["dense"]()
    draw = generator_for(1, "weights")
    keys = pair_keys(plain.edge_index[0], plain.edge_index[1], plain.num_nodes)
    of_pairs = torch.rand(plain.num_nodes**2, generator=draw) * 4 + 0.1
    found = {}
    for kind, weights in (("none", None), ("one", torch.ones(len(keys))), ("own", of_pairs[keys])):
        graph = Graph.build(plain.features, plain.edge_index, weights=weights)
        model = MethodContract(name).embedder(epochs=2)
        found[kind] = model.fit(graph).embed(graph, normalise="none")
    assert torch.equal(found["one"], found["none"])
    assert bool(torch.isfinite(found["own"]).all())
    knows_no_edges = name == "raw"
    assert torch.equal(found["own"], found["none"]) == knows_no_edges
