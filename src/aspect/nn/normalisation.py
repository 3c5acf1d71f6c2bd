"""Batch norm, centring and scaling by statistics of the training graph.

A layer that normalises by batch statistics in training needs statistics to embed by. A running mean
over a short training has not converged: what is then embedded is another function than the one that
was trained. Here they are recomputed exactly: one pass over the clean training graph, nothing
dropped, while the layers are `recording`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import batch_norm
from typing_extensions import override

# What batch norm embeds by: the clean training graph, recomputed after training; averages over the
# steps of training; or the graph that is embedded.
NormStatistics = Literal["recomputed", "running", "graph"]

EPSILON = 1e-5  # added to variances, as torch does


class Calibrated(nn.Module):
    """A layer that records statistics of its input while `is_recording`."""

    is_recording = False
    recorded: Bool[Tensor, ""]  # whether the statistics are those of a recording

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("recorded", torch.tensor(False))


@contextmanager
def recording(layers: Iterable[Calibrated]) -> Iterator[None]:
    """What these layers are given meanwhile becomes their statistics.

    A layer that is given nothing takes no part in embedding, and counts as recorded all the same.
    """
    layers = list(layers)
    for layer in layers:
        layer.is_recording = True
    try:
        yield
        for layer in layers:
            layer.recorded.fill_(True)
    finally:
        for layer in layers:
            layer.is_recording = False


class BatchNorm(Calibrated):
    """Batch norm over the nodes; bands share scale and shift, each has its own statistics.

    Training normalises by the batch, whatever the statistics to embed by. With `running` ones,
    `momentum` is the rate of the newest batch, and all bands share one average, as in PolyGCL's
    code.
    """

    running_mean: Float[Tensor, "rows width"]
    running_var: Float[Tensor, "rows width"]
    # Where several processes share a batch: the sum of what each of them has, with gradients.
    sum_of_all: Callable[[Tensor], Tensor] | None = None

    def __init__(
        self,
        width: int,
        *,
        bands: int = 1,
        statistics: NormStatistics = "recomputed",
        momentum: float = 0.1,
    ) -> None:
        super().__init__()
        self.statistics = statistics
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        rows = 1 if statistics == "running" else bands
        self.register_buffer("running_mean", torch.zeros(rows, width))
        self.register_buffer("running_var", torch.ones(rows, width))

    @override
    def forward(
        self, x: Float[Tensor, "nodes width"], band: int = 0
    ) -> Float[Tensor, "nodes width"]:
        if self.is_recording and self.statistics != "running":
            self._record(x, band)
        by_batch = self.training or self.statistics == "graph"
        row = min(band, len(self.running_mean) - 1)
        keeps = self.training and self.statistics == "running"
        if by_batch and self.sum_of_all is not None:
            return self._normalise(x, self.sum_of_all, row if keeps else None)
        return batch_norm(
            x,
            self.running_mean[row] if keeps or not by_batch else None,
            self.running_var[row] if keeps or not by_batch else None,
            self.weight,
            self.bias,
            training=by_batch,
            momentum=self.momentum,
            eps=EPSILON,
        )

    def _normalise(
        self,
        x: Float[Tensor, "nodes width"],
        sum_of_all: Callable[[Tensor], Tensor],
        kept: int | None,
    ) -> Float[Tensor, "nodes width"]:
        """By the batch of all processes; `kept` is the row of running statistics to move."""
        count = sum_of_all(x.new_full((), len(x)))
        mean = sum_of_all(x.sum(0)) / count
        centred = x - mean
        variance = sum_of_all(centred.square().sum(0)) / count
        if kept is not None:
            unbiased = variance.detach() * count / (count - 1)
            self.running_mean[kept].lerp_(mean.detach(), self.momentum)
            self.running_var[kept].lerp_(unbiased, self.momentum)
        return centred * (variance + EPSILON).rsqrt() * self.weight + self.bias

    def _record(self, x: Float[Tensor, "nodes width"], band: int) -> None:
        """The batch's own statistics; by the biased variance, as training normalises."""
        variance, mean = torch.var_mean(x, dim=0, correction=0)
        self.running_mean[band], self.running_var[band] = mean, variance

    def affine(self, band: int) -> tuple[Float[Tensor, " width"], Float[Tensor, " width"]]:
        """Scale and shift that it embeds a band by."""
        row = min(band, len(self.running_mean) - 1)
        return self.affine_by(self.running_mean[row], self.running_var[row])

    def affine_by(
        self, mean: Float[Tensor, "*bands width"], variance: Float[Tensor, "*bands width"]
    ) -> tuple[Float[Tensor, "*bands width"], Float[Tensor, "*bands width"]]:
        """Scale and shift that normalise by these statistics."""
        scale = self.weight / (variance + EPSILON).sqrt()
        return scale, self.bias - scale * mean


class Centre(Calibrated):
    """Subtracts each band's mean over the nodes: of the batch in training, else the recorded one.

    A direction that all nodes share distinguishes no two of them, and a gate that scales it by
    weights that differ would add noise.
    """

    mean: Float[Tensor, "bands width"]

    def __init__(self, width: int, bands: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(bands, width))

    @override
    def forward(
        self, bands: Float[Tensor, "bands nodes width"]
    ) -> Float[Tensor, "bands nodes width"]:
        if self.is_recording:
            self.mean.copy_(_mean(bands))
        mean = _mean(bands) if self.training else self.mean
        return bands - mean.unsqueeze(1)


def _mean(bands: Float[Tensor, "bands nodes width"]) -> Float[Tensor, "bands width"]:
    """In double precision, so that a constant band becomes zero rather than rounding noise."""
    return bands.mean(dim=1, dtype=torch.float64).to(bands.dtype)


Normalisation = Literal["none", "centre", "standard", "unit"]

# Contrastive losses leave the size of an embedding free, but a penalised classifier with default
# settings (scikit-learn's logistic regression, C = 1) does not: this length suits it.
MEAN_LENGTH = 4.0


@dataclass(frozen=True, eq=False)
class Scaling:
    """Location and scale of the training graph's embeddings; other graphs' are moved alike."""

    mean: Float[Tensor, " dim"]
    std: Float[Tensor, " dim"]
    length: Float[Tensor, ""]  # mean length of the centred rows

    @classmethod
    def of(cls, embeddings: Float[Tensor, "nodes dim"]) -> Scaling:
        """Measured in double precision."""
        rows = embeddings.double()
        variance, mean = torch.var_mean(rows, dim=0, correction=0)
        length = (rows - mean).norm(dim=1).mean()
        return cls(*(part.to(embeddings.dtype) for part in (mean, variance.sqrt(), length)))

    def apply(
        self, embeddings: Float[Tensor, "nodes dim"], how: Normalisation
    ) -> Float[Tensor, "nodes dim"]:
        """Shift and scale the rows.

        `centre` subtracts the mean and divides by one number, so that the mean length is
        `MEAN_LENGTH`: distances keep their proportions. `standard` divides each column by its own
        standard deviation, `unit` each centred row by its length. What is constant becomes zero.
        """
        if how == "none":
            return embeddings
        centred = embeddings - self.mean
        if how == "centre":
            return centred * (MEAN_LENGTH / _or_one(self.length))
        if how == "standard":
            return centred / _or_one(self.std)
        # Brought near one by a power of two, which is exact, so that no square leaves its range.
        exponents = centred.abs().amax(dim=1, keepdim=True).frexp().exponent.clamp(-126, 126)
        rows = torch.ldexp(centred, -exponents)
        return rows / _or_one(rows.norm(dim=1, keepdim=True))


def _or_one(divisor: Tensor) -> Tensor:
    return torch.where(divisor > 0, divisor, 1)
