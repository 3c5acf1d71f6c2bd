import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from aspect.data.sparse import SparseMatrix
from aspect.nn.neighbours import nearest_by_cosine, similar_positives


def drawn(nodes=25, width=6, seed=0, *, binary=False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, width, dtype=torch.float64, generator=generator)
    return (x > 0.3).double() if binary else x


def slow(features, count):
    """Sorted by similarity, then by number, one row at a time."""
    similar = cosine_similarity(features.numpy()).round(9)
    found = []
    for i, row in enumerate(similar):
        others = sorted((j for j in range(len(row)) if j != i), key=lambda j: (-row[j], j))
        found.append(sorted(others[:count]) if bool(features[i].any()) else [i] * count)
    return found


@pytest.mark.parametrize("binary", [False, True], ids=["real", "binary"])
@pytest.mark.parametrize("compress", [False, True], ids=["dense", "compressed"])
@pytest.mark.parametrize("block", [1, 7, None])
@pytest.mark.parametrize("count", [1, 5, 24])
def test_they_are_the_most_similar(binary, compress, block, count):
    features = drawn(binary=binary)
    if binary:
        features[3] = 0
    given = SparseMatrix.from_dense(features) if compress else features
    assert nearest_by_cosine(given, count, block=block).tolist() == slow(features, count)


def test_single_precision_breaks_ties_alike():
    features = drawn(40, 8, binary=True) / 3
    assert nearest_by_cosine(features.float(), 6).tolist() == slow(features, 6)


def test_lengths_do_not_matter():
    features = drawn()
    lengths = torch.linspace(1e-3, 1e3, 25, dtype=torch.float64).unsqueeze(1)
    assert torch.equal(nearest_by_cosine(lengths * features, 4), nearest_by_cosine(features, 4))


def test_what_is_equal_but_for_rounding_is_equal():
    direction = drawn(1)
    lengths = torch.linspace(0.1, 7.3, 25, dtype=torch.float64).unsqueeze(1)
    first = [sorted({0, 1, 2, 3} - {i})[:3] for i in range(25)]
    assert nearest_by_cosine(lengths * direction, 3).tolist() == first


def test_none():
    assert nearest_by_cosine(drawn(), 0).shape == (25, 0)


@pytest.mark.parametrize("count", [-1, 25])
def test_more_than_there_are_is_refused(count):
    with pytest.raises(ValueError, match=rf"between 0 and 24 in number\. Got {count}\."):
        nearest_by_cosine(drawn(), count)


@pytest.mark.parametrize("compress", [False, True], ids=["dense", "compressed"])
def test_positives_are_the_node_and_its_nearest(compress):
    features = drawn(binary=True)
    features[3] = 0
    given = SparseMatrix.from_dense(features) if compress else features
    found = similar_positives(given, 4).matrix
    sets = [set(row.nonzero().flatten().tolist()) for row in found.dense()]
    assert sets == [{i, *nearest} for i, nearest in enumerate(slow(features, 4))]
    assert sets[3] == {3}
    assert found.dtype == features.dtype


def test_more_positives_than_nodes_are_all_nodes():
    assert bool(similar_positives(drawn(), 99).matrix.dense().all())
