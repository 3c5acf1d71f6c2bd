"""A trained encoder in the form in which it embeds: one affine map, one filter a band, frozen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aspect.graph.data import Features
from aspect.graph.operators import Operator
from aspect.spectral.chebyshev import chebyshev_basis
from aspect.spectral.views import SpectralEncoder

__all__ = ["FoldedEncoder", "fold"]


@dataclass(frozen=True, eq=False)
class FoldedEncoder:
    """What the encoder computes when nothing is dropped: `activation(filter(X W) + b)`.

    Its tensors carry no gradient: what flows back reaches features and operator alone.
    """

    weight: Float[Tensor, "features dim"]
    bias: Float[Tensor, " dim"]
    coefficients: Float[Tensor, "bands terms"]
    slope: Float[Tensor, " one"]  # of the activation below zero

    def project(self, features: Features) -> Float[Tensor, "nodes dim"]:
        """The signal that is filtered, as narrow as the embedding; linear in the features."""
        return features @ self.weight

    def embed(
        self, projected: Float[Tensor, "nodes dim"], operator: Operator
    ) -> Float[Tensor, "bands nodes dim"]:
        """Every node in every band, lowest first."""
        order = self.coefficients.shape[1] - 1
        basis = torch.stack(list(chebyshev_basis(operator, projected, order)))
        filtered = (self.coefficients @ basis.flatten(1)).view(-1, *projected.shape)
        return nn.functional.prelu(filtered + self.bias, self.slope)


@torch.no_grad()
def fold(encoder: SpectralEncoder) -> FoldedEncoder:
    """Draw linear layer and batch norm together; filters are linear, so that the map comes first.

    The batch norm is that of evaluation: its running statistics, one scale and one shift a column.
    """
    weight: Tensor = encoder.linear.weight
    bias: Tensor = encoder.linear.bias
    if isinstance(encoder.norm, nn.BatchNorm1d):
        scale, shift = _affine(encoder.norm)
        if encoder.project_first:
            weight, bias = scale[:, None] * weight, scale * bias + shift
        else:
            weight, bias = weight * scale, weight @ shift + bias
    slope = encoder.activation.weight if isinstance(encoder.activation, nn.PReLU) else None
    return FoldedEncoder(
        weight.t().clone(),
        bias.clone(),
        encoder.coefficients(),
        weight.new_zeros(1) if slope is None else slope.clone(),
    )


def _affine(norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None  # ours are tracked
    assert norm.running_var is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    return scale, norm.bias - scale * norm.running_mean
