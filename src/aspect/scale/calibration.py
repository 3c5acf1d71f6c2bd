"""What a method normalises and centres by, recomputed exactly by passes over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aspect.data.rows import Rows
from aspect.methods.base import Method
from aspect.nn.normalisation import BatchNorm, Calibrated, Centre
from aspect.nn.skip import Skip

SAMPLED_ROWS, SAMPLED_BYTES = 65_536, 2**30  # at most, by which principal axes are found


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
        found: _Skipped | _ByBand = _ByBand()
        if isinstance(layer, Skip):
            found = _Skipped(next(iter(stream())).whole)
        with _hooked([layer], found.note):
            for rows in stream():
                method.embed(rows)
        found.settle(layer)
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


@contextmanager
def _hooked(layers: Iterable[Calibrated], note: Callable[..., None]) -> Iterator[None]:
    """Call a function with what layers are given."""
    handles = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


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


class _ByBand:
    """What batch norm and centring need: the moments of every band."""

    def __init__(self) -> None:
        self.moments: dict[int, Moments] = {}

    def note(self, _: torch.nn.Module, given: tuple[Any, ...]) -> None:
        x = given[0]
        one = given[1] if len(given) > 1 else 0
        for band, rows in enumerate(x) if x.ndim == 3 else [(one, x)]:  # noqa: PLR2004 - all bands
            self.moments.setdefault(band, Moments.none(rows)).add(rows)

    def settle(self, layer: Calibrated) -> None:
        """Make them the layer's statistics; running ones of batch norm stay as they are."""
        for band, found in self.moments.items():
            if isinstance(layer, Centre):
                layer.mean[band] = found.mean
            elif isinstance(layer, BatchNorm) and layer.statistics != "running":
                layer.running_mean[band] = found.mean
                layer.running_var[band] = found.squares / found.count


class _Skipped:
    """What the skip connection needs: lengths and means of all rows, axes by a sample of them."""

    def __init__(self, whole: int) -> None:
        self.whole, self.count = whole, 0
        self.lengths: Tensor | None = None
        self.sums: Tensor | None = None
        self.sample: list[Tensor] = []

    def note(self, _: torch.nn.Module, given: tuple[Any, ...]) -> None:
        blocks = [given[0], *given[2]]
        rows = torch.cat(blocks, dim=1)
        lengths = torch.stack([block.norm(dim=1).sum(dtype=torch.float64) for block in blocks])
        sums = rows.sum(dim=0, dtype=torch.float64)
        self.lengths = lengths if self.lengths is None else self.lengths + lengths
        self.sums = sums if self.sums is None else self.sums + sums
        self.count += len(rows)
        # Every so manieth row of a graph whose rows would take more.
        taken = max(1, min(SAMPLED_ROWS, SAMPLED_BYTES // (rows.shape[1] * rows.element_size())))
        self.sample.append(rows[:: -(-self.whole // taken)].clone())

    def settle(self, layer: Calibrated) -> None:
        """Make them the layer's statistics."""
        assert isinstance(layer, Skip)
        assert self.lengths is not None
        assert self.sums is not None
        sample = torch.cat(self.sample)
        mean = (self.sums / self.count).to(sample)
        layer.settle((self.lengths / self.count).to(sample), mean, sample)
