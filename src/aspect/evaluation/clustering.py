"""How well k-means finds the classes in embeddings, and how clear its clusters are."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from aspect.data.graph import UNLABELLED
from aspect.errors import SettingsError
from aspect.evaluation.metrics import PERCENT
from aspect.evaluation.result import check_same_nodes, read_embeddings, read_labels

STARTS = 10  # first centres that k-means tries for each seed, of which it keeps the best
MOST_SILHOUETTE_NODES = 10_000  # all pairs are compared: of more nodes, so many are drawn


@dataclass(frozen=True)
class ClusterScore:
    """One k-means, measured by scikit-learn."""

    nmi: float | None  # normalised mutual information with the classes, percent; None: no labels
    ari: float | None  # adjusted Rand index with the classes, in percent; 0 is chance
    silhouette: float | None  # from -1 to 1, without classes; None where all are one cluster


def num_clusters(clusters: int | None, labels: Tensor | None, num_nodes: int) -> int:
    """How many are meant, by default as many as there are classes; too few or many are refused."""
    classes = 0 if labels is None else len(torch.unique(labels[labels != UNLABELLED]))
    count = classes if clusters is None else clusters
    if not 2 <= count < num_nodes:  # noqa: PLR2004 - one cluster is none
        given = count if clusters is not None or count else "none, and the graph has no labels"
        raise SettingsError(
            f"The number of clusters must lie between 2 and {num_nodes - 1}, one less than there "
            f"are nodes. Got {given}."
        )
    return count


def cluster_scores(
    embeddings: Tensor | ArrayLike,
    labels: Tensor | ArrayLike | None = None,
    *,
    clusters: int | None = None,
    seeds: int = 5,
) -> list[ClusterScore]:
    """Cluster all nodes by k-means, once for each seed; Euclidean, as the embeddings are scaled.

    Args:
        embeddings: One row per node.
        labels: Classes from 0 on, -1 for none; nodes without a class are clustered, not scored.
        clusters: How many; by default as many as there are classes.
        seeds: How many k-means, each the best of `STARTS` first centres.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    rows = read_embeddings(embeddings, centred=True)
    classes = None if labels is None else read_labels(labels)
    if classes is not None:
        check_same_nodes(rows, classes)
        if not bool((classes != UNLABELLED).any()):
            classes = None
    count = num_clusters(clusters, classes, len(rows))
    matrix = rows.cpu().double().numpy()
    scores = []
    for seed in range(seeds):
        with warnings.catch_warnings():
            # Fewer different rows than clusters: a collapse, which the scores show.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = KMeans(count, n_init=STARTS, random_state=seed).fit_predict(matrix)
        scores.append(_score(matrix, found, classes, seed))
    return scores


def _score(
    matrix: NDArray[np.float64], found: NDArray[np.int32], classes: Tensor | None, seed: int
) -> ClusterScore:
    from sklearn.metrics import (
        adjusted_rand_score,
        normalized_mutual_info_score,
        silhouette_score,
    )

    nmi = ari = silhouette = None
    if classes is not None:
        known = (classes != UNLABELLED).numpy()
        truth = classes.numpy()[known]
        nmi = PERCENT * float(normalized_mutual_info_score(truth, found[known]))
        ari = PERCENT * float(adjusted_rand_score(truth, found[known]))
    nodes = np.arange(len(matrix))
    if len(nodes) > MOST_SILHOUETTE_NODES:
        nodes = np.random.default_rng(seed).choice(nodes, MOST_SILHOUETTE_NODES, replace=False)
    if 1 < len(np.unique(found[nodes])) < len(nodes):
        silhouette = float(silhouette_score(matrix[nodes], found[nodes]))
    return ClusterScore(nmi, ari, silhouette)
