"""Numbers of every epoch, kept in memory, and what the gate answers on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool
from torch import Tensor
from typing_extensions import override

from aspect.data.graph import Graph
from aspect.methods.base import Method
from aspect.training.trainer import EpochReport, NoRecorder, Snapshot

__all__ = ["CurveRecorder", "ValueRecorder"]

WEIGHTS = "method/"  # the part of a snapshot that a method's own state is kept under


class ValueRecorder(NoRecorder):
    """Keeps every epoch's values: loss, its terms, and what the method monitors."""

    def __init__(self) -> None:
        # One entry an epoch under every name; None where an epoch had no such value.
        self.values: dict[str, list[float | None]] = {}

    @property
    def whole(self) -> dict[str, list[float]]:
        """The values that every epoch had."""
        return {
            name: known
            for name, values in self.values.items()
            if len(known := [value for value in values if value is not None]) == len(values)
        }

    @override
    def epoch_done(self, report: EpochReport, snapshot: Callable[[], Snapshot]) -> None:
        for name in report.values:
            self.values.setdefault(name, [None] * (report.epoch - 1))
        for name, own in self.values.items():
            own.append(report.values.get(name))


class CurveRecorder(ValueRecorder):
    """Keeps every epoch's values, and every few epochs the gate's mean in each region.

    The gate is asked on the clean graph, through `twin`: a method of the same kind that takes over
    the weights of the one in training, so that training itself is not touched.
    """

    def __init__(
        self, twin: Method, graph: Graph, regions: Mapping[str, Bool[Tensor, " nodes"]], every: int
    ) -> None:
        super().__init__()
        self.twin, self.graph, self.regions, self.every = twin, graph, regions, every
        self.gate_epochs: list[int] = []
        self.gate: dict[str, list[float]] = {name: [] for name in regions}

    @override
    def epoch_done(self, report: EpochReport, snapshot: Callable[[], Snapshot]) -> None:
        super().epoch_done(report, snapshot)
        if report.epoch == 1 or report.epoch % self.every == 0 or report.epoch == report.epochs:
            self._ask(report.epoch, snapshot())

    @torch.no_grad()
    def _ask(self, epoch: int, snapshot: Snapshot) -> None:
        state = {
            name.removeprefix(WEIGHTS): value
            for name, value in snapshot.tensors.items()
            if name.startswith(WEIGHTS)
        }
        self.twin.load_state_dict(state)
        self.twin.calibrate(self.graph)
        weights = self.twin.eval().policy(self.graph)
        if weights is None:
            return
        self.gate_epochs.append(epoch)
        for name, where in self.regions.items():
            self.gate[name].append(float(weights[where.to(weights.device), 0].mean()))
