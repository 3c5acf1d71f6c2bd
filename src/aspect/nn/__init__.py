"""Parts shared by several methods."""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.nn.augmentations import View, ViewSource
    from aspect.nn.diffusion import PersonalisedPageRank
    from aspect.nn.filters import InterpolatedFilter, MonotoneFilter, RampFilter, chebyshev_basis
    from aspect.nn.gate import NodePolicy, fuse, make_policy
    from aspect.nn.gcn import GCNStack
    from aspect.nn.mlp import MLP
    from aspect.nn.normalisation import BatchNorm, Centre
    from aspect.nn.scorers import BilinearScorer, EdgeDiscriminator
    from aspect.nn.spectral_encoder import SpectralEncoder

__all__ = [
    "MLP",
    "BatchNorm",
    "BilinearScorer",
    "Centre",
    "EdgeDiscriminator",
    "GCNStack",
    "InterpolatedFilter",
    "MonotoneFilter",
    "NodePolicy",
    "PersonalisedPageRank",
    "RampFilter",
    "SpectralEncoder",
    "View",
    "ViewSource",
    "chebyshev_basis",
    "fuse",
    "make_policy",
]

__getattr__, __dir__ = exporting(__name__, __file__)
