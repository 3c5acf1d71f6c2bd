"""Every method is one file in this folder; its existence is its registration."""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.methods.base import (
        Group,
        Method,
        MethodConfig,
        OneEncoder,
        OneEncoderConfig,
        Output,
        PerGraph,
        Step,
    )
    from aspect.methods.registry import Citation, Registration, find_method, method_names, register

__all__ = [
    "Citation",
    "Group",
    "Method",
    "MethodConfig",
    "OneEncoder",
    "OneEncoderConfig",
    "Output",
    "PerGraph",
    "Registration",
    "Step",
    "find_method",
    "method_names",
    "register",
]

__getattr__, __dir__ = exporting(__name__, __file__)
