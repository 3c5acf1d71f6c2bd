"""Where the workers of a bench compute: how many there are, and which GPU each of them sees."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

import torch

from aspect.estimator import choose_device
from aspect.experiment.executor import LocalProcesses, available_cores

__all__ = ["Placement"]

# Small graphs leave a GPU idle between launches, so a few processes share it; each has its own copy
# of everything, hence no more than fit.
MOST_PER_GPU = 4
BYTES_PER_WORKER = 12 * 2**30


@dataclass(frozen=True)
class Placement:
    """The kind of device, the number of workers, and the GPUs that they are spread over."""

    kind: Literal["cpu", "cuda"]
    workers: int
    gpus: tuple[str, ...] = ()  # as CUDA_VISIBLE_DEVICES names them

    @classmethod
    def choose(cls, device: str | None, workers: int | None) -> Placement:
        """What was asked for; by default every core, or a few workers on each GPU.

        Args:
            device: As for `choose_device`; `cuda` without a number means all GPUs.
            workers: Their number, if it was asked for.
        """
        chosen = choose_device(device)
        if chosen.type == "cpu":
            return cls("cpu", workers or available_cores())
        count = torch.cuda.device_count()
        numbers = range(count) if chosen.index is None else [chosen.index]
        room = torch.cuda.get_device_properties(numbers[0]).total_memory // BYTES_PER_WORKER
        most = max(1, min(MOST_PER_GPU, room, available_cores() // len(numbers)))
        names = _visible(count)
        gpus = tuple(names[number] for number in numbers)
        return cls("cuda", workers or most * len(gpus), gpus)

    def processes(self) -> LocalProcesses:
        """The workers; with several GPUs each sees one, in turn."""
        places = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in self.gpus]
        return LocalProcesses(self.workers, environments=places)


def _visible(count: int) -> list[str]:
    """Names of the GPUs that this process sees."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return [name.strip() for name in given.split(",")] if given else list(map(str, range(count)))
