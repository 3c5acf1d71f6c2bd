"""Processes that train one model on shares of every batch, through torch.distributed.

Each process embeds its share of the rows. The embeddings of all are gathered with gradients, and
every process computes the loss of the whole batch: it is the loss of a single process, and the mean
of the gradients is that process's gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from typing_extensions import override

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
        """A function that joins the shares of a batch of so many rows along a dimension."""
        count, more = divmod(total, self.world)
        sizes = [count + (rank < more) for rank in range(self.world)]

        def gather(rows: Tensor, dim: int) -> Tensor:
            if self.world == 1:
                return rows
            gathered: Tensor = _Gather.apply(rows.transpose(0, dim), sizes, self.rank)  # type: ignore[no-untyped-call]  # torch
            return gathered.transpose(0, dim)

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


class _Gather(torch.autograd.Function):
    """Rows of all processes; every process has the whole loss, so each keeps its own gradient.

    It is multiplied by the number of processes, since gradients are averaged afterwards: those of
    weights that act on gathered rows are whole in every process, those of the others are parts.
    """

    @staticmethod
    @override
    def forward(ctx: Any, rows: Tensor, sizes: list[int], rank: int) -> Tensor:
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        ctx.own, ctx.world = slice(sum(sizes[:rank]), sum(sizes[: rank + 1])), len(sizes)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    @override
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient[ctx.own] * ctx.world, None, None
