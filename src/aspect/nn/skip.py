"""A skip connection past the trained encoder: principal components of propagated features.

A contrastive loss keeps what two views of a node share and lets go of the rest. Where features say
much by themselves, on graphs of few nodes above all, a probe misses what was let go of. The leading
components of features and their averages over the neighbourhood are few, cost nothing to train, and
bring it back (docs/lab_book.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from aspect.data.features import dense
from aspect.data.graph import Features
from aspect.data.operators import Operator
from aspect.nn.normalisation import Calibrated

HOPS = 2
EXACT_UP_TO = 2048  # columns whose covariance is decomposed as a whole
OVERSAMPLED = 32  # further directions that an iteration follows, and its steps
STEPS = 12


class Skip(Calibrated):
    """Components of X, LX and LLX for an operator L, with rows of length one.

    Blocks are brought to the same mean length: averages are shorter than what they average. Means
    and axes are those of the training graph, so that other graphs are seen in the same way.
    """

    lengths: Float[Tensor, " blocks"]
    mean: Float[Tensor, " columns"]
    axes: Float[Tensor, "columns dim"]

    def __init__(self, num_features: int, dim: int) -> None:
        super().__init__()
        columns = (HOPS + 1) * num_features
        self.register_buffer("lengths", torch.ones(HOPS + 1))
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("axes", torch.zeros(columns, min(dim, columns)))

    @override
    def forward(
        self,
        features: Features,
        operator: Operator,
        propagated: Sequence[Float[Tensor, "nodes features"]] = (),
    ) -> Float[Tensor, "nodes dim"]:
        """`propagated` are LX and LLX where they were computed before."""
        blocks = [dense(features), *propagated]
        for _ in range(HOPS - len(propagated)):
            blocks.append(operator(blocks[-1]))
        if self.is_recording:
            self._record(blocks)
        rows = torch.cat(blocks, dim=1) / self._scales()
        return normalize((rows - self.mean) @ self.axes, dim=1)

    def settle(
        self,
        lengths: Float[Tensor, " blocks"],
        mean: Float[Tensor, " columns"],
        sample: Float[Tensor, "sample columns"],
    ) -> None:
        """Take the blocks' mean lengths and columns' means; axes are those of some of the rows."""
        self.lengths.copy_(torch.where(lengths > 0, lengths, 1))
        self.mean.copy_(mean / self._scales())
        centred = sample / self._scales() - self.mean
        self.axes.copy_(principal_components(centred, self.axes.shape[1]))

    def _scales(self) -> Float[Tensor, " columns"]:
        """What each column is divided by."""
        return self.lengths.repeat_interleave(len(self.mean) // len(self.lengths))

    def _record(self, blocks: list[Float[Tensor, "nodes features"]]) -> None:
        lengths = torch.stack([block.norm(dim=1).mean() for block in blocks])
        rows = torch.cat(blocks, dim=1)
        self.settle(lengths, rows.mean(dim=0, dtype=torch.float64), rows)


def principal_components(
    centred: Float[Tensor, "nodes columns"], count: int
) -> Float[Tensor, "columns count"]:
    """The axes of largest variance, in float64; each one's largest entry is positive.

    Beyond `EXACT_UP_TO` columns by subspace iteration from a fixed start, which is close for axes
    that stand out.
    """
    rows = centred.double()
    columns = rows.shape[1]
    if columns <= EXACT_UP_TO:
        axes = torch.linalg.eigh(rows.t() @ rows).eigenvectors.flip(1)
    else:
        generator = torch.Generator().manual_seed(0)  # one start, on every device
        start = torch.randn(columns, count + OVERSAMPLED, dtype=rows.dtype, generator=generator)
        basis = start.to(rows.device)
        for _ in range(STEPS):
            basis = torch.linalg.qr(rows.t() @ (rows @ basis)).Q
        along = rows @ basis
        axes = basis @ torch.linalg.eigh(along.t() @ along).eigenvectors.flip(1)
    axes = axes[:, :count]
    largest = axes.gather(0, axes.abs().argmax(dim=0, keepdim=True))
    signed: Tensor = axes * largest.sign()
    return signed
