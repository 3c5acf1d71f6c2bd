from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from aspect.errors import GraphError, SettingsError
from aspect.evaluation.nearest import nearest_nodes, row_of


@pytest.fixture
def z():
    return torch.randn(40, 5, generator=torch.Generator().manual_seed(0))


def test_the_nearest_are_those_of_all_cosines(z):
    cosines = cosine_similarity(z.double().numpy())[7]
    cosines[7] = -np.inf
    expected = np.argsort(-cosines)[:6]
    found = nearest_nodes(z, 7, 6)
    assert found.rows.tolist() == expected.tolist()
    np.testing.assert_allclose(found.cosines, cosines[expected], rtol=1e-12)


def test_length_does_not_count_and_the_node_itself_is_never_among_them(z):
    lengths = torch.logspace(-20, 10, len(z)).unsqueeze(1)
    found = nearest_nodes(z * lengths, 3, 1000)
    assert found.rows.tolist() == nearest_nodes(z, 3, 39).rows.tolist()
    assert sorted([*found.rows.tolist(), 3]) == list(range(40))


def test_equals_come_in_the_order_of_their_rows():
    assert nearest_nodes([[1, 0], [2, 0], [0, 1], [1, 0], [0, 0]], 1, 4).rows.tolist() == [
        0,
        3,
        2,
        4,
    ]


def test_wrong_rows_and_counts(z):
    with pytest.raises(SettingsError, match=r"between 0 and 39\. Got 40"):
        nearest_nodes(z, 40)
    with pytest.raises(SettingsError, match=r"at least 1\. Got 0"):
        nearest_nodes(z, 0, 0)
    with pytest.raises(GraphError, match="row 1 is all zeros"):
        nearest_nodes([[1.0, 0.0], [0.0, 0.0]], 1)


def test_nodes_by_id_or_number():
    assert row_of("7", ["007", "7"], 2) == 1
    assert row_of("1", None, 2) == 1
    with pytest.raises(SettingsError, match=r"an id .* Got 'anne'\. Did you mean 'anna'"):
        row_of("anne", ["anna", "bob"], 2)
    with pytest.raises(SettingsError, match=r"a row number from 0 to 1\. Got '2'\.$"):
        row_of("2", None, 2)
