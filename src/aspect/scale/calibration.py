"""What a method normalises and centres by, recomputed exactly by passes over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aspect.data.rows import Rows
from aspect.methods.base import Method
from aspect.nn.normalisation import BatchNorm, Calibrated, Centre

__all__ = ["Moments", "calibrate_rows"]


@torch.no_grad()
def calibrate_rows(method: Method, stream: Callable[[], Iterable[Rows]]) -> None:
    """As `Method.calibrate` on the whole graph, of which `stream` gives all rows at every call.

    A layer's input depends on the statistics of the layers before it: there is a pass for each of
    them, in the order in which rows come through.
    """
    layers = [layer for layer in method.modules() if isinstance(layer, Calibrated)]
    if not layers:
        return
    was_training = method.training
    method.eval()
    for layer in _in_order(method, layers, stream):
        moments: dict[int, Moments] = {}

        def note(
            _: torch.nn.Module, given: tuple[Any, ...], moments: dict[int, Moments] = moments
        ) -> None:
            for band, x in _bands(given):
                moments.setdefault(band, Moments.none(x)).add(x)

        with _hooked([layer], note):
            for rows in stream():
                method.embed(rows)
        _settle(layer, moments)
    for layer in layers:
        layer.recorded.fill_(True)
    method.train(was_training)


def _in_order(
    method: Method, layers: Iterable[Calibrated], stream: Callable[[], Iterable[Rows]]
) -> list[Calibrated]:
    """The layers that rows come through, in that order."""
    met: dict[Calibrated, None] = {}

    def note(layer: torch.nn.Module, _: tuple[Any, ...]) -> None:
        assert isinstance(layer, Calibrated)
        met.setdefault(layer)

    with _hooked(layers, note):
        method.embed(next(iter(stream())))
    return list(met)


class _hooked:  # noqa: N801 - used as a function
    """Call a function with what layers are given."""

    def __init__(self, layers: Iterable[Calibrated], note: Callable[..., None]) -> None:
        self.handles = [layer.register_forward_pre_hook(note) for layer in layers]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()


def _bands(given: tuple[Any, ...]) -> Iterable[tuple[int, Tensor]]:
    """Number and rows of every band in the arguments of a layer."""
    x = given[0]
    if x.ndim == 3:  # noqa: PLR2004 - all bands at once
        return enumerate(x)
    return [(given[1] if len(given) > 1 else 0, x)]


@dataclass
class Moments:
    """Count, mean and sum of squared differences, in double precision, of what was added."""

    count: int
    mean: Tensor
    squares: Tensor

    @classmethod
    def none(cls, x: Tensor) -> Moments:
        """Of nothing yet, for rows like these."""
        zeros = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
        return cls(0, zeros, zeros)

    def add(self, x: Tensor) -> None:
        """Join the moments of more rows, which cancels nothing."""
        x = x.double()
        variance, mean = torch.var_mean(x, dim=0, correction=0)
        both, apart = self.count + len(x), mean - self.mean
        between = apart.square() * (self.count * len(x) / both)
        self.squares = self.squares + variance * len(x) + between
        self.mean = self.mean + apart * (len(x) / both)
        self.count = both


def _settle(layer: Calibrated, moments: dict[int, Moments]) -> None:
    """Make the moments a layer's statistics; running ones of batch norm stay as they are."""
    for band, found in moments.items():
        if isinstance(layer, Centre):
            layer.mean[band] = found.mean
        elif isinstance(layer, BatchNorm) and layer.statistics != "running":
            layer.running_mean[band] = found.mean
            layer.running_var[band] = found.squares / found.count
