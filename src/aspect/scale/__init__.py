"""Graphs that do not fit the memory: stores on disk, out-of-core bases, what a run would need."""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.scale.bases import Bases, BasisSettings, compute_bases
    from aspect.scale.store import GraphStore

__all__ = ["Bases", "BasisSettings", "GraphStore", "compute_bases"]

__getattr__, __dir__ = exporting(__name__, __file__)
