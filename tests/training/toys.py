"""Methods small enough to know their every number, a recorder in memory, and a tiny graph."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from aspect.data.graph import Graph
from aspect.methods.base import Group, Method, MethodConfig, Step
from aspect.testing import MemoryRecorder

__all__ = ["Collapsing", "MemoryRecorder", "Scripted", "Toy", "ToyConfig", "tiny_graph"]


def tiny_graph() -> Graph:
    pairs = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    return Graph.build(torch.arange(1.0, 9.0).view(4, 2), pairs)


class ToyConfig(MethodConfig):
    learning_rate: float = 0.1
    weight_decay: float = 0.0


class Toy(Method):
    """Draws its weights towards noisy targets; subclasses say what happens in an epoch."""

    name: ClassVar[str] = "toy"

    def __init__(self, **settings: object) -> None:
        super().__init__()
        self.config = ToyConfig(**settings)
        self.weights = nn.Parameter(torch.tensor([2.0, -1.0]))
        self.register_buffer("last_epoch", torch.tensor(0))

    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        self.last_epoch.fill_(step.epoch)
        noise = torch.rand(2, generator=step.generator)
        target = graph.features.mean(0) + noise
        return {"fit": (self.weights - target).square().sum(), "size": 0.1 * self.weights.norm()}

    def parameter_groups(self) -> list[Group]:
        return [Group([self.weights], self.config.learning_rate, self.config.weight_decay)]

    def embed(self, graph: Graph) -> Tensor:
        return graph.features * self.weights


class Scripted(Toy):
    """Its watched loss is written down beforehand, one number an epoch."""

    def __init__(self, script: list[float], **settings: object) -> None:
        super().__init__(epochs=len(script), **settings)
        self.script = script

    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        terms = super().loss_terms(graph, step)
        return {"script": torch.tensor(self.script[step.epoch - 1]), "zero": 0 * terms["fit"]}


class Collapsing(Toy):
    """Healthy after some of the epochs; after the others all nodes have one embedding."""

    def __init__(self, healthy: range, **settings: object) -> None:
        super().__init__(**settings)
        self.healthy = healthy

    def embed(self, graph: Graph) -> Tensor:
        rows = torch.eye(graph.num_nodes)
        return rows if int(self.last_epoch) in self.healthy else torch.ones_like(rows)
