"""Processes that train one model on shares of every batch, through torch.distributed.

Each process embeds its share of the rows. The embeddings of all are gathered with gradients, and
every process computes the loss of the whole batch: it is the loss of a single process, and the mean
of the gradients is that process's gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from aspect.methods.base import Method
from aspect.nn.normalisation import BatchNorm


@dataclass(frozen=True)
class Ranks:
    """This process among all; a single one by default, for which nothing is exchanged."""

    rank: int = 0
    world: int = 1

    @classmethod
    def here(cls) -> Ranks:
        """Those of the process group that was set up, by torchrun or by Ray Train."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(), dist.get_world_size())

    def share(self, rows: Tensor) -> Tensor:
        """This process's part of a batch."""
        return rows.tensor_split(self.world)[self.rank]

    def prepare(self, method: Method) -> None:
        """Let batch norm take the statistics of all shares together."""
        if self.world > 1:  # with gradients
            from torch.distributed.nn.functional import all_reduce
        for layer in method.modules():
            if isinstance(layer, BatchNorm):
                layer.sum_of_all = all_reduce if self.world > 1 else None

    def gathering(self, total: int) -> Callable[[Tensor, int], Tensor]:
        """A function that joins the shares of a batch of so many rows along a dimension.

        The gradient of a share is the sum over the processes, each of which has the whole loss.
        `average` divides it again: gradients of weights that act on gathered rows are whole in
        every process, those of the others are parts.
        """
        count, more = divmod(total, self.world)
        sizes = [count + (rank < more) for rank in range(self.world)]

        def gather(rows: Tensor, dim: int) -> Tensor:
            if self.world == 1:
                return rows
            from torch.distributed.nn.functional import all_gather  # with gradients

            share = rows.transpose(0, dim)
            padded = share.new_zeros(max(sizes), *share.shape[1:])
            padded[: len(share)] = share
            parts = zip(all_gather(padded), sizes, strict=True)  # type: ignore[no-untyped-call]  # torch
            return torch.cat([part[:size] for part, size in parts]).transpose(0, dim)

        return gather

    def average(self, parameters: Sequence[nn.Parameter]) -> None:
        """Give all processes the mean of their gradients, in one exchange."""
        if self.world == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= self.world
        begin = 0
        for gradient in gradients:
            end = begin + gradient.numel()
            gradient.copy_(flat[begin:end].view_as(gradient))
            begin = end
