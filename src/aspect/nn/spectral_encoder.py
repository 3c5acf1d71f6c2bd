"""The spectral encoder: filter and project, in either order; and its folded form for the search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear
from typing_extensions import override

from aspect.data.features import dense, drop_entries, dropout, seen_features
from aspect.data.graph import Features, Graph
from aspect.data.operators import Operator, Propagation, RescaledLaplacian
from aspect.data.sparse import LARGEST_INT32, aligned, has_triton
from aspect.nn.filters import Band, MonotoneFilter, RampFilter, chebyshev_basis
from aspect.nn.normalisation import BatchNorm, NormStatistics

BandActivation = Literal["relu", "prelu"]
LayerOrder = Literal["filter-first", "project-first"]
FilterKind = Literal["monotone", "ramp"]

# Of running statistics, where they are asked for: that of PolyGCL's code.
RUNNING_MOMENTUM = 0.01
MOST_TERMS = 16  # of a basis that the kernels combine


@dataclass(frozen=True, eq=False)
class Signal:
    """Features on a graph; `basis` holds T_0(L)X, ..., T_K(L)X where they were computed before.

    Of rows there is the basis alone: their operator knows no neighbours, and input dropout, which
    should come before propagation, meets the entries of the basis.
    """

    features: Features
    operator: Operator
    basis: Float[Tensor, "terms nodes features"] | None = None
    is_rows: bool = False

    @classmethod
    def of(cls, graph: Graph, *, normalise_rows: bool) -> Signal:
        """A graph without self-loops, rescaled by the bound 2 (PolyGCL, S3GCL)."""
        features = seen_features(graph.features, normalise_rows=normalise_rows)
        return cls(features, Propagation(graph, self_loops=False).operator())


class SpectralEncoder(nn.Module):
    """Eq. (8), spectral views: dropout, filter, dropout, batch norm, linear layer, activation.

    All bands share the weights and one Chebyshev basis, hence one input-dropout mask.
    `project-first` puts the linear layer before the filter, and dropout and norm after it: filters
    are linear, so without these two both orders are the same function. For the same reason the two
    may be computed in either order: what takes less is filtered, the features or their projection.
    Batch norm has statistics for each band.
    """

    def __init__(  # noqa: PLR0913 - the layer's settings, each on its own
        self,
        num_features: int,
        width: int,
        *,
        bands: tuple[Band, ...] = ("low", "high"),
        order: int = 5,
        learned_start: bool = True,
        input_dropout: float = 0.0,
        dropout: float = 0.0,
        batch_norm: bool = False,
        norm_statistics: NormStatistics = "recomputed",
        activation: BandActivation = "prelu",
        layer_order: LayerOrder = "filter-first",
        filter_kind: FilterKind = "monotone",
    ) -> None:
        super().__init__()
        self.order = order
        self.input_dropout, self.dropout = input_dropout, dropout
        self.project_first = layer_order == "project-first"
        # A gradient goes back through the filter to a projection, and none to the features.
        self.filters_projection = self.project_first and 2 * width < num_features
        self.filters = nn.ModuleList(
            MonotoneFilter(band, order, learned_start=learned_start)
            if filter_kind == "monotone"
            else RampFilter(band, order)
            for band in bands
        )
        self.linear = nn.Linear(num_features, width)
        normed = width if self.project_first else num_features
        self.norm = (
            BatchNorm(
                normed, bands=len(bands), statistics=norm_statistics, momentum=RUNNING_MOMENTUM
            )
            if batch_norm
            else None
        )
        self.activation = nn.PReLU() if activation == "prelu" else nn.ReLU()

    def coefficients(self, only: int | None = None) -> Float[Tensor, "bands terms"]:
        """Chebyshev coefficients of every band, or of one by its number."""
        chosen = self.filters if only is None else [self.filters[only]]
        return torch.stack([band() for band in chosen])

    def responses(
        self, frequencies: Float[Tensor, " frequencies"], lambda_max: float = 2.0
    ) -> Float[Tensor, "bands frequencies"]:
        """The response of every band at eigenvalues of the Laplacian, in float64.

        `lambda_max` is what the operator is rescaled by.
        """
        coefficients = self.coefficients().double()
        rescaled = 2 * frequencies.to(coefficients).unsqueeze(1) / lambda_max - 1
        terms = chebyshev_basis(lambda x: rescaled * x, torch.ones_like(rescaled), self.order)
        return coefficients @ torch.cat(list(terms), dim=1).t()

    def forward(
        self,
        signal: Signal,
        generator: torch.Generator | None = None,
        coefficients: Float[Tensor, "bands terms"] | None = None,
    ) -> Float[Tensor, "bands nodes dim"]:
        """Embed every node in every band, lowest first; without a generator nothing is dropped.

        Coefficients that serve several signals may be given.
        """
        return self._embed(signal, generator, coefficients=coefficients)

    def embed_apart(
        self, signal: Signal, generator: torch.Generator | None = None
    ) -> list[Float[Tensor, "nodes dim"]]:
        """Every band by itself, lowest first, each with dropout masks of its own (PolyGCL).

        The highest draws first, as in PolyGCL's code.
        """
        highest_first = reversed(range(len(self.filters)))
        return [self._embed(signal, generator, band)[0] for band in highest_first][::-1]

    def _embed(
        self,
        signal: Signal,
        generator: torch.Generator | None,
        only: int | None = None,
        coefficients: Float[Tensor, "bands terms"] | None = None,
    ) -> Float[Tensor, "bands nodes dim"]:
        if coefficients is None:
            coefficients = self.coefficients(only)
        keeps_input = generator is None or self.input_dropout == 0
        if self._is_fused(signal):
            return self._embed_fused(signal, generator, coefficients, only, keeps_input=keeps_input)
        known = signal.basis if signal.is_rows or keeps_input else None
        if known is not None:
            filtered = _combine(coefficients, known)
            if not keeps_input:  # an entry goes in all terms, hence in all bands
                ones = torch.ones_like(filtered[0], requires_grad=False)
                filtered = filtered * dropout(ones, self.input_dropout, generator)
        else:
            x = drop_entries(signal.features, self.input_dropout, generator)
            x = x @ self.linear.weight.t() if self.filters_projection else dense(x)
            basis = torch.stack(list(chebyshev_basis(signal.operator, x, self.order)))
            filtered = _combine(coefficients, basis)
        if self.project_first:
            is_projected = self.filters_projection and known is None
            projected = filtered if is_projected else filtered @ self.linear.weight.t()
            hidden = self._regularise(projected + self.linear.bias, generator, only)
        else:
            regular = aligned(self._regularise(filtered, generator, only), dim=2)
            hidden = linear(regular, aligned(self.linear.weight, dim=1), self.linear.bias)
        embedded: Tensor = self.activation(hidden)
        return embedded

    def _is_fused(self, signal: Signal) -> bool:
        """Whether a step takes the kernels of ours; what is embedded never does."""
        operator, entries = signal.operator, (self.order + 1) * math.prod(signal.features.shape)
        return (
            self.training
            and self.order < MOST_TERMS
            and (self.norm is None or self.norm.statistics != "running")
            and isinstance(operator, RescaledLaplacian)
            and not operator.neighbours.values.requires_grad
            and signal.features.device.type == "cuda"
            and entries <= LARGEST_INT32
            and has_triton()
        )

    def _embed_fused(
        self,
        signal: Signal,
        generator: torch.Generator | None,
        coefficients: Float[Tensor, "bands terms"],
        only: int | None,
        *,
        keeps_input: bool,
    ) -> Float[Tensor, "bands nodes dim"]:
        """The same on a GPU in few passes; batch norm before the linear layer is a part of it."""
        from aspect.nn import kernels  # needs Triton

        basis, scale = signal.basis, None
        if basis is None or not keeps_input:
            assert isinstance(signal.operator, RescaledLaplacian)
            x = drop_entries(signal.features, self.input_dropout, generator)
            basis, scale = kernels.scaled_basis(signal.operator, x, self.order)
        rate = 0.0 if self.project_first else self.dropout
        bands, mean, variance = kernels.filtered_bands(coefficients, basis, scale, rate, generator)
        weight, bias = aligned(self.linear.weight, dim=1), self.linear.bias
        if self.project_first:
            hidden = self._regularise(linear(bands, weight, bias), generator, only)
        elif self.norm is None:
            hidden = linear(bands, weight, bias)
        else:
            features = self.linear.in_features
            factors, shifts = self.norm.affine_by(mean[:, :features], variance[:, :features])
            biases = linear(shifts, self.linear.weight, bias)
            weights = weight * aligned(factors, dim=1).unsqueeze(1)
            hidden = torch.baddbmm(biases.unsqueeze(1), bands, weights.transpose(1, 2))
        embedded: Tensor = self.activation(hidden)
        return embedded

    def _regularise(
        self,
        bands: Float[Tensor, "bands nodes dim"],
        generator: torch.Generator | None,
        only: int | None,
    ) -> Float[Tensor, "bands nodes dim"]:
        """Dropout, and batch norm of each band by itself; `only` is the number of a single one."""
        bands = dropout(bands, self.dropout, generator)
        if self.norm is None:
            return bands
        return torch.stack([self.norm(band, k) for k, band in enumerate(bands, start=only or 0)])


def _combine(
    coefficients: Float[Tensor, "bands terms"], basis: Float[Tensor, "terms nodes dim"]
) -> Float[Tensor, "bands nodes dim"]:
    """One filtered signal per band from the basis that all share."""
    flat = basis.flatten(1)
    if flat.device.type == "cuda" and flat.shape[1] <= LARGEST_INT32:
        combined: Tensor = TallProduct.apply(coefficients, flat)  # type: ignore[no-untyped-call]  # torch
    else:
        combined = coefficients @ flat
    return combined.view(len(coefficients), *basis.shape[1:])


class TallProduct(torch.autograd.Function):
    """A few rows times a matrix of a few, very long rows, each a product with a vector.

    cuBLAS has no fast kernel for products of this shape, nor for their gradients; with a vector it
    reads the matrix once.
    """

    @staticmethod
    @override
    def forward(ctx: Any, rows: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(rows, matrix)
        product = matrix.new_empty(len(rows), matrix.shape[1])
        for row, place in zip(rows, product, strict=True):
            torch.mv(matrix.t(), row, out=place)
        return product

    @staticmethod
    @override
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows, matrix = ctx.saved_tensors
        to_rows, to_matrix = None, None
        if ctx.needs_input_grad[0]:
            to_rows = torch.stack([torch.mv(matrix, row) for row in gradient])
        if ctx.needs_input_grad[1]:
            to_matrix = rows.t() @ gradient
        return to_rows, to_matrix


@dataclass(frozen=True, eq=False)
class FoldedEncoder:
    """A trained encoder as it embeds, nothing dropped: `activation(filter(X W) + b)`.

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
    """Combine linear layer and batch norm; filters are linear, so that the map comes first.

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
