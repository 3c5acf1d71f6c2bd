"""What a training passes over in an epoch: the whole graph in one step, or batches of its rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.graph import Graph
from aspect.methods.base import Method, Step
from aspect.training.gradients import Gradients, Pass

Update = Callable[[], None]  # moves the weights by their gradients
Check = Callable[[Pass], None]  # reads the numbers, raises where one is not finite


class TrainingData:
    """A graph as the trainer sees it: a step takes it whole, but those of `aspect.scale.rows`."""

    device: torch.device
    num_features: int  # columns of the features
    # What to lower when memory runs out, besides settings of the method.
    memory_options: tuple[str, ...] = ()

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.device, self.num_features = graph.device, graph.num_features

    @staticmethod
    def of(graph: Graph | TrainingData) -> TrainingData:
        """A graph to be taken whole, or what is training data already."""
        return TrainingData(graph) if isinstance(graph, Graph) else graph

    def prepare(self, method: Method) -> None:
        """As `Method.prepare`."""
        method.prepare(self.graph)

    def gradients(self, method: Method, parameters: list[torch.nn.Parameter]) -> Gradients:
        """What computes the gradients of a phase's parameters."""
        return Gradients(method, self.graph, parameters)

    def one_pass(
        self, gradients: Gradients, step: Step, update: Update, check: Check | None
    ) -> Pass:
        """Update once, or for every batch; the numbers of the loss, or their means.

        Without a check nothing is read, so that a GPU is not waited for.
        """
        done = gradients.compute(step)
        if check is not None:  # before the step, so that no weight is ever spoilt
            check(done)
        update()
        return done if check is not None else done.kept()

    def calibrate(self, method: Method) -> None:
        """As `Method.calibrate`."""
        method.calibrate(self.graph)

    def uncentred(self, method: Method) -> Float[Tensor, "nodes dim"]:
        """Embeddings before any centring, of nodes enough to judge their health by."""
        return method.output(self.graph).uncentred
