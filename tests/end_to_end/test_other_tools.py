"""Exported embeddings serve scikit-learn with its own defaults, on real graphs."""

import os

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from aspect import linear_probe, load_dataset, make_splits
from aspect.data.convert import as_graph
from aspect.data.features import dense

DATA = os.environ.get("ASPECT_DATA", "")


def accuracy(reader, rows, labels, splits):
    scores = [
        reader()
        .fit(rows[split.train], labels[split.train])
        .score(rows[split.test], labels[split.test])
        for split in splits
    ]
    return 100 * float(np.mean(scores))


@pytest.mark.skipif(not DATA, reason="needs the data sets' files: set ASPECT_DATA")
@pytest.mark.parametrize("name", ["texas", "cornell"])
def test_plain_readers_do_about_as_well_as_our_probe(cli, tmp_path, name):
    assert cli("train", name, "--out", "run", "--device", "cpu").code == 0
    assert cli("embed", "run", "--out", "nodes.npy", "--device", "cpu").code == 0
    rows, data = np.load(tmp_path / "nodes.npy"), load_dataset(name)
    labels, splits = data.y.numpy(), make_splits("random", data.y, int(data.y.max()) + 1)
    probe = linear_probe(rows, labels, splits).strict.mean
    assert accuracy(LogisticRegression, rows, labels, splits) > probe - 2

    def nearest():
        return KNeighborsClassifier(metric="cosine")

    raw = dense(as_graph(data).features).numpy()
    assert accuracy(nearest, rows, labels, splits) >= accuracy(nearest, raw, labels, splits)
