"""Graphs that do not fit the memory: stores on disk, out-of-core bases, what a run would need."""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.scale.bases import Bases, BasisSettings, compute_bases
    from aspect.scale.build import build_store
    from aspect.scale.formats import import_igb, import_ogb
    from aspect.scale.generate import generate_store
    from aspect.scale.options import MixedModel
    from aspect.scale.store import GraphStore

__all__ = [
    "Bases",
    "BasisSettings",
    "GraphStore",
    "MixedModel",
    "build_store",
    "compute_bases",
    "generate_store",
    "import_igb",
    "import_ogb",
]

__getattr__, __dir__ = exporting(__name__, __file__)
