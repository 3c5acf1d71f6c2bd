"""Small labelled graphs for attacks: classes that features and neighbours both tell of."""

from dataclasses import dataclass

import torch
from torch import Tensor

from aspect.attacks.base import Target
from aspect.attacks.flip_ranking import AttackedEdges
from aspect.attacks.meta_gradient import AttackLoss, ConstantFeatures, Surrogate
from aspect.data.graph import Graph
from reference.graphs import random_graph


@dataclass
class Task:
    """A graph, all its classes, and the nodes whose classes are known."""

    graph: Graph
    labels: Tensor
    train: Tensor
    num_classes: int

    @property
    def target(self):
        return Target(self.graph, self.labels, self.train, self.num_classes)

    @property
    def known(self):
        return self.target.known

    @property
    def surrogate(self):
        features = ConstantFeatures(self.graph.features)
        return Surrogate(features, AttackedEdges(self.graph).normalised(), self.train)

    def loss(self, train_weight=0.0):
        return AttackLoss.build(self.labels, self.train, train_weight, self.graph.dtype)


def random_task(num_nodes=40, num_edges=80, *, seed=0, density=1.0, isolated=2):
    """Nothing but chance, in float64; some nodes have no edge."""
    graph = random_graph(num_nodes, num_edges, 11, seed=seed, isolated=isolated, density=density)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (num_nodes,), generator=generator)
    train = torch.randperm(num_nodes, generator=generator)[: num_nodes // 2].sort().values
    return Task(graph, labels, train, 3)


def class_task(num_nodes=90, *, seed=0, dtype=torch.float64, num_classes=3):
    """Three classes with features of their own, whose nodes mostly know each other."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, num_classes, (num_nodes,), generator=generator)
    centres = torch.randn(num_classes, 12, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_nodes, 12, generator=generator, dtype=torch.float64)
    features = (centres[labels] + 1.5 * noise).to(dtype)
    pairs = torch.randint(0, num_nodes, (2, 20 * num_nodes), generator=generator)
    alike = labels[pairs[0]] == labels[pairs[1]]
    kept = torch.rand(len(alike), generator=generator) < torch.where(alike, 0.2, 0.03)
    train = torch.randperm(num_nodes, generator=generator)[: num_nodes // 3].sort().values
    return Task(Graph.build(features, pairs[:, kept]), labels, train, num_classes)
