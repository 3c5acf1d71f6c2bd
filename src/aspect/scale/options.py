"""How stores are written and large graphs drawn: what the command line offers before any work."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from pydantic import Field

from aspect.config import Config, Count

ROWS_PER_BLOCK = 65_536

FeatureType = Literal["float32", "float16"]
Part = Annotated[float, Field(ge=0, le=1)]


class StoreLayout(TypedDict, total=False):
    """How a store is written."""

    rows_per_block: int  # nodes of a block
    dtype: FeatureType  # of the features on disk
    memory_bytes: int  # bound of what sorting and mapping hold


class MixedModel(Config):
    """A block model with power-law degrees, of a homophilic and a heterophilic region."""

    nodes: Count = 1_000_000
    """Nodes of the graph."""
    edges: Count = 10_000_000
    """Edges that are drawn; the few that repeat another one are left out."""
    features: Count = 128
    """Columns of the features."""
    classes: Annotated[int, Field(ge=2)] = 4
    """Classes, of equal size."""
    heterophilic: Part = 0.5
    """Share of the nodes in the heterophilic region, which are the last ones."""
    purity: Part = 0.9
    """Share of the homophilic region's edges inside a class, and of the heterophilic region's
    edges between classes. Four classes of equal size have three quarters of all pairs between them:
    at 0.75 the heterophilic region's edges would tell nothing of the classes."""
    bridges: Part = 0.05
    """Share of the edges between the regions, if these are equal; fewer if not."""
    signal: Annotated[float, Field(ge=0)] = 0.7
    """Length of the class means; the noise of every feature has std one."""
    exponent: Annotated[float, Field(gt=2)] = 3.0
    """Exponent of the power law of degrees."""
