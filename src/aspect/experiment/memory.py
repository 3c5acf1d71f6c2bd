"""How much memory this process has taken at most."""

from __future__ import annotations

import platform
import resource
from pathlib import Path

import torch

__all__ = ["forget_peak", "peak_bytes"]

STATUS = Path("/proc/self/status")
KIB = 1024


def forget_peak(device: torch.device) -> None:
    """Begin to count anew, where that is possible: on a GPU."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """On a GPU what tensors took since `forget_peak`, else the whole process since it began."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if STATUS.is_file():
        # The system's own accounting keeps the peak of the process that started this one.
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * KIB
    unit = 1 if platform.system() == "Darwin" else KIB
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
