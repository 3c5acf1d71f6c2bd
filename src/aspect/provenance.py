"""The versions and the device that numbers were made with."""

from __future__ import annotations

import platform
from importlib.metadata import version

import torch

from aspect import __version__

__all__ = ["device_name", "versions"]

PACKAGES = ("torch", "torch-geometric", "numpy")


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
