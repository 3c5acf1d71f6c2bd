"""The versions, the device and the memory that numbers were made with."""

from __future__ import annotations

import platform
import resource
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import torch

from aspect import __version__

PACKAGES = ("torch", "torch-geometric", "numpy")

STATUS = Path("/proc/self/status")
CLEAR, FORGET_PEAK = Path("/proc/self/clear_refs"), "5"
KIB = 1024


def versions() -> dict[str, str]:
    """Of this package, of Python and of the packages that numbers depend on."""
    return {
        "aspect": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def device_name(device: torch.device) -> str:
    """What a device calls itself."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"cpu ({platform.processor() or platform.machine()})"


def forget_peak(device: torch.device) -> None:
    """Begin to count memory anew, where that is possible: on a GPU, and for a process on Linux."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):  # a container may forbid it
        CLEAR.write_text(FORGET_PEAK)


def peak_bytes(device: torch.device) -> int:
    """Memory taken at most since `forget_peak`: on a GPU by tensors, else by the whole process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if STATUS.is_file():
        # The system's own accounting keeps the peak of the process that started this one.
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * KIB
    unit = 1 if platform.system() == "Darwin" else KIB
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
