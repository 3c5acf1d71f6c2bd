"""Several ASPECT models of the same settings side by side, trained at once from other weights.

An ablation: what a training gains where its width is spent on seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from aspect.config import Count
from aspect.data.graph import Graph
from aspect.methods.aspect import PAPER, AspectConfig, AspectMethod
from aspect.methods.base import Group, Method, Output, Step
from aspect.methods.controls import side_by_side
from aspect.methods.registry import Cost, register


class AspectEnsembleConfig(AspectConfig):
    """Settings of the ensemble: those of every member, and their number."""

    members: Count = 4
    """Models that are trained together; each draws its own weights, views and dropout."""


@register("aspect-ensemble", config=AspectEnsembleConfig, paper=PAPER, family="spectral contrast")
class AspectEnsembleMethod(Method):
    """Several ASPECT models of the same settings, trained at once; an ablation (ours).

    Losses are summed: members share no weight, so that each has the gradient that it would have
    alone, and the same balance with weight decay. The first member is the model that ASPECT trains
    from the same seed.
    """

    cost: ClassVar[Cost] = "quadratic"

    def __init__(self, config: AspectEnsembleConfig, num_features: int) -> None:
        super().__init__()
        self.config: AspectEnsembleConfig = config
        models = [AspectMethod(config, num_features) for _ in range(config.members)]
        self.ready = models[0].ready
        for model in models:  # the same settings prepare a graph alike
            model.ready = self.ready
        self.members = nn.ModuleList(models)
        self._watched = torch.zeros(())  # of the last step

    @property
    def _models(self) -> list[AspectMethod]:
        return [model for model in self.members if isinstance(model, AspectMethod)]

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        terms = [model.loss_terms(graph, step) for model in self._models]
        pairs = zip(self._models, terms, strict=True)
        self._watched = torch.stack([model.watched(own).detach() for model, own in pairs]).sum()
        return _by_name(terms, torch.sum)

    @override
    def watched(self, terms: Mapping[str, Tensor]) -> Tensor:
        return self._watched

    @override
    def monitors(self) -> dict[str, Tensor]:
        return _by_name([model.monitors() for model in self._models], torch.mean)

    @override
    def capture_key(self, step: Step) -> Hashable | None:
        keys = tuple(model.capture_key(step) for model in self._models)
        return None if None in keys else keys

    @override
    def parameter_groups(self) -> list[Group]:
        alike = zip(*(model.parameter_groups() for model in self._models), strict=True)
        return [
            replace(groups[0], parameters=[one for group in groups for one in group.parameters])
            for groups in alike
        ]

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        return side_by_side([model.embed(graph) for model in self._models])

    @override
    def output(self, graph: Graph) -> Output:
        """The members' outputs side by side, and the mean of their gate weights."""
        outputs = [model.output(graph) for model in self._models]
        gates = [output.gate for output in outputs if output.gate is not None]
        return Output(
            side_by_side([output.embedding for output in outputs]),
            uncentred=side_by_side([output.uncentred for output in outputs]),
            gate=torch.stack(gates).mean(dim=0),
        )

    @override
    def outlook(self, graph: Graph) -> Iterable[str]:
        return self._models[0].outlook(graph)

    @override
    def warnings(self, output: Output) -> Iterable[str]:
        return self._models[0].warnings(output)


def _by_name(
    values: Iterable[Mapping[str, Tensor]], join: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """The members' numbers of each name as one."""
    rows = list(values)
    return {name: join(torch.stack([row[name] for row in rows])) for name in rows[0]}
