from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, silhouette_score

from aspect.errors import GraphError, SettingsError
from aspect.evaluation import clustering
from aspect.evaluation.clustering import cluster_scores


@pytest.fixture
def blobs():
    """Three groups of points that overlap a little, and the group of each."""
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3
    return random.normal(size=(60, 4)) + 2 * np.eye(4)[labels], labels


def test_the_scores_are_those_of_scikit_learn(blobs):
    rows, labels = blobs
    rows = rows.astype(np.float32)
    found = KMeans(3, n_init=10, random_state=1).fit_predict(rows.astype(float))
    score = cluster_scores(rows, labels, seeds=2)[1]
    assert score.nmi == pytest.approx(100 * normalized_mutual_info_score(labels, found))
    assert score.ari == pytest.approx(100 * adjusted_rand_score(labels, found))
    assert score.silhouette == pytest.approx(silhouette_score(rows, found), abs=1e-6)


def test_the_numbers_of_classes_and_the_scale_of_embeddings_mean_nothing(blobs):
    rows, labels = blobs
    (score,) = cluster_scores(rows, labels, seeds=1)
    (other,) = cluster_scores(rows * 8, 2 - labels, seeds=1)
    assert score.nmi == pytest.approx(other.nmi)
    assert score.nmi > 50


def test_nodes_without_a_class_are_clustered_but_not_scored(blobs):
    rows, labels = blobs
    partly = np.where(np.arange(60) < 10, -1, labels)
    (score,) = cluster_scores(rows, partly, seeds=1)
    found = KMeans(3, n_init=10, random_state=0).fit_predict(rows)
    assert score.nmi == pytest.approx(100 * normalized_mutual_info_score(labels[10:], found[10:]))


def test_without_labels_there_is_a_silhouette_alone(blobs):
    rows, _ = blobs
    for without in (None, np.full(60, -1)):
        (score,) = cluster_scores(rows, without, clusters=3, seeds=1)
        assert (score.nmi, score.ari) == (None, None)
        assert 0 < score.silhouette < 1
        with pytest.raises(SettingsError, match=r"Got none, and the graph has no labels"):
            cluster_scores(rows, without)


def test_wrong_numbers(blobs):
    rows, labels = blobs
    for clusters in (1, 60):
        with pytest.raises(SettingsError, match=rf"between 2 and 59, .* Got {clusters}\."):
            cluster_scores(rows, labels, clusters=clusters)
    with pytest.raises(GraphError, match="60 embeddings and 59 labels"):
        cluster_scores(rows, labels[1:])


def test_a_collapse_scores_nothing(blobs):
    (score,) = cluster_scores(torch.ones(60, 4), blobs[1], seeds=1)
    assert score.nmi == pytest.approx(0, abs=1e-9)
    assert score.silhouette is None


def test_the_silhouette_of_many_nodes_is_that_of_a_sample(blobs, monkeypatch):
    (whole,) = cluster_scores(*blobs, seeds=1)
    monkeypatch.setattr(clustering, "MOST_SILHOUETTE_NODES", 40)
    (part,) = cluster_scores(*blobs, seeds=1)
    assert part.nmi == whole.nmi
    assert part.silhouette != whole.silhouette
    assert part.silhouette == pytest.approx(whole.silhouette, abs=0.2)
