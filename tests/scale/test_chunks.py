"""Columns fitted in pieces are encoded as those of a table in memory."""

import numpy as np
import pyarrow as pa
import pytest

from aspect.data.columns import parse_column
from aspect.data.encoder import FeatureEncoder
from aspect.data.table_files import TableFile
from aspect.errors import GraphError
from aspect.scale.chunks import encode_piece, fit_pieces


def table(**columns):
    return TableFile("the nodes", pa.table(columns), is_text=False)


def pieces(whole, rows=30):
    for start in range(0, whole.table.num_rows, rows):
        yield TableFile(whole.called, whole.table[start : start + rows], is_text=False)


@pytest.fixture
def mixed():
    drawn = np.random.default_rng(0)
    return table(
        far=drawn.normal(1e6, 1, 100),
        flag=drawn.integers(0, 2, 100),
        truth=drawn.random(100) < 0.5,
        constant=np.full(100, 3.0),
        gaps=pa.array([None if k % 9 == 0 else float(k) for k in range(100)]),
        day=pa.array(np.arange(100) * 86400, pa.timestamp("s")),
    )


@pytest.mark.parametrize("scaling", [None, "standard", "rows", "none"])
@pytest.mark.parametrize("impute", ["zero", "mean", "indicator"])
def test_pieces_are_encoded_as_the_whole(mixed, scaling, impute):
    names = mixed.names
    parsed = [parse_column(mixed, name) for name in names]
    expected = FeatureEncoder.fit(parsed, scaling=scaling, impute=impute)
    fitted = fit_pieces(pieces(mixed), names, scaling=scaling, impute=impute)
    assert fitted.feature_names == expected.feature_names
    assert [column.encoding for column in fitted.columns] == [
        column.encoding for column in expected.columns
    ]
    features = np.vstack([encode_piece(piece, fitted) for piece in pieces(mixed, 7)])
    whole = expected.encode({column.name: column for column in parsed})[0]
    np.testing.assert_allclose(features, whole, rtol=1e-5, atol=1e-5)


def test_a_bag_of_words():
    drawn = np.random.default_rng(0)
    counts = {f"w{k}": drawn.poisson(0.3, 100) for k in range(20)}
    words = table(**counts)
    parsed = [parse_column(words, name) for name in words.names]
    expected = FeatureEncoder.fit(parsed)
    fitted = fit_pieces(pieces(words), words.names, scaling=None, impute=None)
    np.testing.assert_allclose(
        encode_piece(words, fitted),
        expected.encode({column.name: column for column in parsed})[0],
        rtol=1e-6,
    )
    beside = table(**counts, age=drawn.normal(size=100))
    with pytest.raises(GraphError, match="20 columns look like a bag of words and 1 do not"):
        fit_pieces(pieces(beside), beside.names, scaling=None, impute=None)
    assert fit_pieces(pieces(beside), beside.names, scaling="none", impute=None)
