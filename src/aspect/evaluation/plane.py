"""Embeddings brought into the plane, for the eye."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aspect.evaluation.inputs import unit_rows

__all__ = ["PlanarMap", "planar_map"]

MOST_TSNE_NODES = 3000  # beyond, t-SNE takes minutes
FEWEST_TSNE_NODES = 12  # below, nodes have no neighbourhoods to keep
PERPLEXITY = 30.0
TSNE_STEPS = 500
TSNE_DIMENSIONS = 50  # leading components that t-SNE starts from, as is usual

Points = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PlanarMap:
    """A place in the unit square for every node; directions and units mean nothing."""

    x: Points
    y: Points
    name: str  # t-SNE or PCA


def planar_map(embeddings: Float[Tensor, "nodes dim"]) -> PlanarMap:
    """Lay out the rows as the probe sees them, each of length one; the same rows, the same map.

    t-SNE keeps neighbourhoods and is slow: graphs of some thousand nodes and tiny ones get their
    two leading principal components.
    """
    rows = unit_rows(embeddings.double().cpu()).numpy()
    centred = rows - rows.mean(axis=0)
    components = _principal(centred, min(TSNE_DIMENSIONS, *centred.shape))
    if FEWEST_TSNE_NODES <= len(rows) <= MOST_TSNE_NODES and components.any():
        return PlanarMap(*_in_unit_square(_tsne(components)), name="t-SNE")
    return PlanarMap(*_in_unit_square(components), name="PCA")


def _principal(centred: Points, count: int) -> Points:
    """Leading principal components; zeros where the rows are all the same."""
    from sklearn.decomposition import PCA

    if np.abs(centred).max() < np.finfo(np.float32).eps:  # rounding, not directions
        return np.zeros((len(centred), count))
    found: Points = PCA(count, random_state=0).fit_transform(centred)
    return found


def _tsne(components: Points) -> Points:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # it has no types

    # The second axis may be missing or flat: t-SNE takes any start.
    start = _padded(components) / components[:, 0].std() * 1e-4
    tsne = TSNE(
        perplexity=min(PERPLEXITY, (len(components) - 1) / 3),
        init=start.astype(np.float32),
        max_iter=TSNE_STEPS,
        random_state=0,
        n_jobs=1,
    )
    with threadpool_limits(1):  # sums over threads would come in any order
        found: Points = tsne.fit_transform(components.astype(np.float32)).astype(np.float64)
    return found


def _padded(components: Points) -> Points:
    """The first two columns; a missing second is zero."""
    return np.hstack([components, np.zeros((len(components), 1))])[:, :2]


def _in_unit_square(components: Points) -> tuple[Points, Points]:
    """Both axes by one scale, each centred, so that no direction looks longer than it is."""
    points = _padded(components)
    low, high = points.min(axis=0), points.max(axis=0)
    span = float((high - low).max()) or 1.0
    placed = 0.5 + (points - (low + high) / 2) / span
    return placed[:, 0], placed[:, 1]
