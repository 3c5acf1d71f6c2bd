"""What every table needs beside the methods: rivals that learn little or nothing."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aspect.graph.data import Graph
from aspect.graph.features import dense
from aspect.methods.aspect import AspectConfig, AspectMethod
from aspect.methods.base import Method, MethodConfig, Step
from aspect.methods.registry import Cost, register
from aspect.spectral.filters import Band

__all__ = ["HighBandOnly", "LowBandOnly", "RandomEncoder", "RawConfig", "RawFeatures"]


class RawConfig(MethodConfig):
    """The features as they are have no settings of their own."""


@register("raw", config=RawConfig, paper="", family="control")
class RawFeatures(Method):
    """The features themselves: what a probe reaches without any embedding."""

    trainable: ClassVar[bool] = False

    def __init__(self, config: RawConfig, num_features: int) -> None:  # noqa: ARG002 - the contract
        super().__init__()
        self.config = config

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        return {}

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        return dense(graph.features).clone()  # the caller may change it, the graph must not


@register("random", config=AspectConfig, paper="", family="control")
class RandomEncoder(AspectMethod):
    """ASPECT with the weights it starts from: what the architecture gives without training."""

    cost: ClassVar[Cost] = "linear"  # nothing is contrasted
    trainable: ClassVar[bool] = False


@register("low", config=AspectConfig, paper="", family="control")
class LowBandOnly(AspectMethod):
    """ASPECT with the low band alone."""

    bands: ClassVar[tuple[Band, ...]] = ("low",)


@register("high", config=AspectConfig, paper="", family="control")
class HighBandOnly(AspectMethod):
    """ASPECT with the high band alone."""

    bands: ClassVar[tuple[Band, ...]] = ("high",)
