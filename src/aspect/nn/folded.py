"""A trained encoder in the form in which it embeds: affine maps, one filter a band, frozen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aspect.data.graph import Features
from aspect.data.operators import Operator
from aspect.nn.chebyshev import chebyshev_basis
from aspect.nn.spectral_encoder import SpectralEncoder

__all__ = ["FoldedEncoder", "fold"]


@dataclass(frozen=True, eq=False)
class FoldedEncoder:
    """What the encoder computes when nothing is dropped: `activation(filter(X W) + b)`.

    `maps` is one where all bands share W. Batch norm before the linear layer gives each band its
    own, since it has statistics for each; as many signals are then filtered.
    Its tensors carry no gradient: what flows back reaches features and operator alone.
    """

    weight: Float[Tensor, "maps features dim"]
    bias: Float[Tensor, "bands dim"]
    coefficients: Float[Tensor, "bands terms"]
    slope: Float[Tensor, " one"]  # of the activation below zero

    def project(self, features: Features) -> Float[Tensor, "nodes signal"]:
        """The signal that is filtered, all maps side by side; linear in the features."""
        return features @ self.weight.transpose(0, 1).flatten(1)

    def embed(
        self, projected: Float[Tensor, "nodes signal"], operator: Operator
    ) -> Float[Tensor, "bands nodes dim"]:
        """Every node in every band, lowest first."""
        order = self.coefficients.shape[1] - 1
        basis = torch.stack(list(chebyshev_basis(operator, projected, order)))
        signals = basis.view(*basis.shape[:2], len(self.weight), -1)  # [terms, nodes, maps, dim]
        if len(self.weight) == 1:
            filtered = torch.einsum("bt,tnmd->bnd", self.coefficients, signals)
        else:
            filtered = torch.einsum("bt,tnbd->bnd", self.coefficients, signals)
        return nn.functional.prelu(filtered + self.bias.unsqueeze(1), self.slope)


@torch.no_grad()
def fold(encoder: SpectralEncoder) -> FoldedEncoder:
    """Draw linear layer and batch norm together; filters are linear, so that the map comes first.

    The batch norm is that of embedding: its stored statistics, one scale and one shift a column and
    band.
    """
    weights, biases = zip(
        *(_affine(encoder, band) for band in range(len(encoder.filters))), strict=True
    )
    shares_map = encoder.norm is None
    slope = encoder.activation.weight if isinstance(encoder.activation, nn.PReLU) else None
    bias = torch.stack(biases)
    return FoldedEncoder(
        torch.stack(weights[:1] if shares_map else weights).transpose(1, 2).clone(),
        bias,
        encoder.coefficients(),
        bias.new_zeros(1) if slope is None else slope.clone(),
    )


def _affine(
    encoder: SpectralEncoder, band: int
) -> tuple[Float[Tensor, "dim features"], Float[Tensor, " dim"]]:
    """Linear layer and batch norm of one band as one map."""
    weight: Tensor = encoder.linear.weight
    bias: Tensor = encoder.linear.bias
    if encoder.norm is None:
        return weight, bias
    scale, shift = encoder.norm.affine(band)
    if encoder.project_first:
        return scale[:, None] * weight, scale * bias + shift
    return weight * scale, weight @ shift + bias
