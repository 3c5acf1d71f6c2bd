"""What every table needs beside the methods: rivals that learn little or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aspect.config import Count
from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.data.operators import leading_eigenvectors, normalised_adjacency
from aspect.methods.aspect import AspectConfig, AspectMethod
from aspect.methods.base import Method, MethodConfig, Step
from aspect.methods.registry import Cost, register
from aspect.nn.filters import Band
from aspect.nn.propagation import SymmetricPropagation

LEVEL = 1e-6  # relative; eigenvalues closer than this may share an eigenspace


class PropagatedConfig(MethodConfig):
    """Settings of the propagated features."""

    hops: Count = 2
    """Propagation steps; each adds as many columns as there are features."""


class SpectralConfig(MethodConfig):
    """Settings of the spectral embedding."""

    components: Count = 128
    """Eigenvectors beside the features; at most two fewer than nodes."""


class Untrained(Method):
    """An embedding that is computed from the graph alone: without weights, without a loss."""

    trainable: ClassVar[bool] = False

    def __init__(self, config: MethodConfig, num_features: int) -> None:  # noqa: ARG002 - contract
        super().__init__()
        self.config = config

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        return {}


@register("raw", config=MethodConfig, paper="", family="control")
class RawFeatures(Untrained):
    """The features themselves: what a probe reaches without any embedding."""

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        return dense(graph.features).clone()  # the caller may change it, the graph must not


@register("propagated", config=PropagatedConfig, paper="", family="control")
class PropagatedFeatures(Untrained):
    """The features beside their averages over one and two hops: [X, SX, S2X], without training.

    S is the symmetric normalised adjacency with self-loops, as in SGC (Wu et al., ICML 2019) and
    SIGN (Frasca et al., 2020). Blocks have rows of the same mean length: averages are shorter than
    what they average, and a penalty would hold them down.
    """

    config: PropagatedConfig

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        smooth = SymmetricPropagation(graph).smoothing()
        blocks = [dense(graph.features)]
        for _ in range(self.config.hops):
            blocks.append(smooth(blocks[-1]))
        return side_by_side(blocks)


def side_by_side(blocks: Sequence[Float[Tensor, "nodes _"]]) -> Float[Tensor, "nodes dim"]:
    """Blocks, each by one factor that brings its rows to the mean length of the first one's.

    Blocks of zeros stay as they are, and so do all where the first is one.
    """
    lengths = [torch.linalg.vector_norm(block, dim=1).mean() for block in blocks]
    scaled = [
        block * (lengths[0] / length) if length > 0 and lengths[0] > 0 else block
        for block, length in zip(blocks, lengths, strict=True)
    ]
    return torch.cat(scaled, dim=1)


@register("spectral", config=SpectralConfig, paper="", family="control")
class SpectralFeatures(Untrained):
    """The features beside the adjacency's truncated singular value decomposition, untrained.

    The adjacency is normalised by degrees plus their mean (Qin and Rohe, NeurIPS 2013): without
    it the leading vectors of a sparse graph mark its smallest components. Vectors are scaled by
    their singular values, and both blocks have rows of the same mean length. Components that are
    level with the first left out are left out too: the rest is unique up to a rotation.
    """

    inductive: ClassVar[bool] = False  # another graph has other eigenvectors

    config: SpectralConfig

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        features = dense(graph.features)
        structure = truncated_svd(graph, min(self.config.components, graph.num_nodes - 2))
        return side_by_side([features, structure])


def truncated_svd(graph: Graph, count: int) -> Float[Tensor, "nodes components"]:
    """At most so many left singular vectors of the adjacency, each times its singular value."""
    if count < 1 or graph.num_edges == 0:
        return torch.zeros(graph.num_nodes, 0, dtype=graph.dtype, device=graph.device)
    adjacency = normalised_adjacency(graph, added_degree=2 * graph.num_edges / graph.num_nodes)
    values, vectors = leading_eigenvectors(adjacency, count + 1, "LM")
    sizes = np.abs(values)
    kept = sizes > sizes[-1] + LEVEL * sizes[0]
    return torch.from_numpy(vectors[:, kept] * sizes[kept]).to(graph.device, graph.dtype)


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
