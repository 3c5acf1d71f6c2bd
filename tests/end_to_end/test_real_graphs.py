"""Real graphs: exported embeddings serve scikit-learn, and shipped settings reach their scores."""

import os

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from aspect import linear_probe, load_dataset, make_splits
from aspect.data.convert import as_graph
from aspect.data.features import dense

LEAST = {  # accuracy in percent by the neutral probe, mean over the ten random splits
    "cora": 87.5,
    "citeseer": 76.0,
    "chameleon": 70.0,
    "squirrel": 61.0,
    "texas": 83.0,
    "wisconsin": 84.0,
    "actor": 37.0,
}


def accuracy(reader, rows, labels, splits):
    scores = [
        reader()
        .fit(rows[split.train], labels[split.train])
        .score(rows[split.test], labels[split.test])
        for split in splits
    ]
    return 100 * float(np.mean(scores))


def nearest():
    return KNeighborsClassifier(metric="cosine")


@pytest.mark.data
def test_plain_readers_do_about_as_well_as_our_probe(cli, tmp_path):
    assert cli("train", "texas", "--out", "run", "--device", "cpu").code == 0
    assert cli("embed", "run", "--out", "nodes.npy", "--device", "cpu").code == 0
    rows, data = np.load(tmp_path / "nodes.npy"), load_dataset("texas")
    labels, splits = data.y.numpy(), make_splits("random", data.y, int(data.y.max()) + 1)
    probe = linear_probe(rows, labels, splits).strict.mean
    assert accuracy(LogisticRegression, rows, labels, splits) > probe - 2
    raw = dense(as_graph(data).features).numpy()
    assert accuracy(nearest, rows, labels, splits) >= accuracy(nearest, raw, labels, splits)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("graph", LEAST)
def test_the_shipped_settings_reach_their_score(process, graph):
    how = {"timeout": None, "OMP_NUM_THREADS": str(os.cpu_count())}
    assert process("train", graph, "--out", "run", "--seed", 0, **how).code == 0
    assert process("evaluate", "run", "--json", **how).json["strict"]["mean"] >= LEAST[graph]
