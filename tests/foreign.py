"""A module of a user's own, outside of the package: a method, an attack and a data set."""

from __future__ import annotations

import textwrap

import pytest

from aspect.attacks import registry as attacks
from aspect.data import source
from aspect.experiment import spec
from aspect.methods import registry as methods
from aspect.plugins import _offered

SOURCE = '''
from typing import Annotated

import torch

from aspect import mixed_graph
from aspect.attacks.drawn import Choices, DrawnAttack, DrawnConfig
from aspect.attacks.registry import register_attack
from aspect.config import Choice, Count, Positive, Range
from aspect.data.graph import edge_keys
from aspect.data.source import register_dataset
from aspect.losses.correlation import barlow_loss
from aspect.methods.base import OneEncoder, OneEncoderConfig
from aspect.methods.registry import register
from aspect.nn.gcn import GCNStack

NO_FUNCTION = 3


class MineConfig(OneEncoderConfig):
    """Settings of the example."""

    width: Annotated[Count, Choice((4, 8))] = 8
    """Dimensions of the embedding."""
    learning_rate: Annotated[Positive, Range(1e-4, 1e-2, log=True)] = 1e-3
    """Learning rate of Adam."""
    epochs: int = 3
    """Passes over the graph."""


@register("{name}", config=MineConfig, paper="", family="example")
class Mine(OneEncoder):
    """Two views by edge drop, one encoder, the Barlow Twins loss."""

    config: MineConfig

    def __init__(self, config, num_features):
        super().__init__(config)
        self.encoder = GCNStack([num_features, config.width])

    def loss_terms(self, graph, step):
        source = self.source(graph)
        views = [self.encode(source.corrupted(0.2, 0.0, step.generator)) for _ in range(2)]
        return {{"correlation": barlow_loss(*views)}}


class Bare(OneEncoder):
    """The same without a registration."""

    config: MineConfig
    __init__, loss_terms = Mine.__init__, Mine.loss_terms


@register_attack("{name}-hubs", config=DrawnConfig, needs_labels=False)
class Hubs(DrawnAttack):
    """Adds edges at the nodes of highest degree."""

    def choices(self):
        graph = self.target.graph
        hubs = graph.degrees().topk(3).indices.tolist()
        edges, nodes = edge_keys(graph).cpu(), graph.num_nodes
        return Choices(edges[:0], edges, 3 * (nodes - 6), (hubs, range(nodes)), lambda a, b: a < b)


@register_dataset("{name}-graph", note="Thirty nodes.")
def small():
    return mixed_graph(num_nodes=30, degree=4.0, num_features=6, seed=0)
'''


def write_module(folder, name, short="mine"):
    (folder / f"{name}.py").write_text(textwrap.dedent(SOURCE.format(name=short)))
    return name


@pytest.fixture
def registries():
    """What a test registers is forgotten after it; what is of aspect stays."""
    yield
    for table in (methods._registry, attacks._attacks, source._details):
        for name in [name for name in table if ":" in name]:
            del table[name]
    for kind in (methods, attacks, source):
        kind._outside.registered.clear()
    _offered.cache_clear()
    spec.method_source.cache_clear()
